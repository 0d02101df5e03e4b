//! Block devices, as loop devices over scratch files. By hand and as root: `cargo test -p rt -- --ignored block_`.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

use base::{BlockCount, MemberLba};
use rt::{Access, Buf, Bytes, Drive, DriveKind, OpenDrive, OpenError, Rt, Ways, probe};

const WRITE: OpenDrive = OpenDrive { read_only: false, lock: true };

fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().unwrap();
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

/// A loop device over a file of its own; both go with it.
struct LoopDevice {
    dir: tempfile::TempDir,
    node: PathBuf,
}

impl LoopDevice {
    fn new(bytes: u64) -> LoopDevice {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let file = dir.path().join("backing");
        probe::create_sparse_file(&file, bytes).unwrap();
        let node = run("losetup", &["--find", "--show", file.to_str().unwrap()]).into();
        LoopDevice { dir, node }
    }

    fn node(&self) -> &str {
        self.node.to_str().unwrap()
    }

    fn backing(&self) -> PathBuf {
        self.dir.path().join("backing")
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        run("losetup", &["--detach", self.node()]);
    }
}

struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        run("umount", &[self.0.to_str().unwrap()]);
    }
}

fn marks(path: &Path) -> Option<&'static str> {
    let bytes = std::fs::read(path).unwrap();
    let (first, last) = (probe::FIRST_BYTES as usize, probe::LAST_BYTES as usize);
    probe::signature(&bytes[..first], &bytes[bytes.len() - last..])
}

#[test]
#[ignore = "needs root and loop devices"]
fn block_round_trip_and_locks() {
    let device = LoopDevice::new(64 << 20);
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let drive = Drive::open(&rt, &device.node, WRITE).await.unwrap();
        let info = drive.info();
        assert_eq!((info.kind, info.blocks, drive.access()), (DriveKind::Block, BlockCount(16384), Access::Direct));
        assert_eq!(info.serial.as_deref(), device.backing().to_str());
        assert!(matches!(Drive::open(&rt, &device.node, WRITE).await, Err(OpenError::Locked(_))));
        drive.write(MemberLba(5), Bytes::from_slice(&[7; 8192])).await.unwrap();
        // Memory that is aligned to nothing.
        drive.write(MemberLba(16383), Bytes::from_slice(&[8; 5000]).slice(3..4099)).await.unwrap();
        drive.flush().await.unwrap();
        drive.deallocate(MemberLba(6), BlockCount(1)).await.unwrap();
        let (answer, buf) = drive.read(MemberLba(4), Buf::zeroed(4 * 4096)).await;
        answer.unwrap();
        assert_eq!([buf[0], buf[4096], buf[8192], buf[12288]], [0, 7, 0, 0]);
        assert_eq!(drive.read(MemberLba(16383), Buf::zeroed(4096)).await.1[4095], 8);
    });
}

#[test]
#[ignore = "needs root and loop devices"]
fn block_slices_on_another_thread() {
    let device = LoopDevice::new(64 << 20);
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let whole = Drive::open(&rt, &device.node, WRITE).await.unwrap();
        let slice = whole.slice(MemberLba(8192), BlockCount(8192));
        let sent = slice.to_send().unwrap();
        whole.write(MemberLba(8191), Bytes::from_slice(&[1; 4096])).await.unwrap();
        drop((whole, slice));
        let there = std::thread::spawn(move || {
            // Nothing here can be polled, and that is said again.
            let rt = Rt::real_by(Ways::Poll).unwrap();
            rt.block_on(async {
                let drive = sent.arrive(&rt).await;
                assert_eq!((drive.info().blocks, drive.access()), (BlockCount(8192), Access::Direct));
                assert!(drive.access_why().unwrap().starts_with("not polled"));
                drive.write(MemberLba(0), Bytes::from_slice(&[7; 4096])).await.unwrap();
                drive.flush().await.unwrap();
                drive.to_send().unwrap()
            })
        });
        let back = there.join().unwrap();
        assert!(matches!(Drive::open(&rt, &device.node, WRITE).await, Err(OpenError::Locked(_))));
        let back = back.arrive(&rt).await;
        assert_eq!(back.read(MemberLba(0), Buf::zeroed(4096)).await.1[4095], 7);
        drop(back);
        let whole = Drive::open(&rt, &device.node, WRITE).await.unwrap();
        let (answer, buf) = whole.read(MemberLba(8191), Buf::zeroed(2 * 4096)).await;
        answer.unwrap();
        assert_eq!([buf[0], buf[4096]], [1, 7]);
    });
}

#[test]
#[ignore = "needs root and loop devices"]
fn block_in_use_by_the_kernel() {
    let device = LoopDevice::new(64 << 20);
    let rt = Rt::real().unwrap();
    assert_eq!(probe::mounted_at(&device.node).unwrap(), None);
    run("mkswap", &[device.node()]);
    assert_eq!(marks(&device.node), Some("swap"));
    run("mkfs.ext4", &["-q", "-F", device.node()]);
    assert_eq!(marks(&device.node), Some("ext4"));
    let place = device.dir.path().join("a b");
    std::fs::create_dir(&place).unwrap();
    run("mount", &[device.node(), place.to_str().unwrap()]);
    let mount = Mount(place.clone());
    for path in [&device.node, &device.backing()] {
        assert_eq!(probe::mounted_at(path).unwrap().as_deref(), place.to_str());
    }
    let refused = rt.block_on(Drive::open(&rt, &device.node, WRITE));
    assert!(matches!(refused, Err(OpenError::Busy(_))), "{refused:?}");
    let read = OpenDrive { read_only: true, lock: true };
    assert!(rt.block_on(Drive::open(&rt, &device.node, read)).is_ok());
    drop(mount);
    assert!(rt.block_on(Drive::open(&rt, &device.node, WRITE)).is_ok());
}
