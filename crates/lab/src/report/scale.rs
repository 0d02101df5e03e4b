//! From values to places on paper, and the marks between.

/// An axis.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    log: bool,
    coarse: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// From zero to a round number above `most`, drawn between `from` and `to`.
    pub fn linear(most: f64, from: f64, to: f64) -> Scale {
        let step = step(most.max(f64::MIN_POSITIVE));
        let high = (most / step).ceil().max(1.0) * step;
        Scale { low: 0.0, high, log: false, coarse: false, from, to }
    }

    /// Whole decades around the values, drawn between `from` and `to`.
    pub fn log(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Scale {
        let (mut low, mut high) = (f64::MAX, f64::MIN_POSITIVE);
        for value in values.filter(|v| *v > 0.0 && v.is_finite()) {
            (low, high) = (low.min(value), high.max(value));
        }
        let low = if low > high { 1.0 } else { 10f64.powf(low.log10().floor()) };
        let high = 10f64.powf(high.max(low).log10().ceil());
        Scale { low, high: if high > low { high } else { low * 10.0 }, log: true, coarse: false, from, to }
    }

    /// The place of a value; what lies outside is drawn at the edge.
    pub fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low).log10() - self.low.log10()) / (self.high.log10() - self.low.log10())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// The same with marks at its ends, and in its middle where it is linear, for a low chart.
    pub fn coarse(self) -> Scale {
        Scale { coarse: true, ..self }
    }

    /// Values worth a mark.
    pub fn marks(&self) -> Vec<f64> {
        if self.coarse {
            let ends = [self.low, self.high];
            return if self.log { ends.into() } else { vec![self.low, (self.low + self.high) / 2.0, self.high] };
        }
        if !self.log {
            let step = step(self.high);
            let n = (self.high / step).round() as usize;
            return (0..=n).map(|i| i as f64 * step).collect();
        }
        let (first, last) = (self.low.log10().round() as i32, self.high.log10().round() as i32);
        let every = 1 + (last - first) / 7;
        (first..=last).step_by(every.max(1) as usize).map(|e| 10f64.powi(e)).collect()
    }
}

/// 1, 2 or 5 times a power of ten, so that `most` is four to eight of them.
fn step(most: f64) -> f64 {
    let rough = most / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let factor = match rough / power {
        f if f < 1.5 => 1.0,
        f if f < 3.5 => 2.0,
        f if f < 7.5 => 5.0,
        _ => 10.0,
    };
    factor * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        let axis = Scale::linear(5.55e6, 0.0, 100.0);
        assert_eq!(axis.marks().last(), Some(&6e6));
        assert_eq!((axis.at(0.0), axis.at(6e6), axis.at(9e6)), (0.0, 100.0, 100.0));
        let log = Scale::log([87.0, 4300.0].into_iter(), 100.0, 0.0);
        assert_eq!(log.marks(), vec![10.0, 100.0, 1000.0, 10_000.0]);
        assert!((log.at(1000.0) - 100.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_to_draw_is_drawn_all_the_same() {
        assert_eq!(Scale::log([].into_iter(), 0.0, 1.0).marks(), vec![1.0, 10.0]);
        assert!(Scale::linear(0.0, 0.0, 1.0).at(0.0).is_finite());
        assert_eq!(Scale::log([100.0].into_iter(), 0.0, 1.0).marks(), vec![100.0, 1000.0]);
    }
}
