//! One value of each stored structure, with a different value in every field.

use base::{ArrayUuid, Epoch, Generation as Number, Lba, MemberId, MemberUuid, Pba, SegmentId, Seq, VolumeId};
use ondisk::generation::NOTEBOOK;
use ondisk::record::ALL_SHARDS;
use ondisk::{
    Cut, Entry, Features, Generation, Label, Layout, Level, Limits, MapRef, Member, MemberState, Node, OwnerMark,
    OwnerState, PartOf, Place, Rate, RecordHeader, ReplayFrom, SHARDS, Scheme, ScrubLine, Segment, SegmentState,
    Settings, Volume, VolumeKind, VolumeState, WhyOut,
};
use uuid::Uuid;

/// The array of all samples.
pub const ARRAY: u128 = 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10;

fn array() -> ArrayUuid {
    ArrayUuid(Uuid::from_u128(ARRAY))
}

/// A label of a slice.
pub fn slice_label() -> Label {
    Label { part: PartOf { index: 5, of: 7 }, ..label() }
}

/// An owner mark.
pub fn owner() -> OwnerMark {
    OwnerMark {
        array: array(),
        state: OwnerState::Held,
        session: 0x91,
        taken_from: 0x92,
        host: "rack-7".into(),
        machine: 0x93,
        boot: 0x94,
        pid: 95,
        started: 96,
        namespaces: [97, 98],
        beat: 99,
        since: 100,
        key: 101,
    }
}

/// A label.
pub fn label() -> Label {
    Label {
        array: array(),
        member: MemberUuid(Uuid::from_u128(0x11)),
        seat: MemberId(3),
        part: PartOf::ALL,
        layout: Layout::new(1 << 18, 768, 1024).expect("254 zones fit"),
        array_name: "fast".into(),
    }
}

fn place(segment: u64, block: u32, crc: u32) -> MapRef {
    MapRef::At(Place { pba: Pba { segment: SegmentId(segment), block }, crc })
}

fn member(n: u8, state: MemberState) -> Member {
    Member {
        uuid: MemberUuid(Uuid::from_u128(0x20 + u128::from(n))),
        state,
        bay: 40 + u16::from(n),
        drive_blocks: (1 << 18) + u64::from(n),
        zones: 254,
        leaving: n == 1,
        gone_since: Number(0),
        why_out: WhyOut::Unsaid,
        drive_name: format!("SN-{n}"),
    }
}

/// A generation: four members, a live volume and one being dropped, an open and a sealed segment.
pub fn generation() -> Generation {
    let mut roots = [MapRef::Hole; SHARDS];
    roots[0] = place(9, 77, 0xaabb_ccdd);
    roots[1] = MapRef::Zero;
    roots[15] = MapRef::Bad;
    let volume = |id, name: &str, state, height| Volume {
        id: VolumeId(id),
        kind: VolumeKind::Hosts,
        name: name.into(),
        uuid: Uuid::from_u128(0x30 + u128::from(id)),
        blocks: 1 << 28,
        mapped_blocks: 4242,
        state,
        height,
        roots,
        limits: Limits { bytes_per_second: 1 << 30, iops: 5000, burst_ms: 2500 },
    };
    let slot = |m, zone| Some((MemberId(m), zone));
    Generation {
        array: array(),
        name: "fast".into(),
        number: Number(41),
        id: 0x00aa_00bb_00cc_00dd_00ee_00ff_0011_0022,
        ancestors: vec![76, 75],
        epoch: Epoch(6),
        written_at: 1_700_000_000,
        clean: true,
        features: Features { compatible: 4, read_only_compatible: 8, incompatible: 0 },
        level: Level::Raid10 { copies: 2 },
        width: 4,
        rebuild_place: true,
        zone_blocks: 1024,
        usable_permille: 850,
        next_segment: 12,
        next_volume: 5,
        replay_from: std::array::from_fn(|i| ReplayFrom { epoch: Epoch(6), seq: Seq(1000 + i as u64) }),
        settings: Settings {
            rebuild: Rate::Bytes(200_000_000),
            rebuild_paused: true,
            scrub_media: ScrubLine {
                every_hours: 168,
                position: 9,
                started_at: 1_700_000_001,
                finished_at: 1_690_000_000,
            },
            scrub_parity: ScrubLine {
                every_hours: 720,
                position: 0,
                started_at: 1_680_000_000,
                finished_at: 1_680_000_009,
            },
            scrub_bytes_per_second: 100_000_000,
        },
        members: vec![
            member(1, MemberState::In),
            member(2, MemberState::Out),
            member(3, MemberState::Spare),
            member(4, MemberState::Vacant),
        ],
        volumes: vec![
            volume(2, "db", VolumeState::Live, 2),
            volume(4, "old", VolumeState::Dropping { cursor: Lba(512) }, 3),
        ],
        segments: vec![
            Segment {
                id: SegmentId(9),
                scheme: Scheme::Copies { k: 2, copies: 2 },
                state: SegmentState::Open,
                slots: vec![slot(0, 1), slot(1, 2), slot(2, 3), None],
                cuts: vec![Cut { row: 16, epoch: Epoch(3) }, Cut { row: 32, epoch: Epoch(5) }],
                live: 99,
                rows: 100,
                replay_row: Some(64),
            },
            Segment {
                id: SegmentId(11),
                scheme: Scheme::Parity { k: 2, m: 1 },
                state: SegmentState::Sealed,
                slots: vec![slot(0, 7), slot(1, 7), slot(2, 7)],
                cuts: vec![],
                live: 1,
                rows: 1024,
                replay_row: None,
            },
        ],
    }
}

/// A record header with an entry of every kind.
pub fn record() -> RecordHeader {
    let v = VolumeId(7);
    RecordHeader {
        array: array(),
        segment: SegmentId(17),
        row: 33,
        rows: 2,
        k: 3,
        epoch: Epoch(2),
        generation: Number(9),
        first_seq: Seq(1000),
        durable_row: 31,
        log: 0,
        entries: vec![
            Entry::Data { volume: v, lba: Lba(0x0605_0403_0201), crc: 0x1111_1111 },
            Entry::Move { volume: v, lba: Lba(2), crc: 0x2222_2222 },
            Entry::Hole { volume: v, lba: Lba(3), blocks: 4, shard: ALL_SHARDS },
            Entry::Zero { volume: v, lba: Lba(9), blocks: 1, shard: 15 },
            Entry::Bad { volume: v, lba: Lba(10), blocks: 2 },
            Entry::MapNode { volume: v, lba: Lba(256), level: 1, crc: 0x3333_3333 },
            Entry::Pad,
            Entry::Pad,
        ],
    }
}

/// A map node with a reference of every kind.
pub fn node() -> Node {
    let mut node = Node::filled(MapRef::Hole);
    node.0[1] = place(0x05_0403_0201, 0x0a0b_0c0d, 0xdead_beef);
    node.0[2] = MapRef::Zero;
    node.0[3] = MapRef::Bad;
    node.0[255] = place(1, 0, 0);
    node
}

/// The same, with a notebook.
pub fn with_notebook() -> Generation {
    let mut with = generation();
    with.features.incompatible = NOTEBOOK;
    with.volumes[0].kind = VolumeKind::Notebook;
    with
}
