//! Drives of other sizes: larger ones are used as far as the slots list, smaller ones are asked about.

use api::SeatState;
use array::RefusedCode;
use base::{BlockCount, MemberId, MemberLba};
use ondisk::{Label, Layout, Level};
use rt::Drive;
use rt::model::{Disk, DiskParams};

use crate::world::{BLOCK, Process, World};

fn of_size(world: &World, name: &str, mib: u64) -> Disk {
    Disk::new(name, DiskParams { bytes: mib << 20, ..world.disks[0].params() }, 7)
}

fn replace(p: &Process<'_>, seat: u16, disk: &Disk, force: bool) -> Result<(), array::Refused> {
    let (array, drive) = (p.array(), Drive::modelled(&p.rt, disk));
    p.run(async move {
        array.drive_replace(MemberId(seat), drive, force).await?;
        array.drive_left(MemberId(seat)).await;
        Ok(())
    })
}

fn label_of(disk: &Disk) -> Label {
    Label::decode(&disk.image_read(MemberLba(0), BlockCount(1))).unwrap()
}

fn fill(p: &Process<'_>, mib: u64) {
    (0..mib * 8).for_each(|i| p.write(i * 32, (i % 251) as u8, 32).unwrap());
    p.checkpoint();
}

fn holds(p: &Process<'_>, mib: u64) -> bool {
    (0..mib * 8).all(|i| p.is(i * 32, (i % 251) as u8, 32))
}

/// A drive of any larger size takes a place. Its label says no more zones than the slots can list for every member, so that
/// every generation fits, and it is a member again after a restart.
pub fn a_larger_drive_is_used_as_far_as_slots_list() {
    let mut world = World::new(3, false);
    world.create(Level::Raid5);
    let slot_blocks = world.label(0).layout.slot_blocks;
    let p = world.start(1);
    fill(&p, 6);
    let large: Vec<Disk> = [400, 100, 1600].iter().map(|mib| of_size(&world, &format!("large{mib}"), *mib)).collect();
    for (seat, disk) in large.iter().enumerate() {
        replace(&p, seat as u16, disk, false).unwrap();
        let layout = label_of(disk).layout;
        assert!(Layout::slot_blocks_for(layout.zones) <= slot_blocks, "{layout:?}");
        let (status, bytes) = (p.array().status(), disk.params().bytes);
        let member = status.members.iter().find(|m| m.bytes == bytes).unwrap();
        assert_eq!(member.state, SeatState::In);
        assert_eq!(member.bytes_used < bytes, bytes > 108 << 20, "{member:?}");
        assert!(member.bytes_used <= 108 << 20, "{member:?}");
    }
    p.close();
    world.disks = large;
    assert!(world.check().ok());
    let p = world.start(2);
    assert!(p.array().status().members.iter().all(|m| m.state == SeatState::In));
    assert!(holds(&p, 6));
}

/// All drives are replaced by some twice as large: once all are, volumes may fill more. Says how much before, and now.
fn grow(p: &Process<'_>, large: &[Disk]) -> (u64, u64) {
    fill(p, 7);
    let before = p.array().status().usable_bytes;
    for (seat, disk) in large.iter().enumerate() {
        assert_eq!(p.array().status().usable_bytes, before, "a row needs all four");
        replace(p, seat as u16, disk, false).unwrap();
    }
    let after = p.array().status().usable_bytes;
    assert!(after * 100 > before * 195, "{before} bytes before, {after} now");
    assert!(holds(p, 7));
    (before, after)
}

/// Drive by drive by larger ones: also where the slots that the first drives need could not list the zones of the larger ones.
/// Everything is where it was after a restart.
pub fn an_array_grows_drive_by_drive() {
    let world = World::of(4, DiskParams { bytes: 1 << 30, ..DiskParams::default() });
    world.create_with(Level::Raid5, 512, 8 << 20);
    let p = world.start(1);
    let large: Vec<Disk> = (0..4).map(|i| of_size(&world, &format!("large{i}"), 2048)).collect();
    grow(&p, &large);
    p.close();
    let mut world = World::new(4, false);
    world.create(Level::Raid5);
    let p = world.start(1);
    let large: Vec<Disk> = (0..4).map(|i| of_size(&world, &format!("large{i}"), 96)).collect();
    let (before, after) = grow(&p, &large);
    p.close();
    world.disks = large;
    assert!(world.check().ok());
    let p = world.start(2);
    assert_eq!(p.array().status().usable_bytes, after);
    let mib = (before * 3 / 2) >> 20;
    p.rt.block_on(p.array().volume_grow("v", mib << 20)).unwrap();
    fill(&p, mib);
    assert!(holds(&p, mib), "more than there was room for before");
}

/// A smaller drive takes a place, or stands by, where what is stored still fits; else it wants to be forced. What volumes may
/// fill less than before is said.
pub fn a_smaller_drive_is_asked_about() {
    let world = World::new(3, false);
    world.create_with(Level::Raid5, 128, 64 << 20);
    let p = world.start(1);
    let before = p.array().status().usable_bytes;
    fill(&p, 8);
    let shrinks = |p: &Process<'_>| p.array().status().events.iter().any(|e| e.text.contains("usable shrinks"));
    replace(&p, 0, &of_size(&world, "as-large", 48), false).unwrap();
    assert!(p.array().status().usable_bytes == before && !shrinks(&p));
    replace(&p, 3, &of_size(&world, "fits", 42), false).unwrap();
    let less = p.array().status().usable_bytes;
    assert!(less < before && shrinks(&p), "{before} {less}");
    fill(&p, (less >> 20) - 1);
    let small = of_size(&world, "small", 38);
    let refused = replace(&p, 1, &small, false).unwrap_err();
    assert_eq!(refused.code, RefusedCode::Size, "{refused}");
    let spare = |force| {
        let (array, drive) = (p.array(), Drive::modelled(&p.rt, &small));
        p.run(async move { array.drive_add_spare(drive, force).await })
    };
    assert_eq!(spare(false).unwrap_err().code, RefusedCode::Size);
    assert_eq!(small.counters().bytes_written, 0, "nothing of a refused verb is on the drive");
    assert!(holds(&p, (less >> 20) - 1));
    spare(true).unwrap();
    assert_eq!(p.array().status().usable_bytes, less);
}

/// Slots have room for drives that may come; nobody reads or writes more of them than a generation is long.
pub fn what_is_reserved_is_never_read() {
    let mib = 4096;
    let world = World::of(3, DiskParams { bytes: mib << 20, ..DiskParams::default() });
    world.create_with(Level::Raid5, 1024, 8 << 20);
    let layout = world.label(0).layout;
    assert!(layout.slot_blocks >= 20 * 256, "{layout:?}");
    let p = world.start(1);
    fill(&p, 4);
    p.close();
    let p = world.start(2);
    p.array().scrub_start(api::ScrubKind::Media, true).unwrap();
    let scrubbed = p.array();
    let before = read_of(&p);
    p.run(async move { scrubbed.scrub_done().await });
    let (slot, read) = (u64::from(layout.slot_blocks) * BLOCK, read_of(&p));
    assert!(before < slot && read < slot, "{before} bytes at the open, {read} with the scrub; a slot has {slot}");
}

fn read_of(p: &Process<'_>) -> u64 {
    p.array().status().members.iter().map(|m| m.bytes_read).max().unwrap()
}
