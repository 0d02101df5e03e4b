//! Guests and front ends that break the rules: they harm only themselves.

use std::path::PathBuf;
use std::time::Duration;

use export::Memory;
use export::vhost_user_blk::{GuestSocket, Guests};
use futures::FutureExt;
use rt::Rt;
use rt::guest::sealed_memory;

use crate::support::front_end::{FEATURES, FrontEnd, GUEST, INDIRECT, MEMORY, Machine, NEXT, SIZE, WRITE, table};

fn with_socket<F: Future<Output = ()>>(test: impl FnOnce(Rt, GuestSocket) -> F) {
    let rt = Rt::real().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("v.sock");
    rt.block_on(async {
        let guests = Guests::default();
        let socket = GuestSocket::open(&rt, &guests, Memory::new("a/v", 64 << 20), &path).unwrap();
        let patience = rt.sleep(Duration::from_secs(60));
        futures::select! {
            () = std::pin::pin!(test(rt.clone(), socket).fuse()) => {}
            () = std::pin::pin!(patience.fuse()) => panic!("it hangs"),
        }
    });
}

/// Whether a queue is served.
async fn is_served(machine: &Machine, queue: usize) {
    assert_eq!(machine.ask(queue, 1, 8, &[3; 512], 0).await.0, 0);
    assert_eq!(machine.ask(queue, 0, 8, &[], 512).await, (0, vec![3; 512]));
}

#[test]
fn a_queue_that_breaks_the_rules_ends_itself_alone() {
    type Attack = fn(&Machine);
    let attacks: [(&str, Attack); 15] = [
        ("a chain with a loop", |m| {
            m.descriptor(m.queues[0].descriptors, 0, m.place(0, 0), 16, NEXT, 1);
            m.descriptor(m.queues[0].descriptors, 1, m.place(0, 0), 16, NEXT, 0);
        }),
        ("a descriptor that is its own next", |m| {
            m.descriptor(m.queues[0].descriptors, 0, m.place(0, 0), 16, NEXT, 0);
        }),
        ("a next beyond the ring", |m| {
            m.descriptor(m.queues[0].descriptors, 0, m.place(0, 0), 16, NEXT, SIZE);
        }),
        ("a head beyond the memory", |m| {
            m.descriptor(m.queues[0].descriptors, 0, GUEST + MEMORY - 8, 16, NEXT, 2);
        }),
        ("a head at the end of all addresses", |m| {
            m.descriptor(m.queues[0].descriptors, 0, u64::MAX - 7, 16, NEXT, 2);
        }),
        ("a status beyond the memory", |m| {
            m.descriptor(m.queues[0].descriptors, 2, 0, 1, WRITE, 0);
        }),
        ("a status that is only read", |m| {
            m.descriptor(m.queues[0].descriptors, 2, m.place(0, 0) + 16, 1, 0, 0);
        }),
        ("room before what is given", |m| {
            m.descriptor(m.queues[0].descriptors, 0, m.place(0, 0), 16, NEXT | WRITE, 1);
            m.descriptor(m.queues[0].descriptors, 1, m.place(0, 0), 16, NEXT, 2);
        }),
        ("a head that is too short", |m| {
            m.descriptor(m.queues[0].descriptors, 0, m.place(0, 0), 15, NEXT, 2);
        }),
        ("nothing at all", |m| {
            m.descriptor(m.queues[0].descriptors, 0, 0, 0, 0, 0);
        }),
        ("a table within a table", |m| {
            let table = m.place(0, 0) + 0x8000;
            m.descriptor(m.queues[0].descriptors, 0, table, 32, INDIRECT, 0);
            m.descriptor(table, 0, table, 32, INDIRECT, 0);
        }),
        ("a table beyond the memory", |m| {
            m.descriptor(m.queues[0].descriptors, 0, GUEST + MEMORY, 0xffff_fff0, INDIRECT, 0);
        }),
        ("a head that is none of the ring", |m| {
            m.memory.store(m.queues[0].available + 4, u16::MAX).unwrap();
            m.memory.store(m.queues[0].available + 4 + 2, u16::MAX).unwrap();
        }),
        ("an index that jumps", |m| {
            m.memory.store(m.queues[0].available + 2, 40_000).unwrap();
        }),
        ("an index that goes back", |m| {
            m.memory.store(m.queues[0].available + 2, u16::MAX).unwrap();
        }),
    ];
    with_socket(|rt, socket| async move {
        let machine = Machine::new(&rt, 2);
        let front = FrontEnd::run(&machine, socket.path()).await;
        for (what, attack) in attacks {
            is_served(&machine, 0).await;
            machine.put(0, 0, 1, 0, &[1; 512], 0);
            // The second is looked at when it is told, the rest is there before.
            match what {
                "an index that jumps" | "an index that goes back" | "a head that is none of the ring" => {
                    attack(&machine);
                    machine.queues[0].kick.tell().await;
                    if what == "a head that is none of the ring" {
                        machine.memory.store(machine.queues[0].available + 4 + 4, u16::MAX).unwrap();
                        machine.memory.store(machine.queues[0].available + 2, 3).unwrap();
                        machine.queues[0].kick.tell().await;
                    }
                }
                _ => {
                    attack(&machine);
                    machine.offer(0, 0).await;
                }
            }
            assert!(machine.is_quiet(0).await, "{what}");
            is_served(&machine, 1).await;
            // The driver begins anew, and is served again.
            front.stop(0).await;
            machine.reset(0);
            assert!(front.start(0, 0).await, "{what}");
        }
        is_served(&machine, 0).await;
    });
}

#[test]
fn requests_that_cannot_be_done_are_answered_so() {
    with_socket(|rt, socket| async move {
        let machine = Machine::new(&rt, 1);
        let _front = FrontEnd::run(&machine, socket.path()).await;
        let table = machine.queues[0].descriptors;
        for (at, bytes, flags) in [
            (GUEST + MEMORY - 256, 512, NEXT),
            (GUEST + MEMORY - 256, 512, NEXT | WRITE),
            (u64::MAX - 100, 512, NEXT),
            (u64::MAX - 100, 512, NEXT | WRITE),
            (0, !511, NEXT),
            (0, !511, NEXT | WRITE),
            (0, 0, NEXT),
            (0, 0, NEXT | WRITE),
        ] {
            let kind = u32::from(flags & WRITE == 0);
            machine.put(0, 0, kind, 0, &[1; 512], 0);
            machine.descriptor(table, 1, at, bytes, flags, 2);
            machine.offer(0, 0).await;
            assert_eq!(machine.given_back(0).await, (0, 1), "{at:#x} {bytes} {flags}");
            assert_eq!(machine.status(0, 0), 1, "{at:#x} {bytes} {flags}");
        }
        is_served(&machine, 0).await;
    });
}

/// Its event is full and blocks: the other queue, and the rest of the server, are served.
#[test]
fn a_guest_that_cannot_be_told_holds_up_nobody() {
    with_socket(|rt, socket| async move {
        let machine = Machine::new(&rt, 2);
        let front = FrontEnd::run(&machine, socket.path()).await;
        let full = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        for _ in 0..2 {
            let blocking = full.try_clone().unwrap();
            assert!(front.say(13, &0_u64.to_ne_bytes(), &[blocking]).await);
            // Said that it wants to be told, and served but not waited for.
            machine.put(0, 0, 1, 0, &[1; 512], 0);
            machine.offer(0, 0).await;
            is_served(&machine, 1).await;
        }
        front.stop(0).await;
        is_served(&machine, 1).await;
    });
}

#[test]
fn memory_that_may_be_cut_short_is_refused() {
    with_socket(|rt, socket| async move {
        let machine = Machine::new(&rt, 1);
        for file in [tempfile::tempfile().unwrap().into(), sealed_memory(4096).unwrap()] {
            let front = FrontEnd::connect(&machine, socket.path()).await;
            front.send(16, 1, &(1_u64 << 3).to_ne_bytes(), &[]);
            assert!(!front.say(5, &table(), &[file]).await);
            assert!(front.answer().await.is_none(), "the connection ends");
        }
        let _front = FrontEnd::run(&machine, socket.path()).await;
        is_served(&machine, 0).await;
    });
}

#[test]
fn regions_and_notes_that_do_not_belong_are_refused() {
    with_socket(|rt, socket| async move {
        let machine = Machine::new(&rt, 1);
        let front = FrontEnd::run(&machine, socket.path()).await;
        let mut other = table();
        other[8] ^= 1;
        other[..8].fill(0);
        assert!(!front.say(38, &other, &[]).await, "no such region");
        assert!(front.answer().await.is_none(), "the connection ends");
        let front = FrontEnd::run(&machine, socket.path()).await;
        is_served(&machine, 0).await;
        let mut asked = vec![0; 24];
        asked[16] = 1;
        asked[18] = SIZE as u8;
        front.send(31, 1, &asked, &[]);
        let (notes, mut passed) = front.answer().await.unwrap();
        assert!(!front.say(32, &notes, &[passed.remove(0).into_owned()]).await, "its queue is served");
        let _front = FrontEnd::run(&machine, socket.path()).await;
        is_served(&machine, 0).await;
    });
}

/// Messages without an end: others are served between them.
#[test]
fn a_flood_of_messages_holds_up_nobody() {
    with_socket(|rt, socket| async move {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("w.sock");
        let other = GuestSocket::open(&rt, &Guests::default(), Memory::new("a/w", 64 << 20), &path).unwrap();
        let honest = Machine::new(&rt, 1);
        let _front = FrontEnd::run(&honest, other.path()).await;
        let machine = Machine::new(&rt, 1);
        let front = FrontEnd::connect(&machine, socket.path()).await;
        // As many as the socket takes, of those that are not answered.
        let message: Vec<u8> = [3_u32, 1, 0].iter().flat_map(|number| number.to_ne_bytes()).collect();
        let fill = || {
            let mut sent = 0;
            while front.stream.send_passing(&message, &[]).is_ok() {
                sent += 1;
            }
            sent
        };
        let room = fill();
        assert!(room > 100, "{room}");
        // What the socket takes now is what was looked at since others had a turn.
        let (mut sent, mut in_a_turn) = (0, 0);
        while sent < 10 * room {
            rt.yield_now().await;
            let more = fill();
            sent += more;
            in_a_turn = in_a_turn.max(more);
        }
        assert!(in_a_turn <= room / 10, "{in_a_turn} messages were looked at while others waited, of {room}");
        is_served(&honest, 0).await;
    });
}

#[test]
fn front_ends_that_say_anything() {
    with_socket(|rt, socket| async move {
        let honest = Machine::new(&rt, 1);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("w.sock");
        let other = GuestSocket::open(&rt, &Guests::default(), Memory::new("a/w", 64 << 20), &path).unwrap();
        let _front = FrontEnd::run(&honest, other.path()).await;
        let machine = Machine::new(&rt, 1);
        let random = |below: u64| rt.random() % below;
        for _ in 0..400 {
            let front = FrontEnd::connect(&machine, socket.path()).await;
            if random(2) == 0 {
                front.send(16, 1, &(1_u64 << 3).to_ne_bytes(), &[]);
            }
            if random(2) == 0 {
                front.begin(FEATURES).await;
                front.start(0, random(3) as u16).await;
            }
            for _ in 0..random(12) {
                let lengths = [0, 8, 8, 8, 12, 20, 24, 40, 40, 72, 300];
                let mut payload = vec![0; lengths[random(lengths.len() as u64) as usize]];
                let mask = [0xff, 1, 0, 0x10][random(4) as usize];
                payload.iter_mut().for_each(|byte| *byte = (random(256) & mask) as u8);
                let passed = (0..random(3)).map(|_| sealed_memory(random(3) * 8192).unwrap()).collect::<Vec<_>>();
                let mut message = Vec::new();
                for number in [random(42) as u32, 1 | (8 * random(2) as u32), payload.len() as u32] {
                    message.extend(number.to_ne_bytes());
                }
                message.extend(&payload);
                message.truncate(message.len() - (random(20) == 0) as usize);
                if front.stream.send_passing(&message, &passed).is_err() {
                    break;
                }
            }
            if random(8) == 0 {
                is_served(&honest, 0).await;
            }
        }
        is_served(&honest, 0).await;
        assert!(socket.is_serving());
    });
}
