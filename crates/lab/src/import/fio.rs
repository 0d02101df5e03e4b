//! fio's JSON, one file or a directory of them.

use std::fs;
use std::path::{Path, PathBuf};

use super::Found;
use crate::error::Error;
use crate::fio_json::{self, Job};

/// Files of a directory that are looked at, at most.
const FILES_MAX: usize = 10_000;

/// Jobs of one file that did anything.
pub fn file(text: &str) -> Result<Vec<Found>, Error> {
    let output = fio_json::parse(text)?;
    let version = output.version.clone();
    let jobs = over_hosts(output.jobs.into_iter().filter(|j| j.figures.iops.is_some()).collect());
    Ok(jobs.into_iter().map(|j| found(j, &version)).collect())
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
        if let Ok(found) = file(&text)
            && !found.is_empty()
        {
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
    Found {
        name: job.name,
        load: job.load,
        figures: job.figures,
        bins: job.bins,
        asked_iops: job.asked_iops,
        asked_seconds: job.asked_seconds,
        errors: Some((job.errors, job.short)),
        command: Some(format!("fio {}", options.join(" "))),
        note: version.to_owned(),
    }
}
