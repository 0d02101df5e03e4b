//! A file system with files in it goes in and comes out again, whatever happens meanwhile.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use e2e::failure::require;
use e2e::{OrFail, Result, tools};

use super::{Case, files};
use crate::fixture::{Lab, Served};

/// The cases.
pub const CASES: &[Case] = &[
    Case { name: "ext4", about: "an image with files, in and out; e2fsck is content, files are equal", run: plain },
    Case { name: "ext4-drive-fail", about: "the same while two members fail", run: drive_fail },
    Case {
        name: "ext4-sigkill",
        about: "the same with SIGKILL on the way in, after it, and on the way out",
        run: sigkill,
    },
];

const IMAGE_MIB: usize = 64;

/// An image of a tree of files.
fn make_image(dir: &Path, seed: u64) -> Result<()> {
    let tree = dir.join("tree");
    fs::create_dir_all(&tree).or_fail("the tree")?;
    files::make_tree(&tree, seed)?;
    let size = format!("{IMAGE_MIB}M");
    tools::run(dir, "mkfs.ext4", &["-q", "-d", "tree", "image", &size]).map(drop)
}

fn copy_in(served: &Served) -> Result<()> {
    tools::run(served.dir(), "nbdcopy", &["--flush", "image", &served.uri()]).map(drop)
}

/// Copies the image out, and looks at it as the file system it is.
fn check_out(served: &Served) -> Result<()> {
    let dir = served.dir();
    let (out, unpacked) = (dir.join("out"), dir.join("unpacked"));
    for old in [&out, &unpacked] {
        if old.exists() {
            if old.is_dir() { fs::remove_dir_all(old) } else { fs::remove_file(old) }.or_fail("an old copy")?;
        }
    }
    fs::create_dir(&unpacked).or_fail("a directory")?;
    tools::run(dir, "nbdcopy", &[&served.uri(), "out"])?;
    tools::run(dir, "e2fsck", &["-fn", "out"])?;
    tools::run(dir, "debugfs", &["-R", "rdump / unpacked", "out"])?;
    files::same_tree(&dir.join("tree"), &unpacked)
}

fn plain(lab: &Lab) -> Result<()> {
    let served = lab.served("a", "5", 5, "64M")?;
    make_image(served.dir(), lab.seed)?;
    copy_in(&served)?;
    check_out(&served)
}

fn drive_fail(lab: &Lab) -> Result<()> {
    let served = lab.served("a", "6", 6, "64M")?;
    make_image(served.dir(), lab.seed + 1)?;
    let copy = tools::start(served.dir(), "nbdcopy", &["--flush", "--requests=4", "image", &served.uri()])?;
    thread::sleep(Duration::from_millis(20));
    served.fail(0)?;
    tools::finish(copy, "nbdcopy in while a drive fails")?;
    let copy = tools::start(served.dir(), "nbdcopy", &["--requests=4", &served.uri(), "null:"])?;
    served.fail(3)?;
    tools::finish(copy, "nbdcopy out while a drive fails")?;
    check_out(&served)
}

fn sigkill(lab: &Lab) -> Result<()> {
    let mut served = lab.served("a", "6", 6, "64M")?;
    make_image(served.dir(), lab.seed + 2)?;
    let copy = tools::start(served.dir(), "nbdcopy", &["--requests=1", "image", &served.uri()])?;
    thread::sleep(Duration::from_millis(15));
    served.server.kill()?;
    let cut = tools::finish(copy, "nbdcopy in, cut off");
    served.server.start()?;
    copy_in(&served)?;
    served.crash()?;
    check_out(&served)?;
    let copy = tools::start(served.dir(), "nbdcopy", &["--requests=1", &served.uri(), "null:"])?;
    thread::sleep(Duration::from_millis(5));
    served.crash()?;
    let read = tools::finish(copy, "nbdcopy out, cut off");
    require(cut.is_err() || read.is_err(), "SIGKILL during nbdcopy", || "both copies were done before it".into())?;
    check_out(&served)
}
