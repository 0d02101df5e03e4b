//! A guest of vhost-user and its front end that do anything, beside an honest one: over a unix socket and in shared memory, as in life.
//!
//! Promises: the server never panics; a guest's memory outside of what it names stays as it was; when its front end has gone nothing of
//! it is under way or mapped; one that begins anew at the same volume is served; another guest is served as if nothing had been.
//!
//! Input: steps, one behind the other; each is a byte for what is done, and the bytes that it takes.
//!
//! Not here: guests that stop at a bad moment and more than one hostile guest at once (`export/tests`); QEMU (the suite `guests`).

use std::path::PathBuf;
use std::time::Duration;

use export::Memory;
use export::Request;
use export::ublk::request as ublk;
use export::vhost_user_blk::message::{HEADER, Header, Message};
use export::vhost_user_blk::request::{Asked, HEAD, Limits, Verb, judge};
use export::vhost_user_blk::{GuestSocket, Guests};
use rt::Rt;

use front_end::{FrontEnd, GUEST, MEMORY, Machine};
use hostile_guest::{Input, step};

#[allow(dead_code, clippy::unwrap_used, reason = "the tests of the export use the rest")]
#[path = "../../../crates/export/tests/it/support/front_end.rs"]
mod front_end;

#[path = "../../../crates/export/tests/it/support/hostile_guest.rs"]
mod hostile_guest;

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
    gone(world).await;
    while world.hostile.counters().in_flight > 0 {
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

/// Resolves when no front end is connected to the hostile guest's volume.
async fn gone(world: &World) {
    while !world.hostile.guests().is_empty() {
        world.rt.sleep(Duration::from_millis(1)).await;
    }
}

async fn is_served(machine: &Machine) {
    assert_eq!(machine.ask(0, 1, 8, &[7; 512], 0).await.0, 0, "a write is done");
    assert_eq!(machine.ask(0, 0, 8, &[], 512).await, (0, vec![7; 512]), "and read back");
}

async fn act(world: &World, data: &[u8]) {
    let machine = Machine::new(&world.rt, 2);
    let mut front = FrontEnd::run(&machine, world.hostile.path()).await;
    let mut input = Input(data);
    for _ in 0..STEPS_MAX {
        if input.0.is_empty() {
            break;
        }
        front = step(&machine, front, &mut input, world.hostile.path(), || gone(world)).await;
    }
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
