//! Numbers with their units, in about three digits.

use std::time::Duration;

use super::human;

/// A count: "950", "12.3k", "4.5M".
pub fn count(n: f64) -> String {
    for (limit, divisor, unit) in [(1e3, 1.0, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M"), (f64::INFINITY, 1e9, "G")] {
        if n < limit * 0.9995 {
            let value = n / divisor;
            return if unit.is_empty() || value >= 99.95 {
                format!("{value:.0}{unit}")
            } else {
                format!("{value:.1}{unit}")
            };
        }
    }
    unreachable!("the last limit is infinite")
}

/// Bytes per second.
pub fn per_second(bytes: u64, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds <= 0.0 { "-".to_owned() } else { format!("{}/s", human((bytes as f64 / seconds) as u64)) }
}

/// A share: "14 %".
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.0} %", part as f64 * 100.0 / whole as f64) }
}

/// How long a request took, in three digits: "8.19 us", "164 us", "1.23 ms".
pub fn latency(d: Duration) -> String {
    let nanos = d.as_nanos() as f64;
    let (value, unit) = match nanos {
        n if n < 999_500.0 => (n / 1e3, "us"),
        n if n < 999_500_000.0 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    let digits = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

/// A time: "85 ms", "3.2 s", "4 min 05 s", "2 h 10 min".
pub fn duration(d: Duration) -> String {
    let (millis, seconds) = (d.as_millis(), d.as_secs());
    match seconds {
        0 => format!("{millis} ms"),
        1..=9 => format!("{:.1} s", d.as_secs_f64()),
        10..=59 => format!("{seconds} s"),
        60..=3599 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        for (n, text) in
            [(0.0, "0"), (999.0, "999"), (1000.0, "1.0k"), (12_345.0, "12.3k"), (345_600.0, "346k"), (2e6, "2.0M")]
        {
            assert_eq!(count(n), text);
        }
        for (millis, text) in
            [(85, "85 ms"), (3210, "3.2 s"), (34_567, "34 s"), (245_000, "4 min 05 s"), (7_800_000, "2 h 10 min")]
        {
            assert_eq!(duration(Duration::from_millis(millis)), text);
        }
        for (nanos, text) in [(8_192, "8.19 us"), (164_000, "164 us"), (999_600, "1.00 ms"), (2_500_000_000, "2.50 s")]
        {
            assert_eq!(latency(Duration::from_nanos(nanos)), text);
        }
        assert_eq!(percent(1, 7), "14 %");
        assert_eq!(percent(1, 0), "-");
    }
}
