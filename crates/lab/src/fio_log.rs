//! fio's logs, second by second: rates of all threads are added, latencies averaged within their second.
//!
//! Threads write their lines a little late, and later with every second: now and then a second has a line of some thread
//! too few and its neighbour one too many. So a direction's sum is scaled to its usual number of lines.

use std::collections::BTreeMap;

use crate::bins::Bins;
use crate::model::Second;

/// Lines of a log by second and direction: time in ms, value.
type Lines = BTreeMap<u64, BTreeMap<u8, Vec<(f64, f64)>>>;

/// Joins an IOPS log and a latency log (`log_avg_msec=1000`): lines of time in ms, value, direction, ... Each direction's
/// latency counts as much as its rate.
///
/// The last second is left out when a thread ended before it wrote its line.
pub fn series(iops_log: &str, latency_log: &str) -> Vec<Second> {
    let (mut rates, mut latencies) = (lines(iops_log), lines(latency_log));
    let usual: BTreeMap<u8, usize> = [0, 1].map(|d| (d, usual_lines(&rates, d))).into();
    let is_whole = |second: &BTreeMap<u8, Vec<_>>| usual.iter().all(|(d, n)| second.get(d).map_or(0, Vec::len) >= *n);
    if rates.len() > 1
        && let Some(last) = rates.last_entry()
        && !is_whole(last.get())
    {
        last.remove();
    }
    // As it ends fio writes a line for what was still in flight.
    if let Some((&last, _)) = rates.last_key_value() {
        for directions in [&mut rates, &mut latencies].map(|log| log.get_mut(&last)).into_iter().flatten() {
            directions.iter_mut().for_each(|(d, lines)| keep_first(lines, usual.get(d).copied().unwrap_or(0)));
        }
    }
    let second = |(at, directions): (u64, BTreeMap<u8, Vec<_>>)| {
        let scaled = |(d, lines): (&u8, &Vec<_>)| mean(lines) * usual.get(d).map_or(lines.len(), |n| *n) as f64;
        let shares: BTreeMap<u8, f64> = directions.iter().map(|(d, lines)| (*d, scaled((d, lines)))).collect();
        let told = latencies.get(&at).into_iter().flatten().filter_map(|(d, l)| Some((mean(l), *shares.get(d)?)));
        let (sum, weight) = told.fold((0.0, 0.0), |(sum, weight), (ns, share)| (sum + ns * share, weight + share));
        let mean_us = (weight > 0.0).then(|| sum / weight / 1e3);
        Second { at: at as f64, iops: shares.values().sum(), mean_us }
    };
    rates.into_iter().map(second).collect()
}

fn mean(lines: &[(f64, f64)]) -> f64 {
    lines.iter().map(|(_, value)| value).sum::<f64>() / lines.len() as f64
}

/// The first lines by their times, one at least.
fn keep_first(lines: &mut Vec<(f64, f64)>, count: usize) {
    lines.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    lines.truncate(count.max(1));
}

/// The middle of how many lines a direction has in a second.
fn usual_lines(rates: &Lines, direction: u8) -> usize {
    let mut counts: Vec<usize> = rates.values().filter_map(|s| Some(s.get(&direction)?.len())).collect();
    counts.sort_unstable();
    counts.get(counts.len() / 2).copied().unwrap_or(0)
}

/// What can be read of a log.
fn lines(log: &str) -> Lines {
    let mut all = Lines::new();
    for line in log.lines() {
        let mut words = line.split(',').map(str::trim);
        let mut number = || words.next()?.parse::<f64>().ok();
        let (Some(ms), Some(value)) = (number(), number()) else { continue };
        let Some(direction) = words.next().and_then(|w| w.parse().ok()) else { continue };
        all.entry((ms / 1e3).round() as u64).or_default().entry(direction).or_default().push((ms, value));
    }
    all
}

/// Histograms (`write_hist_log`) by the second that they end in: lines of time in ms, direction, block, counts.
pub fn histograms(log: &str) -> BTreeMap<u64, Bins> {
    let mut seconds: BTreeMap<u64, Bins> = BTreeMap::new();
    for line in log.lines() {
        let mut words = line.split(',').map(str::trim);
        let Some(ms) = words.next().and_then(|w| w.parse::<f64>().ok()) else { continue };
        let bins = seconds.entry((ms / 1e3).round() as u64).or_default();
        for (index, count) in words.skip(2).enumerate() {
            bins.add(bin_ns(index), count.parse().unwrap_or(0));
        }
    }
    seconds
}

/// Bits of a latency that fio's bins tell apart.
const BIN_BITS: u32 = 6;

/// The middle of a bin of fio's, in nanoseconds (`plat_idx_to_val` in its `stat.c`).
fn bin_ns(index: usize) -> u64 {
    let (index, each) = (index as u64, 1 << BIN_BITS);
    if index < 2 * each {
        return index;
    }
    // 29 groups there are; more would not be fio's.
    let width = ((index >> BIN_BITS) - 1).min(40) as u32;
    (1 << (width + BIN_BITS)) + (index % each) * (1 << width) + (1 << width) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_and_directions_are_added_and_a_part_of_a_second_is_left_out() {
        let iops = "1011, 100, 0, 0, 0\n1007, 50, 1, 0, 0\n2012, 100, 0, 0, 0\n2008, 60, 1, 0, 0\n2600, 9, 0, 0, 0\n";
        let latency = "1000, 2000, 0, 0, 0\n1000, 5000, 1, 0, 0\nnonsense\n";
        let series = series(iops, latency);
        assert_eq!(series.len(), 2);
        assert_eq!(series[0], Second { at: 1.0, iops: 150.0, mean_us: Some(3.0) });
        assert_eq!(series[1], Second { at: 2.0, iops: 160.0, mean_us: None });
    }

    #[test]
    fn latencies_count_as_their_rates_and_what_ends_in_flight_does_not() {
        let iops = "1000, 90, 0\n1000, 10, 1\n2000, 90, 0\n2000, 10, 1\n3000, 90, 0\n3000, 10, 1\n3040, 5, 0\n";
        let latency = "1000, 1000, 0\n1000, 11000, 1\n2000, 4000, 1\n3000, 1000, 0\n3000, 1000, 1\n3040, 900000, 0\n";
        let means: Vec<_> = series(iops, latency).iter().map(|s| (s.iops, s.mean_us)).collect();
        assert_eq!(means, [(100.0, Some(2.0)), (100.0, Some(4.0)), (100.0, Some(1.0))]);
    }

    #[test]
    fn bins_have_the_middles_that_fio_prints() {
        // The last is the largest that its JSON ever shows.
        for (index, ns) in
            [(0, 0), (127, 127), (128, 129), (191, 255), (192, 258), (640, 33_024), (1855, 17_112_760_320)]
        {
            assert_eq!(bin_ns(index), ns, "{index}");
        }
        let bins = &histograms("1000, 0, 4096, 0, 3\n1400, 1, 4096, 0, 2, 1\nnonsense\n")[&1];
        assert_eq!(bins.pairs(), [(1, 5), (2, 1)]);
    }

    #[test]
    fn a_line_that_came_late_is_no_dip() {
        // Two threads; the second one's line of second 2 falls into second 3.
        let late =
            "1000, 10, 0\n1000, 10, 0\n2000, 10, 0\n2501, 10, 0\n3000, 10, 0\n3502, 10, 0\n4000, 10, 0\n4000, 10, 0\n";
        let rates: Vec<f64> = series(late, "").iter().map(|s| s.iops).collect();
        assert_eq!(rates, [20.0; 4]);
    }
}
