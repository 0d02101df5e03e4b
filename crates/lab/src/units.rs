//! Numbers as people write them in suites and read them in reports.

/// Bytes from a size as people write it, zero too.
pub use base::units::parse_size as bytes;

/// Seconds from "90", "30s", "5m", "2h".
///
/// # Errors
/// What is wrong with it.
pub fn seconds(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let (number, factor) = match text.chars().last() {
        Some('s') => (&text[..text.len() - 1], 1.0),
        Some('m') => (&text[..text.len() - 1], 60.0),
        Some('h') => (&text[..text.len() - 1], 3600.0),
        _ => (text, 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(n) if n.is_finite() && n >= 0.0 => Ok(n * factor),
        Ok(_) | Err(_) => Err(format!("\"{text}\" is not a time; write for instance 30s, 5m or 2h")),
    }
}

/// "4K", "1M", "512".
pub fn block(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{}M", b >> 20),
        b if b >= 1 << 10 && b % (1 << 10) == 0 => format!("{}K", b >> 10),
        b => b.to_string(),
    }
}

/// "61.4 TB", decimal, as drives are sold.
pub fn capacity(bytes: u64) -> String {
    let text = si(bytes as f64);
    format!("{text}{}B", if text.ends_with(char::is_alphabetic) { "" } else { " " })
}

/// "5.36 GB/s".
pub fn rate(bytes_per_sec: f64) -> String {
    let text = si(bytes_per_sec);
    format!("{text}{}B/s", if text.ends_with(char::is_alphabetic) { "" } else { " " })
}

/// Three digits and a decimal prefix: "5.55 M", "999", "12.4 k".
pub fn si(value: f64) -> String {
    let (scaled, prefix) = match value.abs() {
        // What would round up to the next prefix takes that.
        v if v >= 0.9995e15 => (value / 1e15, " P"),
        v if v >= 0.9995e12 => (value / 1e12, " T"),
        v if v >= 0.9995e9 => (value / 1e9, " G"),
        v if v >= 0.9995e6 => (value / 1e6, " M"),
        v if v >= 9995.0 => (value / 1e3, " k"),
        v if v >= 100.0 => return format!("{value:.0}"),
        _ => return digits(value),
    };
    format!("{}{prefix}", digits(scaled))
}

/// Three digits.
fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v < 9.995 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A latency: "87.2 us", "1.15 ms", "2.10 s".
pub fn latency(us: f64) -> String {
    match us {
        us if us >= 999_500.0 => format!("{} s", digits(us / 1e6)),
        us if us >= 999.5 => format!("{} ms", digits(us / 1e3)),
        us => format!("{} us", digits(us)),
    }
}

/// A time: "12 s", "4 min", "2.5 h".
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// A whole number with thousands set apart.
pub fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits.as_str()), |d| ("-", d));
    let mut text = sign.to_owned();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, want) in [("90", 90.0), ("30s", 30.0), ("5m", 300.0), ("2h", 7200.0)] {
            assert_eq!(seconds(text), Ok(want), "{text}");
        }
        for text in ["", "h", "-1s", "inf"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_written() {
        for (value, want) in [
            (0.0, "0"),
            (7.0, "7.00"),
            (999.4, "999"),
            (9_994.0, "9994"),
            (12_400.0, "12.4 k"),
            (999_700.0, "1.00 M"),
            (5_550_000.0, "5.55 M"),
        ] {
            assert_eq!(si(value), want);
        }
        assert_eq!(
            (latency(87.24), latency(1150.0), latency(2.1e6)),
            ("87.2 us".into(), "1.15 ms".into(), "2.10 s".into())
        );
        assert_eq!(
            (rate(5.36e9), rate(900.0), capacity(7_680_000_000_000)),
            ("5.36 GB/s".into(), "900 B/s".into(), "7.68 TB".into())
        );
        assert_eq!(
            (grouped(1_234_567.4), grouped(-1000.0), grouped(999.0)),
            ("1,234,567".into(), "-1,000".into(), "999".into())
        );
        assert_eq!((block(4096), block(1 << 20), block(512)), ("4K".into(), "1M".into(), "512".into()));
    }
}
