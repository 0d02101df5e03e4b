//! The real world's drives: files through io_uring, locks, buffers of dropped futures, idling.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base::{BlockCount, MemberLba};
use rt::model::{Disk, DiskParams};
use rt::{Access, Buf, Bytes, Drive, DriveKind, IoError, OpenDrive, OpenError, Rt};

const WRITE: OpenDrive = OpenDrive { read_only: false, lock: true };

/// Beside the test binary, because /tmp may be a tmpfs, which has no O_DIRECT.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn drive_file(dir: &Path, bytes: u64) -> PathBuf {
    let path = dir.join("drive");
    std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

#[test]
fn round_trip() {
    let dir = scratch();
    let path = drive_file(dir.path(), 64 << 20);
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let drive = Drive::open(&rt, &path, WRITE).await.unwrap();
        let info = drive.info();
        assert_eq!((info.kind, info.blocks), (DriveKind::File, BlockCount(16384)));
        assert!(drive.access() == Access::Direct && info.volatile_cache);
        let data: Vec<u8> = (0..8 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let data = Bytes::from_slice(&data);
        // More operations than the queue has entries.
        let writes = (0..1024u64).map(|i| {
            let at = i as usize * 8192;
            drive.write(MemberLba(i * 2 + 7), data.slice(at..at + 8192))
        });
        let writes = futures::future::join_all(writes);
        assert!(writes.await.iter().all(Result::is_ok));
        drive.flush().await.unwrap();
        let (answer, back) = drive.read(MemberLba(7), Buf::zeroed(8 << 20)).await;
        answer.unwrap();
        assert!(back[..] == data[..]);
        drive.deallocate(MemberLba(7), BlockCount(16)).await.unwrap();
        let (answer, back) = drive.read(MemberLba(7), Buf::zeroed(17 * 4096)).await;
        answer.unwrap();
        assert!(back[..16 * 4096].iter().all(|&b| b == 0));
        assert!(back[16 * 4096..] == data[16 * 4096..17 * 4096]);
        assert_eq!(drive.in_flight(), 0);
        assert_eq!(drive.write(MemberLba(16384), Bytes::zeroed(4096)).await, Err(IoError::Os(22)));
        std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
        assert_eq!(drive.read(MemberLba(1000), Buf::zeroed(4096)).await.0, Err(IoError::Medium));
    });
}

/// More parts than the kernel takes at once, an empty one, and one that O_DIRECT would refuse as it lies.
fn parts() -> Vec<Bytes> {
    let pool: Vec<u8> = (0..64 << 10).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let pool = Bytes::from_slice(&pool);
    let block = |i: usize| pool.slice(i % 15 * 4096..(i % 15 + 1) * 4096);
    let large_and_crooked = [pool.slice(3..3 + 5 * 4096), Bytes::zeroed(0)];
    (0..600).map(block).chain(large_and_crooked).chain((600..1500).map(block)).collect()
}

async fn check_parts(drive: &Drive) {
    let parts = parts();
    let whole: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
    drive.write_vectored(MemberLba(9), parts.clone()).await.unwrap();
    let (answer, back) = drive.read(MemberLba(9), Buf::zeroed(whole.len())).await;
    answer.unwrap();
    assert!(back[..] == whole[..]);
    let beyond = drive.info().blocks - BlockCount(1504);
    assert_eq!(drive.write_vectored(MemberLba(beyond.0), parts).await, Err(IoError::Os(22)));
    assert_eq!(drive.write_vectored(MemberLba(0), Vec::new()).await, Ok(()));
}

#[test]
fn parts_lie_behind_each_other() {
    let dir = scratch();
    let path = drive_file(dir.path(), 64 << 20);
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        check_parts(&Drive::memory(&rt, "mem:64M", 64 << 20)).await;
        check_parts(&Drive::open(&rt, &path, WRITE).await.unwrap()).await;
    });
    let rt = Rt::modelled(1);
    rt.block_on(check_parts(&Drive::modelled(&rt, &Disk::new("disk", DiskParams::default(), 1))));
}

#[test]
fn a_dropped_future_leaves_its_buffer_until_the_answer() {
    let dir = scratch();
    let path = drive_file(dir.path(), 64 << 20);
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let drive = Drive::open(&rt, &path, WRITE).await.unwrap();
        for round in 0..50u8 {
            let mut writes: Vec<_> = (0..16)
                .map(|i| Box::pin(drive.write(MemberLba(i * 64), Bytes::from_slice(&vec![round + 1; 64 * 4096]))))
                .collect();
            let mut read = Box::pin(drive.read(MemberLba(4096), Buf::zeroed(1 << 20)));
            for write in &mut writes {
                assert!(futures::poll!(write).is_pending());
            }
            assert!(futures::poll!(&mut read).is_pending());
            // Now nobody but the slot table owns the buffers; the next allocations would take freed ones.
            drop((writes, read));
            let overwrite: Vec<_> = (0..17).map(|_| Buf::from_slice(&vec![0xEE; 64 * 4096])).collect();
            assert_eq!(drive.in_flight(), 17);
            drive.idle().await;
            assert_eq!(drive.in_flight(), 0);
            assert!(overwrite.iter().all(|b| b.iter().all(|&x| x == 0xEE)), "the kernel wrote to freed memory");
            let (answer, back) = drive.read(MemberLba(0), Buf::zeroed(16 * 64 * 4096)).await;
            answer.unwrap();
            assert!(back.iter().all(|&b| b == round + 1), "dropped writes land, with their own data");
        }
    });
}

#[test]
fn the_end_waits_for_operations_in_flight() {
    let dir = scratch();
    let path = drive_file(dir.path(), 64 << 20);
    let rt = Rt::real().unwrap();
    let inside = rt.clone();
    rt.block_on(async {
        let drive = Drive::open(&inside, &path, WRITE).await.unwrap();
        drop(rt.spawn(async move { drive.write(MemberLba(0), Bytes::from_slice(&vec![5; 32 << 20])).await }));
        rt.yield_now().await;
    });
    drop(rt);
    let written = std::fs::read(&path).unwrap();
    assert!(written[..4096].iter().all(|&b| b == 5));
    let rt = Rt::real().unwrap();
    rt.block_on(async { Drive::open(&rt, &path, WRITE).await.map(drop) }).expect("the end closes drives");
}

#[test]
fn one_holder_at_a_time() {
    let dir = scratch();
    let path = drive_file(dir.path(), 1 << 20);
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let read = OpenDrive { read_only: true, lock: true };
        let unlocked = OpenDrive { read_only: true, lock: false };
        let first = Drive::open(&rt, &path, WRITE).await.unwrap();
        assert!(matches!(Drive::open(&rt, &path, WRITE).await, Err(OpenError::Locked(_))));
        assert!(matches!(Drive::open(&rt, &path, read).await, Err(OpenError::Locked(_))));
        assert!(Drive::open(&rt, &path, unlocked).await.is_ok());
        drop(first);
        let _reader = Drive::open(&rt, &path, read).await.unwrap();
        let _second = Drive::open(&rt, &path, read).await.unwrap();
        assert!(matches!(Drive::open(&rt, &path, WRITE).await, Err(OpenError::Locked(_))));
    });
}

/// Not a test by itself: the process that `the_lock_dies_with_its_process` kills.
#[test]
#[ignore = "run by another test"]
fn child_that_holds_a_drive() {
    let Some(path) = std::env::var_os("RT_TEST_DRIVE") else {
        return;
    };
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let drive = Drive::open(&rt, Path::new(&path), WRITE).await.unwrap();
        println!("\nholding");
        let data = Bytes::from_slice(&vec![1; 1 << 20]);
        loop {
            let writes = (0..8).map(|i| drive.write(MemberLba(i * 256), data.clone()));
            futures::future::join_all(writes).await;
        }
    });
}

#[test]
fn the_lock_dies_with_its_process() {
    let dir = scratch();
    let path = drive_file(dir.path(), 16 << 20);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child_that_holds_a_drive", "--nocapture"])
        .env("RT_TEST_DRIVE", &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).find(|l| l == "holding");
    assert!(said.is_some());
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        assert!(matches!(Drive::open(&rt, &path, WRITE).await, Err(OpenError::Locked(_))));
        child.kill().unwrap();
        child.wait().unwrap();
        let begun = Instant::now();
        loop {
            match Drive::open(&rt, &path, WRITE).await {
                Ok(_) => break,
                Err(OpenError::Locked(_)) => rt.sleep(Duration::from_millis(10)).await,
                Err(other) => panic!("{other}"),
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "the lock outlives its process");
        }
    });
}

#[test]
fn mail_from_another_thread_wakes_the_sleeping_ring() {
    let rt = Rt::real().unwrap();
    let (sender, mut receiver) = rt.mailbox();
    let thread = std::thread::spawn(move || {
        for n in 0..100u32 {
            if n % 10 == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
            assert!(sender.send(n));
        }
    });
    rt.block_on(async {
        for n in 0..100 {
            assert_eq!(receiver.recv().await, Some(n));
        }
        assert_eq!(receiver.recv().await, None);
    });
    thread.join().unwrap();
}

#[test]
fn sleeps_are_as_long_as_asked() {
    let rt = Rt::real().unwrap();
    let begun = Instant::now();
    let wall = rt.unix_seconds();
    rt.block_on(async {
        let short = rt.sleep(Duration::from_millis(20));
        let long = rt.sleep(Duration::from_millis(60));
        futures::future::join(long, short).await;
    });
    assert!(begun.elapsed() >= Duration::from_millis(60));
    assert!(rt.now().0 >= 60_000_000);
    assert!(rt.unix_seconds() >= wall && wall > 1_700_000_000);
}

/// CPU time of this thread; nanoseconds come first in schedstat.
fn thread_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn idling_costs_no_cpu() {
    let rt = Rt::real().unwrap();
    let (_sender, mut receiver) = rt.mailbox::<()>();
    drop(rt.spawn(async move { receiver.recv().await }));
    let before = thread_cpu();
    rt.block_on(rt.sleep(Duration::from_millis(500)));
    assert!(thread_cpu() - before < Duration::from_millis(5));
}

#[test]
fn a_loop_of_memory_operations_starves_nobody() {
    let dir = scratch();
    let path = drive_file(dir.path(), 1 << 20);
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let memory = Drive::memory(&rt, "mem:1M", 1 << 20);
        let file = Drive::open(&rt, &path, WRITE).await.unwrap();
        drop(rt.spawn(async move {
            loop {
                memory.write(MemberLba(0), Bytes::zeroed(4096)).await.unwrap();
            }
        }));
        let begun = Instant::now();
        for _ in 0..10 {
            file.write(MemberLba(1), Bytes::zeroed(4096)).await.unwrap();
            rt.sleep(Duration::from_millis(1)).await;
        }
        assert!(begun.elapsed() < Duration::from_secs(10));
    });
}

/// A file that may not grow to where a write goes (`ulimit -f`) has no space there, at whatever byte that ends, and the process
/// goes on; before it, it is written.
#[test]
fn a_file_that_may_not_grow_has_no_space() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let dir = scratch();
    // Beyond what the other tests of this process write.
    let last = 1u64 << 30;
    let path = drive_file(dir.path(), 2 * last);
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let drive = Drive::open(&rt, &path, WRITE).await.unwrap();
        let before = getrlimit(Resource::Fsize);
        for odd in [0, 100, 1000, 4096] {
            setrlimit(Resource::Fsize, Rlimit { current: Some(last + odd), maximum: before.maximum }).unwrap();
            let beyond = drive.write(MemberLba(last / 4096), Bytes::zeroed(3 * 4096)).await;
            let within = drive.write(MemberLba(last / 4096 - 1), Bytes::zeroed(4096)).await;
            setrlimit(Resource::Fsize, before).unwrap();
            assert_eq!((beyond, within), (Err(IoError::NoSpace), Ok(())), "{odd}");
        }
    });
}
