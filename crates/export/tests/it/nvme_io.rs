//! I/O commands over loopback: what reaches the namespace, what is answered, and how data goes.

use std::{cell::Cell, rc::Rc};

use crate::support::{
    nvme::{failed, in_every_way, with_target},
    pattern, until,
};
use export::{
    Fault,
    nvme::{
        Status,
        client::{Error, Wishes},
        entry::{NSID_ALL, Sgl, Sqe, io},
        limits::{ADMIN_CAPSULE_DATA_MAX, CAPSULE_DATA_FREE, IO_CAPSULE_DATA_MAX, TRANSFER_BYTES_MAX},
        log, request,
    },
};
use futures::future::join_all;
use rt::Bytes;

#[test]
fn each_command_reaches_the_namespace_once() {
    with_target(async |target| {
        let (_host, disk) = target.disk().await;
        target.puppet.calls();
        disk.write(4096, pattern(1, 4096), false).await.unwrap();
        disk.write(8192, pattern(2, 65_536), true).await.unwrap();
        assert!(disk.read(4096, 4096).await.unwrap() == pattern(1, 4096));
        disk.compare(8192, pattern(2, 65_536)).await.unwrap();
        disk.flush().await.unwrap();
        disk.write_zeroes(0, 1 << 20, false, false).await.unwrap();
        disk.write_zeroes(0, 32 << 20, true, true).await.unwrap();
        disk.deallocate(&[(512, 1024), (0, 0), (1 << 20, 4096)]).await.unwrap();
        assert_eq!(
            target.puppet.calls(),
            [
                "write 4096 4096 false",
                "write 8192 65536 true",
                "read 4096 4096",
                "read 8192 65536",
                "flush",
                "write_zeroes 0 1048576 false false",
                "write_zeroes 0 33554432 true true",
                "deallocate 512 1024 false",
                "deallocate 1048576 4096 false",
            ]
        );
        let counters = target.server.counters().remove(0).1;
        assert_eq!((counters.writes, counters.bytes_written, counters.reads), (2, 4096 + 65_536, 2));
        assert_eq!((counters.flushes, counters.deallocates, counters.errors, counters.in_flight), (1, 4, 0, 0));
    });
}

#[test]
fn data_goes_in_every_way() {
    for wishes in in_every_way() {
        with_target(async |target| {
            let (host, disk) = target.disk_with(&wishes).await;
            assert_eq!(host.admin.terms().header_digest, wishes.header_digest);
            let lengths = [
                512,
                CAPSULE_DATA_FREE,
                CAPSULE_DATA_FREE + 512,
                ADMIN_CAPSULE_DATA_MAX + 512,
                IO_CAPSULE_DATA_MAX,
                IO_CAPSULE_DATA_MAX + 512,
                MIB,
            ];
            for (i, bytes) in lengths.into_iter().enumerate() {
                let data = pattern(i as u8 + 1, bytes as usize);
                disk.write(512, data.clone(), false).await.unwrap();
                assert!(disk.read(512, bytes).await.unwrap() == data, "{bytes} bytes, {wishes:?}");
                disk.compare(512, data).await.unwrap();
            }
        });
    }
}

const MIB: u32 = TRANSFER_BYTES_MAX;

#[test]
fn many_writes_and_reads_at_once() {
    for wishes in in_every_way() {
        with_target(async |target| {
            let (_host, disk) = target.disk_with(&wishes).await;
            let bytes = |i: u64| if i.is_multiple_of(7) { 256 << 10 } else { 4096 };
            let writes = (0..100u64).map(|i| disk.write(i << 18, pattern(i as u8, bytes(i)), false));
            assert!(join_all(writes).await.iter().all(Result::is_ok), "{wishes:?}");
            let reads = join_all((0..100u64).map(|i| disk.read(i << 18, bytes(i) as u32))).await;
            for (i, read) in reads.into_iter().enumerate() {
                assert!(read.unwrap() == pattern(i as u8, bytes(i as u64)), "{i}, {wishes:?}");
            }
        });
    }
}

/// Without flow control a read is answered by its data alone; with it a response tells the queue's head.
#[test]
fn reads_are_answered_by_data_alone_without_flow_control() {
    with_target(async |target| {
        let read = Sqe::new(io::READ, 0).with_dword(1, 1).with_dword(12, 7);
        for (flow_control, alone) in [(true, false), (false, true)] {
            let host = target.host_with(1, &Wishes { flow_control, ..Wishes::default() }).await;
            for head in [2, 3] {
                let done = host.queues[0].submit(read, None, 4096).completion().await.unwrap();
                assert_eq!((done.by_data_alone, done.cqe.head), (alone, if alone { 0 } else { head }));
            }
            let answer = host.queues[0].submit(Sqe::new(io::FLUSH, 0).with_dword(1, 1), None, 0).completion().await;
            assert_eq!(answer.unwrap().cqe.head, if flow_control { 4 } else { 0xffff });
        }
    });
}

#[test]
fn answers_come_as_they_are_ready() {
    with_target(async |target| {
        let (_host, disk) = target.disk().await;
        target.puppet.hold();
        let slow = Rc::new(Cell::new(false));
        let (held, flag) = (disk.clone(), slow.clone());
        let waiting = target.rt.spawn(async move {
            held.read(0, 512).await.unwrap();
            flag.set(true);
        });
        until(&target.rt, || target.puppet.waiting() == 1).await;
        let refused = disk.read(64 << 20, 512).await;
        assert_eq!(failed(refused), Status::LBA_OUT_OF_RANGE);
        assert!(!slow.get(), "a later command is answered before");
        target.puppet.release();
        waiting.await;
    });
}

#[test]
fn faults_become_statuses() {
    with_target(async |target| {
        let (host, disk) = target.disk().await;
        for (fault, of_read, of_write) in [
            (Fault::Medium, Status::UNRECOVERED_READ, Status::WRITE_FAULT),
            (Fault::NoSpace, Status::CAPACITY_EXCEEDED, Status::CAPACITY_EXCEEDED),
            (Fault::ReadOnly, Status::WRITE_PROTECTED, Status::WRITE_PROTECTED),
            (Fault::OutOfRange, Status::LBA_OUT_OF_RANGE, Status::LBA_OUT_OF_RANGE),
            (Fault::Misaligned, Status::INVALID_FIELD, Status::INVALID_FIELD),
            (Fault::Unavailable, Status::NAMESPACE_NOT_READY, Status::NAMESPACE_NOT_READY),
            (Fault::Gone, Status::INVALID_NAMESPACE, Status::INVALID_NAMESPACE),
        ] {
            let fail = || target.puppet.fail(fault);
            fail();
            assert_eq!(failed(disk.read(0, 512).await), of_read, "{fault}");
            fail();
            assert_eq!(failed(disk.compare(0, Bytes::zeroed(512)).await), of_read, "{fault}");
            fail();
            assert_eq!(failed(disk.write(0, Bytes::zeroed(512), false).await), of_write, "{fault}");
            fail();
            assert_eq!(failed(disk.flush().await), of_write, "{fault}");
            fail();
            assert_eq!(failed(disk.write_zeroes(0, 512, true, false).await), of_write, "{fault}");
            fail();
            assert_eq!(failed(disk.deallocate(&[(0, 512)]).await), of_write, "{fault}");
        }
        let errors = host.log(log::ERROR, 0, 64).await.unwrap().data;
        assert_eq!(u64::from_le_bytes(errors[..8].try_into().unwrap()), 42, "all are in the error log");
        assert_eq!(target.server.counters()[0].1.errors, 42);
    });
}

#[test]
fn compare_tells_whether_it_is_the_same() {
    with_target(async |target| {
        let (_host, disk) = target.disk().await;
        for bytes in [512, 4096, MIB as usize] {
            disk.write(0, pattern(3, bytes), false).await.unwrap();
            disk.compare(0, pattern(3, bytes)).await.unwrap();
            let mut other = pattern(3, bytes).to_vec();
            *other.last_mut().unwrap() ^= 1;
            assert_eq!(failed(disk.compare(0, Bytes::from_slice(&other)).await), Status::COMPARE_FAILURE);
        }
    });
}

#[test]
fn refused_commands_do_not_reach_the_namespace() {
    with_target(async |target| {
        let (host, disk) = target.disk().await;
        target.puppet.calls();
        let data = |bytes| Some(Bytes::zeroed(bytes));
        let capsule = |offset, bytes| Sgl::Capsule { offset, bytes };
        let write = disk.command(io::WRITE, 0, 4096, 0).with_dword(1, 1);
        for (name, sqe, data, expected) in [
            ("an unknown opcode", Sqe::new(0x7e, 0).with_dword(1, 1), None, Status::INVALID_OPCODE),
            ("write uncorrectable", Sqe::new(0x04, 0).with_dword(1, 1), None, Status::INVALID_OPCODE),
            ("verify", Sqe::new(0x0c, 0).with_dword(1, 1), None, Status::INVALID_OPCODE),
            ("a reservation", Sqe::new(0x0d, 0).with_dword(1, 1), None, Status::INVALID_OPCODE),
            ("copy", Sqe::new(0x19, 0).with_dword(1, 1), None, Status::INVALID_OPCODE),
            ("a flush with data", Sqe::new(io::FLUSH, 0).with_dword(1, 1), data(512), Status::DATA_LENGTH_INVALID),
            ("namespace 0", write.with_dword(1, 0), data(4096), Status::INVALID_NAMESPACE),
            ("a namespace that is not there", write.with_dword(1, 2), data(4096), Status::INVALID_NAMESPACE),
            ("a write to all namespaces", write.with_dword(1, NSID_ALL), data(4096), Status::INVALID_NAMESPACE),
            ("fused", write.with(1, &[0x41]), data(4096), Status::INVALID_FIELD),
            ("protection information", write.with_dword(12, 7 | 1 << 29), data(4096), Status::INVALID_FIELD),
            ("past the end", write.with(40, &(131_072u64 - 7).to_le_bytes()), data(4096), Status::LBA_OUT_OF_RANGE),
            ("far past the end", write.with(40, &u64::MAX.to_le_bytes()), data(4096), Status::LBA_OUT_OF_RANGE),
            ("more blocks than data", write.with_dword(12, 15), data(4096), Status::DATA_LENGTH_INVALID),
            ("fewer blocks than data", write.with_dword(12, 6), data(4096), Status::DATA_LENGTH_INVALID),
            ("an offset", write.with_sgl(capsule(4, 4096)), data(4096), Status::SGL_OFFSET_INVALID),
            (
                "a keyed descriptor",
                write.with_sgl(capsule(0, 4096)).with(39, &[0x40]),
                data(4096),
                Status::SGL_TYPE_INVALID,
            ),
            ("PRPs", write.with_sgl(capsule(0, 4096)).with(1, &[0]), data(4096), Status::INVALID_FIELD),
            (
                "over MDTS",
                disk.command(io::WRITE, 0, u64::from(MIB) + 512, 0).with_dword(1, 1),
                data(512),
                Status::INVALID_FIELD,
            ),
        ] {
            let done = host.queues[0].run(sqe, data, 0).await;
            assert_eq!(failed(done), expected, "{name}");
        }
        assert_eq!(failed(disk.deallocate(&[(0, 512), (64 << 20, 512)]).await), Status::LBA_OUT_OF_RANGE);
        assert_eq!(failed(disk.read(0, MIB + 512).await), Status::INVALID_FIELD);
        assert!(target.puppet.calls().is_empty());
        disk.flush().await.unwrap();
    });
}

#[test]
fn hints_and_flushes_of_all_namespaces() {
    with_target(async |target| {
        let (host, disk) = target.disk().await;
        target.list.attach(crate::support::nvme::NQN, 2, target.puppet.clone());
        target.puppet.calls();
        host.queues[0].run(Sqe::new(io::FLUSH, 0).with_dword(1, NSID_ALL), None, 0).await.unwrap();
        let hint = Sqe::new(io::DATASET_MANAGEMENT, 0).with_dword(10, 0).with_dword(11, 3);
        disk.run(hint, Some(Bytes::zeroed(16)), 0).await.unwrap();
        assert_eq!(target.puppet.calls(), ["flush"], "the second namespace is not known yet");
        assert_eq!(request::RANGE_BYTES, 16);
    });
}

/// Linux sends room for 256 ranges, however many it means.
#[test]
fn a_deallocation_with_more_data_than_ranges() {
    with_target(async |target| {
        for in_capsule in [true, false] {
            let (_host, disk) = target.disk_with(&Wishes { in_capsule, ..Wishes::default() }).await;
            target.puppet.calls();
            let mut data = vec![0xff; 4096];
            data[..16].copy_from_slice(&[0, 0, 0, 0, 8, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0]);
            let sqe = Sqe::new(io::DATASET_MANAGEMENT, 0).with_dword(11, request::DATASET_DEALLOCATE);
            disk.run(sqe, Some(Bytes::from_slice(&data)), 0).await.unwrap();
            assert_eq!(target.puppet.calls(), ["deallocate 8192 4096 false"]);
        }
    });
}

/// Data that arrives damaged has no effect, and the connection goes on.
#[test]
fn a_wrong_data_digest_fails_the_command_alone() {
    with_target(async |target| {
        use export::nvme::pdu::{self, To, kind};
        let wishes = Wishes { data_digest: true, ..Wishes::default() };
        let (host, disk) = target.disk_with(&wishes).await;
        target.puppet.calls();
        let link = &host.queues[0];
        let sqe = disk.command(io::WRITE, 0, 512, 0).with_dword(1, 1).with(2, &[0xee, 0xee]);
        let sqe = sqe.with_sgl(Sgl::Capsule { offset: 0, bytes: 512 });
        let data = [pattern(1, 512)];
        let encoded = pdu::encode(kind::CAPSULE_CMD, 0, &sqe.0, &data, To::Controller, &link.terms());
        let damaged = encoded.tail.iter().map(|b| !b).collect::<Vec<_>>();
        link.send_raw(&[&encoded.head[..], &data[0], &damaged].concat());
        // Its answer is for a command that the link does not know: it ends the link, not the server's side.
        assert_eq!(link.ended(&target.rt).await, Error::Protocol("an answer to nothing that was asked"));
        assert!(target.puppet.calls().is_empty(), "the write has no effect");
        let log = host.log(log::ERROR, 0, 64).await.unwrap().data;
        assert_eq!(u16::from_le_bytes([log[12], log[13]]) >> 1, Status::TRANSPORT_ERROR.0);
    });
}

/// A command whose data does not come.
#[test]
fn a_write_by_r2t_whose_host_leaves_has_no_effect() {
    with_target(async |target| {
        use export::nvme::pdu::{self, To, kind};
        let (host, disk) = target.disk().await;
        target.puppet.calls();
        let link = &host.queues[0];
        let sqe = disk.command(io::WRITE, 0, 65_536, 0).with_dword(1, 1).with_sgl(Sgl::Transport { bytes: 65_536 });
        link.send_raw(&pdu::encode(kind::CAPSULE_CMD, 0, &sqe.0, &[], To::Controller, &link.terms()).head);
        // The link does not know the command that the R2T is for, and leaves.
        assert_eq!(link.ended(&target.rt).await, Error::Protocol("an R2T for nothing that was asked"));
        until(&target.rt, || target.server.connections() == 1).await;
        assert!(target.puppet.calls().is_empty());
        host.keep_alive().await.unwrap();
    });
}
