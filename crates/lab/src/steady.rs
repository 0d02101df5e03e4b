//! Steady state, derived from SNIA's performance test specification (never called certified): over the last five
//! rounds the tracked value keeps within 20 % of its mean, and its trend line rises or falls by 10 % at most.

/// Rounds that are looked at.
pub const WINDOW: usize = 5;
/// Rounds after which it is given up.
pub const ROUNDS_MAX: u32 = 25;
/// Largest minus smallest, over the mean.
pub const RANGE_MAX: f64 = 0.20;
/// Rise of the trend line over the window, over the mean.
pub const SLOPE_MAX: f64 = 0.10;

/// How the last rounds lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Excursion {
    /// Their mean.
    pub mean: f64,
    /// Largest minus smallest, over the mean.
    pub range: f64,
    /// Rise of the trend line over the window, over the mean; its sign is kept.
    pub slope: f64,
}

impl Excursion {
    /// Of the last [`WINDOW`] of `values`; nothing before there are that many.
    pub fn of(values: &[f64]) -> Option<Excursion> {
        let last = &values[values.len().checked_sub(WINDOW)?..];
        let n = WINDOW as f64;
        let mean = last.iter().sum::<f64>() / n;
        if !(mean.is_finite() && mean > 0.0) {
            return None;
        }
        let most = last.iter().copied().fold(f64::MIN, f64::max);
        let least = last.iter().copied().fold(f64::MAX, f64::min);
        let middle = (n - 1.0) / 2.0;
        let across: f64 = last.iter().enumerate().map(|(x, y)| (x as f64 - middle) * (y - mean)).sum();
        let along: f64 = (0..WINDOW).map(|x| (x as f64 - middle).powi(2)).sum();
        Some(Excursion { mean, range: (most - least) / mean, slope: across / along * (n - 1.0) / mean })
    }

    /// Whether both limits hold.
    pub fn is_steady(&self) -> bool {
        self.range <= RANGE_MAX && self.slope.abs() <= SLOPE_MAX
    }
}

/// Whether the last rounds of `values` are steady.
pub fn is_steady(values: &[f64]) -> bool {
    Excursion::of(values).is_some_and(|e| e.is_steady())
}

/// Standard deviation over the mean; nothing for fewer than two values.
pub fn variation(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 || mean == 0.0 {
        return None;
    }
    Some((values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt() / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_those_of_the_specification() {
        for (values, steady, why) in [
            (&[100.0, 100.0, 100.0, 100.0][..], false, "four rounds are too few"),
            (&[100.0; 5], true, "flat"),
            (&[90.0, 110.0, 100.0, 110.0, 90.0], true, "a range of exactly 20 %, without a trend"),
            (&[89.0, 110.0, 100.0, 110.0, 91.0], false, "a range of 21 %"),
            (&[95.0, 97.5, 100.0, 102.5, 105.0], true, "a rise of exactly 10 %"),
            (&[94.0, 97.0, 100.0, 103.0, 106.0], false, "a rise of 12 % within a range of 12 %"),
            (&[500.0, 300.0, 100.0, 100.0, 100.0, 100.0, 100.0], true, "only the last five count"),
            (&[0.0; 5], false, "nothing was done"),
        ] {
            assert_eq!(is_steady(values), steady, "{why}");
        }
        let falling = Excursion::of(&[106.0, 103.0, 100.0, 97.0, 94.0]).unwrap();
        assert!((falling.slope + 0.12).abs() < 1e-9 && (falling.range - 0.12).abs() < 1e-9);
    }

    #[test]
    fn variation_wants_two_values() {
        assert_eq!(variation(&[5.0]), None);
        assert!((variation(&[90.0, 110.0]).unwrap() - 0.1414).abs() < 1e-3);
    }
}
