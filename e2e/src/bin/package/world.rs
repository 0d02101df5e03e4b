//! Two packages of one program, which differ in their version.

use std::env;
use std::path::{Path, PathBuf};

use e2e::failure::require;
use e2e::{Result, tools};

use crate::machine::Machine;

/// The version that is installed first, and the one that it is upgraded to.
pub const VERSIONS: [&str; 2] = ["0.1.0", "0.1.0+1"];

/// All that steps work with.
pub struct World {
    /// The program, on the machine that runs the test.
    pub program: PathBuf,
    /// A directory that goes away.
    pub dir: PathBuf,
    /// The packages, older first.
    pub packages: Vec<PathBuf>,
    /// The machine with systemd, once it is booted.
    pub machine: Option<Machine>,
}

impl World {
    /// Makes the packages of the program that is built.
    pub fn new(program: &Path, dir: &Path) -> Result<World> {
        let root = repository();
        let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let mut packages = vec![];
        for version in VERSIONS {
            let args = ["xtask", "package", "--built", "--fast", "--version", version];
            let printed = tools::run(&root, &cargo, &args)?;
            let path = printed.lines().rev().find(|line| line.ends_with(".deb")).map(PathBuf::from);
            let path = path.filter(|path| path.is_file());
            require(path.is_some(), "cargo xtask package", || printed.clone())?;
            packages.extend(path);
        }
        Ok(World { program: program.to_owned(), dir: dir.to_owned(), packages, machine: None })
    }
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
