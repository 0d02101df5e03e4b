//! `cargo xtask package`: the Debian package, from the program to the .deb, as a list of named steps.
//!
//! What is in it is told by `[package.metadata.deb]` of crates/ashlar; what it needs besides is in `package/`. Manual pages and
//! completions are printed by the program itself.
//!
//! Not here: what shows that it works (the suite `package`).

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of cargo-deb that the package was tried with.
const CARGO_DEB: &str = "3.8.0";
/// The package's changelog, from the directory of this crate.
const CHANGELOG: &str = "../package/debian/changelog";
/// Shells, and the name that a completion of each has.
const SHELLS: [(&str, &str); 3] = [("bash", "ashlar.bash"), ("zsh", "_ashlar"), ("fish", "ashlar.fish")];

/// What `cargo xtask package` is asked.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Takes target/release/ashlar as it is.
    built: bool,
    /// Compresses less.
    fast: bool,
    /// The version of the package, where it is not the program's.
    version: Option<String>,
}

impl Options {
    /// From the command line.
    ///
    /// # Errors
    /// What is not an option.
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options::default();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--built" => options.built = true,
                "--fast" => options.fast = true,
                "--version" => options.version = Some(args.next().ok_or("--version wants a version")?),
                other => return Err(format!("{other} is not known")),
            }
        }
        Ok(options)
    }
}

/// Makes the package, and says where it is.
///
/// # Errors
/// The step that failed.
pub fn make(options: &Options) -> Result<(), String> {
    let target = target()?;
    if !options.built {
        run(Command::new(cargo()).args(["build", "--release", "-p", "ashlar"]))?;
    }
    pages(&target)?;
    let tool = cargo_deb(&target)?;
    let to = target.join("package");
    fs::create_dir_all(&to).map_err(|e| format!("{}: {e}", to.display()))?;
    let mut command = Command::new(tool);
    command.args(["-p", "ashlar", "--no-build", "--strip", "-o"]).arg(&to).env("CARGO_TARGET_DIR", &target);
    if options.fast {
        command.arg("--fast");
    }
    if let Some(version) = &options.version {
        command.args(["--deb-version", version]);
    }
    run(&mut command)
}

/// The directory of all that cargo makes: this program lies in a directory of it.
fn target() -> Result<PathBuf, String> {
    let this = env::current_exe().map_err(|e| e.to_string())?;
    this.parent().and_then(Path::parent).map(Path::to_owned).ok_or_else(|| "this program lies nowhere".to_owned())
}

fn cargo() -> PathBuf {
    env::var_os("CARGO").map_or("cargo".into(), PathBuf::from)
}

/// Manual pages and completions, where the package's list of files has them.
fn pages(target: &Path) -> Result<(), String> {
    let release = target.join("release");
    let (man, completions) = (release.join("packaged/man"), release.join("packaged/completions"));
    for directory in [&man, &completions] {
        // Pages of verbs that are no longer there would stay.
        let _absent = fs::remove_dir_all(directory);
        fs::create_dir_all(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    }
    // By hand: for a native package, cargo-deb gives it the name of another kind.
    let changelog = release.join("packaged/changelog");
    let copied = fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join(CHANGELOG), &changelog);
    copied.map_err(|e| format!("{CHANGELOG}: {e}"))?;
    run(Command::new("gzip").args(["-9nf"]).arg(&changelog))?;
    let ashlar = release.join("ashlar");
    run(Command::new(&ashlar).arg("man").arg(&man))?;
    let written = fs::read_dir(&man).map_err(|e| e.to_string())?;
    // Debian wants them packed; without a time of day they are the same each time.
    run(Command::new("gzip").arg("-9n").args(written.filter_map(|entry| Some(entry.ok()?.path()))))?;
    for (shell, name) in SHELLS {
        let output = Command::new(&ashlar).args(["completion", shell]).output().map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(format!("ashlar completion {shell}: {}", output.status));
        }
        fs::write(completions.join(name), output.stdout).map_err(|e| format!("{name}: {e}"))?;
    }
    Ok(())
}

/// cargo-deb, in a place of its own: what the user has installed is left alone.
fn cargo_deb(target: &Path) -> Result<PathBuf, String> {
    let root = target.join("tools");
    let program = root.join("bin/cargo-deb");
    if !program.is_file() {
        println!("xtask: installing cargo-deb {CARGO_DEB} into {}", root.display());
        let mut install = Command::new(cargo());
        install.args(["install", "cargo-deb", "--locked", "--version", CARGO_DEB, "--root"]).arg(&root);
        // It runs for seconds: that it is compiled soon counts more than that it is quick.
        install.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
        install.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16").env("CARGO_TARGET_DIR", root.join("build"));
        run(&mut install)?;
    }
    Ok(program)
}

fn run(command: &mut Command) -> Result<(), String> {
    let shown =
        Path::new(command.get_program()).file_name().map(OsStr::to_string_lossy).unwrap_or_default().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{shown}: {status}")),
        Err(e) => Err(format!("{shown}: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options() {
        let parse = |line: &str| Options::parse(line.split_whitespace().map(str::to_owned));
        let version = Some("0.1.1".to_owned());
        assert_eq!(parse("--built --version 0.1.1"), Ok(Options { built: true, fast: false, version }));
        assert_eq!(parse(""), Ok(Options::default()));
        assert!(parse("--version").is_err() && parse("--debug").is_err());
    }

    #[test]
    fn the_list_of_files_has_what_is_made_here() {
        let list = include_str!("../../crates/ashlar/Cargo.toml");
        for (_, name) in SHELLS {
            assert!(list.contains(&format!("release/packaged/completions/{name}")), "{name}");
        }
        assert!(list.contains("release/packaged/man/*.1.gz"));
    }
}
