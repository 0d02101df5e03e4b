//! fio's JSON, one file or a directory of them.
//!
//! Without `group_reporting` fio tells each clone of a job (`numjobs`) on its own: they are one load, and become one. The
//! logs that bench-fio leaves beside a file (`NAME-iodepth-D-numjobs-N_iops.1.log`) are its seconds.

use std::fs;
use std::path::{Path, PathBuf};

use super::Found;
use crate::error::Error;
use crate::fio_json::{self, Job};
use crate::fio_log;
use crate::model::{Load, Second};

/// What bench-fio calls its jobs.
const BENCH_FIO: &str = "FIOJOB";
/// Files of a directory that are looked at, at most.
const FILES_MAX: usize = 10_000;

/// Jobs of one file that did anything.
pub fn file(text: &str) -> Result<Vec<Found>, Error> {
    let output = fio_json::parse(text)?;
    let version = output.version.clone();
    let jobs = over_hosts(of_clones(output.jobs.into_iter().filter(|j| j.figures.iops.is_some()).collect()));
    Ok(jobs.into_iter().map(|j| found(j, &version)).collect())
}

/// Clones of a job, which come one after the other, as the load that they are: what was asked for is told of all of them
/// by each. Where some are missing the rest stay as they are.
fn of_clones(jobs: Vec<Job>) -> Vec<Job> {
    let (mut all, mut at) = (vec![], 0);
    while let Some(first) = jobs.get(at) {
        let count = first.load.threads.unwrap_or(1) as usize;
        let is_clone = |j: &Job| (&j.name, &j.host, &j.options) == (&first.name, &first.host, &first.options);
        let apart = count > 1 && !first.options.iter().any(|(name, _)| name == "group_reporting");
        let clones = jobs[at..].iter().take(count).take_while(|j| is_clone(j)).count();
        match fio_json::together(&jobs[at..at + clones.max(1)]).filter(|_| apart && clones == count) {
            Some(one) => {
                all.push(Job { asked_iops: first.asked_iops, ..one });
                at += clones;
            }
            None => {
                all.push(first.clone());
                at += 1;
            }
        }
    }
    all
}

/// The seconds of a file's only job, from the logs that bench-fio leaves in its directory.
fn logged(path: &Path, load: &Load, options: &[(String, String)]) -> Vec<Second> {
    let get = |name: &str| options.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    // Lines of other times are not seconds.
    let (Some("1000"), Some(log)) = (get("log_avg_msec"), get("write_iops_log")) else { return vec![] };
    // What bench-fio calls the logs has the directory of its own; only the last part is here, too.
    let (Some(dir), Some(stem)) = (path.parent(), Path::new(log).file_name()) else { return vec![] };
    let threads = load.threads.unwrap_or(1);
    let read = |what: &str| {
        let one = |nth: u32| {
            let name = format!("{}_{what}.{nth}.log", stem.to_string_lossy());
            fs::read_to_string(dir.join(name)).ok()
        };
        // One file for each clone; without one of them the sum would be too small.
        (1..=threads).map(one).collect::<Option<Vec<String>>>().map(|all| all.concat())
    };
    read("iops").map_or(vec![], |rates| fio_log::series(&rates, &read("lat").unwrap_or_default()))
}

/// Jobs of one name that a client had on several hosts are one load of all of them.
fn over_hosts(jobs: Vec<Job>) -> Vec<Job> {
    let mut groups: Vec<Vec<Job>> = vec![];
    for job in jobs {
        let same = |group: &&mut Vec<Job>| {
            let other = &group[0];
            job.host.is_some()
                && group.iter().all(|o| o.host.is_some() && o.host != job.host)
                && (&other.name, &other.load) == (&job.name, &job.load)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(job),
            None => groups.push(vec![job]),
        }
    }
    let one = |group: Vec<Job>| {
        let hosts = u32::try_from(group.len()).ok().filter(|_| group[0].host.is_some());
        let mut all = fio_json::together(&group)?;
        all.load.hosts = hosts;
        Some(all)
    };
    groups.into_iter().filter_map(one).collect()
}

/// All files below a directory that fio wrote; others are passed over.
pub fn directory(dir: &Path) -> Result<Vec<(String, Vec<Found>)>, Error> {
    let mut paths = vec![];
    walk(dir, &mut paths)?;
    paths.sort();
    let mut files = vec![];
    for path in paths {
        let text = fs::read_to_string(&path).map_err(|e| Error::file(&path, e))?;
        if let Ok(mut found) = file(&text)
            && !found.is_empty()
        {
            if let [only] = &mut found[..] {
                only.series = logged(&path, &only.load, &only.options);
            }
            // bench-fio calls every job the same: the file has the name.
            let stem = path.file_stem().map_or(String::new(), |s| s.to_string_lossy().into_owned());
            found.iter_mut().filter(|f| f.name == BENCH_FIO).for_each(|f| f.name.clone_from(&stem));
            let name = path.strip_prefix(dir).unwrap_or(&path).display().to_string();
            files.push((name, found));
        }
    }
    if files.is_empty() {
        return Err(Error::format(dir.display().to_string(), "it holds no JSON of fio"));
    }
    Ok(files)
}

fn walk(dir: &Path, paths: &mut Vec<PathBuf>) -> Result<(), Error> {
    for entry in fs::read_dir(dir).map_err(|e| Error::file(dir, e))? {
        let entry = entry.map_err(|e| Error::file(dir, e))?;
        let kind = entry.file_type().map_err(|e| Error::file(entry.path(), e))?;
        // Links may lead in circles.
        if kind.is_dir() {
            walk(&entry.path(), paths)?;
        } else if kind.is_file() && entry.path().extension().is_some_and(|e| e == "json") {
            paths.push(entry.path());
        }
        if paths.len() > FILES_MAX {
            return Err(Error::format(dir.display().to_string(), format!("it holds more than {FILES_MAX} files")));
        }
    }
    Ok(())
}

fn found(job: Job, version: &str) -> Found {
    let options: Vec<String> = job.options.iter().map(|(name, value)| format!("--{name}={value}")).collect();
    let mut note = version.to_owned();
    if let Some(range) = fio_json::block_range(&job.options) {
        note.push_str(&format!("; requests of {range}"));
    }
    Found {
        name: job.name,
        load: job.load,
        figures: job.figures,
        bins: job.bins,
        asked_iops: job.asked_iops,
        asked_seconds: job.asked_seconds,
        errors: Some((job.errors, job.short)),
        command: Some(format!("fio {}", options.join(" "))),
        note,
        options: job.options,
        ..Found::default()
    }
}
