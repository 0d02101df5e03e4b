//! Modelled flash drives do what their files' sources say, at any scale. Virtual time.

use bench::drives::{DriveFile, FILES, modelled};
use bench::stripe::Stripe;
use bench::{Load, Pattern, Target, Until, generate};
use rt::Rt;

const MIB: u64 = 1 << 20;

/// Bytes per second of one drive, in its steady state where that matters.
#[derive(Debug)]
struct Rates {
    sequential_write: f64,
    random_write_4k: f64,
    random_write_64k: f64,
    random_read_4k: f64,
    sequential_read: f64,
    lone_write_us: f64,
    lone_read_us: f64,
}

fn rates(name: &str, bytes: u64) -> Rates {
    let rt = Rt::modelled(1);
    let rates = rt.block_on(async {
        let params = DriveFile::named(name).expect("it comes with the program").params(bytes);
        let target = Target::Direct(Stripe::new(modelled(&rt, 1, &params)).expect("one drive"));
        let all = 0..target.bytes();
        let run = async |pattern, block: u32, depth, requests: u64, seed| {
            let load = Load::new(pattern, block, depth);
            generate(&rt, &target, &load, all.clone(), Until::Requests(requests), seed)
                .await
                .expect("drives do not fail")
        };
        let per_s = |s: &bench::Sample| s.bytes as f64 / s.elapsed.as_secs_f64();
        let of = |block: u64| target.bytes() / block;
        let filled = run(Pattern::SEQUENTIAL_WRITE, 1 << 20, 16, of(MIB), 1).await;
        let sequential_read = run(Pattern::SEQUENTIAL_READ, 1 << 17, 64, of(1 << 17), 2).await;
        let random_read = run(Pattern::RANDOM_READ, 4096, 256, 100_000, 3).await;
        let lone_read = run(Pattern::RANDOM_READ, 4096, 1, 1000, 4).await;
        run(Pattern::RANDOM_WRITE, 1 << 16, 64, 4 * of(1 << 16), 5).await;
        let random_64k = run(Pattern::RANDOM_WRITE, 1 << 16, 64, of(1 << 16), 6).await;
        let unit = u64::from(params.flash.expect("a flash drive").unit_bytes);
        run(Pattern::RANDOM_WRITE, 4096, 64, 4 * of(unit), 7).await;
        let random_4k = run(Pattern::RANDOM_WRITE, 4096, 64, of(unit), 8).await;
        rt.sleep(std::time::Duration::from_secs(1)).await;
        let lone_write = run(Pattern::RANDOM_WRITE, 4096, 1, 100, 9).await;
        Rates {
            sequential_write: per_s(&filled),
            random_write_4k: per_s(&random_4k),
            random_write_64k: per_s(&random_64k),
            random_read_4k: per_s(&random_read),
            sequential_read: per_s(&sequential_read),
            lone_write_us: lone_write.latency.ns_p50 as f64 / 1000.0,
            lone_read_us: lone_read.latency.ns_p50 as f64 / 1000.0,
        }
    });
    rt.end();
    println!("{name} {} MiB: {rates:?}", bytes / MIB);
    rates
}

fn near(what: &str, is: f64, should: f64, by: f64) {
    assert!((is / should - 1.0).abs() <= by, "{what}: {is:.3e}, should be {should:.3e}");
}

#[test]
fn a_tlc_drive_does_what_its_sources_say_at_two_scales() {
    let r = rates("tlc", 512 * MIB);
    near("sequential write", r.sequential_write, 33_367e6 / 8.0, 0.05);
    near("sequential read", r.sequential_read, 54_396e6 / 8.0, 0.05);
    near("4K random read", r.random_read_4k, 7_958_204.0 / 8.0 * 4096.0, 0.05);
    near("4K random write", r.random_write_4k, 220_000.0 * 4096.0, 0.10);
    near("a lone write, us", r.lone_write_us, 15.0, 0.1);
    near("a lone read, us", r.lone_read_us, 75.0, 0.1);
    let large = rates("tlc", 2048 * MIB);
    near("4K random write", r.random_write_4k, large.random_write_4k, 0.03);
    near("sequential write", r.sequential_write, large.sequential_write, 0.03);
}

#[test]
fn a_qlc_drive_does_what_its_sources_say_at_two_scales() {
    let r = rates("qlc", 2048 * MIB);
    near("sequential write", r.sequential_write, 2.4e9, 0.05);
    near("sequential read", r.sequential_read, 7.3e9, 0.05);
    near("4K random read", r.random_read_4k, 883_000.0 * 4096.0, 0.05);
    near("64K random write", r.random_write_64k, 0.55e9, 0.10);
    // Nobody published it: a unit of 64 KiB is written for each.
    near("4K random write", r.random_write_4k, r.random_write_64k / 16.0, 0.10);
    near("a lone read, us", r.lone_read_us, 120.0, 0.1);
    let large = rates("qlc", 4096 * MIB);
    near("4K random write", r.random_write_4k, large.random_write_4k, 0.03);
    near("64K random write", r.random_write_64k, large.random_write_64k, 0.03);
    near("sequential write", r.sequential_write, large.sequential_write, 0.03);
}

#[test]
fn all_files_are_read() {
    for (name, _) in FILES {
        assert_eq!(DriveFile::named(name).expect("it is there").name, name);
    }
    assert!(DriveFile::parse("name = \"x\"").unwrap_err().contains("[flash]"));
    assert!(DriveFile::parse("name = \"x\"\nspeed = 1").unwrap_err().contains("speed"));
}
