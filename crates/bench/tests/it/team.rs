//! A comparison on one core and on two, on small drives. No figure is looked at but those that no machine changes.

use std::time::Duration;

use array::{Array, CreateSpec, Rate, Whole};
use bench::condition::Condition;
use bench::generate::fill;
use bench::{
    Asks, Comparison, Error, Fill, Impossible, Load, Pattern, Report, State, Subject, Target, Team, Until, compare,
    drives, generate,
};
use ondisk::Level;
use rt::{Drive, OpenDrive, Rt};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const DRIVES: usize = 5;
const ON_ONE_AND_TWO: [usize; 2] = [1, 2];

/// Sparse files, as drives.
async fn files(rt: &Rt, directory: &TempDir, bytes: u64) -> Vec<Drive> {
    let mut drives = vec![];
    for number in 0..DRIVES {
        let path = directory.path().join(format!("d{number}"));
        let made = std::fs::File::create(&path).and_then(|file| file.set_len(bytes));
        made.expect("there is room for sparse files");
        let opened = Drive::open(rt, &path, OpenDrive { read_only: false, lock: true }).await;
        drives.push(opened.expect("nobody else has it"));
    }
    drives
}

fn tiny(drives: Vec<Drive>, states: &[State]) -> Comparison {
    let conditions = states
        .iter()
        .flat_map(|&state| ON_ONE_AND_TWO.map(|cores| Condition { state, cores, ..Condition::default() }))
        .collect();
    Comparison {
        conditions,
        loads: vec![
            Load::new(Pattern::RANDOM_READ, 4096, 16),
            Load::new(Pattern::RANDOM_WRITE, 4096, 16),
            Load::new(Pattern::SEQUENTIAL_WRITE, 128 << 10, 5),
        ],
        zone_blocks: Some(64),
        working_set_bytes: 16 * MIB,
        bytes_max: 8 * MIB,
        rounds: 2,
        time: Duration::from_millis(20),
        warm_up: Duration::ZERO,
        ..Comparison::new(drives)
    }
}

fn check(report: &Report, groups: usize, names: &[&str]) {
    println!("{report}");
    assert_eq!(report.groups.len(), groups);
    for (number, group) in report.groups.iter().enumerate() {
        assert_eq!(group.condition.cores, ON_ONE_AND_TWO[number % 2], "they stand side by side");
        assert_eq!(group.rows.iter().map(|r| r.subject.to_string()).collect::<Vec<_>>(), names);
        for row in &group.rows {
            assert!(row.figures.iops > 0.0 && row.figures.latency_us_p50 <= row.figures.latency_us_p999, "{row:?}");
            assert!(row.figures.cpu_us_per_request.is_some_and(|us| us > 0.0), "{row:?}");
            let ratio = row.cpu_ratio_to_first_core_count;
            assert_eq!(ratio.is_some(), group.condition.cores == 2, "{row:?}");
            assert!(ratio.is_none_or(|ratio| ratio.is_finite() && ratio > 0.0), "{row:?}");
            let written = row.figures.drive_bytes_per_host_byte.zip(row.drive_bytes_per_host_byte_min);
            assert_eq!(written.is_some(), group.load.pattern.only_writes() && row.subject != Subject::Direct);
            // Of a row whose drive is out a column is not written.
            let least = |least: f64| if group.condition.state == State::Optimal { least } else { 1.0 };
            assert!(
                written.is_none_or(|(is, l)| is >= least(l) && is < 3.0 * l),
                "as one that writes nothing twice: {row:?}"
            );
        }
    }
}

#[test]
fn memory_drives_on_two_cores() {
    let rt = Rt::real().unwrap();
    let report = rt.block_on(async {
        let drives = drives::memory(&rt, DRIVES, 64 * MIB).await.unwrap();
        compare(&rt, &tiny(drives, &[State::Optimal]), |_, _, _| ()).await.unwrap()
    });
    check(&report, 6, &["direct drives", "RAID 0", "RAID 10", "RAID 5", "RAID 6"]);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["groups"][1]["condition"]["cores"], 2);
    assert!(json["groups"][1]["rows"][0]["cpu_ratio_to_first_core_count"].is_number());
}

#[test]
fn files_on_two_cores_whole_and_without_a_drive() {
    let (rt, directory) = (Rt::real().unwrap(), TempDir::new().unwrap());
    let report = rt.block_on(async {
        let drives = files(&rt, &directory, 64 * MIB).await;
        let what = tiny(drives, &[State::Optimal, State::Degraded]);
        let subjects = what.subjects.iter().copied().filter(|s| s.allows(what.conditions[2])).collect();
        compare(&rt, &Comparison { subjects, ..what }, |_, _, _| ()).await.unwrap()
    });
    check(&report, 12, &["direct drives", "RAID 10", "RAID 5", "RAID 6"]);
    assert!(report.groups[11].condition == Condition { state: State::Degraded, cores: 2, ..Condition::default() });
}

#[test]
fn a_rebuild_of_two_parts_lasts_as_long_as_a_measurement() {
    let rt = Rt::real().unwrap();
    let report = rt.block_on(async {
        let drives = drives::memory(&rt, DRIVES, 64 * MIB).await.unwrap();
        // Slow enough to last.
        let what = tiny(drives, &[State::Rebuilding(Rate::Bytes(MIB))]);
        let subjects = Subject::all_levels(DRIVES - 1).into_iter().filter(|s| s.to_string() != "RAID 0").collect();
        compare(&rt, &Comparison { subjects, rounds: 1, ..what }, |_, _, _| ()).await.unwrap()
    });
    check(&report, 6, &["direct drives", "RAID 10", "RAID 5", "RAID 6"]);
}

#[test]
fn an_array_filled_on_two_cores_comes_to_clean() {
    let rt = Rt::real().unwrap();
    let report = rt.block_on(async {
        let drives = drives::memory(&rt, DRIVES, 64 * MIB).await.unwrap();
        let what = tiny(drives, &[State::Optimal]);
        let conditions = vec![Condition { fill: Fill::Usable(60), state: State::Optimal, cores: 2 }];
        let subjects = vec![Subject::Direct, Subject::widest(Level::Raid5, DRIVES).unwrap()];
        compare(&rt, &Comparison { conditions, subjects, rounds: 1, ..what }, |_, _, _| ()).await.unwrap()
    });
    println!("{report}");
    let written = report.groups[1].rows[1].figures.drive_bytes_per_host_byte.unwrap();
    assert!(written > 1.25, "{written}");
    assert!(report.groups.iter().flat_map(|g| &g.rows).all(|r| r.cpu_ratio_to_first_core_count.is_none()));
}

/// What is mapped of the volume in each part.
async fn mapped_bytes(array: &Whole) -> Vec<u64> {
    let of = |array: Array| async move { array.status().volumes[0].mapped_bytes };
    let mut all = vec![of(array.first().clone()).await];
    for part in array.others() {
        all.push(part.ask(of).await.expect("its core is there"));
    }
    all
}

#[test]
fn every_core_works_and_the_whole_is_written_once() {
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let spec =
            CreateSpec { name: "a".into(), level: Level::Raid5, width: None, zone_blocks: Some(64), force: true };
        for (cores, asks) in [(2, Asks::All), (3, Asks::All), (2, Asks::Own)] {
            let drives: Vec<Drive> = (0..DRIVES).map(|n| Drive::memory(&rt, &format!("m{n}"), 96 * MIB)).collect();
            let team = Team::array(&rt, &drives, &spec, cores, 12 * MIB, asks).await.unwrap();
            let target = Target::Team(team.clone());
            assert_eq!(target.bytes(), 12 * MIB);
            let filled = fill(&rt, &target, 12 * MIB).await.unwrap();
            assert_eq!((filled.requests, filled.bytes, filled.cores), (12, 12 * MIB, cores));
            let status = team.whole().unwrap().status().await.unwrap();
            assert_eq!(status.volumes[0].mapped_bytes, 12 * MIB, "each core wrote what the others did not: {asks:?}");
            let each = mapped_bytes(team.whole().unwrap()).await;
            assert!(each.iter().all(|bytes| *bytes == 12 * MIB / cores as u64), "{each:?}");
            let load = Load::new(Pattern::RANDOM_READ, 4096, 7);
            let until = Until::Requests(1001);
            let read = generate(&rt, &target, &load, 0..12 * MIB, until, 1).await.unwrap();
            assert_eq!((read.requests, read.drive_bytes_per_host_byte), (1001, None));
            let too_much = generate(&rt, &target, &load, 0..96 * MIB, until, 1).await;
            assert!(matches!(too_much, Err(Error::Impossible(Impossible::WorkingSet { .. }))), "{too_much:?}");
            target.close().await.unwrap();
        }
    });
}

#[test]
fn what_cannot_be_is_refused() {
    let rt = Rt::modelled(1);
    let refused = rt.block_on(async {
        let drives = drives::modelled(&rt, 2, &drives::equal_cost(64 * MIB));
        compare(&rt, &tiny(drives, &[State::Optimal]), |_, _, _| ()).await.unwrap_err()
    });
    assert!(matches!(refused, Error::Impossible(Impossible::CoresModelled)), "{refused}");
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let tiny = tiny((0..4).map(|n| Drive::memory(&rt, &format!("m{n}"), 64 * MIB)).collect(), &[State::Optimal]);
        let in_place = Comparison { subjects: vec![Subject::InPlaceRaid10], ..tiny.clone() };
        let refused = compare(&rt, &in_place, |_, _, _| ()).await.unwrap_err();
        assert!(matches!(refused, Error::Impossible(Impossible::CoresInPlace)), "{refused}");
        let many = Comparison { conditions: vec![Condition { cores: 6, ..Condition::default() }], ..tiny };
        let refused = compare(&rt, &many, |_, _, _| ()).await.unwrap_err();
        assert!(matches!(refused, Error::Impossible(Impossible::Cores(_))), "{refused}");
    });
}
