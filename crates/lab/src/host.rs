//! The machine: what it is, and how busy it is while a cell is measured.

use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::model::Pair;
use crate::target::{Kind, Target};

/// What the machine is, for the system card.
pub fn facts() -> Vec<Pair> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split_once(": "));
    let cpus = cpuinfo.lines().filter(|l| l.starts_with("processor")).count();
    let memory = memory_bytes().map_or(String::new(), |b| format!("{:.1} GiB", b as f64 / (1u64 << 30) as f64));
    vec![
        Pair::new("host", read("/proc/sys/kernel/hostname").trim()),
        Pair::new("CPU", format!("{cpus} x {}", model.map_or("unknown", |(_, m)| m))),
        Pair::new("memory", memory),
        Pair::new("kernel", read("/proc/sys/kernel/osrelease").trim()),
    ]
}

/// Memory of the machine, in bytes.
pub fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("MemTotal:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

/// Time of the CPUs since the machine started, in ticks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ticks {
    cpus: Vec<[u64; 8]>,
}

/// How busy the CPUs were between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Busy {
    /// Hundredths of all CPUs.
    pub all_percent: f64,
    /// Of the busiest one.
    pub most_percent: f64,
    /// Taken by other guests of the same hardware, of all CPUs.
    pub steal_percent: f64,
    /// CPUs there are.
    pub cpus: usize,
}

impl Ticks {
    /// Now.
    pub fn now() -> Ticks {
        Ticks::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(text: &str) -> Ticks {
        let lines = text.lines().filter(|l| l.starts_with("cpu") && !l.starts_with("cpu "));
        let cpus = lines.map(|line| {
            let mut ticks = [0; 8];
            for (tick, word) in ticks.iter_mut().zip(line.split_whitespace().skip(1)) {
                *tick = word.parse().unwrap_or(0);
            }
            ticks
        });
        Ticks { cpus: cpus.collect() }
    }

    /// How busy the CPUs were since `before`.
    pub fn since(&self, before: &Ticks) -> Option<Busy> {
        let mut busy = Busy { cpus: self.cpus.len(), ..Busy::default() };
        let (mut total, mut used, mut stolen) = (0, 0, 0);
        for (now, then) in self.cpus.iter().zip(&before.cpus) {
            let passed: Vec<u64> = now.iter().zip(then).map(|(n, t)| n.saturating_sub(*t)).collect();
            let all: u64 = passed.iter().sum();
            // user, nice, system, idle, iowait, irq, softirq, steal
            let own = all - passed[3] - passed[4];
            if all > 0 {
                busy.most_percent = busy.most_percent.max(own as f64 / all as f64 * 100.0);
            }
            (total, used, stolen) = (total + all, used + own, stolen + passed[7]);
        }
        if total == 0 {
            return None;
        }
        busy.all_percent = used as f64 / total as f64 * 100.0;
        busy.steal_percent = stolen as f64 / total as f64 * 100.0;
        Some(busy)
    }
}

/// Temperature of an NVMe drive and its warning threshold, in degrees Celsius.
pub fn temperature(target: &Target) -> Option<(f64, Option<f64>)> {
    if target.kind != Kind::Block {
        return None;
    }
    let name = target.name.rsplit('/').next()?;
    let device = PathBuf::from("/sys/class/block").join(name).join("device");
    let dirs = [device.clone(), device.join("device")];
    let hwmon = dirs.iter().find_map(|d| {
        let entry = fs::read_dir(d).ok()?.flatten().find(|e| e.file_name().to_string_lossy().starts_with("hwmon"))?;
        Some(entry.path())
    })?;
    let milli = |file: &str| fs::read_to_string(hwmon.join(file)).ok()?.trim().parse::<f64>().ok().map(|m| m / 1e3);
    Some((milli("temp1_input")?, milli("temp1_max")))
}

/// Now, UTC, as "2026-11-22T16:11:39Z".
pub fn now() -> String {
    iso(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()))
}

fn iso(unix_seconds: u64) -> String {
    base::utc(unix_seconds).replacen(' ', "T", 1).replace(" UTC", "Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_of_iso_8601() {
        assert_eq!(iso(1_795_364_133), "2026-11-22T16:15:33Z");
    }

    #[test]
    fn busy_is_what_was_neither_idle_nor_waiting() {
        let before = Ticks::parse("cpu  9 9 9\ncpu0 0 0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\nintr 5\n");
        let after = Ticks::parse("cpu  9 9 9\ncpu0 50 0 30 10 10 0 0 0 0 0\ncpu1 0 0 0 90 0 0 0 10 0 0\n");
        let busy = after.since(&before).unwrap();
        assert_eq!((busy.all_percent, busy.most_percent, busy.steal_percent, busy.cpus), (45.0, 80.0, 5.0, 2));
        assert_eq!(before.since(&before), None);
    }
}
