//! `ashlar bundle`: what support needs, in one file, without user data and without secrets.
//!
//! Invariants:
//! - nothing is read from a volume;
//! - what looks like a key is cut out of every file, and names of hosts are replaced, before anything is written;
//! - what could not be had is in the manifest, with why.

mod clean;
mod gather;

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use api::{Done, Problem};
use serde::Serialize;

use crate::context::{Context, absolute};
use crate::exit::{Finding, Outcome};
use crate::text::{self, human};
use clean::{Names, secrets_in};
use gather::Gathered;

const EXAMPLES: &str = "\
Examples:
  ashlar bundle                          writes ashlar-DATE.tar.gz here, in some 12 s
  ashlar bundle --to /tmp/b.tar.gz --quick
  ashlar bundle --check b.tar.gz         looks for anything that could be a key

It holds: versions, configuration, status and counters (three times), metrics, events, drives, kernel, the log of the service. It holds no
data of volumes. Names of hosts are replaced unless --names is given; manifest.json lists what is in it, and what is not, and why.";

/// Collect what support needs in one file, without user data and secrets
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file to write [default: ashlar-DATE.tar.gz]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Reads status and counters once instead of three times
    #[arg(long)]
    quick: bool,
    /// Keeps the names of hosts
    #[arg(long)]
    names: bool,
    /// Looks for anything that could be a key in a bundle
    #[arg(long, value_name = "FILE", conflicts_with_all = ["to", "quick", "names"])]
    check: Option<PathBuf>,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// What is in a bundle, and what is not.
#[derive(Default, Serialize)]
struct Manifest {
    program: String,
    made: String,
    names_kept: bool,
    files: Vec<Listed>,
    left_out: Vec<LeftOut>,
}

#[derive(Serialize)]
struct Listed {
    name: String,
    bytes: usize,
    /// How often something that looks like a key was cut out of it.
    cut: usize,
}

#[derive(Serialize)]
struct LeftOut {
    name: String,
    why: String,
}

/// Makes one, or looks at one.
pub fn run(context: &Context, args: &Args) -> Outcome {
    match &args.check {
        Some(file) => check(file, args.json),
        None => make(context, args),
    }
}

fn make(context: &Context, args: &Args) -> Outcome {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let stem = format!("ashlar-{}", base::utc(now).replace([' ', ':'], "-").trim_end_matches("-UTC"));
    let to = absolute(&args.to.clone().unwrap_or_else(|| PathBuf::from(format!("{stem}.tar.gz"))));
    if to.exists() {
        let (what, todo) = (format!("file {}", to.display()), "name another with --to");
        return Err(Problem::refused("file_exists", what, "it is there already", todo));
    }
    let failed = |e: std::io::Error| Problem::failed(format!("file {}", to.display()), e, "name another with --to");
    // Beside the file: it is as large as the bundle. Its own directory, which nobody else has made or enters.
    let place = to.with_file_name(format!(".{stem}.{}", std::process::id()));
    let (partial, inner) = (place.join("bundle.partial"), place.join(&stem));
    let owned = |path: &Path| DirBuilder::new().mode(0o700).create(path);
    owned(&place).and_then(|()| owned(&inner)).map_err(failed)?;
    let written = Gathered::all(context, args.quick).write(&inner, args.names, base::utc(now));
    let packed = written.and_then(|cut| {
        pack(&place, &stem, &partial)?;
        fs::set_permissions(&partial, fs::Permissions::from_mode(0o600))?;
        // Not a rename: that would take the place of another file.
        fs::hard_link(&partial, &to).map(|()| cut)
    });
    // It is our own directory.
    let _left = fs::remove_dir_all(&place);
    let (files, cut) = packed.map_err(failed)?;
    let size = fs::metadata(&to).map_or(0, |m| m.len());
    let mut done = Done::new(format!("{}: {files} files, {}", to.display(), human(size)));
    if cut > 0 {
        done.notes.push(format!("{cut} times something that looks like a key was cut out"));
    }
    done.notes.push("look into it before you send it: `tar -tzf` lists it".to_owned());
    text::print_done(args.json, &done);
    Ok(Finding::Good)
}

impl Gathered {
    /// Writes all of it into `dir`, and the manifest; how many files there are, and how often something was cut out.
    fn write(self, dir: &Path, keep_names: bool, made: String) -> std::io::Result<(usize, usize)> {
        let mut names = Names::new(keep_names);
        let program = format!("ashlar {}", env!("CARGO_PKG_VERSION"));
        let mut manifest = Manifest { program, made, names_kept: keep_names, ..Manifest::default() };
        for (name, text) in self.files {
            let (text, cut) = names.clean(&text);
            fs::write(dir.join(&name), &text)?;
            manifest.files.push(Listed { name, bytes: text.len(), cut });
        }
        manifest.left_out =
            self.left_out.into_iter().map(|(name, why)| LeftOut { name, why: names.clean(&why).0 }).collect();
        fs::write(dir.join("manifest.json"), serde_json::to_vec_pretty(&manifest)?)?;
        Ok((manifest.files.len() + 1, manifest.files.iter().map(|f| f.cut).sum()))
    }
}

/// Packs `stem` in `place`.
fn pack(place: &Path, stem: &str, to: &Path) -> std::io::Result<()> {
    let mut tar = Command::new("tar");
    tar.arg("-czf").arg(to).arg("-C").arg(place).args(["--owner=0", "--group=0", stem]);
    let ended = tar.stdin(Stdio::null()).output()?;
    if ended.status.success() {
        return Ok(());
    }
    Err(std::io::Error::other(format!("tar: {}", String::from_utf8_lossy(&ended.stderr).trim())))
}

fn check(file: &Path, json: bool) -> Outcome {
    let what = || format!("file {}", file.display());
    let output = Command::new("tar").arg("-xzOf").arg(file).stdin(Stdio::null()).output();
    let output = output.map_err(|e| Problem::failed(what(), e, "install tar"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Problem::usage(what(), why, "name a bundle: a .tar.gz file"));
    }
    let found = secrets_in(&String::from_utf8_lossy(&output.stdout));
    if found.is_empty() {
        text::print_done(json, &Done::new(format!("{}: nothing in it looks like a key", file.display())));
        return Ok(Finding::Good);
    }
    let first: Vec<&str> = found.iter().take(3).map(|s| &s[..s.len().min(12)]).collect();
    let why = format!("{} times something looks like a key: {}...", found.len(), first.join("..., "));
    Err(Problem::refused("bundle_has_keys", what(), why, "take it out before you send it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twenty secrets in the files that are gathered: none is in what is written.
    #[test]
    fn no_secret_is_written() {
        let secrets: Vec<String> = (0..5)
            .flat_map(|n| {
                [
                    format!("NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:{n}"),
                    format!("DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2{n}:"),
                    format!("ashlar_k{n}_3vQpH7mTzYw2Kd8LcRfXs5NbJ1GaEu9oViMtPqZxWy4"),
                    format!("hunter2-{n}"),
                ]
            })
            .collect();
        let mut text = String::new();
        for (n, secret) in secrets.iter().enumerate() {
            let line = match n % 4 {
                3 => format!("password = \"{secret}\"\n"),
                _ => format!("key{n}: {secret} behind\n"),
            };
            text.push_str(&line);
        }
        let json = format!("{{\"secret\":\"{}\",\"token\": \"{}\"}}\n", secrets[3], secrets[7]);
        let gathered = Gathered {
            files: vec![("config.toml".into(), text), ("status.json".into(), json)],
            left_out: vec![("x".into(), format!("failed with {}", secrets[0]))],
        };
        let dir = tempfile::tempdir().unwrap();
        let (files, cut) = gathered.write(dir.path(), false, "now".into()).unwrap();
        assert_eq!((files, cut), (3, 22));
        for entry in fs::read_dir(dir.path()).unwrap() {
            let written = fs::read_to_string(entry.unwrap().path()).unwrap();
            for secret in &secrets {
                assert!(!written.contains(secret.as_str()), "{secret} in {written}");
            }
            assert_eq!(secrets_in(&written), Vec::<String>::new(), "{written}");
        }
    }
}
