//! What a set of drives can become: segments, capacity, and what it survives. Arithmetic only.

use api::PlanView;
use base::{BLOCK_BYTES, BlockCount, human};
use ondisk::layout::{MEMBERS_MAX, ZONE_BLOCKS_MAX, ZONE_BLOCKS_MIN, ZONES_MIN};
use ondisk::scheme::WIDTH_MAX;
use ondisk::{Layout, Level, Scheme};

use crate::fault::{Refused, RefusedCode};
use crate::space::ladder::Ladder;

/// Per mille of the data blocks that volumes may fill: the rest keeps the cleaner's work cheap.
pub const USABLE_PERMILLE: u16 = 850;

/// What to create.
#[derive(Clone, Debug)]
pub struct CreateSpec {
    /// The array's name.
    pub name: String,
    /// Its level.
    pub level: Level,
    /// Columns of a segment; `None`: as wide as leaves a place for a rebuild.
    pub width: Option<usize>,
    /// Blocks of a zone; `None`: from the smallest drive.
    pub zone_blocks: Option<u32>,
    /// Take drives that carry another array's label.
    pub force: bool,
}

/// What it would be, and how its drives are laid out.
pub(crate) struct Plan {
    pub view: PlanView,
    pub zone_blocks: u32,
    pub slot_blocks: u32,
}

/// Segments of `width` different members that `zones` (free zones of each member) give.
///
/// The most S for which every member gives at most S: sum of min(zones, S) >= S * width.
#[must_use]
pub fn segments_of(zones: &[u32], width: usize) -> u64 {
    if width == 0 || zones.len() < width {
        return 0;
    }
    let gives = |s: u64| zones.iter().map(|&z| u64::from(z).min(s)).sum::<u64>() >= s * width as u64;
    let (mut low, mut high) = (0u64, zones.iter().map(|&z| u64::from(z)).sum::<u64>() / width as u64 + 1);
    while low + 1 < high {
        let mid = low.midpoint(high);
        if gives(mid) { low = mid } else { high = mid }
    }
    low
}

/// Data blocks that volumes may fill, of an array with these zones.
#[must_use]
pub fn usable_blocks(zones: &[u32], scheme: Scheme, zone_blocks: u32, rebuild_place: bool, permille: u16) -> u64 {
    let mut zones = zones.to_vec();
    zones.sort_unstable();
    if rebuild_place {
        zones.pop();
    }
    let segments = segments_of(&zones, scheme.width());
    let segments = segments.saturating_sub(Ladder::of(segments).held);
    segments * scheme.k() as u64 * u64::from(zone_blocks) * u64::from(permille) / 1000
}

fn size(blocks: u64) -> String {
    human(BlockCount(blocks).bytes())
}

fn refuse(code: RefusedCode, why: String, todo: &str) -> Refused {
    Refused::new(code, "cannot create the array", why, todo)
}

/// The plan for drives of these sizes (in blocks).
///
/// # Errors
/// When the level, the width or the sizes do not go together.
pub fn plan(spec: &CreateSpec, drive_blocks: &[u64]) -> Result<PlanView, Refused> {
    Ok(lay_out(spec, drive_blocks)?.view)
}

/// The same with what only a creation wants to know.
pub(crate) fn lay_out(spec: &CreateSpec, drive_blocks: &[u64]) -> Result<Plan, Refused> {
    check_name(&spec.name)?;
    let n = drive_blocks.len();
    let level = spec.level;
    if n == 0 || n > MEMBERS_MAX {
        return Err(refuse(
            RefusedCode::Drives,
            format!("{n} drives given, an array has 1 to {MEMBERS_MAX}"),
            "Give more or fewer drives",
        ));
    }
    let least = level.tolerates() + 1;
    if n < least {
        return Err(refuse(
            RefusedCode::Drives,
            format!("{level} needs at least {least} drives, {n} given"),
            "Add drives or choose another level",
        ));
    }
    let width = spec.width.unwrap_or(default_width(level, n));
    let scheme = level.scheme_of_width(width).filter(|s| s.width() == width && width <= n.min(WIDTH_MAX));
    let Some(scheme) = scheme else {
        return Err(refuse(
            RefusedCode::Drives,
            format!("width {width} is not valid for {level} over {n} drives"),
            &format!(
                "Use a width from {least} to {n}{}",
                match level {
                    Level::Raid10 { copies } => format!(", a multiple of {copies}"),
                    Level::Raid0 | Level::Raid5 | Level::Raid6 => String::new(),
                }
            ),
        ));
    };
    let smallest = drive_blocks.iter().copied().min().unwrap_or(0);
    let zone_blocks = spec.zone_blocks.unwrap_or(Layout::zone_blocks_for(smallest));
    if !zone_blocks.is_power_of_two() || !(ZONE_BLOCKS_MIN..=ZONE_BLOCKS_MAX).contains(&zone_blocks) {
        return Err(refuse(
            RefusedCode::Size,
            format!(
                "a zone of {} is not valid: it must be a power of two from {} to {}",
                size(zone_blocks.into()),
                size(ZONE_BLOCKS_MIN.into()),
                size(ZONE_BLOCKS_MAX.into())
            ),
            "Give such a size, or none",
        ));
    }
    let largest = drive_blocks.iter().copied().max().unwrap_or(0);
    let slot_blocks = Layout::slot_blocks_of_new(smallest, largest, zone_blocks);
    let mut layouts = Vec::with_capacity(n);
    for &blocks in drive_blocks {
        match Layout::new(blocks, slot_blocks, zone_blocks) {
            Some(layout) if layout.zones >= ZONES_MIN => layouts.push(layout),
            _ => {
                let need = u64::from(ZONES_MIN) * u64::from(zone_blocks) + 2 * u64::from(slot_blocks) + 1024;
                return Err(refuse(
                    RefusedCode::Drives,
                    format!(
                        "a drive of {} is too small: {ZONES_MIN} zones of {} and the system area need {}",
                        size(blocks),
                        size(zone_blocks.into()),
                        size(need)
                    ),
                    "Use larger drives",
                ));
            }
        }
    }
    let zones: Vec<u32> = layouts.iter().map(|layout| layout.zones).collect();
    let rebuild_place = level.tolerates() > 0 && n > width;
    let segments = segments_of(&zones, width);
    let data_blocks = segments * scheme.k() as u64 * u64::from(zone_blocks);
    let usable = usable_blocks(&zones, scheme, zone_blocks, rebuild_place, USABLE_PERMILLE);
    if usable == 0 {
        return Err(refuse(
            RefusedCode::Drives,
            "no space would be left for volumes".into(),
            "Use larger drives, or a smaller width",
        ));
    }
    let view = PlanView {
        losses: vec![],
        level: level.to_string(),
        scheme: scheme.to_string(),
        width,
        drives: n,
        zone_bytes: u64::from(zone_blocks) * BLOCK_BYTES as u64,
        segments,
        raw_bytes: drive_blocks.iter().map(|&b| BlockCount(b).bytes()).sum(),
        data_bytes: BlockCount(data_blocks).bytes(),
        usable_bytes: BlockCount(usable).bytes(),
        tolerates: level.tolerates(),
        rebuild_place,
        largest_drive_bytes: BlockCount(Layout::largest_drive(slot_blocks, zone_blocks)).bytes(),
        notes: notes(level, scheme, n, rebuild_place, &layouts, segments),
    };
    Ok(Plan { view, zone_blocks, slot_blocks })
}

/// As wide as the drives; from 8 drives on one less, so that a rebuild has a place.
fn default_width(level: Level, n: usize) -> usize {
    let widest = if n >= 8 && level.tolerates() > 0 { n - 1 } else { n };
    match level {
        // Pairs are fixed when all drives take part; a pair short of a drive has no place to go anyway.
        Level::Raid10 { copies } => n - n % copies as usize,
        Level::Raid0 | Level::Raid5 | Level::Raid6 => widest,
    }
}

/// Drives in a segment from which on one parity column is too little: a rebuild reads all the others, and the more they are,
/// the likelier one of them errs before it has ended.
const RAID5_WIDTH_MAX: usize = 12;

fn notes(level: Level, scheme: Scheme, n: usize, place: bool, layouts: &[Layout], segments: u64) -> Vec<String> {
    let mut notes = Vec::new();
    let tolerates = level.tolerates();
    notes.push(match (level, tolerates) {
        (_, 0) => "No redundancy: losing any drive loses data.".to_owned(),
        (Level::Raid10 { copies }, t) if scheme.width() == n => format!(
            "Any {t} drive{} may fail; of each group of {copies} drives, all but one may.",
            if t == 1 { "" } else { "s" }
        ),
        (_, 1) => "Any 1 drive may fail.".to_owned(),
        (_, t) => format!("Any {t} drives may fail."),
    });
    if tolerates > 0 {
        notes.push(if place {
            "After a loss the array rebuilds by itself onto the space left on the other drives.".to_owned()
        } else {
            "After a loss the array stays degraded until the drive is replaced; new writes keep full redundancy \
             with fewer columns while enough drives are healthy."
                .to_owned()
        });
    }
    if level == Level::Raid5 && scheme.width() > RAID5_WIDTH_MAX {
        notes.push(format!(
            "RAID 5 over {} drives is risky: while one is rebuilt, an error of any other one loses data. Use RAID 6 \
             for more than {RAID5_WIDTH_MAX} drives.",
            scheme.width()
        ));
    }
    for layout in layouts.iter().filter(|layout| layout.used_blocks() < layout.drive_blocks) {
        notes.push(format!(
            "Of a drive of {} the first {} are used: the smallest drive has no space for a larger system area.",
            size(layout.drive_blocks),
            size(layout.used_blocks())
        ));
    }
    let used = segments * scheme.width() as u64;
    let all: u64 = layouts.iter().map(|layout| u64::from(layout.zones)).sum();
    if used + scheme.width() as u64 <= all && used * 100 < all * 99 {
        notes.push(format!(
            "{} % of the raw space cannot be used because the drives differ in size.",
            (all - used) * 100 / all
        ));
    }
    notes
}

/// Whether `name` can name an array or a volume: 1 to 62 letters, digits, `-`, `_`, `.`, not first a `-` or `.`.
///
/// # Errors
/// When it cannot.
pub fn check_name(name: &str) -> Result<(), Refused> {
    let fits = (1..=ondisk::generation::NAME_MAX).contains(&name.len());
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if fits && name.chars().all(plain) && !name.starts_with(['-', '.']) {
        return Ok(());
    }
    Err(Refused::new(
        RefusedCode::Name,
        format!("the name \"{name}\""),
        "a name has 1 to 62 letters, digits, '-', '_' or '.', and does not begin with '-' or '.'",
        "Choose another name",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(level: Level, width: Option<usize>) -> CreateSpec {
        CreateSpec { name: "a".into(), level, width, zone_blocks: None, force: false }
    }

    #[test]
    fn unequal_drives_give_what_they_can() {
        for (zones, width, segments) in [
            (vec![10, 10, 10], 3, 10),
            (vec![10, 10, 10, 5], 3, 11),
            (vec![4, 100], 2, 4),
            (vec![10; 24], 10, 24),
            (vec![1], 2, 0),
        ] {
            assert_eq!(segments_of(&zones, width), segments, "{zones:?} by {width}");
        }
    }

    #[test]
    fn default_widths() {
        let gib4 = 1 << 20;
        for (level, n, width) in [
            (Level::Raid6, 6, 6),
            (Level::Raid6, 8, 7),
            (Level::Raid5, 24, 23),
            (Level::Raid0, 24, 24),
            (Level::Raid10 { copies: 2 }, 5, 4),
            (Level::Raid10 { copies: 3 }, 9, 9),
        ] {
            let p = plan(&spec(level, None), &vec![gib4; n]).unwrap();
            assert_eq!(p.width, width, "{level} over {n}");
        }
    }

    /// A wide RAID 5 is made, and said to be one.
    #[test]
    fn a_wide_raid_5_names_the_level_to_take() {
        let gib4 = 1 << 20;
        for (level, width, said) in [
            (Level::Raid5, 12, false),
            (Level::Raid5, 13, true),
            (Level::Raid5, 23, true),
            (Level::Raid6, 23, false),
            (Level::Raid0, 23, false),
        ] {
            let notes = plan(&spec(level, Some(width)), &[gib4; 24]).unwrap().notes;
            assert_eq!(notes.iter().any(|note| note.contains("Use RAID 6")), said, "{level} of {width}: {notes:?}");
        }
    }

    /// Of drives of very different sizes all are taken; what cannot be used is said.
    #[test]
    fn drives_of_very_different_sizes() {
        let gb = |n: u64| n * 1_000_000_000 / BLOCK_BYTES as u64;
        for (drives, said) in [
            (vec![gb(960), gb(960), gb(15_360)], false),
            (vec![gb(1), gb(20), gb(20)], false),
            (vec![gb(1), gb(15_360), gb(15_360)], true),
        ] {
            let p = plan(&spec(Level::Raid5, None), &drives).unwrap();
            assert_eq!(p.notes.iter().any(|note| note.contains("the first")), said, "{drives:?}: {:?}", p.notes);
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let gib4 = 1 << 20;
        for (level, width, drives) in [
            (Level::Raid6, None, vec![gib4; 2]),
            (Level::Raid5, Some(9), vec![gib4; 8]),
            (Level::Raid10 { copies: 2 }, Some(3), vec![gib4; 4]),
            (Level::Raid5, None, vec![gib4, gib4, 100]),
            (Level::Raid0, None, vec![]),
            (Level::Raid0, None, vec![gib4; 65]),
        ] {
            let e = plan(&spec(level, width), &drives).unwrap_err();
            assert!(!e.todo.is_empty(), "{e}");
        }
        assert!(check_name("../x").is_err());
        assert!(check_name("").is_err());
        assert!(check_name("db-1.x_y").is_ok());
    }
}
