//! Drives that outlive the processes on them, and what the scenarios ask of them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use array::inspect::Found;
use array::{Array, CheckReport, CreateSpec, Discard, Fault, OpenHow, Refused, Volume, check, inspect};
use base::{BlockCount, MemberLba};
use ondisk::{Generation, Label, Level, RecordHeader};
use rt::model::{Disk, DiskParams, Op, OpKind, Verdict};
use rt::{Bytes, Drive, Rt};

/// Bytes of a block.
pub const BLOCK: u64 = 4096;

/// Blocks of a zone, unless a scenario says otherwise.
pub const ZONE: u32 = 128;

/// Opens with whatever members are there.
pub const DEGRADED: OpenHow = OpenHow {
    read_only: false,
    degraded: true,
    force_diverged: false,
    accept_loss: false,
    previous: false,
    owner: array::owner::OwnerHow::PLAIN,
    part: ondisk::PartOf::ALL,
};

/// Some drives.
pub struct World {
    /// By seat.
    pub disks: Vec<Disk>,
}

impl World {
    /// Drives of 48 MiB.
    pub fn new(n: usize, volatile_cache: bool) -> World {
        World::of(n, DiskParams { bytes: 48 << 20, volatile_cache, ..DiskParams::default() })
    }

    /// Drives like `params`.
    pub fn of(n: usize, params: DiskParams) -> World {
        World { disks: (0..n).map(|i| Disk::new(&format!("d{i}"), params, i as u64)).collect() }
    }

    /// The same contents, to try something on.
    pub fn fork(&self) -> World {
        World { disks: self.disks.iter().map(Disk::fork).collect() }
    }

    /// Handles on some drives.
    pub fn drives(rt: &Rt, disks: &[Disk]) -> Vec<Drive> {
        disks.iter().map(|d| Drive::modelled(rt, d)).collect()
    }

    /// Makes an array over all drives with a volume "v" of 8 MiB.
    pub fn create(&self, level: Level) {
        self.create_with(level, ZONE, 8 << 20);
    }

    /// Makes an array of these zones with a volume "v" of this size.
    pub fn create_with(&self, level: Level, zone_blocks: u32, volume_bytes: u64) {
        self.create_of_width(level, self.disks.len(), zone_blocks, volume_bytes);
    }

    /// The same, with segments of so many columns.
    pub fn create_of_width(&self, level: Level, width: usize, zone_blocks: u32, volume_bytes: u64) {
        let rt = Rt::modelled(1);
        let spec =
            CreateSpec { name: "a".into(), level, width: Some(width), zone_blocks: Some(zone_blocks), force: false };
        rt.block_on(async {
            let array = Array::create(&rt, Self::drives(&rt, &self.disks), &spec).await.unwrap();
            array.volume_create("v", volume_bytes).await.unwrap();
            array.close().await.unwrap();
        });
        rt.end();
    }

    /// A process with the array open.
    pub fn start(&self, seed: u64) -> Process<'_> {
        self.start_how(seed, OpenHow::default())
    }

    /// A process with the array open in some way.
    pub fn start_how(&self, seed: u64, how: OpenHow) -> Process<'_> {
        self.start_later(seed, Duration::ZERO, how)
    }

    /// The same, by a clock that is ahead.
    pub fn start_later(&self, seed: u64, ahead: Duration, how: OpenHow) -> Process<'_> {
        let rt = Rt::modelled_later(seed, ahead);
        let array = rt.block_on(Array::open(&rt, Self::drives(&rt, &self.disks), how)).unwrap();
        // What is freed too early is gone then.
        array.set_discard(Discard::All);
        let v = array.volume("v");
        Process { world: self, rt, array: Some(array), v }
    }

    /// Why the array of `disks` cannot be opened.
    pub fn refused(&self, disks: &[Disk], how: OpenHow) -> Refused {
        let rt = Rt::modelled(9);
        let opened = rt.block_on(Array::open(&rt, Self::drives(&rt, disks), how));
        opened.err().expect("the open is refused")
    }

    /// What a check from scratch says, by a process that changes nothing.
    pub fn check(&self) -> CheckReport {
        let rt = Rt::modelled(5);
        let forks = self.fork();
        rt.block_on(check(&rt, Self::drives(&rt, &forks.disks), |_| {})).unwrap()
    }

    /// The newest generation on a drive: number and what it says of the members.
    pub fn newest(&self, i: usize) -> (u64, Vec<String>) {
        let rt = Rt::modelled(7);
        let seen = rt.block_on(inspect(&Drive::modelled(&rt, &self.disks[i])));
        let slots = seen.slots.into_iter().filter_map(|s| match s {
            Found::Valid(line) => Some((line.number, line.members)),
            Found::Invalid(_) => None,
        });
        slots.max().unwrap()
    }

    /// The newest generation on the first drive, all of it.
    pub fn generation(&self) -> Generation {
        let layout = self.label(0).layout;
        let slots = (0..2).map(|i| {
            let image = self.disks[0].image_read(layout.slot(i), BlockCount(u64::from(layout.slot_blocks)));
            Generation::decode(&image)
        });
        slots.flatten().max_by_key(|g| g.number).unwrap()
    }

    /// The label of a drive.
    pub fn label(&self, i: usize) -> Label {
        Label::decode(&self.disks[i].image_read(MemberLba(0), BlockCount(1))).unwrap()
    }

    /// Where the zones of a drive begin.
    pub fn zones_begin(&self, i: usize) -> MemberLba {
        self.label(i).layout.zone_row(0, 0)
    }

    /// Blocks in the zones that are as `wanted` says: drive, place, contents.
    pub fn blocks(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<(usize, MemberLba, Vec<u8>)> {
        let mut found = Vec::new();
        for (i, disk) in self.disks.iter().enumerate() {
            let layout = self.label(i).layout;
            for zone in 0..layout.zones {
                let at = layout.zone_row(zone, 0);
                let blocks = disk.image_read(at, BlockCount(u64::from(layout.zone_blocks)));
                for (n, block) in blocks.chunks(BLOCK as usize).enumerate().filter(|(_, b)| wanted(b)) {
                    found.push((i, at + BlockCount(n as u64), block.to_vec()));
                }
            }
        }
        found
    }

    /// Blocks that hold a record header: drive, place, header.
    pub fn headers(&self) -> Vec<(usize, MemberLba, RecordHeader)> {
        let is_header = |b: &[u8]| RecordHeader::decode(b).is_ok();
        let found = self.blocks(is_header).into_iter();
        found.map(|(i, at, block)| (i, at, RecordHeader::decode(&block).unwrap())).collect()
    }

    /// The columns of the record with this header: drives and where its rows begin there.
    pub fn columns(&self, h: &RecordHeader) -> Vec<(usize, MemberLba)> {
        let generation = self.generation();
        let segment = generation.segments.iter().find(|s| s.id == h.segment).unwrap();
        let place = |(member, zone): (base::MemberId, u32)| {
            let disk = usize::from(member.0);
            (disk, self.label(disk).layout.zone_row(zone, h.row))
        };
        segment.slots.iter().flatten().map(|slot| place(*slot)).collect()
    }

    /// Zeroes one column of every record of an epoch, or all columns: as if they had never arrived.
    pub fn lose(&self, records: &[RecordHeader], column: Option<usize>) {
        for h in records {
            for (c, (disk, at)) in self.columns(h).into_iter().enumerate() {
                if column.is_none_or(|lost| lost == c) {
                    self.disks[disk].image_write(at, &vec![0; h.rows as usize * BLOCK as usize]);
                }
            }
        }
    }

    /// The records of an epoch, in the order in which they were written.
    pub fn records_of(&self, epoch: u32) -> Vec<RecordHeader> {
        let mut found: Vec<_> = self.headers().into_iter().map(|(_, _, h)| h).filter(|h| h.epoch.0 == epoch).collect();
        found.sort_by_key(|h| h.first_seq);
        found.dedup_by_key(|h| h.first_seq);
        found
    }

    /// What happens to each operation on every drive from now on: `verdict` gets the drive, the operation, and whether
    /// it lies in the system area.
    pub fn on_ops(&self, verdict: impl Fn(usize, &Op, bool) -> Verdict + Clone + 'static) {
        for (i, disk) in self.disks.iter().enumerate() {
            let (verdict, zones) = (verdict.clone(), self.zones_begin(i));
            disk.on_op(Some(Box::new(move |op| verdict(i, op, op.kind != OpKind::Flush && op.at < zones))));
        }
    }

    /// No generation is written any more.
    pub fn hang_slots(&self) {
        self.on_ops(|_, op, system| match op.kind {
            OpKind::Write if system => Verdict::Hang,
            OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
        });
    }

    /// The next write to a zone of drive 0 takes this much longer.
    pub fn delay_a_write(&self, ns: u64) {
        let delayed = Rc::new(Cell::new(false));
        self.on_ops(move |disk, op, system| match op.kind {
            OpKind::Write if disk == 0 && !system && !delayed.replace(true) => Verdict::DelayNs(ns),
            OpKind::Read | OpKind::Write | OpKind::Flush | OpKind::Deallocate => Verdict::Proceed,
        });
    }

    /// Operations go their usual way again.
    pub fn no_hooks(&self) {
        self.disks.iter().for_each(|d| d.on_op(None));
    }
}

/// A process that serves the array.
pub struct Process<'a> {
    world: &'a World,
    /// Its runtime.
    pub rt: Rt,
    array: Option<Array>,
    v: Option<Volume>,
}

impl Process<'_> {
    /// The array.
    pub fn array(&self) -> Array {
        self.array.clone().unwrap()
    }

    /// Its volume "v".
    pub fn v(&self) -> Volume {
        self.v.clone().unwrap()
    }

    /// Writes blocks of `tag` from block `lba` on.
    pub fn write(&self, lba: u64, tag: u8, blocks: u64) -> Result<(), Fault> {
        self.rt.block_on(self.v().write(lba * BLOCK, data(tag, blocks), false))
    }

    /// Flushes.
    pub fn flush(&self) -> Result<(), Fault> {
        self.rt.block_on(self.v().flush())
    }

    /// Reads blocks.
    pub fn read(&self, lba: u64, blocks: u64) -> Result<Vec<u8>, Fault> {
        read(&self.rt, &self.v(), lba, blocks)
    }

    /// Whether blocks read as `tag`.
    pub fn is(&self, lba: u64, tag: u8, blocks: u64) -> bool {
        self.read(lba, blocks) == Ok(vec![tag; (blocks * BLOCK) as usize])
    }

    /// Begins a write that nobody waits for.
    pub fn begin_write(&self, lba: u64, tag: u8, blocks: u64) -> rt::Task<Result<(), Fault>> {
        let v = self.v();
        self.rt.spawn(async move { v.write(lba * BLOCK, data(tag, blocks), false).await })
    }

    /// Runs `work` to its end, which must come within half a minute.
    pub fn run<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> T {
        let work = Box::pin(work);
        let late = Box::pin(self.rt.sleep(Duration::from_secs(30)));
        match self.rt.block_on(futures::future::select(work, late)) {
            futures::future::Either::Left((done, _)) => done,
            futures::future::Either::Right(_) => panic!("after half a minute it was not done"),
        }
    }

    /// Lets virtual time pass.
    pub fn wait(&self, time: Duration) {
        self.rt.block_on(self.rt.sleep(time));
    }

    /// Brings everything into the trees.
    pub fn checkpoint(&self) {
        self.rt.block_on(self.array().checkpoint()).unwrap();
    }

    /// A generation more that has something to say.
    pub fn checkpoint_after_a_write(&self) {
        self.write(2000, 7, 1).unwrap();
        self.checkpoint();
    }

    fn end(mut self) {
        (self.array, self.v) = (None, None);
        self.rt.end();
        self.world.no_hooks();
    }

    /// Hands the array over in order.
    pub fn close(mut self) {
        let array = self.array.take().unwrap();
        self.rt.block_on(array.close()).unwrap();
        self.end();
    }

    /// The process dies; the drives live on.
    pub fn kill(self, seed: u64) {
        let world = self.world;
        self.end();
        world.disks.iter().for_each(|d| d.crash(seed));
    }

    /// The power fails.
    pub fn power_cut(self, seed: u64) {
        let world = self.world;
        self.end();
        world.disks.iter().for_each(|d| d.power_cut(seed));
    }
}

/// Blocks full of `tag`.
pub fn data(tag: u8, blocks: u64) -> Bytes {
    Bytes::from_slice(&vec![tag; (blocks * BLOCK) as usize])
}

/// Reads blocks of a volume.
pub fn read(rt: &Rt, v: &Volume, lba: u64, blocks: u64) -> Result<Vec<u8>, Fault> {
    let parts = rt.block_on(v.read(lba * BLOCK, blocks * BLOCK))?;
    Ok(parts.iter().flat_map(|p| p.iter().copied()).collect())
}
