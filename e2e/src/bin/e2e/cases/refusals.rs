//! What `create` and others refuse: with an exit code for scripts, the drive's name, the reason and the way out.

use std::fs::{self, File};
use std::path::Path;

use e2e::ashlar::{Ashlar, Ended};
use e2e::failure::require;
use e2e::{Failure, OrFail, Result, tools};

use super::Case;
use crate::fixture::{DRIVE, Lab};

/// The cases.
pub const CASES: &[Case] = &[
    Case { name: "refuse-mounted", about: "create on a mounted drive, --force or not", run: mounted },
    Case {
        name: "refuse-signature",
        about: "create on a drive that holds a file system; --force takes it",
        run: signature,
    },
    Case { name: "refuse-in-use", about: "create on drives of another array, served or not", run: in_use },
    Case { name: "refuse-too-small", about: "create on drives that are too small, or too few", run: too_small },
    Case { name: "refuse-usage", about: "levels, names, sizes and verbs that make no sense", run: usage },
];

fn installation(lab: &Lab) -> Result<Ashlar> {
    let dir = lab.dir.join("a");
    fs::create_dir_all(dir.join("d")).or_fail("a directory")?;
    Ok(Ashlar::new(&lab.program, &dir))
}

/// The refusal says `all` of these.
fn says(ended: Ended, all: &[&str]) -> Result<()> {
    let text = ended.err.to_lowercase();
    let missing = all.iter().find(|word| !text.contains(&word.to_lowercase()));
    match missing {
        None => Ok(()),
        Some(word) => Err(Failure::new(ended.command, format!("it does not say \"{word}\": {}", ended.err))),
    }
}

fn file(dir: &Path, name: &str, mib: u64) -> Result<()> {
    let file = File::create(dir.join(name)).or_fail(name)?;
    file.set_len(mib << 20).or_fail(name)
}

/// A block device of this machine with something mounted.
fn mounted_device() -> Result<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").or_fail("/proc/self/mountinfo")?;
    let source = |line: &str| Some(line.split_once(" - ")?.1.split(' ').nth(1)?.to_owned());
    let found = mounts.lines().filter_map(source).find(|s| s.starts_with("/dev/") && Path::new(s).exists());
    found.ok_or_else(|| {
        Failure::new("/proc/self/mountinfo", "no mounted block device is visible here: run outside of the container")
    })
}

/// Only with --dry-run: should the refusal be missing, nothing is written.
fn mounted(lab: &Lab) -> Result<()> {
    let ashlar = installation(lab)?;
    let device = mounted_device()?;
    for flags in [&["--dry-run"][..], &["--dry-run", "--force"]] {
        let mut args = vec!["create", "x", "--raid", "0", &device];
        args.extend(flags);
        let ended = ashlar.run(&args)?.expect(3)?;
        says(ended, &[&device, "in use by the system", "unmount"])?;
    }
    Ok(())
}

fn signature(lab: &Lab) -> Result<()> {
    let ashlar = installation(lab)?;
    file(ashlar.dir(), "d/0", 288)?;
    tools::run(ashlar.dir(), "mkfs.ext4", &["-q", "d/0"])?;
    let before = fs::read(ashlar.dir().join("d/0")).or_fail("the file")?;
    let create = ["create", "x", "--raid", "5", "--size", DRIVE, "d/0", "d/1", "d/2"];
    let ended = ashlar.run(&create)?.expect(3)?;
    says(ended, &["d/0", "ext4", "--force"])?;
    let after = fs::read(ashlar.dir().join("d/0")).or_fail("the file")?;
    require(before == after, "a refused create", || "the drive was written".into())?;
    let left = ashlar.dir().join("d/1").exists();
    require(!left, "a refused create", || "it left a new file behind".into())?;
    let mut forced = create.to_vec();
    forced.push("--force");
    ashlar.done(&forced).map(drop)
}

fn in_use(lab: &Lab) -> Result<()> {
    let mut served = lab.array("b", "5", 3, "16M")?;
    let create = ["create", "other", "--raid", "5", "d/0", "d/1", "d/2"];
    says(
        served.ashlar.run(&create)?.expect(3)?,
        &["d/0", "seat 0 of array lab", "known on this machine", "--take-from lab"],
    )?;
    served.server.start()?;
    // Another installation knows nothing of the server; the lock tells.
    let elsewhere = Ashlar::new(&lab.program, &lab.dir);
    let drives: Vec<String> = (0..3).map(|n| served.file(n).display().to_string()).collect();
    for force in [false, true] {
        let mut args = vec!["create", "other", "--raid", "5"];
        args.extend(drives.iter().map(String::as_str));
        if force {
            args.push("--force");
        }
        says(elsewhere.run(&args)?.expect(3)?, &[&drives[0], "lock", "stop"])?;
        says(elsewhere.run(&["wipe", &drives[0], "--yes"])?.expect(3)?, &["lock"])?;
    }
    says(served.ashlar.run(&["check", "lab"])?.expect(3)?, &["serves it", "stop"])?;
    served.server.stop()?;
    let missing = served.ashlar.run(&["create", "other", "--raid", "5", "d/0", "d/1", "d/nothing"])?;
    says(missing.expect(3)?, &["d/nothing"])
}

fn too_small(lab: &Lab) -> Result<()> {
    let ashlar = installation(lab)?;
    for n in 0..3 {
        file(ashlar.dir(), &format!("d/{n}"), 100)?;
    }
    says(ashlar.run(&["create", "x", "--raid", "5", "d/0", "d/1", "d/2"])?.expect(3)?, &["d/0", "at least"])?;
    for (raid, drives) in [("5", 1), ("6", 2), ("10", 1)] {
        let paths: Vec<String> = (0..drives).map(|n| format!("d/new{n}")).collect();
        let mut args = vec!["create", "x", "--raid", raid, "--size", DRIVE];
        args.extend(paths.iter().map(String::as_str));
        says(ashlar.run(&args)?.expect(3)?, &["at least"])?;
        let left = ashlar.dir().join("d/new0").exists();
        require(!left, "a refused create", || "it left a new file behind".into())?;
    }
    Ok(())
}

fn usage(lab: &Lab) -> Result<()> {
    let ashlar = installation(lab)?;
    let cases: [(i32, &[&str]); 8] = [
        (2, &["create", "x", "--raid", "7", "--size", DRIVE, "d/0", "d/1"]),
        (3, &["create", "../x", "--raid", "0", "--size", DRIVE, "d/0", "d/1"]),
        (2, &["create", "x", "--raid", "0", "--size", "many", "d/0", "d/1"]),
        (2, &["create", "x", "--raid", "0", "--size", DRIVE, "d/0", "d/0"]),
        (2, &["volume", "create", "nothing", "1G"]),
        (3, &["volume", "create", "no/such", "1G"]),
        (3, &["status", "nothing"]),
        (2, &["polish"]),
    ];
    for (code, args) in cases {
        ashlar.run(args)?.expect(code)?;
    }
    let left = fs::read_dir(ashlar.dir().join("d")).or_fail("the directory")?.count();
    require(left == 0, "refused verbs", || format!("they left {left} files behind"))
}
