//! A guest of vhost-user and its front end that do anything, beside an honest one: over a unix socket and in shared memory, as in life.
//!
//! Promises: the server never panics; a guest's memory outside of what it names stays as it was; when its front end has gone nothing of
//! it is under way or mapped; one that begins anew at the same volume is served; another guest is served as if nothing had been.
//!
//! Input: steps, one behind the other; each is a byte for what is done, and the bytes that it takes.
//!
//! Not here: guests that stop at a bad moment and more than one hostile guest at once (`export/tests`); QEMU (the suite `guests`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use export::Memory;
use export::Request;
use export::ublk::request as ublk;
use export::vhost_user_blk::message::{HEADER, Header, Message};
use export::vhost_user_blk::request::{Asked, HEAD, Limits, Verb, judge};
use export::vhost_user_blk::{GuestSocket, Guests};
use rt::Rt;
use rt::guest::sealed_memory;
use rustix::fs::FallocateFlags;

use front_end::{DATA, FrontEnd, GUEST, MEMORY, Machine, SIZE};

#[allow(dead_code, clippy::unwrap_used, reason = "the tests of the export use the rest")]
#[path = "../../../crates/export/tests/it/support/front_end.rs"]
mod front_end;

/// Bytes of each volume.
const BYTES: u64 = 1 << 20;
/// Steps of an input that are looked at.
const STEPS_MAX: usize = 64;
/// In which a front end that has gone leaves nothing; in life it takes a millisecond.
const PATIENCE: Duration = Duration::from_secs(20);
/// Where the honest guest has what nobody may touch.
const KEPT: u64 = GUEST + MEMORY - 4096;

/// Two sockets that go on from input to input, and the honest guest.
struct World {
    rt: Rt,
    hostile: GuestSocket,
    honest: &'static Machine,
    /// The honest guest's connection.
    front: FrontEnd<'static>,
    _directory: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let rt = Rt::real().expect("io_uring is to be had");
        let directory = tempfile::tempdir().expect("there is a temporary directory");
        let guests = Guests::default();
        let open = |name: &str| {
            let path: PathBuf = directory.path().join(name);
            GuestSocket::open(&rt, &guests, Memory::new(name, BYTES), &path).expect("the path is free")
        };
        let (hostile, other) = (open("hostile"), open("honest"));
        let honest: &'static Machine = Box::leak(Box::new(Machine::new(&rt, 1)));
        honest.memory.write(KEPT, &[0x5a; 4096]).expect("it is memory");
        let front = rt.block_on(FrontEnd::run(honest, other.path()));
        // It is served for as long as this process lives.
        Box::leak(Box::new(other));
        World { rt, hostile, honest, front, _directory: directory }
    }
}

/// Does what `data` says as a guest and its front end.
pub fn body(data: &[u8]) {
    thread_local! {
        static WORLD: &'static World = Box::leak(Box::new(World::new()));
    }
    pure(data);
    WORLD.with(|world| {
        world.rt.block_on(async {
            let patience = std::pin::pin!(world.rt.sleep(PATIENCE));
            let work = std::pin::pin!(act_and_judge(world, data));
            let ended = futures::future::select(work, patience).await;
            assert!(matches!(ended, futures::future::Either::Left(_)), "it hangs");
        });
    });
}

async fn act_and_judge(world: &World, data: &[u8]) {
    act(world, data).await;
    while !world.hostile.guests().is_empty() || world.hostile.counters().in_flight > 0 {
        world.rt.sleep(Duration::from_millis(1)).await;
    }
    // One that begins anew.
    let machine = Machine::new(&world.rt, 1);
    let front = FrontEnd::run(&machine, world.hostile.path()).await;
    is_served(&machine).await;
    drop(front);
    is_served(world.honest).await;
    assert!(world.front.stream.peer().starts_with("unix"), "the honest guest's connection stays");
    let mut kept = [0; 4096];
    world.honest.memory.read(KEPT, &mut kept).expect("it is memory");
    assert!(kept.iter().all(|byte| *byte == 0x5a), "another guest's memory was written");
}

async fn is_served(machine: &Machine) {
    assert_eq!(machine.ask(0, 1, 8, &[7; 512], 0).await.0, 0, "a write is done");
    assert_eq!(machine.ask(0, 0, 8, &[], 512).await, (0, vec![7; 512]), "and read back");
}

/// The rest of an input.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let bytes = N.min(self.0.len());
        taken[..bytes].copy_from_slice(&self.0[..bytes]);
        self.0 = &self.0[bytes..];
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    fn two(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    fn run(&mut self) -> Vec<u8> {
        let bytes = usize::from(self.byte()).min(self.0.len());
        let (run, rest) = self.0.split_at(bytes);
        self.0 = rest;
        run.to_vec()
    }

    /// An address: one of those at which something is, a little off.
    fn address(&mut self, machine: &Machine) -> u64 {
        let queue = &machine.queues[0];
        let places = [
            DATA,
            queue.descriptors,
            queue.available,
            queue.used,
            GUEST,
            GUEST + MEMORY - 8,
            u64::MAX - 7,
            0,
            GUEST + MEMORY,
            DATA + 4096,
        ];
        let place = places[usize::from(self.byte()) % places.len()];
        place.wrapping_add(u64::from(self.two()))
    }
}

async fn act(world: &World, data: &[u8]) {
    let machine = Machine::new(&world.rt, 2);
    let mut front = FrontEnd::run(&machine, world.hostile.path()).await;
    let mut input = Input(data);
    for _ in 0..STEPS_MAX {
        if input.0.is_empty() {
            break;
        }
        front = step(world, &machine, front, &mut input).await;
    }
}

async fn step<'a>(world: &World, machine: &'a Machine, front: FrontEnd<'a>, input: &mut Input<'_>) -> FrontEnd<'a> {
    match input.byte() % 11 {
        // Anything, anywhere.
        0 => {
            let at = input.address(machine);
            let _beyond = machine.memory.write(at, &input.run());
        }
        1 => {
            let (table, index) = (machine.queues[usize::from(input.byte() & 1)].descriptors, input.two() % SIZE);
            let at = input.address(machine);
            let bytes = u32::from_le_bytes(input.take());
            machine.descriptor(table, index, at, bytes, input.two() & 7, input.two());
        }
        // A head, and an index that may jump.
        2 => {
            let queue = &machine.queues[usize::from(input.byte() & 1)];
            let (head, by) = (input.two(), input.byte());
            let index = machine.memory.load(queue.available + 2).unwrap_or(0);
            let place = queue.available + 4 + u64::from(index % SIZE) * 2;
            let _beyond = machine.memory.store(place, head);
            let _beyond = machine.memory.store(queue.available + 2, index.wrapping_add(u16::from(by)));
            queue.kick.tell().await;
        }
        // A message, with descriptors or without.
        3 => {
            let (request, flags) = (u32::from(input.byte() % 45), 1 | u32::from(input.byte() & 12));
            let payload = input.run();
            let passed = (0..input.byte() % 3).filter_map(|n| sealed_memory(u64::from(n) * 8192).ok());
            let mut message: Vec<u8> =
                [request, flags, payload.len() as u32].iter().flat_map(|number| number.to_ne_bytes()).collect();
            message.extend(payload);
            let _ended = front.stream.send_passing(&message, &passed.collect::<Vec<_>>());
        }
        // A request as it should be.
        4 => {
            let (queue, first) = (usize::from(input.byte() & 1), input.two() % (SIZE - 3));
            let (kind, sector, room) = (u32::from(input.byte() % 16), u64::from(input.two()), u32::from(input.two()));
            machine.put(queue, first, kind, sector, &input.run(), room);
            machine.offer(queue, first).await;
        }
        5 => {
            for _ in 0..input.byte() {
                world.rt.yield_now().await;
            }
        }
        // Memory that goes under the server: it cannot be cut, and what is punched out is zeroes.
        6 => {
            let cut = rustix::fs::ftruncate(&machine.file, u64::from(input.two()) << 8);
            assert!(cut.is_err(), "sealed memory was cut");
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let (from, pages) = (u64::from(input.two()) << 12, u64::from(input.byte()) + 1);
            let _beyond = rustix::fs::fallocate(&machine.file, flags, from % MEMORY, pages << 12);
        }
        // The notes of what is in flight.
        7 => {
            if let Some((file, _)) = &*machine.inflight.borrow() {
                let _short = rustix::io::pwrite(file, &input.run(), u64::from(input.two()) % 2048);
            }
        }
        // The connection breaks and another one comes, with the same memory and notes.
        8 => {
            drop(front);
            for queue in &machine.queues {
                let _within = machine.memory.store(queue.used + 2, 0);
            }
            while !world.hostile.guests().is_empty() {
                world.rt.sleep(Duration::from_millis(1)).await;
            }
            return begun_anew(machine, world.hostile.path()).await;
        }
        9 => machine.queues[usize::from(input.byte() & 1)].kick.tell().await,
        _ => machine.reset(usize::from(input.byte() & 1)),
    }
    front
}

/// Whatever is in memory, queues are begun: a ring that breaks the rules ends when it is looked at.
async fn begun_anew<'a>(machine: &'a Machine, path: &Path) -> FrontEnd<'a> {
    let front = FrontEnd::connect(machine, path).await;
    front.begin(front_end::FEATURES).await;
    for queue in 0..machine.queues.len() {
        front.start(queue, 0).await;
    }
    front
}

/// The pure functions on the same bytes.
fn pure(data: &[u8]) {
    let mut input = Input(data);
    let raw: [u8; HEADER] = input.take();
    if let Ok(header) = Header::parse(&raw) {
        assert!(header.bytes <= 2048, "no payload is longer");
    }
    let payload = input.0;
    for request in 0..45 {
        let _unknown = Message::parse(request, payload, vec![]);
    }
    let asked = Asked {
        head: input.take::<HEAD>(),
        sent: u64::from_le_bytes(input.take()),
        room: u64::from_le_bytes(input.take()),
        range: input.take(),
    };
    for block in [512, 4096] {
        for read_only in [false, true] {
            let limits = Limits { bytes: BYTES, block, read_only, durable: false };
            if let Ok(Verb::Namespace(request)) = judge(&asked, &limits) {
                keeps_within(&request, read_only);
            }
        }
    }
    let descriptor = rt::ublk::Descriptor {
        operation: u32::from_le_bytes(input.take()),
        sectors: u32::from_le_bytes(input.take()),
        sector: u64::from_le_bytes(input.take()),
        addr: u64::from_le_bytes(input.take()),
    };
    for read_only in [false, true] {
        let limits = ublk::Limits { bytes: BYTES, block: 512, request_bytes_max: 256 << 10, read_only };
        if let Ok(request) = ublk::judge(&descriptor, &limits) {
            keeps_within(&request, read_only);
        }
    }
}

fn keeps_within(request: &Request<u32>, read_only: bool) {
    let (offset, bytes) = match *request {
        Request::Read { offset, bytes } => (offset, u64::from(bytes)),
        Request::Write { offset, data, .. } => (offset, u64::from(data)),
        Request::WriteZeroes { offset, bytes, .. } | Request::Deallocate { offset, bytes, .. } => (offset, bytes),
        Request::Flush | Request::Extents { .. } => return,
    };
    let changes = !matches!(request, Request::Read { .. });
    assert!(!(read_only && changes), "a read-only volume is changed: {request:?}");
    assert!(offset.checked_add(bytes).is_some_and(|end| end <= BYTES), "beyond the volume: {request:?}");
}
