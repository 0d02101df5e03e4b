//! Small arrays with a history, made once: what an input damages.
//!
//! A scene's array was written, checkpointed and handed over (its drives then are `before`); then it was opened, written,
//! flushed, checkpointed, written, and its process died with records that no flush covers and writes in flight. The
//! second of each level died once more soon after the open that followed: cuts, epochs, a segment with two lives.

use std::cell::OnceCell;
use std::time::Duration;

use array::{Array, CreateSpec, OpenHow, Volume};
use base::{BLOCK_BYTES, BlockCount, MemberLba};
use ondisk::{Label, Level, RecordHeader};
use rt::model::{Disk, DiskParams};
use rt::{Drive, Rt};

use super::judge::content;
use super::plan::Area;

/// Blocks of the volume: three leaves of the map, the last one in part.
pub const VOLUME_BLOCKS: u64 = 640;

/// Blocks of a zone: the smallest.
const ZONE_BLOCKS: u32 = 64;

/// Less than a write takes: after it, some drives have it and some do not.
const IN_FLIGHT: Duration = Duration::from_micros(30);

/// Bytes of a drive: 64 zones and two slots.
const DRIVE_BYTES: u64 = 24 << 20;

/// Level, drives, and whether the process dies twice.
const SHAPES: [(Level, usize, bool); 6] = [
    (Level::Raid5, 3, false),
    (Level::Raid5, 4, true),
    (Level::Raid6, 4, true),
    (Level::Raid10 { copies: 2 }, 4, true),
    (Level::Raid10 { copies: 3 }, 3, false),
    (Level::Raid0, 2, true),
];

/// How many scenes there are.
pub const SCENES: usize = SHAPES.len();

/// Everything that one block may read as.
#[derive(Clone, Default)]
pub struct History {
    /// Contents in the order of their writes; 0 is zeros.
    pub tags: Vec<u32>,
    /// Which of them was acknowledged last.
    pub acked: usize,
}

/// Where things lie on a drive.
pub struct Places {
    label: Label,
    headers: Vec<MemberLba>,
    written: Vec<MemberLba>,
    /// Its blocks.
    pub drive_blocks: u64,
}

/// An array with a history.
pub struct Scene {
    /// Its level.
    pub level: Level,
    /// Its drives.
    pub disks: Vec<Disk>,
    /// Its drives at an earlier time.
    pub before: Vec<Disk>,
    /// Where things lie on each.
    pub places: Vec<Places>,
    /// By block of the volume "v".
    pub history: Vec<History>,
}

/// Runs `work` on scene `number`, modulo their number. Each thread makes its own, once.
pub fn with(number: usize, work: impl FnOnce(&Scene)) {
    thread_local! {
        static MADE: [OnceCell<Scene>; SCENES] = const { [const { OnceCell::new() }; SCENES] };
    }
    MADE.with(|made| {
        let number = number % SCENES;
        let (level, drives, twice) = SHAPES[number];
        work(made[number].get_or_init(|| Scene::make(level, drives, twice)));
    });
}

/// A life of the array: what is written is noted.
struct Life<'a> {
    rt: Rt,
    array: Array,
    volume: Volume,
    history: &'a mut [History],
    tag: &'a mut u32,
}

impl Scene {
    fn make(level: Level, drives: usize, twice: bool) -> Scene {
        let params = DiskParams { bytes: DRIVE_BYTES, ..DiskParams::default() };
        let disks: Vec<Disk> = (0..drives).map(|i| Disk::new(&format!("d{i}"), params, i as u64)).collect();
        let mut history = vec![History { tags: vec![0], acked: 0 }; VOLUME_BLOCKS as usize];
        let mut tag = 0;
        create(&disks, level);

        let mut life = Life::begin(&disks, 2, &mut history, &mut tag);
        life.write(0, 200);
        life.write(250, 20);
        life.write(600, 40);
        life.flush();
        life.checkpoint();
        life.write(100, 60);
        life.close();
        let before = disks.iter().map(Disk::fork).collect();

        let mut life = Life::begin(&disks, 3, &mut history, &mut tag);
        life.write(0, 30);
        life.zero(40, 10);
        life.write(300, 50);
        life.flush();
        life.checkpoint();
        life.write(10, 8);
        life.drop_blocks(120, 16);
        life.flush();
        life.write(12, 3);
        life.write(400, 5);
        life.die(&disks);
        if twice {
            let mut life = Life::begin(&disks, 4, &mut history, &mut tag);
            life.write(11, 4);
            life.flush();
            life.write(450, 2);
            life.write(128, 2);
            life.die(&disks);
        }
        let places = disks.iter().map(Places::of).collect();
        Scene { level, disks, before, places, history }
    }
}

fn create(disks: &[Disk], level: Level) {
    let rt = Rt::modelled(1);
    let spec =
        CreateSpec { name: "a".into(), level, width: Some(disks.len()), zone_blocks: Some(ZONE_BLOCKS), force: false };
    rt.block_on(async {
        let drives = disks.iter().map(|d| Drive::modelled(&rt, d)).collect();
        let array = Array::create(&rt, drives, &spec).await.expect("the drives suit the level");
        array.volume_create("v", VOLUME_BLOCKS * BLOCK_BYTES as u64).await.expect("there is room");
        array.close().await.expect("no drive fails");
    });
    rt.end();
}

impl<'a> Life<'a> {
    fn begin(disks: &[Disk], seed: u64, history: &'a mut [History], tag: &'a mut u32) -> Life<'a> {
        let rt = Rt::modelled(seed);
        let drives = disks.iter().map(|d| Drive::modelled(&rt, d)).collect();
        let array = rt.block_on(Array::open(&rt, drives, OpenHow::default())).expect("nothing is wrong");
        let volume = array.volume("v").expect("it was made");
        Life { rt, array, volume, history, tag }
    }

    fn note(&mut self, first: u64, n: u64, tag: u32, acked: bool) {
        for history in &mut self.history[first as usize..(first + n) as usize] {
            history.tags.push(tag);
            if acked {
                history.acked = history.tags.len() - 1;
            }
        }
    }

    fn write(&mut self, first: u64, n: u64) {
        *self.tag += 1;
        let tag = *self.tag;
        for lba in first..first + n {
            let written = self.volume.write(lba * BLOCK_BYTES as u64, content(lba, tag), false);
            self.rt.block_on(written).expect("there is room");
        }
        self.note(first, n, tag, true);
    }

    fn zero(&mut self, first: u64, n: u64) {
        let (at, bytes) = (first * BLOCK_BYTES as u64, n * BLOCK_BYTES as u64);
        self.rt.block_on(self.volume.write_zeroes(at, bytes, false, false)).expect("nothing is wrong");
        self.note(first, n, 0, true);
    }

    fn drop_blocks(&mut self, first: u64, n: u64) {
        let (at, bytes) = (first * BLOCK_BYTES as u64, n * BLOCK_BYTES as u64);
        self.rt.block_on(self.volume.deallocate(at, bytes, false)).expect("nothing is wrong");
        self.note(first, n, 0, true);
    }

    fn flush(&mut self) {
        self.rt.block_on(self.volume.flush()).expect("nothing is wrong");
    }

    fn checkpoint(&mut self) {
        self.rt.block_on(self.array.checkpoint()).expect("nothing is wrong");
    }

    fn close(self) {
        self.rt.block_on(self.array.close()).expect("nothing is wrong");
        self.rt.end();
    }

    /// The process dies with writes in flight; what was answered stays on the drives.
    fn die(mut self, disks: &[Disk]) {
        *self.tag += 1;
        let tag = *self.tag;
        for lba in [1, 500] {
            self.note(lba, 1, tag, false);
            let volume = self.volume.clone();
            let write = async move { volume.write(lba * BLOCK_BYTES as u64, content(lba, tag), false).await };
            // A task that nobody waits for goes on until the runtime ends.
            drop(self.rt.spawn(write));
        }
        self.rt.block_on(self.rt.sleep(IN_FLIGHT));
        self.rt.end();
        disks.iter().for_each(|d| d.crash(u64::from(tag)));
    }
}

impl Places {
    fn of(disk: &Disk) -> Places {
        let label = Label::decode(&disk.image_read(MemberLba(0), BlockCount(1))).expect("the drive is a member");
        let zones = label.layout.zone_row(0, 0).0..label.layout.labels()[1].0;
        let mut places = Places { headers: Vec::new(), written: Vec::new(), drive_blocks: zones.end + 1, label };
        for at in zones.map(MemberLba) {
            let block = disk.image_read(at, BlockCount(1));
            if block.iter().any(|b| *b != 0) {
                places.written.push(at);
            }
            if RecordHeader::decode(&block).is_ok() {
                places.headers.push(at);
            }
        }
        places
    }

    /// The block of an area, by any number.
    #[must_use]
    pub fn find(&self, area: Area, index: usize) -> MemberLba {
        let layout = &self.label.layout;
        let in_slot = |slot| layout.slot(slot) + BlockCount(index as u64 % u64::from(layout.slot_blocks).min(4));
        let one_of = |of: &[MemberLba]| of.get(index % of.len().max(1)).copied().unwrap_or_default();
        match area {
            Area::FirstLabel => layout.labels()[0],
            Area::LastLabel => layout.labels()[1],
            Area::Slot0 => in_slot(0),
            Area::Slot1 => in_slot(1),
            Area::Header => one_of(&self.headers),
            Area::Written => one_of(&self.written),
            Area::Any => MemberLba(index as u64 % self.drive_blocks),
        }
    }

    /// The layout of the slots, as the drive was made.
    #[must_use]
    pub fn label(&self) -> &Label {
        &self.label
    }
}
