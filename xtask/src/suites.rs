//! The suites, in the order in which they run: the quickest to fail first.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The suites that make what others run.
const BUILDS: [&str; 2] = ["compile", "build"];
/// Seeds of the simulation in CI.
const SIMULATION_SEEDS: &str = "0..300";
/// Seeds of the simulation of arrays in parts in CI.
const SIMULATION_PARTS_SEEDS: &str = "0..100";
/// Mutated PDUs in CI.
const STORM_PDUS: &str = "200000";
/// The same with a core of their own for queues.
const STORM_CORES_PDUS: &str = "100000";
/// Steps of a hostile guest.
const STORM_STEPS: &str = "100000";
/// Cycles of the crash loop in CI.
const CRASH_CYCLES: &str = "60";
/// The same of an array in parts.
const CRASH_PARTS: &[&str] = &["--cycles", "36", "--parts", "2", "--raid", "5", "--no-full", "--swaps-at-least", "1"];

/// The lab's tests that want fio, nbdkit or Chromium.
const LAB_TESTS: &[&str] = &[
    "--test",
    "browser",
    "--test",
    "fooled",
    "--test",
    "hosts",
    "--test",
    "run",
    "--test",
    "states",
    "--test",
    "together",
    "--",
    "--ignored",
];

/// What a suite runs.
enum Run {
    /// cargo, with these arguments.
    Cargo(&'static [&'static str]),
    /// Tests of the workspace: `cargo test` with these arguments, after those that choose the profile and the features.
    Tests(&'static [&'static str]),
    /// A program as it is shipped, and one that was made with the tests, with planted bugs in it. It is not `cargo run -p`: that
    /// would choose other features of what is shared, and compile it again.
    Built(&'static str, &'static [&'static str]),
    Planted(&'static str, &'static [&'static str]),
}

/// One selection of packages for all tests, since it chooses the features: with another one everything is compiled again.
const TESTS: [&str; 5] = ["test", "--profile", "tests", "--workspace", "--quiet"];

/// One suite: a command that passes or does not.
pub struct Suite {
    /// Its name, for `--only`.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    run: Run,
    /// Whether it runs programs that are not ours.
    pub foreign: bool,
    /// What its output must contain to have tested anything at all.
    pub proof: Option<fn(&str) -> bool>,
    /// What must hold when it has passed.
    pub after: Option<fn() -> Result<(), String>>,
    /// After this it hangs.
    pub limit: Duration,
    /// It is slow, and runs at commits of this turn alone, of [`TURNS`], unless all suites are asked for.
    pub turn: Option<u64>,
}

/// Turns of the slow suites.
pub const TURNS: u64 = 5;

impl Suite {
    const fn new(name: &'static str, about: &'static str, minutes: u64, run: Run) -> Suite {
        let limit = Duration::from_secs(60 * minutes);
        Suite { name, about, run, foreign: false, proof: None, after: None, limit, turn: None }
    }

    /// Whether it is tests of cargo's.
    pub fn runs_tests(&self) -> bool {
        matches!(self.run, Run::Tests(_))
    }

    /// Whether this suite makes what the other one runs.
    pub fn makes_for(&self, other: &Suite) -> bool {
        match other.run {
            Run::Built(..) => self.name == BUILDS[1],
            Run::Planted(..) => self.name == BUILDS[0],
            Run::Cargo(_) | Run::Tests(_) => false,
        }
    }

    /// The command.
    ///
    /// # Errors
    /// When the system does not tell where this program lies.
    pub fn command(&self) -> io::Result<Command> {
        let cargo = || Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
        let (mut command, args) = match self.run {
            Run::Cargo(args) => (cargo(), args),
            Run::Tests(args) => {
                let mut cargo = cargo();
                cargo.args(TESTS);
                (cargo, args)
            }
            Run::Built(name, args) => (Command::new(built("release", name)?), args),
            Run::Planted(name, args) => (Command::new(built("tests", name)?), args),
        };
        command.args(args);
        Ok(command)
    }

    /// The command, for people.
    pub fn command_line(&self) -> String {
        match self.run {
            Run::Cargo(args) => format!("cargo {}", args.join(" ")),
            Run::Tests(args) => format!("cargo {} {}", TESTS.join(" "), args.join(" ")),
            Run::Built(name, args) => format!("target/release/{name} {}", args.join(" ")).trim_end().to_owned(),
            Run::Planted(name, args) => format!("target/tests/{name} {}", args.join(" ")).trim_end().to_owned(),
        }
    }
}

/// A program in the directory of a profile, beside the one this program lies in.
fn built(profile: &str, name: &str) -> io::Result<PathBuf> {
    let this = env::current_exe()?;
    let target = this.parent().and_then(Path::parent).ok_or(io::ErrorKind::NotFound)?;
    Ok(target.join(profile).join(name))
}

/// All suites, in order.
pub fn all() -> Vec<Suite> {
    vec![
        Suite::new("fmt", "every file is formatted", 2, Run::Cargo(&["fmt", "--all", "--check"])),
        Suite::new(
            "clippy",
            "no warning in any target",
            20,
            Run::Cargo(&["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        ),
        Suite::new(
            BUILDS[0],
            "every test, and the programs that run the engine in a model",
            45,
            Run::Tests(&["--lib", "--bins", "--tests", "--no-run"]),
        ),
        Suite::new(
            "unit",
            "unit and property tests",
            25,
            Run::Tests(&["--lib", "--bins", "--tests", "--no-fail-fast"]),
        ),
        Suite {
            proof: Some(some_tests_passed),
            ..Suite::new("formats", "the golden images of the format", 5, Run::Tests(&["--test", "golden"]))
        },
        // By itself, without the tests' features, so that nothing is planted.
        Suite {
            after: Some(nothing_planted),
            ..Suite::new(
                BUILDS[1],
                "every program that is used",
                20,
                Run::Cargo(&[
                    "build",
                    "--release",
                    "--workspace",
                    "--bins",
                    "--exclude",
                    "sim",
                    "--exclude",
                    "fuzz-bodies",
                ]),
            )
        },
        Suite {
            foreign: true,
            ..Suite::new(
                "counted",
                "instructions of a request, within 3 % of what they were",
                5,
                Run::Built("counted", &[]),
            )
        },
        Suite::new(
            "fuzz",
            "the corpora of the fuzz targets, and mutations of them",
            5,
            Run::Planted("fuzz-replay", &[]),
        ),
        Suite::new(
            "sim",
            "the whole array in a modelled world, by seeds",
            10,
            Run::Planted("sim", &["--seeds", SIMULATION_SEEDS, "--at-least", "3"]),
        ),
        Suite::new(
            "sim-parts",
            "arrays in parts in a modelled world, by seeds",
            6,
            Run::Planted("sim", &["--parts", SIMULATION_PARTS_SEEDS, "--at-least", "1"]),
        ),
        Suite::new("scenarios", "plans that once found something", 5, Run::Planted("sim", &["--scenario", "all"])),
        Suite {
            foreign: true,
            turn: Some(4),
            proof: Some(some_tests_passed),
            ..Suite::new("lab", "the lab with fio, and its reports in Chromium", 8, Run::Tests(LAB_TESTS))
        },
        Suite {
            foreign: true,
            ..Suite::new(
                "e2e",
                "libnbd, qemu, fio, ext4; drives lost, SIGKILL, refusals, two servers",
                15,
                Run::Built("e2e", &["--except", "lab-"]),
            )
        },
        // Four minutes; a machine that is slow may take twice that.
        Suite {
            foreign: true,
            turn: Some(0),
            ..Suite::new(
                "lab-e2e",
                "arrays through all their states: ours, md in a guest, modelled ones",
                10,
                Run::Built("e2e", &["lab-"]),
            )
        },
        Suite {
            foreign: true,
            turn: Some(1),
            ..Suite::new("kernel", "a Linux kernel in QEMU uses an array over NVMe/TCP", 6, Run::Built("kernel", &[]))
        },
        Suite {
            foreign: true,
            turn: Some(0),
            ..Suite::new(
                "drives",
                "arrays on NVMe drives in QEMU: passthrough, polled, plain",
                6,
                Run::Built("drives", &[]),
            )
        },
        Suite {
            foreign: true,
            turn: Some(1),
            ..Suite::new("boot", "systemd serves, attaches and mounts an array at boot", 8, Run::Built("boot", &[]))
        },
        // Three minutes; a machine that is slow may take twice that.
        Suite {
            foreign: true,
            turn: Some(1),
            ..Suite::new(
                "guests",
                "volumes as disks of a virtual machine, by vhost-user: SIGKILL, restarts, a rebuild",
                6,
                Run::Built("guests", &[]),
            )
        },
        // Eight minutes; a machine that is slow may take twice that. The first time it fetches a kernel.
        Suite {
            foreign: true,
            turn: Some(2),
            ..Suite::new(
                "local",
                "volumes as block devices of their own machine, and by its NVMe target: SIGKILL, restarts",
                15,
                Run::Built("local", &[]),
            )
        },
        // Four minutes. The first time it fetches a kernel.
        Suite {
            foreign: true,
            turn: Some(3),
            ..Suite::new(
                "local-newer",
                "block devices with the newest kernel that Debian has: growth in use, SIGKILL at full depth and while requests keep coming",
                12,
                Run::Built("local", &["--newer", "attach", "deep", "arriving", "grow-in-use"]),
            )
        },
        // Five minutes; most of it is the mirror's and the emulated machine's.
        Suite {
            foreign: true,
            turn: Some(3),
            ..Suite::new(
                "package",
                "the Debian package: lintian, clean roots, an upgrade under load",
                10,
                Run::Built("package", &[]),
            )
        },
        Suite {
            foreign: true,
            turn: Some(4),
            ..Suite::new(
                "api",
                "requests made from the API's description, on its socket and over TLS: no answer is a failure",
                6,
                Run::Built("api", &[]),
            )
        },
        Suite::new(
            "storm",
            "mutated NVMe/TCP PDUs beside an honest host",
            3,
            Run::Built("storm", &["--pdus", STORM_PDUS]),
        ),
        Suite::new(
            "storm-guests",
            "a hostile guest of vhost-user beside an honest one",
            2,
            Run::Built("storm", &["--guests", STORM_STEPS]),
        ),
        Suite {
            turn: Some(0),
            ..Suite::new(
                "storm-cores",
                "the same against a server whose queues have a core of their own",
                3,
                Run::Built("storm", &["--pdus", STORM_CORES_PDUS, "--cores", "2"]),
            )
        },
        Suite::new(
            "crashloop",
            "SIGKILL again and again; every sector is accounted for",
            10,
            Run::Built("crashloop", &["--cycles", CRASH_CYCLES, "--swaps-at-least", "1"]),
        ),
        Suite {
            turn: Some(0),
            ..Suite::new(
                "crashloop-parts",
                "the same with an array in parts, on cores of their own",
                5,
                Run::Built("crashloop", CRASH_PARTS),
            )
        },
        Suite::new("demo", "the first command of the README", 10, Run::Built("ashlar", &["demo"])),
    ]
}

/// Whether the program that is shipped is free of the engine's planted bugs.
fn nothing_planted() -> Result<(), String> {
    let program =
        built("release", "ashlar").and_then(std::fs::read).map_err(|e| format!("target/release/ashlar: {e}"))?;
    let mark = b"canary7PLANTED";
    if program.windows(mark.len()).any(|w| w == mark) {
        return Err("target/release/ashlar was made with the feature `canary`".to_owned());
    }
    Ok(())
}

/// Whether any line of a test run reports passed tests.
fn some_tests_passed(output: &str) -> bool {
    output.lines().filter_map(|l| l.strip_prefix("test result: ok. ")).any(|l| !l.starts_with("0 passed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_tests_proves_nothing() {
        assert!(!some_tests_passed("running 0 tests\ntest result: ok. 0 passed; 0 failed\n"));
        assert!(some_tests_passed("test result: ok. 0 passed;\ntest result: ok. 12 passed; 0 failed\n"));
    }

    #[test]
    fn names_are_unique() {
        let all = all();
        assert!(all.iter().all(|a| all.iter().filter(|b| a.name == b.name).count() == 1));
    }
}
