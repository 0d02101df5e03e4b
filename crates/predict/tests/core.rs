//! The simulator against what is known without it.

use predict::{
    Answer, DriveFile, Engine, Level, Limits, Load, Network, Pressure, Span, System, answer, flash_amplification,
    greedy, sheet_errors,
};

const SEED: u64 = 1;

fn load(name: &str, in_flight: f64) -> Load {
    Load { pressure: Pressure::InFlightPerDrive(in_flight), ..Load::new(name.parse().expect("a workload")) }
}

fn run(system: &System, load: &Load) -> Answer {
    answer(system, load, &Limits::default(), SEED, None).expect("it can be")
}

fn named(name: &str) -> System {
    System::named(name).expect("it comes with the program")
}

#[test]
fn requests_in_flight_are_the_rate_times_the_latency() {
    for (name, in_flight) in [("4k-randread", 1.0), ("4k-randread", 64.0), ("4k-randwrite", 32.0), ("64k-70/30", 16.0)]
    {
        let answer = run(&named("r760-direct"), &load(name, in_flight));
        assert!((answer.in_flight / (8.0 * in_flight) - 1.0).abs() < 0.05, "{name} {in_flight}: {}", answer.in_flight);
    }
}

#[test]
fn a_lone_request_takes_the_sum_of_its_parts() {
    let drive = DriveFile::named("p5520").expect("it is there");
    let flash = drive.flash.expect("flash");
    let answer = run(&named("r760-direct"), &load("4k-randread", 0.125));
    let parts = 4.5
        + (flash.page_read_ns + flash.command_ns) as f64 / 1e3
        + 4096.0 * 1e6 / flash.channel_bytes_per_s
        + 4096.0 * 1e6 / flash.link_read_bytes_per_s
        + 1e6 / flash.commands_per_s;
    assert!((answer.mean_us / parts - 1.0).abs() < 0.01, "{} of {parts}", answer.mean_us);
}

#[test]
fn many_requests_make_the_rate_of_the_narrowest_part() {
    let card = run(&named("r760-perc12"), &load("1m-read", 64.0));
    assert!((card.bytes_per_s / 28.076e9 - 1.0).abs() < 0.02, "{}", card.bytes_per_s);
    let mut few = named("r760-direct");
    few.host.cores = 2.0;
    let cpu = run(&few, &load("4k-randread", 64.0));
    assert!((cpu.iops / (2.0 / 4.5e-6) - 1.0).abs() < 0.02, "{}", cpu.iops);
}

#[test]
fn the_same_seed_gives_the_same_digits() {
    let (system, load) = (named("r760-perc12"), load("4k-70/30", 32.0));
    assert_eq!(run(&system, &load), run(&system, &load));
    let other = answer(&system, &load, &Limits::default(), 2, None).expect("it can be");
    assert_ne!(run(&system, &load), other);
}

#[test]
fn a_fixed_rate_is_kept_or_not() {
    let system = named("r760-direct");
    let at = |rate| run(&system, &Load { pressure: Pressure::Rate(rate), ..load("4k-randread", 1.0) });
    let (low, high) = (at(100_000.0), at(100e6));
    assert!(low.kept && low.p99_us < 200.0 && (low.iops / 100_000.0 - 1.0).abs() < 0.03, "{low:?}");
    assert!(!high.kept || high.p99_us > 10.0 * low.p99_us, "{high:?}");
}

#[test]
fn in_place_levels_cost_what_theory_says() {
    for (level, drive_bytes) in [(Level::Raid10, 2.0), (Level::Raid5, 2.0), (Level::Raid6, 3.0)] {
        let mut system = named("r760-direct");
        (system.engine, system.level) = (Engine::InPlace, level);
        let random = run(&system, &load("4k-randwrite", 32.0));
        assert!((random.drive_bytes_per_byte - drive_bytes).abs() < 0.02, "{level}: {}", random.drive_bytes_per_byte);
        let rows = run(&system, &load("64k-write", 32.0)).drive_bytes_per_byte;
        let n = 8.0 / (8.0 - f64::from(level.redundancy(8)));
        assert!((rows - n).abs() < 0.03, "{level}: {rows} of {n}");
    }
}

#[test]
fn drives_are_their_sheets_within_10_percent() {
    for (name, _) in predict::DRIVES {
        for e in sheet_errors(&DriveFile::named(name).expect("it is there"), SEED).expect("its rows are rows") {
            println!(
                "{name:>9} {:>14} x {:<4} {:>10} {} {:+.1} %",
                e.row.load,
                e.row.in_flight,
                e.row.value,
                e.row.unit,
                e.error() * 100.0
            );
            assert!(e.error().abs() < 0.10, "{name}: {} {:+.1} %", e.row.load, e.error() * 100.0);
        }
    }
}

/// The formula against the translation layer of the modelled drives.
#[test]
fn amplification_is_that_of_the_translation_layer() {
    assert!(greedy(1.5) < greedy(1.2));
    let mut flash = DriveFile::named("p5520").expect("it is there").flash.expect("flash");
    flash.superblocks = 256;
    for (spare, slice) in [(0.145, 1.0), (0.28, 1.0), (0.145, 0.25), (0.145, 0.5)] {
        flash.spare = spare;
        let formula = flash_amplification(&flash, &Span { fill: 1.0, slice, age: f64::INFINITY });
        let layer = rt::model::amplification_of(65_536, spare, flash.superblocks, 8, slice);
        println!("spare {spare} slice {slice}: formula {formula:.2}, translation layer {layer:.2}");
        assert!((formula / layer - 1.0).abs() < 0.15, "spare {spare} slice {slice}: {formula:.2} of {layer:.2}");
    }
}

/// A part of an Ashlar array has one core, and what was not split has one part.
#[test]
fn an_array_has_the_cores_of_its_parts() {
    let with = |parts| {
        let mut system = named("vss2249p");
        (system.engine, system.level, system.host.parts) = (Engine::Ashlar, Level::Raid6, parts);
        system.host.cores = 64.0;
        system
    };
    let [whole, one, four] = [0, 1, 4].map(|parts| run(&with(parts), &load("4k-randwrite", 64.0)));
    assert_eq!(whole, one);
    assert!((3.6..4.4).contains(&(four.iops / one.iops)), "{} and {}", one.iops, four.iops);
    let engine_us = one.cpu_us - with(1).host.request_us;
    assert!(one.iops < 1e6 / engine_us * 1.02, "more than one core does: {one:?}");
    assert!(with(16).check().is_ok() && with(17).check().is_err(), "a label has room for 16 parts");
}

/// What cannot be is said, and not taken for something near it.
#[test]
fn nonsense_is_refused() {
    let system = System { engine: Engine::Ashlar, level: Level::Raid6, ..named("vss2249p") };
    assert!(system.check().is_ok());
    assert!(System { width: system.count, ..system.clone() }.check().is_ok());
    assert!(System { width: system.count + 1, ..system.clone() }.check().is_err());
    assert!(Network::named("25gbe", 0).is_err() && Network::named("25gbe", 1).is_ok());
    for nothing in [0.0, -3.0, f64::NAN] {
        let load = load("4k-randread", nothing);
        assert!(answer(&system, &load, &Limits::default(), SEED, None).is_err(), "{nothing} in flight");
    }
}
