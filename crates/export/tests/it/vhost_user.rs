//! A guest's requests over vhost-user, a server that is gone and comes back, and what it may see of that.

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use export::vhost_user_blk::{GuestSocket, Guests};
use export::{Fault, Memory, Namespace, NamespaceInfo};
use futures::future::{Either, select};
use rt::{Bytes, Rt};

use crate::support::front_end::{FEATURES, FrontEnd, INDIRECT, Machine, NEXT, WRITE};
use crate::support::{Puppet, until};

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;

const OK: u8 = 0;
const IOERR: u8 = 1;
const UNSUPP: u8 = 2;

struct World {
    rt: Rt,
    guests: Guests,
    puppet: Puppet,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl World {
    fn new(memory: Memory) -> World {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("v.sock");
        let (rt, guests) = (Rt::real().unwrap(), Guests::default());
        World { rt, guests, puppet: Puppet::from(memory), path, _directory: directory }
    }

    fn open(&self) -> GuestSocket {
        GuestSocket::open(&self.rt, &self.guests, self.puppet.clone(), &self.path).unwrap()
    }
}

fn range(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    let mut raw = sector.to_le_bytes().to_vec();
    raw.extend(sectors.to_le_bytes());
    raw.extend(flags.to_le_bytes());
    raw
}

#[test]
fn requests_of_every_type() {
    let world = World::new(Memory::new("a/v", 64 << 20));
    world.rt.block_on(async {
        let socket = world.open();
        let machine = Machine::new(&world.rt, 2);
        let front = FrontEnd::run(&machine, socket.path()).await;
        let data: Vec<u8> = (0..8192_u32).map(|n| n as u8).collect();
        for queue in 0..2 {
            let ask = |kind, sector, data: Vec<u8>, room| {
                let machine = &machine;
                async move { machine.ask(queue, kind, sector, &data, room).await }
            };
            assert_eq!(ask(OUT, 16, data.clone(), 0).await.0, OK);
            assert_eq!(ask(IN, 16, vec![], 8192).await, (OK, data.clone()));
            assert_eq!(ask(FLUSH, 0, vec![], 0).await.0, OK);
            assert_eq!(ask(WRITE_ZEROES, 0, range(16, 8, 0), 0).await.0, OK);
            assert_eq!(ask(IN, 16, vec![], 8192).await.1, [&[0; 4096][..], &data[4096..]].concat());
            assert_eq!(ask(DISCARD, 0, range(16, 16, 0), 0).await.0, OK);
            assert_eq!(ask(IN, 16, vec![], 8192).await.1, [0; 8192]);
            let (status, identity) = ask(GET_ID, 0, vec![], 20).await;
            assert_eq!((status, identity.len()), (OK, 20));
            assert!(identity.iter().all(u8::is_ascii_hexdigit));
            assert_eq!(ask(99, 0, vec![], 512).await.0, UNSUPP);
            assert_eq!(ask(IN, u64::MAX, vec![], 512).await.0, IOERR);
            assert_eq!(ask(IN, (64 << 11) - 1, vec![], 1024).await.0, IOERR);
            assert_eq!(ask(OUT, 0, vec![1; 100], 0).await.0, IOERR);
        }
        world.puppet.fail(Fault::Medium);
        assert_eq!(machine.ask(0, IN, 0, &[], 512).await.0, IOERR);
        let counters = socket.counters();
        assert_eq!((counters.writes, counters.flushes, counters.medium_errors, counters.in_flight), (2, 2, 1, 0));
        assert_eq!(socket.guests().len(), 1);
        assert!(socket.guests()[0].is_in_use);
        // What was taken is where the queue stands.
        assert_eq!(front.stop(0).await, 13);
        assert!(front.start(0, 13).await);
        assert_eq!(machine.ask(0, FLUSH, 0, &[], 0).await.0, OK);
    });
}

#[test]
fn a_table_of_descriptors_elsewhere() {
    let world = World::new(Memory::new("a/v", 64 << 20));
    world.rt.block_on(async {
        let socket = world.open();
        let machine = Machine::new(&world.rt, 1);
        let _front = FrontEnd::run(&machine, socket.path()).await;
        machine.put(0, 0, OUT, 0, &[7; 4096], 0);
        let at = machine.place(0, 0);
        let table = at + 0x8000;
        machine.descriptor(table, 0, at, 16, NEXT, 1);
        machine.descriptor(table, 1, at + 4096, 4000, NEXT, 2);
        machine.descriptor(table, 2, at + 8096, 96, NEXT, 3);
        machine.descriptor(table, 3, at + 16, 1, WRITE, 0);
        machine.descriptor(machine.queues[0].descriptors, 9, table, 64, INDIRECT, 0);
        machine.offer(0, 9).await;
        assert_eq!(machine.given_back(0).await, (9, 1));
        assert_eq!(machine.status(0, 0), OK);
        assert_eq!(machine.ask(0, IN, 0, &[], 4096).await, (OK, vec![7; 4096]));
    });
}

#[test]
fn a_guest_that_does_not_flush_has_what_it_wrote() {
    let world = World::new(Memory::new("a/v", 64 << 20));
    world.rt.block_on(async {
        let socket = world.open();
        for (features, call) in [(FEATURES, "write 0 512 false"), (FEATURES & !(1 << 9), "write 0 512 true")] {
            let machine = Machine::new(&world.rt, 1);
            let front = FrontEnd::connect(&machine, socket.path()).await;
            front.begin(features).await;
            assert!(front.start(0, 0).await);
            world.puppet.calls();
            assert_eq!(machine.ask(0, OUT, 0, &[1; 512], 0).await.0, OK);
            assert_eq!(world.puppet.calls(), [call]);
        }
    });
}

#[test]
fn what_is_read_only_says_so_and_is_not_changed() {
    let info = NamespaceInfo { read_only: true, ..Memory::new("a/v", 64 << 20).info() };
    let world = World::new(Memory::with_info(info));
    world.rt.block_on(async {
        let socket = world.open();
        let machine = Machine::new(&world.rt, 1);
        let front = FrontEnd::run(&machine, socket.path()).await;
        assert_ne!(front.number(1).await & 1 << 5, 0);
        assert_eq!(machine.ask(0, OUT, 0, &[1; 512], 0).await.0, IOERR);
        assert_eq!(machine.ask(0, DISCARD, 0, &range(0, 8, 0), 0).await.0, IOERR);
        assert_eq!(machine.ask(0, IN, 0, &[], 512).await.0, OK);
    });
}

/// Offers writes of three blocks that wait in the namespace.
async fn offer_three(world: &World, machine: &Machine) {
    world.puppet.hold();
    for n in 0..3_u16 {
        machine.put(0, n * 3, OUT, u64::from(n), &[n as u8 + 1; 512], 0);
        machine.offer(0, n * 3).await;
    }
    until(&world.rt, || world.puppet.waiting() == 3).await;
}

#[test]
fn requests_survive_a_server_that_is_gone() {
    let world = World::new(Memory::new("a/v", 64 << 20));
    world.rt.block_on(async {
        let socket = world.open();
        let machine = Machine::new(&world.rt, 2);
        let front = FrontEnd::run(&machine, socket.path()).await;
        for _ in 0..70 {
            assert_eq!(machine.ask(0, OUT, 9, &[9; 512], 0).await.0, OK);
        }
        offer_three(&world, &machine).await;
        // As if it were killed: nothing is finished.
        drop(socket);
        assert!(front.answer().await.is_none());
        machine.put(0, 9, OUT, 3, &[4; 512], 0);
        machine.offer(0, 9).await;
        assert!(machine.is_quiet(0).await);
        // Its end comes at last, and is not answered to a guest that it has no more.
        world.puppet.release();
        assert!(machine.is_quiet(0).await);
        let empty = Puppet::new("a/v", 64 << 20);
        let socket = GuestSocket::open(&world.rt, &Guests::default(), empty.clone(), &world.path).unwrap();
        let _front = FrontEnd::run(&machine, socket.path()).await;
        let mut heads = Vec::new();
        for _ in 0..4 {
            heads.push(machine.given_back(0).await.0);
        }
        heads.sort_unstable();
        assert_eq!(heads, [0, 3, 6, 9]);
        let data = empty.memory.read(0, 2048).await.unwrap().concat_all();
        assert_eq!(data, [[1; 512], [2; 512], [3; 512], [4; 512]].concat());
        assert_eq!(machine.ask(0, IN, 1, &[], 512).await, (OK, vec![2; 512]));
        assert_eq!(machine.ask(1, IN, 1, &[], 512).await, (OK, vec![2; 512]));
    });
}

/// A server that is killed may have given back what it did not come to tell of.
#[test]
fn a_guest_is_told_when_its_queue_begins() {
    let world = World::new(Memory::new("a/v", 64 << 20));
    world.rt.block_on(async {
        let socket = world.open();
        let machine = Machine::new(&world.rt, 1);
        for _ in 0..3 {
            let _front = FrontEnd::run(&machine, socket.path()).await;
            let told = machine.queues[0].call.heard();
            let patience = world.rt.sleep(Duration::from_secs(10));
            assert!(matches!(select(pin!(told), pin!(patience)).await, Either::Left((Ok(()), _))));
        }
    });
}

/// An old write must not come after a new one.
#[test]
fn a_connection_begins_when_the_requests_of_the_one_before_have_ended() {
    let world = World::new(Memory::new("a/v", 64 << 20));
    world.rt.block_on(async {
        let socket = world.open();
        let machine = Machine::new(&world.rt, 1);
        let front = FrontEnd::run(&machine, socket.path()).await;
        offer_three(&world, &machine).await;
        drop(front);
        let begun = async { FrontEnd::run(&machine, socket.path()).await };
        let hold = async {
            world.rt.sleep(Duration::from_millis(50)).await;
            assert_eq!(world.puppet.waiting(), 3, "none is done a second time yet");
            world.puppet.calls();
            world.puppet.release();
        };
        let (_front, ()) = futures::future::join(begun, hold).await;
        for _ in 0..3 {
            machine.given_back(0).await;
        }
        assert_eq!(world.puppet.calls().len(), 3, "all three are done again");
        assert!(machine.is_quiet(0).await);
    });
}

/// Nor when the first socket is gone, too, and the volume has another one.
#[test]
fn a_socket_that_is_opened_anew_knows_what_is_under_way() {
    let world = World::new(Memory::new("a/v", 64 << 20));
    world.rt.block_on(async {
        let socket = world.open();
        let machine = Machine::new(&world.rt, 1);
        let front = FrontEnd::run(&machine, socket.path()).await;
        offer_three(&world, &machine).await;
        drop((front, socket));
        world.rt.sleep(Duration::from_millis(20)).await;
        let socket = world.open();
        let begun = async { FrontEnd::run(&machine, socket.path()).await };
        let hold = async {
            world.rt.sleep(Duration::from_millis(50)).await;
            assert_eq!(world.puppet.waiting(), 3, "none is done a second time yet");
            world.puppet.release();
        };
        let (_front, ()) = futures::future::join(begun, hold).await;
        for _ in 0..3 {
            machine.given_back(0).await;
        }
        assert!(machine.is_quiet(0).await);
    });
}

/// A guest that moves to another process begins there when it was stopped here; a second guest does not.
#[test]
fn one_guest_at_a_time_has_a_volume() {
    let world = World::new(Memory::new("a/v", 64 << 20));
    world.rt.block_on(async {
        let socket = world.open();
        let machines = [Machine::new(&world.rt, 1), Machine::new(&world.rt, 1)];
        let first = FrontEnd::run(&machines[0], socket.path()).await;
        let second = FrontEnd::connect(&machines[1], socket.path()).await;
        second.begin(FEATURES).await;
        assert!(!second.start(0, 0).await, "another guest has it");
        assert!(second.answer().await.is_none(), "and this connection ends");
        assert_eq!(machines[0].ask(0, OUT, 0, &[1; 512], 0).await.0, OK);
        let second = FrontEnd::connect(&machines[1], socket.path()).await;
        second.begin(FEATURES).await;
        let stop = async {
            world.rt.sleep(Duration::from_millis(50)).await;
            assert_eq!(first.stop(0).await, 1);
        };
        assert!(futures::future::join(second.start(0, 0), stop).await.0);
        assert_eq!(machines[1].ask(0, IN, 0, &[], 512).await, (OK, vec![1; 512]));
        assert!(!first.start(0, 1).await, "it has moved");
    });
}

/// While a guest moves, its front end is told of each page that the device writes, in the middle of requests.
#[test]
fn pages_that_are_written_are_noted_while_a_guest_moves() {
    let world = World::new(Memory::new("a/v", 64 << 20));
    world.rt.block_on(async {
        let socket = world.open();
        let machine = Machine::new(&world.rt, 1);
        let front = FrontEnd::run(&machine, socket.path()).await;
        let log = rt::guest::sealed_memory(4096).unwrap();
        let noted = || {
            let mut bits = [0; 4096];
            rustix::io::pread(&log, &mut bits, 0).unwrap();
            rustix::io::pwrite(&log, &[0; 4096], 0).unwrap();
            let is_noted = |page: &u64| bits[*page as usize / 8] & (1 << (page % 8)) != 0;
            (0..8 * 4096_u64).filter(is_noted).map(|page| page * 4096).collect::<Vec<_>>()
        };
        assert_eq!(machine.ask(0, OUT, 0, &[1; 512], 0).await.0, OK);
        front.send(6, 1, &[4096_u64, 0].map(u64::to_ne_bytes).concat(), &[log.try_clone().unwrap()]);
        assert_eq!(front.answer().await.unwrap().0, []);
        assert_eq!(machine.ask(0, IN, 0, &[], 512).await.0, OK);
        assert_eq!(noted(), [0; 0], "nothing before it is asked for");
        assert!(front.say(2, &(FEATURES | 1 << 26).to_ne_bytes(), &[]).await);
        assert!(front.note_writes(0).await, "places are told again while the queue is served");
        assert_eq!(machine.ask(0, IN, 0, &[], 512).await.0, OK);
        let (used, place) = (machine.queues[0].used, machine.place(0, 0));
        assert_eq!(noted(), [used, place, place + 4096], "the ring, the status and the data");
        assert_eq!(machine.ask(0, OUT, 0, &[1; 512], 0).await.0, OK);
        assert_eq!(noted(), [used, place], "what the guest gives is not written");
        assert!(front.say(2, &FEATURES.to_ne_bytes(), &[]).await);
        assert_eq!(machine.ask(0, IN, 0, &[], 512).await.0, OK);
        assert_eq!(noted(), [0; 0], "the guest does not move any more");
    });
}

#[test]
fn a_device_that_is_reset_has_forgotten_what_its_driver_wanted() {
    let world = World::new(Memory::new("a/v", 64 << 20));
    world.rt.block_on(async {
        let socket = world.open();
        let machine = Machine::new(&world.rt, 1);
        let front = FrontEnd::run(&machine, socket.path()).await;
        assert_eq!(machine.ask(0, OUT, 0, &[1; 512], 0).await.0, OK);
        assert!(front.say(34, &[], &[]).await);
        machine.reset(0);
        // It does not say that it flushes.
        assert!(front.say(2, &(FEATURES & !(1 << 9)).to_ne_bytes(), &[]).await);
        world.puppet.calls();
        assert!(front.start(0, 0).await);
        assert_eq!(machine.ask(0, OUT, 0, &[1; 512], 0).await.0, OK);
        assert_eq!(world.puppet.calls(), ["write 0 512 true"]);
    });
}

#[test]
fn a_close_finishes_what_was_taken() {
    let world = World::new(Memory::new("a/v", 64 << 20));
    world.rt.block_on(async {
        let socket = world.open();
        let machine = Machine::new(&world.rt, 1);
        let front = FrontEnd::run(&machine, socket.path()).await;
        offer_three(&world, &machine).await;
        let release = async {
            world.rt.sleep(Duration::from_millis(20)).await;
            world.puppet.release();
        };
        futures::future::join(socket.close(), release).await;
        for n in 0..3 {
            assert_eq!(machine.given_back(0).await, (n * 3, 1));
        }
        assert!(front.answer().await.is_none() && !socket.path().exists());
        // The next one goes on where it stands.
        let socket = world.open();
        let _front = FrontEnd::run(&machine, socket.path()).await;
        assert_eq!(machine.ask(0, IN, 2, &[], 512).await, (OK, vec![3; 512]));
    });
}

#[test]
fn an_array_that_is_gone_answers_nothing() {
    let world = World::new(Memory::new("a/v", 64 << 20));
    world.rt.block_on(async {
        let socket = world.open();
        let machine = Machine::new(&world.rt, 1);
        let front = FrontEnd::run(&machine, socket.path()).await;
        world.puppet.fail(Fault::Gone);
        machine.put(0, 0, OUT, 0, &[5; 512], 0);
        machine.offer(0, 0).await;
        assert!(front.answer().await.is_none());
        assert!(machine.is_quiet(0).await);
        let _front = FrontEnd::run(&machine, socket.path()).await;
        assert_eq!(machine.given_back(0).await, (0, 1));
        assert_eq!(machine.status(0, 0), OK);
    });
}

trait Whole {
    fn concat_all(&self) -> Vec<u8>;
}

impl Whole for Vec<Bytes> {
    fn concat_all(&self) -> Vec<u8> {
        self.iter().flat_map(|part| part.to_vec()).collect()
    }
}
