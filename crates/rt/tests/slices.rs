//! Slices of drives, and drives that are sent to another thread. Those of a block device: `block_drive`.
#![allow(clippy::unwrap_used)]

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use base::{BLOCK_BYTES, BlockCount, MemberLba};
use rt::model::{Disk, DiskParams};
use rt::{Access, Buf, Bytes, Drive, IoError, OpenDrive, OpenError, Rt, SentDrive};

const WRITE: OpenDrive = OpenDrive { read_only: false, lock: true };
const OUT_OF_RANGE: IoError = IoError::Os(22);
const DRIVE_BYTES: u64 = 16 << 20;
const ROUNDS: u64 = 20;

/// Beside the test binary, because /tmp may be a tmpfs, which has no O_DIRECT.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn drive_file(dir: &Path) -> PathBuf {
    let path = dir.join("drive");
    std::fs::File::create(&path).unwrap().set_len(DRIVE_BYTES).unwrap();
    path
}

fn blocks(fill: u8, n: usize) -> Bytes {
    Bytes::from_slice(&vec![fill; n * BLOCK_BYTES])
}

/// The byte that fills each block.
async fn fills(drive: &Drive, at: u64, n: usize) -> Vec<u8> {
    let (answer, buf) = drive.read(MemberLba(at), Buf::zeroed(n * BLOCK_BYTES)).await;
    answer.unwrap();
    let fill = |block: &[u8]| {
        assert!(block.iter().all(|b| *b == block[0]), "a block in pieces");
        block[0]
    };
    buf.chunks(BLOCK_BYTES).map(fill).collect()
}

/// Blocks 255 to 1024 of the drive are cut at 256, 512 and 1000.
async fn check_slices(whole: &Drive) {
    whole.write(MemberLba(0), blocks(9, 1100)).await.unwrap();
    let first = whole.slice(MemberLba(256), BlockCount(256));
    let second = whole.slice(MemberLba(512), BlockCount(488));
    let last = second.slice(MemberLba(480), BlockCount(8));
    for (slice, count) in [(&first, 256), (&second, 488), (&last, 8)] {
        let (info, of_whole) = (slice.info(), whole.info());
        assert_eq!((info.blocks, &info.stable_name), (BlockCount(count), &of_whole.stable_name));
        assert_eq!((&info.name, &info.serial), (&of_whole.name, &of_whole.serial));
        assert_eq!((slice.access(), slice.access_why()), (whole.access(), whole.access_why()));
    }

    first.write(MemberLba(0), blocks(1, 1)).await.unwrap();
    first.write(MemberLba(255), blocks(2, 1)).await.unwrap();
    second.write_vectored(MemberLba(0), vec![blocks(3, 1), blocks(4, 1)]).await.unwrap();
    last.write(MemberLba(0), blocks(5, 7)).await.unwrap();
    last.write(MemberLba(7), blocks(6, 1)).await.unwrap();
    assert_eq!(fills(whole, 255, 3).await, [9, 1, 9]);
    assert_eq!(fills(whole, 510, 5).await, [9, 2, 3, 4, 9]);
    assert_eq!(fills(whole, 991, 10).await, [9, 5, 5, 5, 5, 5, 5, 5, 6, 9]);
    assert_eq!(fills(&second, 479, 9).await, [9, 5, 5, 5, 5, 5, 5, 5, 6]);
    assert_eq!((fills(&first, 255, 1).await, fills(&last, 6, 2).await), (vec![2], vec![5, 6]));

    for (at, n) in [(256, 1), (255, 2), (0, 257), (u64::MAX, 1), (u64::MAX - 255, 256)] {
        let (at, len) = (MemberLba(at), n * BLOCK_BYTES);
        assert_eq!(first.write(at, blocks(7, n)).await, Err(OUT_OF_RANGE));
        assert_eq!(first.write_vectored(at, vec![blocks(7, 1); n]).await, Err(OUT_OF_RANGE));
        assert_eq!(first.deallocate(at, BlockCount(n as u64)).await, Err(OUT_OF_RANGE));
        let (answer, buf) = first.read(at, Buf::zeroed(len)).await;
        assert!(answer == Err(OUT_OF_RANGE) && buf.iter().all(|b| *b == 0));
    }
    assert_eq!(fills(whole, 255, 2).await, [9, 1]);
    assert_eq!(fills(whole, 510, 4).await, [9, 2, 3, 4]);

    first.deallocate(MemberLba(0), BlockCount(256)).await.unwrap();
    last.deallocate(MemberLba(7), BlockCount(1)).await.unwrap();
    assert_eq!(fills(whole, 255, 258).await, [&[9][..], &[0; 256], &[3]].concat());
    assert_eq!(fills(whole, 998, 3).await, [5, 0, 9]);
    second.flush().await.unwrap();
    assert_eq!(first.slice(MemberLba(256), BlockCount::ZERO).info().blocks, BlockCount::ZERO);
}

#[test]
fn a_slice_stays_within_its_range() {
    let dir = scratch();
    let path = drive_file(dir.path());
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        check_slices(&Drive::memory(&rt, "mem:16M", DRIVE_BYTES)).await;
        check_slices(&Drive::open(&rt, &path, WRITE).await.unwrap()).await;
    });
    let rt = Rt::modelled(1);
    let params = DiskParams { bytes: DRIVE_BYTES, ..DiskParams::default() };
    rt.block_on(check_slices(&Drive::modelled(&rt, &Disk::new("disk", params, 1))));
}

#[test]
#[should_panic(expected = "not within Drive(mem:1M)")]
fn a_slice_that_is_not_within_the_drive() {
    let drive = Drive::memory(&Rt::modelled(1), "mem:1M", 1 << 20);
    let _ = drive.slice(MemberLba(128), BlockCount(128)).slice(MemberLba(1), BlockCount(128));
}

#[test]
fn a_slice_counts_its_own_operations() {
    let rt = Rt::modelled(1);
    let disk = Disk::new("disk", DiskParams { bytes: DRIVE_BYTES, ..DiskParams::default() }, 1);
    rt.block_on(async {
        let whole = Drive::modelled(&rt, &disk);
        let [first, second] = [0, 2048].map(|from| whole.slice(MemberLba(from), BlockCount(2048)));
        let mut write = Box::pin(first.write(MemberLba(0), blocks(1, 1)));
        assert!(futures::poll!(&mut write).is_pending());
        assert_eq!([&whole, &first, &second].map(Drive::in_flight), [0, 1, 0]);
        let begun = rt.now();
        second.idle().await;
        whole.idle().await;
        assert_eq!(rt.now(), begun, "nobody waits for another's");
        drop(write);
        first.idle().await;
        assert!(rt.now() > begun && first.in_flight() == 0);
        assert_eq!(disk.image_read(MemberLba(0), BlockCount(1))[0], 1);
    });
}

/// Runs `f` with a drive that was sent, on a thread and in a runtime of its own.
fn there<T: Send + 'static>(
    sent: SentDrive,
    f: impl AsyncFnOnce(&Rt, Drive) -> T + Send + 'static,
) -> std::thread::JoinHandle<T> {
    std::thread::spawn(move || {
        let rt = Rt::real().unwrap();
        rt.block_on(async { f(&rt, sent.arrive(&rt).await).await })
    })
}

/// Fills a slice, round by round, many writes at a time.
async fn fill(slice: &Drive, mark: u8) {
    for round in 0..ROUNDS {
        let writes =
            (0..slice.info().blocks.0).map(|at| slice.write(MemberLba(at), blocks(filling(mark, at, round), 1)));
        assert!(futures::future::join_all(writes).await.iter().all(Result::is_ok));
    }
    slice.flush().await.unwrap();
}

fn filling(mark: u8, at: u64, round: u64) -> u8 {
    mark + ((at + round) % 100) as u8
}

fn filled(mark: u8, n: u64) -> Vec<u8> {
    (0..n).map(|at| filling(mark, at, ROUNDS - 1)).collect()
}

#[test]
fn slices_of_a_file_on_two_threads() {
    let dir = scratch();
    let path = drive_file(dir.path());
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let whole = Drive::open(&rt, &path, WRITE).await.unwrap();
        let here = whole.slice(MemberLba(0), BlockCount(512));
        let sent = whole.slice(MemberLba(512), BlockCount(600)).to_send().unwrap();
        let access = whole.access();
        let thread = there(sent, async move |_, slice: Drive| {
            assert_eq!((slice.info().blocks, slice.access()), (BlockCount(600), access));
            assert_eq!(slice.write(MemberLba(600), blocks(1, 1)).await, Err(OUT_OF_RANGE));
            // One that has come is one like others.
            let part = slice.slice(MemberLba(590), BlockCount(10));
            let again = there(part.to_send().unwrap(), async |_, part: Drive| {
                part.write(MemberLba(9), blocks(7, 1)).await.unwrap();
            });
            again.join().unwrap();
            assert_eq!(fills(&slice, 598, 2).await, [0, 7]);
            fill(&slice, 101).await;
        });
        fill(&here, 1).await;
        thread.join().unwrap();
        assert_eq!(fills(&whole, 0, 512).await, filled(1, 512));
        assert_eq!(fills(&whole, 512, 600).await, filled(101, 600));
        assert_eq!(fills(&whole, 1112, 2).await, [0, 0]);
    });
}

#[test]
fn the_lock_is_held_until_the_last_has_gone() {
    let dir = scratch();
    let path = drive_file(dir.path());
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let is_locked = async || matches!(Drive::open(&rt, &path, WRITE).await, Err(OpenError::Locked(_)));
        let whole = Drive::open(&rt, &path, WRITE).await.unwrap();
        let slice = whole.slice(MemberLba(0), BlockCount(512));
        drop(whole);
        assert!(is_locked().await, "a slice holds it");
        let sent = slice.to_send().unwrap();
        drop(slice);
        assert!(is_locked().await, "what is on its way holds it");
        let (arrived, has_arrived) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let thread = there(sent, async move |_, drive: Drive| {
            drive.write(MemberLba(0), blocks(1, 1)).await.unwrap();
            arrived.send(()).unwrap();
            may_go.recv().unwrap();
        });
        has_arrived.recv().unwrap();
        assert!(is_locked().await, "what has come holds it");
        go.send(()).unwrap();
        thread.join().unwrap();
        assert!(!is_locked().await);

        // The other way round: what was sent goes first.
        let whole = Drive::open(&rt, &path, WRITE).await.unwrap();
        there(whole.to_send().unwrap(), async |rt, drive: Drive| {
            assert_eq!(fills(&drive, 0, 1).await, [1]);
            rt.sleep(Duration::from_millis(1)).await;
        })
        .join()
        .unwrap();
        assert!(is_locked().await);
        drop(whole);
        assert!(!is_locked().await);
    });
}

#[test]
fn memory_is_sent_while_it_is_empty() {
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let whole = Drive::memory(&rt, "mem:16M", DRIVE_BYTES);
        let [first, second] = [0, 2048].map(|from| whole.slice(MemberLba(from), BlockCount(2048)));
        first.write(MemberLba(2047), blocks(1, 1)).await.unwrap();
        assert_eq!(whole.to_send().err().unwrap().kind(), ErrorKind::InvalidInput);
        assert_eq!(first.to_send().err().unwrap().kind(), ErrorKind::InvalidInput);
        there(second.to_send().unwrap(), async |_, drive: Drive| {
            assert_eq!((drive.info().blocks, drive.access()), (BlockCount(2048), Access::Memory));
            assert_eq!(fills(&drive, 0, 1).await, [0]);
            drive.write(MemberLba(2047), blocks(2, 1)).await.unwrap();
            assert_eq!(drive.write(MemberLba(2048), blocks(2, 1)).await, Err(OUT_OF_RANGE));
            assert_eq!(fills(&drive, 2047, 1).await, [2]);
        })
        .join()
        .unwrap();
        assert_eq!(fills(&second, 2047, 1).await, [0], "the two share nothing");
        second.write(MemberLba(5), blocks(3, 1)).await.unwrap();
        assert_eq!(second.to_send().err().unwrap().kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn a_modelled_drive_is_not_sent() {
    let rt = Rt::modelled(1);
    let drive = Drive::modelled(&rt, &Disk::new("disk", DiskParams::default(), 1));
    assert_eq!(drive.to_send().err().unwrap().kind(), ErrorKind::Unsupported);
}
