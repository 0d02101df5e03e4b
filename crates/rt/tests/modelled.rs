//! The modelled world from outside: determinism, virtual time, durability, faults.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;

use base::{BLOCK_BYTES, BlockCount, MemberLba};
use rt::model::{Disk, DiskParams, Fault, OpKind, Verdict};
use rt::{Buf, Bytes, Drive, IoError, Nanos, Rt};

fn block(fill: u8) -> Bytes {
    blocks(fill, 1)
}

fn blocks(fill: u8, n: usize) -> Bytes {
    Bytes::from_slice(&vec![fill; n * BLOCK_BYTES])
}

fn small(volatile_cache: bool) -> DiskParams {
    DiskParams { bytes: 16 << 20, volatile_cache, ..DiskParams::default() }
}

fn fills(disk: &Disk, n: u64) -> Vec<u8> {
    disk.image_read(MemberLba(0), BlockCount(n)).chunks(BLOCK_BYTES).map(|b| b[0]).collect()
}

/// Many tasks write, read and flush; the hash of all answers and their instants.
fn trace(world_seed: u64, disk_seed: u64) -> u64 {
    let rt = Rt::modelled(world_seed);
    let disk = Disk::new("a", small(true), disk_seed);
    disk.set_fault(Fault::ReadErrors { one_in: 20 });
    let drive = Drive::modelled(&rt, &disk);
    let hash = Rc::new(RefCell::new(DefaultHasher::new()));
    rt.block_on(async {
        let tasks: Vec<_> = (0..32u64)
            .map(|id| {
                let (clock, drive, hash) = (rt.clone(), drive.clone(), hash.clone());
                rt.spawn(async move {
                    for round in 0..50u64 {
                        let at = MemberLba(clock.random() % 1000);
                        let ok = match round % 5 {
                            0 | 1 => drive.write(at, block(id as u8)).await.is_ok(),
                            2 | 3 => drive.read(at, Buf::zeroed(4096)).await.0.is_ok(),
                            _ => drive.flush().await.is_ok(),
                        };
                        (id, round, ok, clock.now().0).hash(&mut *hash.borrow_mut());
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
    });
    disk.power_cut(world_seed);
    disk.image_read(MemberLba(0), BlockCount(1000)).hash(&mut *hash.borrow_mut());
    hash.take().finish()
}

#[test]
fn one_seed_one_trace() {
    assert_eq!(trace(1, 2), trace(1, 2));
    assert_ne!(trace(1, 2), trace(2, 2));
    assert_ne!(trace(1, 2), trace(1, 3));
}

#[test]
fn virtual_time_jumps() {
    let rt = Rt::modelled(1);
    let wall = rt.unix_seconds();
    let begun = std::time::Instant::now();
    rt.block_on(async {
        rt.sleep(Duration::from_secs(86_400)).await;
        let hour = rt.sleep(Duration::from_secs(3600));
        let minute = rt.sleep(Duration::from_secs(60));
        futures::future::select(hour, minute).await;
    });
    assert_eq!(rt.now(), Nanos(86_460 * 1_000_000_000));
    assert_eq!(rt.unix_seconds(), wall + 86_460);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn the_order_of_ready_tasks_comes_from_the_seed() {
    let order = |seed| {
        let rt = Rt::modelled(seed);
        let order = Rc::new(RefCell::new(vec![]));
        rt.block_on(async {
            for i in 0..8 {
                let order = order.clone();
                drop(rt.spawn(async move { order.borrow_mut().push(i) }));
            }
            rt.sleep(Duration::from_nanos(1)).await;
        });
        order.take()
    };
    assert_eq!(order(5), order(5));
    assert!((0..20).any(|seed| order(seed) != order(5)));
}

#[test]
#[should_panic(expected = "deadlock: this has not ended")]
fn waiting_for_ever_panics() {
    let rt = Rt::modelled(1);
    let watching = rt.clone();
    rt.spawn(async move {
        loop {
            watching.sleep(Duration::from_secs(60)).await;
        }
    })
    .detach();
    rt.block_on(std::future::pending::<()>());
}

#[test]
#[should_panic(expected = "deadlock")]
fn deadlock_panics() {
    let rt = Rt::modelled(1);
    let disk = Disk::new("a", small(true), 1);
    disk.on_op(Some(Box::new(|_| Verdict::Hang)));
    let drive = Drive::modelled(&rt, &disk);
    let _ = rt.block_on(drive.flush());
}

#[test]
fn answers_come_out_of_order() {
    let rt = Rt::modelled(1);
    let drive = Drive::modelled(&rt, &Disk::new("a", small(true), 1));
    let order = Rc::new(RefCell::new(vec![]));
    rt.block_on(async {
        for i in 0..16u64 {
            let (drive, order) = (drive.clone(), order.clone());
            drop(rt.spawn(async move {
                drive.write(MemberLba(i), block(1)).await.unwrap();
                order.borrow_mut().push(i);
            }));
        }
        rt.yield_now().await;
        rt.sleep(Duration::from_nanos(1)).await;
        assert_eq!(drive.in_flight(), 16);
        drive.idle().await;
        rt.sleep(Duration::from_nanos(1)).await;
    });
    let order = order.take();
    assert_eq!(order.len(), 16);
    assert!(!order.is_sorted());
}

#[test]
fn a_power_cut_keeps_what_was_flushed() {
    let mut seen = [0; 3];
    for seed in 0..60 {
        let rt = Rt::modelled(seed);
        let disk = Disk::new("a", small(true), seed);
        let drive = Drive::modelled(&rt, &disk);
        rt.block_on(async {
            drive.write(MemberLba(0), blocks(1, 4)).await.unwrap();
            drive.flush().await.unwrap();
            drive.write(MemberLba(1), block(2)).await.unwrap();
            drive.write(MemberLba(2), block(3)).await.unwrap();
            drive.write(MemberLba(2), block(4)).await.unwrap();
            let (answer, buf) = drive.read(MemberLba(2), Buf::zeroed(4096)).await;
            answer.unwrap();
            assert!(buf.iter().all(|&b| b == 4), "reads see the newest");
        });
        assert_eq!(disk.unflushed(), 3);
        drop(rt);
        disk.power_cut(seed);
        assert_eq!(disk.unflushed(), 0);
        let image = disk.image_read(MemberLba(0), BlockCount(4));
        assert!(image[..4096].iter().all(|&b| b == 1) && image[3 * 4096..].iter().all(|&b| b == 1), "flushed stays");
        let second = &image[4096..8192];
        assert!(second.iter().all(|b| [1, 2].contains(b)));
        assert!(second.chunks(512).all(|s| s.iter().all(|b| *b == s[0])), "sectors do not tear");
        assert!(image[8192..12288].iter().all(|b| [1, 3, 4].contains(b)));
        let new = second.iter().filter(|&&b| b == 2).count();
        seen[match new {
            0 => 0,
            4096 => 1,
            _ => 2,
        }] += 1;
    }
    assert!(seen.iter().all(|&n| n > 5), "dropped, kept and torn all happen: {seen:?}");
}

#[test]
fn without_a_cache_answered_is_durable() {
    for seed in 0..20 {
        let rt = Rt::modelled(seed);
        let disk = Disk::new("a", small(false), seed);
        let drive = Drive::modelled(&rt, &disk);
        rt.block_on(async { drive.write(MemberLba(0), blocks(1, 3)).await.unwrap() });
        disk.power_cut(seed);
        assert_eq!(fills(&disk, 4), [1, 1, 1, 0]);
    }
}

#[test]
fn a_flush_covers_only_what_was_answered_before_it_began() {
    let mut lost = 0;
    for seed in 0..40 {
        let rt = Rt::modelled(seed);
        let params = DiskParams { write_ns: 1000, flush_ns: 50_000, ..small(true) };
        let disk = Disk::new("a", params, seed);
        let drive = Drive::modelled(&rt, &disk);
        rt.block_on(async {
            let (flush, write) = futures::future::join(drive.flush(), drive.write(MemberLba(0), block(1))).await;
            flush.unwrap();
            write.unwrap();
        });
        assert_eq!(disk.unflushed(), 1);
        disk.power_cut(seed);
        lost += usize::from(fills(&disk, 1) == [0]);
    }
    assert!(lost > 5);
}

#[test]
fn a_crash_keeps_the_answered_and_decides_what_is_in_flight() {
    let mut seen = [0; 3];
    for seed in 0..60 {
        let rt = Rt::modelled(seed);
        let disk = Disk::new("a", small(seed % 2 == 0), seed);
        let drive = Drive::modelled(&rt, &disk);
        rt.block_on(async {
            drive.write(MemberLba(0), blocks(1, 4)).await.unwrap();
            let (drive, clock) = (drive.clone(), rt.clone());
            drop(rt.spawn(async move { drive.write(MemberLba(0), blocks(2, 4)).await.unwrap() }));
            clock.sleep(Duration::from_nanos(1)).await;
        });
        drop((drive, rt));
        assert_eq!(disk.in_flight(), 1);
        assert_eq!(fills(&disk, 4), [1; 4]);
        disk.crash(seed);
        assert_eq!(disk.in_flight(), 0);
        let image = disk.image_read(MemberLba(0), BlockCount(4));
        let new = image.iter().take_while(|&&b| b == 2).count();
        assert!(image[new..].iter().all(|&b| b == 1), "a prefix");
        assert_eq!(new % 512, 0);
        seen[match new {
            0 => 0,
            16384 => 1,
            _ => 2,
        }] += 1;

        let rt = Rt::modelled(seed);
        let drive = Drive::modelled(&rt, &disk);
        rt.block_on(async { drive.read(MemberLba(0), Buf::zeroed(4096)).await.0.unwrap() });
        assert!(rt.now() < Nanos(1_000_000), "a new world does not wait for the old one's operations");
    }
    assert!(seen.iter().all(|&n| n > 5), "none, whole and part all happen: {seen:?}");
}

#[test]
fn a_dropped_future_lets_its_write_land() {
    let rt = Rt::modelled(1);
    let disk = Disk::new("a", small(true), 1);
    let drive = Drive::modelled(&rt, &disk);
    rt.block_on(async {
        let mut write = Box::pin(drive.write(MemberLba(0), block(7)));
        assert!(futures::poll!(&mut write).is_pending());
        drop(write);
        assert_eq!(drive.in_flight(), 1);
        drive.idle().await;
    });
    assert_eq!(fills(&disk, 1), [7]);
    assert_eq!(disk.in_flight(), 0);
}

#[test]
fn deallocated_reads_as_zeros_and_may_come_back() {
    let mut back = [0; 2];
    for seed in 0..40 {
        let rt = Rt::modelled(seed);
        let disk = Disk::new("a", small(true), seed);
        let drive = Drive::modelled(&rt, &disk);
        rt.block_on(async {
            drive.write(MemberLba(0), blocks(1, 40)).await.unwrap();
            drive.flush().await.unwrap();
            drive.deallocate(MemberLba(1), BlockCount(30)).await.unwrap();
            drive.write(MemberLba(5), block(9)).await.unwrap();
        });
        let mut want = vec![1; 40];
        want[1..31].fill(0);
        want[5] = 9;
        assert_eq!(fills(&disk, 40), want);
        disk.power_cut(seed);
        let after = fills(&disk, 40);
        assert_eq!((after[0], &after[31..]), (1, &[1; 9][..]));
        assert!(after[1..31].iter().all(|b| [0, 1, 9].contains(b)));
        back[usize::from(after[2] == 1)] += 1;
    }
    assert!(back.iter().all(|&n| n > 5), "{back:?}");
}

#[test]
fn verdicts() {
    let rt = Rt::modelled(1);
    let disk = Disk::new("a", small(true), 1);
    let drive = Drive::modelled(&rt, &disk);
    let next = Rc::new(RefCell::new(Verdict::Proceed));
    let seen = Rc::new(RefCell::new(vec![]));
    let (judge, log, own) = (next.clone(), seen.clone(), disk.clone());
    disk.on_op(Some(Box::new(move |op| {
        let _ = own.counters();
        log.borrow_mut().push((op.kind, op.at.0, op.blocks.0));
        *judge.borrow()
    })));
    rt.block_on(async {
        let write = |at, fill| drive.write(MemberLba(at), block(fill));
        *next.borrow_mut() = Verdict::Fail(IoError::NoSpace);
        assert_eq!(write(0, 1).await, Err(IoError::NoSpace));
        *next.borrow_mut() = Verdict::LoseWrite;
        assert_eq!(write(1, 1).await, Ok(()));
        *next.borrow_mut() = Verdict::MisdirectTo(MemberLba(3));
        assert_eq!(write(2, 1).await, Ok(()));
        *next.borrow_mut() = Verdict::DelayNs(1_000_000_000);
        assert_eq!(write(4, 2).await, Ok(()));
        assert!(rt.now() > Nanos(1_000_000_000));
        *next.borrow_mut() = Verdict::Hang;
        let hung = std::pin::pin!(drive.flush());
        let patience = rt.sleep(Duration::from_secs(10));
        let first = futures::future::select(hung, patience).await;
        assert!(matches!(first, futures::future::Either::Right(_)));
        assert_eq!(drive.in_flight(), 1);
        disk.detach();
        assert_eq!(drive.in_flight(), 0);
        *next.borrow_mut() = Verdict::Proceed;
        assert_eq!(drive.flush().await, Err(IoError::Gone));
        disk.attach();
        assert_eq!(drive.flush().await, Ok(()));
    });
    assert_eq!(fills(&disk, 5), [0, 0, 0, 1, 2]);
    assert_eq!(seen.borrow()[4], (OpKind::Flush, 0, 0));
    let c = disk.counters();
    assert_eq!((c.writes, c.flushes, c.bytes_written), (4, 3, 4 * 4096));
}

#[test]
fn faults_and_forks() {
    let rt = Rt::modelled(1);
    let disk = Disk::new("a", small(true), 1);
    let drive = Drive::modelled(&rt, &disk);
    rt.block_on(async {
        drive.write(MemberLba(0), blocks(1, 4)).await.unwrap();
        disk.set_fault(Fault::BadBlocks { at: MemberLba(1), blocks: BlockCount(1) });
        let read = |at, n: usize| drive.read(MemberLba(at), Buf::zeroed(n * 4096));
        assert_eq!(read(0, 1).await.0, Ok(()));
        assert_eq!(read(0, 4).await.0, Err(IoError::Medium));
        drive.write(MemberLba(1), block(2)).await.unwrap();
        assert_eq!(read(0, 4).await.0, Ok(()));
        let other = disk.fork();
        disk.set_fault(Fault::CorruptReads { one_in: 1 });
        let (answer, buf) = read(0, 1).await;
        assert_eq!(answer, Ok(()));
        assert_eq!(buf.iter().map(|b| (b ^ 1).count_ones()).sum::<u32>(), 1);
        disk.set_fault(Fault::None);
        disk.image_write(MemberLba(0), &[5; 8192]);
        assert_eq!(fills(&disk, 4), [5, 5, 1, 1]);
        assert_eq!(fills(&other, 4), [1, 2, 1, 1]);
        assert_eq!(read(4095, 2).await.0, Err(IoError::Os(22)), "beyond the end");
    });
}

#[test]
fn failed_writes_land_wholly_partly_or_not() {
    let mut seen = [0; 3];
    let rt = Rt::modelled(1);
    let disk = Disk::new("a", small(true), 1);
    let drive = Drive::modelled(&rt, &disk);
    rt.block_on(async {
        for i in 0..60 {
            disk.image_write(MemberLba(0), &[0; 2 * BLOCK_BYTES]);
            if i % 2 == 0 {
                disk.set_fault(Fault::WriteErrors { one_in: 1 });
                let answer = drive.write(MemberLba(0), blocks(1, 2)).await;
                assert_eq!(answer, Err(IoError::Medium));
                disk.set_fault(Fault::None);
            } else {
                let writer = drive.clone();
                let write = rt.spawn(async move { writer.write(MemberLba(0), blocks(1, 2)).await });
                rt.sleep(Duration::from_nanos(1)).await;
                disk.detach();
                assert_eq!(write.await, Err(IoError::Gone));
                disk.attach();
            }
            let image = disk.image_read(MemberLba(0), BlockCount(2));
            let new = image.iter().take_while(|&&b| b == 1).count();
            assert!(image[new..].iter().all(|&b| b == 0));
            seen[match new {
                0 => 0,
                8192 => 1,
                _ => 2,
            }] += 1;
        }
    });
    assert!(seen.iter().all(|&n| n > 5), "{seen:?}");
}

#[test]
fn memory_drive() {
    let rt = Rt::modelled(1);
    let drive = Drive::memory(&rt, "mem:8M", 8 << 20);
    assert_eq!(drive.info().blocks, BlockCount(2048));
    rt.block_on(async {
        let mut write = Box::pin(drive.write(MemberLba(255), blocks(3, 2)));
        assert!(futures::poll!(&mut write).is_pending());
        assert_eq!(drive.in_flight(), 1);
        write.await.unwrap();
        drive.flush().await.unwrap();
        let (answer, buf) = drive.read(MemberLba(254), Buf::zeroed(4 * 4096)).await;
        answer.unwrap();
        let fills: Vec<_> = buf.chunks(4096).map(|b| b[0]).collect();
        assert_eq!(fills, [0, 3, 3, 0]);
        drive.deallocate(MemberLba(255), BlockCount(1)).await.unwrap();
        let (_, buf) = drive.read(MemberLba(255), Buf::zeroed(2 * 4096)).await;
        assert_eq!((buf[0], buf[4096]), (0, 3));
        assert_eq!(drive.write(MemberLba(2047), blocks(1, 2)).await, Err(IoError::Os(22)));
        drive.idle().await;
    });
    assert_eq!(rt.now(), Nanos(0));
}

#[test]
fn a_million_operations_do_not_take_long() {
    let rt = Rt::modelled(1);
    let disk = Disk::new("a", DiskParams { bytes: 1 << 30, ..DiskParams::default() }, 1);
    let drive = Drive::modelled(&rt, &disk);
    let data = block(1);
    let begun = std::time::Instant::now();
    rt.block_on(async {
        let tasks: Vec<_> = (0..64u64)
            .map(|id| {
                let (drive, data) = (drive.clone(), data.clone());
                rt.spawn(async move {
                    let mut buf = Buf::zeroed(4096);
                    for i in 0..2000u64 {
                        let at = MemberLba((id * 2000 + i) * 7919 % (1 << 13));
                        drive.write(at, data.clone()).await.unwrap();
                        buf = drive.read(at, buf).await.1;
                        if i % 500 == 499 {
                            drive.flush().await.unwrap();
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
    });
    let ops = 64 * 2000 * 2;
    println!("{} ns per operation", begun.elapsed().as_nanos() / ops);
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn the_first_handle_ends_the_world() {
    let rt = Rt::modelled(1);
    let marker = Rc::new(());
    let (kept, inside) = (marker.clone(), rt.clone());
    drop(rt.spawn(async move {
        inside.sleep(Duration::from_secs(1)).await;
        drop(kept);
    }));
    drop(rt);
    assert_eq!(Rc::strong_count(&marker), 1);
}
