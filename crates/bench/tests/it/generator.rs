//! The generator and the comparison on small drives: in real time, in virtual time, over NBD.

use std::time::Duration;

use array::Rate;
use bench::condition::Condition;
use bench::exported::{Exported, Side, exported};
use bench::generate::{fill, generate};
use bench::{Comparison, Error, Fill, Load, Pattern, Report, State, Subject, Target, Until, compare, drives};
use rt::Rt;

const MIB: u64 = 1 << 20;

/// A comparison that is over in a moment: 16 zones of 1 MiB and more on each drive.
fn small(drives: Vec<rt::Drive>, time: Duration) -> Comparison {
    let loads = vec![
        Load::new(Pattern::RANDOM_READ, 4096, 64),
        Load::new(Pattern::RANDOM_WRITE, 4096, 64),
        Load::new(Pattern::SEQUENTIAL_WRITE, 128 << 10, 16),
    ];
    let comparison = Comparison { loads, zone_blocks: Some(256), ..Comparison::new(drives) };
    Comparison {
        working_set_bytes: 16 * MIB,
        bytes_max: 32 * MIB,
        rounds: 3,
        time,
        warm_up: Duration::ZERO,
        ..comparison
    }
}

fn check(report: &Report) {
    assert_eq!(report.groups.len(), 3);
    for group in &report.groups {
        let names: Vec<String> = group.rows.iter().map(|r| r.subject.to_string()).collect();
        assert_eq!(names, ["direct drives", "RAID 0", "RAID 10", "RAID 5", "RAID 6"]);
        assert_eq!(group.rows[0].ratio, Some(1.0));
        for row in &group.rows {
            assert!(row.figures.iops > 0.0 && row.figures.latency_us_p50 <= row.figures.latency_us_p999, "{row:?}");
            let written = row.figures.drive_bytes_per_host_byte.zip(row.drive_bytes_per_host_byte_min);
            if let Some((is, least)) = written {
                assert!(is >= least, "nobody writes less than the redundancy asks for: {row:?}");
            }
            let is_write_to_array = group.load.pattern.only_writes() && row.subject != Subject::Direct;
            assert_eq!(written.is_some(), is_write_to_array);
        }
    }
}

#[test]
fn all_levels_on_memory_drives() {
    let rt = Rt::real().unwrap();
    let report = rt.block_on(async {
        let drives = drives::memory(&rt, 8, 96 * MIB).await.unwrap();
        compare(&rt, &small(drives, Duration::from_millis(20)), |_, _, _| ()).await.unwrap()
    });
    check(&report);
    assert!(report.groups.iter().flat_map(|g| &g.rows).all(|r| r.figures.cpu_us_per_request.is_some()));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["groups"][1]["load"]["pattern"], "random-write");
    assert_eq!(json["groups"][2]["rows"][3]["scheme"], "7+1");
    println!("{report}");
}

fn modelled_report() -> Report {
    let rt = Rt::modelled(7);
    rt.block_on(async {
        let drives = drives::modelled(&rt, 8, &drives::equal_cost(96 * MIB));
        let compared = compare(&rt, &small(drives, Duration::from_millis(20)), |_, _, _| ()).await;
        compared.expect("modelled drives do not fail")
    })
}

#[test]
fn a_figure_in_virtual_time_does_not_move() {
    let report = modelled_report();
    check(&report);
    println!("{report}");
    assert_eq!(serde_json::to_string(&report).unwrap(), serde_json::to_string(&modelled_report()).unwrap());
    for row in report.groups.iter().flat_map(|g| &g.rows) {
        let ratio = row.ratio.unwrap();
        assert!(ratio <= row.limit.expect("costs are known") * 1.1, "the drives allow no more: {row:?}");
        assert!(row.figures.cpu_us_per_request.is_none());
    }
}

#[test]
fn conditions_stand_beside_each_other() {
    let rt = Rt::modelled(8);
    let report = rt.block_on(async {
        let drives = drives::modelled(&rt, 6, &drives::equal_cost(96 * MIB));
        let full = Fill::Usable(80);
        let conditions = vec![
            Condition { fill: full, state: State::Optimal, cores: 1 },
            Condition { fill: full, state: State::Degraded, cores: 1 },
            Condition { fill: full, state: State::Rebuilding(Rate::Low), cores: 1 },
        ];
        let small = small(drives, Duration::from_millis(10));
        let loads = vec![Load::new(Pattern::RANDOM_READ, 4096, 64), Load::new(Pattern::RANDOM_WRITE, 4096, 64)];
        let read_cost = Some(1.0 / 3.0);
        let what = Comparison { conditions, loads, rounds: 1, zone_blocks: Some(64), read_cost, ..small };
        let subjects = Subject::all_levels(5);
        compare(&rt, &Comparison { subjects, ..what }, |_, _, _| ()).await.expect("modelled drives do not fail")
    });
    println!("{report}");
    assert_eq!(report.groups.len(), 6);
    let ratio = |group: usize, subject: &str| {
        let row = report.groups[group].rows.iter().find(|r| r.subject.to_string() == subject);
        row.map(|r| (r.ratio.expect("beside direct drives"), r.limit.expect("costs are known")))
    };
    for group in 0..6 {
        let (is, limit) = ratio(group, "RAID 5").expect("it can lose a drive");
        assert!(is <= limit * 1.1 && is > limit / 4.0, "group {group}: {is}, at most {limit}");
        assert_eq!(ratio(group, "RAID 0").is_some(), group < 2, "without redundancy no drive is taken");
    }
    assert!(ratio(2, "RAID 5") < ratio(0, "RAID 5"), "a degraded array reads other columns");
    assert!(report.to_string().contains("4K random write, depth 64, 80 % of usable, steady, rebuilding-low"));
}

#[test]
fn a_mirror_in_place_writes_twice_and_reads_from_both() {
    let rt = Rt::modelled(7);
    let report = rt.block_on(async {
        let drives = drives::modelled(&rt, 8, &drives::equal_cost(96 * MIB));
        let subjects = vec![Subject::Direct, Subject::InPlaceRaid10];
        let conditions =
            [Fill::Fresh, Fill::Usable(80)].map(|fill| Condition { fill, state: State::Optimal, cores: 1 });
        let small = small(drives, Duration::from_millis(20));
        let read_cost = Some(1.0 / 3.0);
        let what = Comparison { subjects, conditions: conditions.to_vec(), rounds: 1, read_cost, ..small };
        compare(&rt, &what, |_, _, _| ()).await.expect("modelled drives do not fail")
    });
    for group in &report.groups {
        let row = &group.rows[1];
        let (ratio, limit) = (row.ratio.unwrap(), row.limit.unwrap());
        assert_eq!(limit, if group.load.pattern.only_writes() { 0.5 } else { 1.0 });
        assert!((limit * 0.9..limit * 1.1).contains(&ratio), "{} {ratio}", group.load.pattern);
    }
}

#[test]
fn a_limited_load_is_served_at_its_rate() {
    let rt = Rt::modelled(9);
    let report = rt.block_on(async {
        let drives = drives::modelled(&rt, 4, &drives::equal_cost(96 * MIB));
        let free = Load::new(Pattern::RANDOM_READ, 4096, 64);
        let loads = vec![free, Load { iops_max: Some(10_000), ..free }];
        let what = Comparison { loads, rounds: 1, ..small(drives, Duration::from_millis(100)) };
        compare(&rt, &Comparison { subjects: vec![Subject::Direct], ..what }, |_, _, _| ()).await.unwrap()
    });
    let figures = |group: usize| report.groups[group].rows[0].figures;
    let (free, limited) = (figures(0), figures(1));
    assert!(free.iops > 20_000.0, "{free:?}");
    assert!((limited.iops / 10_000.0 - 1.0).abs() < 0.01, "{limited:?}");
    assert!(limited.latency_us_mean < free.latency_us_mean / 2.0, "who waits for a turn is not measured: {limited:?}");
}

#[test]
fn loads_that_do_not_suit_are_refused() {
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let drives = drives::memory(&rt, 2, 4 * MIB).await.unwrap();
        let target = Subject::Direct.make(&rt, &drives, None, 0).await.unwrap();
        let refused = |block_bytes, depth, set| {
            let load = Load::new(Pattern::RANDOM_READ, block_bytes, depth);
            let (rt, target) = (rt.clone(), target.clone());
            async move { generate(&rt, &target, &load, 0..set, Until::Requests(1), 1).await.unwrap_err().to_string() }
        };
        assert!(refused(512, 1, MIB).await.contains("multiple of 4096"));
        assert!(refused(4096, 0, MIB).await.contains("depth of 0"));
        assert!(refused(4096, 1, 9 * MIB).await.contains("does not fit direct drives"));
        let nothing = compare(&rt, &small(vec![], Duration::ZERO), |_, _, _| ()).await;
        assert!(matches!(nothing, Err(Error::Impossible(_))));
    });
}

#[test]
fn an_export_is_a_target() {
    use export::nbd::{Server, client::Client};
    use export::{Exports, Memory};
    let rt = Rt::real().unwrap();
    let any_port = "tcp:127.0.0.1:0".parse().unwrap();
    let server = Server::start(&rt, Exports::new([Memory::new("memory", 4 * MIB)]), &[any_port]).unwrap();
    let address = server.local_addrs()[0].clone();
    rt.block_on(async {
        let target = Target::Nbd(Client::connect(&rt, &address, "").await.unwrap());
        fill(&rt, &target, 4 * MIB).await.unwrap();
        for pattern in [Pattern::RANDOM_READ, Pattern::RANDOM_WRITE] {
            let load = Load::new(pattern, 4096, 8);
            let sample = generate(&rt, &target, &load, 0..4 * MIB, Until::Requests(500), 1).await.unwrap();
            assert_eq!((sample.requests, sample.bytes), (500, 500 * 4096));
        }
        target.close().await.unwrap();
        server.stop().await;
    });
}

#[test]
fn a_namespace_is_a_target() {
    use std::rc::Rc;

    use export::Memory;
    use export::nvme::client::{Host, Wishes};
    use export::nvme::{Access, Server, SubsystemList};
    const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:bench";
    let rt = Rt::real().unwrap();
    let any_port = "tcp:127.0.0.1:0".parse().unwrap();
    let list = SubsystemList::default();
    list.add(NQN, Access::Any);
    list.attach(NQN, 1, Memory::new("memory", 4 * MIB));
    let server = Server::start(&rt, list, &[any_port], &[]).unwrap();
    let address = server.local_addrs()[0].clone();
    rt.block_on(async {
        let host = Host::connect(&rt, &address, NQN, 1, &Wishes::default()).await.unwrap();
        let target = Target::Nvme { disk: host.disk(1).await.unwrap(), host: Rc::new(host) };
        fill(&rt, &target, 4 * MIB).await.unwrap();
        for pattern in [Pattern::RANDOM_READ, Pattern::RANDOM_WRITE] {
            let load = Load::new(pattern, 4096, 8);
            let sample = generate(&rt, &target, &load, 0..4 * MIB, Until::Requests(500), 1).await.unwrap();
            assert_eq!((sample.requests, sample.bytes), (500, 500 * 4096));
        }
        let what = Exported {
            load: Load::new("random-70".parse().unwrap(), 4096, 8),
            range: MIB..3 * MIB,
            ramp: Duration::from_millis(50),
            time: Some(Duration::from_millis(1700)),
            seed: 1,
        };
        let mut seconds = 0;
        let told = exported(&rt, &target, &what, |_| seconds += 1).await.unwrap();
        assert_eq!((seconds, told.series.len()), (2, 2), "a whole second, and most of another");
        let share = told.read.requests as f64 / (told.read.requests + told.write.requests) as f64;
        assert!((0.6..0.8).contains(&share) && told.iops() > 0.0, "{share}");
        let counted = |side: &Side| side.bins.iter().map(|(_, count)| count).sum::<u64>();
        assert_eq!((counted(&told.read), counted(&told.write)), (told.read.requests, told.write.requests));
        assert_eq!(told.write.bytes, told.write.requests * 4096);
        let once = Exported { load: Load::new(Pattern::SEQUENTIAL_WRITE, 1 << 16, 4), time: None, ..what.clone() };
        let told = exported(&rt, &target, &once, |_| ()).await.unwrap();
        assert_eq!((told.write.bytes, told.read.requests), (2 * MIB, 0));
        let wide = Exported { range: 0..5 * MIB, ..what };
        let refused = exported(&rt, &target, &wide, |_| ()).await;
        assert!(matches!(refused, Err(Error::Impossible(_))), "{refused:?}");
        let past_the_end = target.write(4 * MIB, rt::Bytes::zeroed(4096)).await;
        assert!(matches!(past_the_end, Err(Error::Namespace(_))), "{past_the_end:?}");
        target.close().await.unwrap();
        server.stop().await;
    });
}
