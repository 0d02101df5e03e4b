//! Classes of lengths of time that double: 8.192 us or less, 16.384 us or less, ... 68.7 s or less, more.
//!
//! Not here: what is counted in them.

/// How many there are.
pub const CLASSES: usize = 25;

/// The first class ends at 2 to the power of this, in nanoseconds.
const FIRST_BITS: u32 = 13;

/// The class of something that took so long.
#[must_use]
#[inline]
pub const fn class_of(nanos: u64) -> usize {
    let bits = u64::BITS - (nanos.saturating_sub(1) >> FIRST_BITS).leading_zeros();
    if bits as usize >= CLASSES { CLASSES - 1 } else { bits as usize }
}

/// The longest time in a class, in nanoseconds; the last class has none.
#[must_use]
pub const fn class_end(class: usize) -> Option<u64> {
    if class + 1 < CLASSES { Some(1 << (FIRST_BITS as usize + class)) } else { None }
}
