//! Inputs made by the encoders: what the corpus begins with.

use export::nbd::request::WireRequest;
use export::nbd::wire::{cmd, cmd_flag, opt};
use export::nvme::client::{Wishes, connect_command, log_command};
use export::nvme::entry::{Sgl, Sqe, admin, fabrics, io};
use export::nvme::pdu::{self, DataHeader, Terms, To, kind};
use ondisk::bytes::Writer;
use ondisk::{Generation, Segment};

use crate::nbd::NAMES;
use crate::nvme::{NQN, capsule, initialize};
use crate::recovery::{Area, Op, Plan, SCENES, Step};

#[allow(dead_code, reason = "the formats' tests use the rest")]
#[path = "../../../crates/ondisk/tests/samples/mod.rs"]
mod samples;

/// An input and its name.
type Seed = (String, Vec<u8>);

fn named(seeds: impl IntoIterator<Item = (&'static str, Vec<u8>)>) -> Vec<Seed> {
    seeds.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
}

/// Labels.
#[must_use]
pub fn label() -> Vec<Seed> {
    let label = samples::label();
    let mut unnamed = label.clone();
    unnamed.array_name.clear();
    let mut no_zone_size = label.encode();
    no_zone_size[56..60].fill(0);
    let mut not_zero = label.encode();
    not_zero[4000] = 1;
    named([
        ("whole", label.encode()),
        ("unnamed", unnamed.encode()),
        ("zones-of-nothing", no_zone_size),
        ("reserved-not-zero", not_zero),
    ])
}

/// Owner marks.
#[must_use]
pub fn owner() -> Vec<Seed> {
    let mark = samples::owner();
    let mut nameless = mark.clone();
    nameless.host.clear();
    let mut no_state = mark.encode();
    no_state[10] = 3;
    let mut not_zero = mark.encode();
    not_zero[4000] = 1;
    named([
        ("whole", mark.encode()),
        ("nameless", nameless.encode()),
        ("no-state", no_state),
        ("reserved-not-zero", not_zero),
    ])
}

/// Generations.
#[must_use]
pub fn generation() -> Vec<Seed> {
    let whole = samples::generation();
    let bare = Generation { members: vec![], volumes: vec![], segments: vec![], ..whole.clone() };
    let mut torn = whole.encode();
    torn[2048..].fill(0);
    let mut vast = whole.clone();
    for member in &mut vast.members {
        (member.zones, member.drive_blocks) = (u32::MAX, 1 << 52);
    }
    named([("whole", whole.encode()), ("bare", bare.encode()), ("torn", torn), ("vast-drives", vast.encode())])
}

/// Lines of the segment table.
#[must_use]
pub fn segment() -> Vec<Seed> {
    let line = |segment: &Segment| {
        let mut writer = Writer::new();
        segment.encode(&mut writer);
        writer.finish()
    };
    let segments = samples::generation().segments;
    segments.iter().enumerate().map(|(i, s)| (format!("line-{i}"), line(s))).collect()
}

/// Record headers.
#[must_use]
pub fn record() -> Vec<Seed> {
    let encoded = |header: &ondisk::RecordHeader| {
        let mut block = vec![0; 4096];
        header.encode(&mut block);
        block
    };
    let header = samples::record();
    let late = ondisk::RecordHeader { first_seq: base::Seq(u64::MAX - 2), ..header.clone() };
    let mut not_zero = encoded(&header);
    not_zero[4095] = 1;
    named([("whole", encoded(&header)), ("last-numbers", encoded(&late)), ("unused-entry-not-zero", not_zero)])
}

/// Nodes of the map.
#[must_use]
pub fn node() -> Vec<Seed> {
    let encoded = |node: &ondisk::Node| {
        let mut block = vec![0; 4096];
        node.encode(&mut block);
        block
    };
    let zeros = ondisk::Node::filled(ondisk::MapRef::Zero);
    named([("whole", encoded(&samples::node())), ("zeros", encoded(&zeros))])
}

/// Plans of damage: none for every scene, then one of each kind.
#[must_use]
pub fn recovery() -> Vec<Seed> {
    let mut seeds: Vec<Seed> =
        (0..SCENES).map(|scene| (format!("unharmed-{scene}"), Plan::encode(scene as u8, 0, &[]))).collect();
    let all = 255;
    let plans: [(&str, u8, u8, Vec<Step>); 14] = [
        ("read-only", 1, 3, vec![]),
        (
            "labels-of-one",
            0,
            0,
            vec![Step::new(Op::Zero, 1, Area::FirstLabel, 0), Step::new(Op::Zero, 1, Area::LastLabel, 0)],
        ),
        ("slots-of-one", 1, 0, vec![Step::new(Op::Zero, 0, Area::Slot0, 0), Step::new(Op::Zero, 0, Area::Slot1, 0)]),
        ("newest-slots-of-all", 1, 2, vec![Step::new(Op::Xor, all, Area::Slot0, 0).value(1, 700, 1)]),
        ("other-slots-of-all", 1, 2, vec![Step::new(Op::Xor, all, Area::Slot1, 0).value(1, 700, 1)]),
        (
            "headers-of-two",
            2,
            0,
            vec![Step::new(Op::Zero, 0, Area::Header, 3).blocks(8), Step::new(Op::Zero, 1, Area::Header, 3).blocks(8)],
        ),
        ("lost-writes-of-one", 1, 0, (0..30).map(|i| Step::new(Op::Lose, 2, Area::Written, 9 * i).blocks(8)).collect()),
        (
            "torn-and-misdirected",
            3,
            0,
            vec![
                Step::new(Op::Tear, 1, Area::Written, 40).value(1, 0, 0x0f),
                Step::new(Op::Misdirect, 1, Area::Written, 60).value(1, 80, 0),
            ],
        ),
        ("swapped-labels", 1, 4, vec![Step::new(Op::Swap, 0, Area::FirstLabel, 0).value(1, 0, 1)]),
        (
            "unreadable-zones",
            2,
            8,
            (0..8).map(|i| Step::new(Op::Unreadable, 3, Area::Written, 64 * i).blocks(64)).collect(),
        ),
        ("forged-zones-of-a-label", 0, 0, vec![Step::new(Op::Forge, 0, Area::FirstLabel, 0).value(4, 56, 0)]),
        ("forged-next-segment", 1, 0, vec![Step::new(Op::Forge, all, Area::Slot0, 0).value(8, 112, u32::MAX)]),
        ("forged-epoch", 1, 0, vec![Step::new(Op::Forge, all, Area::Slot1, 0).value(4, 64, u32::MAX)]),
        ("forged-record", 1, 0, vec![Step::new(Op::Forge, 0, Area::Header, 5).value(8, 56, u32::MAX)]),
    ];
    seeds.extend(plans.map(|(name, scene, how, steps)| (name.to_owned(), Plan::encode(scene, how, &steps))));
    seeds
}

/// Conversations with the NBD server.
#[must_use]
pub fn nbd() -> Vec<Seed> {
    let [vol, ro] = NAMES;
    let text = |t: &str| [&(t.len() as u32).to_be_bytes()[..], t.as_bytes()].concat();
    let option = |number: u32, data: &[u8]| {
        [&b"IHAVEOPT"[..], &number.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
    };
    let go = |name: &str| option(opt::GO, &[&text(name)[..], &[0, 1, 0, 3]].concat());
    let ask =
        |kind, flags, cookie, offset, length| WireRequest { flags, kind, cookie, offset, length }.encode().to_vec();
    let flags = |flags: u32| flags.to_be_bytes().to_vec();
    let context = |number| option(number, &[&text(vol)[..], &1u32.to_be_bytes(), &text("base:allocation")].concat());
    let structured =
        || [flags(3), option(opt::STRUCTURED_REPLY, &[]), context(opt::SET_META_CONTEXT), go(vol)].concat();
    let payload = vec![0x5a; 512];
    named([
        (
            "options",
            [
                flags(3),
                option(opt::LIST, &[]),
                option(opt::STARTTLS, &[]),
                option(opt::INFO, &[&text(ro)[..], &[0, 0]].concat()),
                context(opt::LIST_META_CONTEXT),
                option(opt::EXTENDED_HEADERS, &[]),
                option(99, b"what"),
                option(opt::ABORT, &[]),
            ]
            .concat(),
        ),
        ("export-name", [flags(1), option(opt::EXPORT_NAME, vol.as_bytes()), ask(cmd::READ, 0, 1, 0, 512)].concat()),
        ("no-such-export", [flags(3), go("none"), option(opt::EXPORT_NAME, b"none")].concat()),
        (
            "simple",
            [
                flags(3),
                go(vol),
                ask(cmd::WRITE, cmd_flag::FUA, 1, 0, 512),
                payload.clone(),
                ask(cmd::READ, 0, 2, 0, 512),
                ask(cmd::FLUSH, 0, 3, 0, 0),
                ask(cmd::DISC, 0, 4, 0, 0),
            ]
            .concat(),
        ),
        (
            "structured",
            [
                structured(),
                ask(cmd::READ, cmd_flag::DF, 1, 0, 4096),
                ask(cmd::WRITE, 0, 2, 512, 512),
                payload.clone(),
                ask(cmd::BLOCK_STATUS, cmd_flag::REQ_ONE, 3, 0, 65536),
                ask(cmd::TRIM, 0, 4, 0, 4096),
                ask(cmd::WRITE_ZEROES, cmd_flag::NO_HOLE, 5, 4096, 4096),
                ask(cmd::CACHE, 0, 6, 0, 4096),
                ask(cmd::FLUSH, 0, 7, 0, 0),
            ]
            .concat(),
        ),
        (
            "refused",
            [
                structured(),
                ask(cmd::READ, 0, 1, 1 << 40, 4096),
                ask(cmd::WRITE, 0, 2, 65536, 512),
                payload.clone(),
                ask(cmd::READ, 0xffff, 3, 0, 512),
                ask(77, 0, 4, 0, 512),
                ask(cmd::READ, 0, 5, 7, 9),
            ]
            .concat(),
        ),
        ("read-only", [flags(3), go(ro), ask(cmd::WRITE, 0, 1, 0, 512), payload].concat()),
        (
            "too-long",
            [flags(3), option(opt::LIST, &[0; 100]), [&b"IHAVEOPT"[..], &[0, 0, 0, 7, 5, 0, 0, 0]].concat()].concat(),
        ),
        ("unknown-flags", flags(u32::MAX)),
        ("nothing", vec![]),
    ])
}

/// Conversations with the NVMe/TCP server.
#[must_use]
pub fn nvme() -> Vec<Seed> {
    let plain = |sqe: &Sqe, data: &[u8]| capsule(sqe, data, 0);
    let (connect, connect_data) = connect_command(&Wishes::default(), NQN, 0, None);
    let begin = |how: u8, parts: &[Vec<u8>]| [&[how][..], &parts.concat()].concat();
    named([
        ("connect", begin(0, &[initialize(0), plain(&connect, &connect_data), plain(&property(0x1c), &[])])),
        ("not-initialized", begin(0, &[plain(&connect, &connect_data)])),
        ("digests", begin(0, &[initialize(12), capsule(&connect, &connect_data, 12)])),
        ("admin", begin(1, &admin_commands())),
        ("io", begin(2, &io_commands(2))),
        ("io-digests", begin(2 | 12, &io_commands(2 | 12))),
        ("io-without-flow-control", begin(2 | 32, &io_commands(2 | 32))),
        ("r2t", begin(2, &write_by_r2t(1))),
        ("r2ts", begin(2 | 16, &write_by_r2t(4))),
    ])
}

fn property(offset: u32) -> Sqe {
    Sqe::new(fabrics::OPCODE, 9).with(4, &[fabrics::PROPERTY_GET]).with_dword(11, offset)
}

fn admin_commands() -> Vec<Vec<u8>> {
    let identify = |structure, nsid| {
        let sqe = Sqe::new(admin::IDENTIFY, 2).with_dword(1, nsid).with_dword(10, structure);
        sqe.with_sgl(Sgl::Transport { bytes: 4096 })
    };
    let page = |id, bytes| log_command(id, 0, bytes).with_sgl(Sgl::Transport { bytes });
    let all = [
        identify(1, 0),
        identify(0, 1),
        identify(2, 0),
        identify(3, 1),
        page(1, 64),
        page(2, 512),
        page(5, 4096),
        page(0x0c, 64),
        Sqe::new(admin::SET_FEATURES, 3).with_dword(10, 7).with_dword(11, 0x0001_0001),
        Sqe::new(admin::GET_FEATURES, 4).with_dword(10, 0x0b),
        Sqe::new(admin::ASYNC_EVENT_REQUEST, 5),
        Sqe::new(admin::ABORT, 6).with_dword(10, 5 << 16),
        Sqe::new(admin::KEEP_ALIVE, 7),
        property(0x14),
    ];
    all.iter().map(|sqe| capsule(sqe, &[], 0)).collect()
}

fn io_commands(how: u8) -> Vec<Vec<u8>> {
    let of = |opcode, sgl| Sqe::new(opcode, 1).with_dword(1, 1).with_sgl(sgl);
    let here = Sgl::Capsule { offset: 0, bytes: 512 };
    let ranges = [&[0; 4][..], &8u32.to_le_bytes(), &0u64.to_le_bytes()].concat();
    let deallocate = of(io::DATASET_MANAGEMENT, Sgl::Capsule { offset: 0, bytes: 16 }).with_dword(11, 4);
    vec![
        capsule(&of(io::WRITE, here), &[0x5a; 512], how),
        capsule(&of(io::READ, Sgl::Transport { bytes: 512 }), &[], how),
        capsule(&of(io::COMPARE, here), &[0x5a; 512], how),
        capsule(&Sqe::new(io::WRITE_ZEROES, 2).with_dword(1, 1).with_dword(12, 7 | 1 << 25), &[], how),
        capsule(&deallocate, &ranges, how),
        capsule(&Sqe::new(io::FLUSH, 3).with_dword(1, u32::MAX), &[], how),
    ]
}

/// A write of 1 KiB whose data comes in two PDUs.
fn write_by_r2t(r2ts_max: u32) -> Vec<Vec<u8>> {
    let terms = Terms { header_digest: false, data_digest: false, alignment: 4, r2ts_max };
    let sqe = Sqe::new(io::WRITE, 1).with_dword(1, 1).with_dword(12, 1).with_sgl(Sgl::Transport { bytes: 1024 });
    let part = |offset, flags| {
        let header = DataHeader { command: 1, tag: 0, offset, length: 512 };
        let data = rt::Bytes::from_slice(&[0x77; 512]);
        let parts = std::slice::from_ref(&data);
        let encoded = pdu::encode(kind::H2C_DATA, flags, &header.encode(), parts, To::Controller, &terms);
        [&encoded.head[..], &data].concat()
    };
    vec![capsule(&sqe, &[], 0), part(0, 0), part(512, pdu::flag::LAST)]
}

/// What guests and their front ends do: each byte, or run of bytes, as `guest` takes it.
#[must_use]
pub fn guest() -> Vec<Seed> {
    let request = |queue: u8, first: u8, kind: u8, sector: u8, room: u16, data: &[u8]| {
        let [low, high] = room.to_le_bytes();
        [&[4, queue, first, 0, kind, sector, 0, low, high, data.len() as u8][..], data].concat()
    };
    let turns = |turns: u8| vec![5, turns];
    let descriptor = |index: u8, place: u8, bytes: u32, flags: u8, next: u8| {
        [&[1, 0, index, 0, place, 0, 0][..], &bytes.to_le_bytes(), &[flags, 0, next, 0]].concat()
    };
    let head = |head: u8, by: u8| vec![2, 0, head, 0, by];
    let message = |request: u8, flags: u8, payload: &[u8], passed: u8| {
        [&[3, request, flags, payload.len() as u8][..], payload, &[passed]].concat()
    };
    let range = [&[8; 1][..], &[0; 7], &[8, 0, 0, 0], &[0; 4]].concat();
    named([
        (
            "requests",
            [request(0, 0, 1, 8, 0, &[1; 200]), request(1, 3, 0, 8, 512, &[]), request(0, 6, 4, 0, 0, &[]), turns(200)]
                .concat(),
        ),
        (
            "ranges",
            [request(0, 0, 11, 0, 0, &range), request(0, 9, 13, 0, 0, &range), request(1, 0, 8, 0, 20, &[]), turns(90)]
                .concat(),
        ),
        ("loop", [descriptor(0, 0, 16, 1, 1), descriptor(1, 0, 16, 1, 0), head(0, 1), turns(20)].concat()),
        ("itself", [descriptor(0, 0, 16, 1, 0), head(0, 1), turns(20)].concat()),
        ("beyond", [descriptor(0, 5, 16, 1, 1), descriptor(1, 6, 512, 3, 2), head(0, 1), turns(20)].concat()),
        ("table", [descriptor(0, 1, 64, 4, 0), head(0, 1), turns(20)].concat()),
        ("jump", [head(0, 200), turns(20), head(9, 1)].concat()),
        ("twice", [request(0, 0, 0, 0, 4096, &[]), head(0, 1), head(0, 1), turns(50)].concat()),
        ("memory", [request(0, 0, 0, 0, 60000, &[]), vec![6, 0, 1, 0, 4, 255], turns(50)].concat()),
        (
            "notes",
            [
                request(0, 0, 0, 8, 512, &[]),
                vec![7, 16, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 8, 0],
                vec![8],
                turns(50),
            ]
            .concat(),
        ),
        (
            "anew",
            [request(0, 0, 1, 8, 0, &[3; 100]), vec![8], request(0, 0, 0, 8, 512, &[]), turns(90), vec![10, 0]]
                .concat(),
        ),
        (
            "messages",
            [
                message(11, 1, &[0, 0, 0, 0, 0, 0, 0, 0], 0),
                message(5, 9, &[0; 40], 1),
                message(24, 1, &[0; 32], 0),
                turns(30),
            ]
            .concat(),
        ),
        (
            "reset",
            [
                request(0, 0, 0, 8, 512, &[]),
                message(34, 9, &[], 0),
                message(18, 9, &[0, 0, 0, 0, 1, 0, 0, 0], 0),
                turns(30),
            ]
            .concat(),
        ),
        ("used", [vec![0, 3, 2, 0, 4, 9, 9, 9, 9], request(0, 0, 0, 8, 512, &[]), vec![9, 0], turns(30)].concat()),
    ])
}

/// Files of the tools that the lab imports.
#[must_use]
pub fn lab() -> Vec<Seed> {
    let files: [(&str, &[u8]); 7] = [
        ("fio-plain", include_bytes!("../../../crates/lab/tests/data/fio-plain.json")),
        ("fio-hosts", include_bytes!("../../../crates/lab/tests/data/fio-hosts.json")),
        ("fio-two", include_bytes!("../../../crates/lab/tests/data/fio-two.json")),
        ("vdbench-flatfile", include_bytes!("../../../crates/lab/tests/data/vdbench-flatfile.html")),
        ("vdbench-totals", include_bytes!("../../../crates/lab/tests/data/vdbench-totals.html")),
        ("elbencho-csv", include_bytes!("../../../crates/lab/tests/data/elbencho.csv")),
        ("elbencho-json", include_bytes!("../../../crates/lab/tests/data/elbencho.json")),
    ];
    named(files.map(|(name, bytes)| (name, bytes.to_vec())))
}
