//! Every kernel against a byte-wise reference that shares no code with the crate.

#![allow(clippy::unwrap_used, reason = "tests")]

use erasure::{DATA_COLUMNS_MAX, Kernel, TooManyLost, encode, matches, reconstruct};
use proptest::prelude::*;

/// a * b modulo x^8 + x^4 + x^3 + x^2 + 1: schoolbook product, then long division.
fn product(a: u8, b: u8) -> u8 {
    let mut wide = 0u16;
    for bit in 0..8 {
        if b & (1 << bit) != 0 {
            wide ^= u16::from(a) << bit;
        }
    }
    for bit in (8..16).rev() {
        if wide & (1 << bit) != 0 {
            wide ^= 0x11d << (bit - 8);
        }
    }
    u8::try_from(wide).unwrap()
}

fn reference(data: &[Vec<u8>], m: usize) -> Vec<Vec<u8>> {
    let length = data[0].len();
    let mut parity = vec![vec![0; length]; 2];
    let mut power = 1;
    for column in data {
        for (at, byte) in column.iter().enumerate() {
            parity[0][at] ^= byte;
            parity[1][at] ^= product(power, *byte);
        }
        power = product(power, 2);
    }
    parity.truncate(m);
    parity
}

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}

fn row(k: usize, m: usize, length: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut columns: Vec<_> = (0..k).map(|i| bytes(seed ^ (i as u64 + 1) << 32, length)).collect();
    columns.extend(reference(&columns, m));
    columns
}

fn slices(columns: &[Vec<u8>]) -> Vec<&[u8]> {
    columns.iter().map(Vec::as_slice).collect()
}

/// Copies of columns at odd addresses, with a margin that must stay as it is.
struct Unaligned {
    memory: Vec<Vec<u8>>,
    shift: usize,
}

const MARGIN: u8 = 0xa5;

impl Unaligned {
    fn new(columns: &[Vec<u8>], shift: usize) -> Self {
        let memory = columns
            .iter()
            .enumerate()
            .map(|(i, column)| {
                let mut m = vec![MARGIN; Self::offset(i, shift)];
                m.extend_from_slice(column);
                m.extend_from_slice(&[MARGIN; 130]);
                m
            })
            .collect();
        Unaligned { memory, shift }
    }

    fn offset(column: usize, shift: usize) -> usize {
        (shift + column * 7) % 97
    }

    fn columns_mut(&mut self, length: usize) -> Vec<&mut [u8]> {
        let shift = self.shift;
        self.memory.iter_mut().enumerate().map(|(i, m)| &mut m[Self::offset(i, shift)..][..length]).collect()
    }

    fn check(&self, expected: &[Vec<u8>], what: &str) {
        for (i, (m, column)) in self.memory.iter().zip(expected).enumerate() {
            let (before, rest) = m.split_at(Self::offset(i, self.shift));
            let (inside, after) = rest.split_at(column.len());
            assert!(inside == column, "{what}: column {i} is wrong");
            assert!(before.iter().chain(after).all(|b| *b == MARGIN), "{what}: column {i} was overrun");
        }
    }
}

fn encode_and_check(columns: &[Vec<u8>], k: usize, shift: usize) {
    let length = columns[0].len();
    for kernel in Kernel::available() {
        let what = format!("{} encode {k}+{} of {length}", kernel.name(), columns.len() - k);
        let mut blank = columns.to_vec();
        blank[k..].iter_mut().for_each(|parity| parity.fill(0x11));
        let mut memory = Unaligned::new(&blank, shift);
        let mut all = memory.columns_mut(length);
        let (data, parity) = all.split_at_mut(k);
        let data: Vec<&[u8]> = data.iter().map(|c| &**c).collect();
        encode(kernel, &data, parity);
        let parity: Vec<&[u8]> = parity.iter().map(|c| &**c).collect();
        assert!(matches(kernel, &data, &parity), "{what}");
        memory.check(columns, &what);
    }
}

fn lose_and_check(columns: &[Vec<u8>], k: usize, lost: &[usize], shift: usize) {
    let length = columns[0].len();
    for kernel in Kernel::available() {
        let m = columns.len() - k;
        let mut damaged = columns.to_vec();
        lost.iter().for_each(|i| damaged[*i].fill(0xee));
        let mut memory = Unaligned::new(&damaged, shift);
        let result = reconstruct(kernel, k, m, &mut memory.columns_mut(length), lost);
        let what = format!("{} {k}+{m} of {length} without {lost:?}", kernel.name());
        if lost.len() > m {
            assert_eq!(result, Err(TooManyLost { lost: lost.len(), parity: m }));
            memory.check(&damaged, &what);
        } else {
            assert_eq!(result, Ok(()));
            memory.check(columns, &what);
        }
    }
}

#[test]
fn every_loss_of_every_small_shape() {
    for k in 1..=8 {
        for m in 0..=2 {
            let columns = row(k, m, 448, 3);
            encode_and_check(&columns, k, 0);
            lose_and_check(&columns, k, &[], 0);
            for x in 0..k + m {
                lose_and_check(&columns, k, &[x], 1);
                for y in x + 1..k + m {
                    lose_and_check(&columns, k, &[x, y], 2);
                }
            }
        }
    }
}

#[test]
fn every_loss_of_the_widest_row() {
    let k = DATA_COLUMNS_MAX;
    let columns = row(k, 2, 64, 5);
    for x in 0..k + 2 {
        for y in x + 1..k + 2 {
            lose_and_check(&columns, k, &[x, y], 0);
        }
    }
}

#[test]
fn one_wrong_bit_anywhere_does_not_match() {
    for m in 1..=2 {
        let k = 5;
        let columns = row(k, m, 576, 9);
        for kernel in Kernel::available() {
            for column in 0..k + m {
                for at in [0, 63, 64, 255, 256, 511, 512, 575] {
                    let mut wrong = columns.clone();
                    wrong[column][at] ^= 0x10;
                    let wrong = slices(&wrong);
                    assert!(!matches(kernel, &wrong[..k], &wrong[k..]), "{} {column} {at}", kernel.name());
                }
            }
        }
    }
}

/// Figures by hand, so that the convention cannot drift together with the reference: d = [1, 1, 0x80] gives
/// P = 0x80, Q = 1 + 2 + 4*0x80, and 4*0x80 = 0x200 = 2*0x11d + 0x3a.
#[test]
fn the_convention_is_that_of_linux_md() {
    let data = [[1u8; 64], [1; 64], [0x80; 64]];
    let data: Vec<&[u8]> = data.iter().map(<[u8; 64]>::as_slice).collect();
    for kernel in Kernel::available() {
        let (mut p, mut q) = ([0; 64], [0; 64]);
        encode(kernel, &data, &mut [&mut p, &mut q]);
        assert_eq!((p, q), ([0x80; 64], [1 ^ 2 ^ 0x3a; 64]), "{}", kernel.name());
    }
}

#[test]
fn empty_columns_are_a_row() {
    for kernel in Kernel::available() {
        encode(kernel, &[&[], &[]], &mut [&mut [], &mut []]);
        assert!(matches(kernel, &[&[], &[]], &[&[], &[]]));
    }
}

#[test]
#[should_panic(expected = "multiple of 64")]
fn odd_lengths_are_our_bug() {
    encode(Kernel::Portable, &[&[0; 63]], &mut [&mut [0; 63]]);
}

#[test]
#[should_panic(expected = "one length")]
fn different_lengths_are_our_bug() {
    encode(Kernel::Portable, &[&[0; 128], &[0; 64]], &mut [&mut [0; 128]]);
}

#[test]
#[should_panic(expected = "one length")]
fn a_short_target_is_our_bug() {
    encode(Kernel::Portable, &[&[0; 128], &[0; 128]], &mut [&mut [0; 128], &mut [0; 64]]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_shape_and_loss(
        k in 1..=DATA_COLUMNS_MAX,
        m in 0..=2usize,
        steps in 1..24usize,
        shift in 0..97usize,
        seed: u64,
        a: prop::sample::Index,
        b: prop::sample::Index,
    ) {
        let columns = row(k, m, steps * 64, seed);
        encode_and_check(&columns, k, shift);
        let (a, b) = (a.index(k + m), b.index(k + m));
        let mut lost = vec![a.min(b), a.max(b)];
        lost.dedup();
        lose_and_check(&columns, k, &lost, shift);
    }
}
