//! What cleaning costs, by formula: bytes programmed for each byte written.
//!
//! For random writes all over, with the emptiest block cleaned first, a share x of a cleaned block is still valid, where
//! x = exp((x - 1) a) and a is flash over data; so each byte costs 1 / (1 - x) (Desnoyers, "Analytic modeling of SSD
//! write performance", SYSTOR 2012, for blocks of many pages). The translation layer of the modelled drives (`rt`) is
//! what tests compare it with.

use crate::drive::FlashFigures;

/// Superblocks that are open or free, which hold no garbage: two open ones and four in hand, as in `rt`'s model.
const SUPERBLOCKS_KEPT: f64 = 6.0;

/// Bytes programmed for each byte written at random all over, where flash is `ratio` times the data.
///
/// Shapes: `ratio` above 1; the result is 1 or more.
#[must_use]
pub fn greedy(ratio: f64) -> f64 {
    if ratio <= 1.001 {
        return greedy(1.001);
    }
    // Bisection: x - exp((x - 1) a) is negative at 0 and positive just below 1.
    let (mut low, mut high) = (0.0, 1.0 - 1e-9);
    for _ in 0..60 {
        let x: f64 = 0.5 * (low + high);
        if x < ((x - 1.0) * ratio).exp() { low = x } else { high = x }
    }
    1.0 / (1.0 - low)
}

/// Which part of a drive holds data, which part of that is written, and for how long it has been.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Part of the drive that holds data, 0 to 1.
    pub fill: f64,
    /// Part of the drive that is written at random, at most `fill`.
    pub slice: f64,
    /// How often the slice was overwritten since the fill; infinite: until it was steady.
    pub age: f64,
}

/// Bytes that a flash drive programs for each byte of random writes of whole units.
///
/// What is not written any more lies in blocks of its own, which a fill in order has left full; so all spare flash serves
/// what is written. A drive just filled costs nothing more until its spare flash is used up; from there it goes to its
/// steady state within one overwrite of the slice.
#[must_use]
pub fn flash_amplification(flash: &FlashFigures, span: &Span) -> f64 {
    let all = (1.0 + flash.spare) * (1.0 - SUPERBLOCKS_KEPT / f64::from(flash.superblocks.max(12)));
    let fill = span.fill.clamp(0.001, 1.0);
    let slice = span.slice.clamp(0.001, fill);
    let spare = (all - fill).max(0.001);
    let steady = greedy((slice + spare) / slice);
    let beyond = span.age * slice - spare;
    1.0 + (steady - 1.0) * (beyond / slice).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_are_right() {
        // Much spare flash: nothing to move. Twice the flash: x = exp(2(x - 1)) is 0.2032.
        assert!(greedy(20.0) < 1.001);
        assert!((greedy(2.0) - 1.0 / (1.0 - 0.2032)).abs() < 0.001, "{}", greedy(2.0));
        assert!(greedy(1.05) > 10.0);
    }

    #[test]
    fn a_smaller_slice_and_a_younger_one_cost_less() {
        let flash = crate::DriveFile::named("p5520").expect("it is there").flash.expect("flash");
        let cost = |slice, age| flash_amplification(&flash, &Span { fill: 1.0, slice, age });
        assert!(cost(1.0, f64::INFINITY) > cost(0.25, f64::INFINITY));
        assert_eq!(cost(1.0, 0.0), 1.0);
        assert!(cost(0.25, 0.6) < cost(0.25, 3.0));
    }
}
