//! GF(2^8) with polynomial 0x11d, one byte at a time: what the kernels' constants are made from.
//!
//! Does not: run on column data; `multiply` takes eight steps per byte.

/// x^8 + x^4 + x^3 + x^2 + 1 without its x^8: what is added when a doubling overflows.
pub const REDUCTION: u8 = 0x1d;

/// Number of non-zero elements, and the order of the generator 2.
const ORDER: usize = 255;

/// 2 * a.
pub const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 != 0 { REDUCTION } else { 0 }
}

/// Every multiplication as a bit matrix, by its constant: preparing one costs a load.
pub static MATRICES: [u64; 256] = {
    let (mut all, mut c) = ([0; 256], 0);
    while c < 256 {
        all[c] = matrix(c as u8);
        c += 1;
    }
    all
};

/// Every multiplication as two look-ups, by its constant.
pub static NIBBLES: [([u8; 16], [u8; 16]); 256] = {
    let (mut all, mut c) = ([([0; 16], [0; 16]); 256], 0);
    while c < 256 {
        all[c] = nibbles(c as u8);
        c += 1;
    }
    all
};

/// 1 / a for a != 0.
pub static INVERSES: [u8; 256] = {
    let (mut all, mut exponent) = ([0; 256], 0);
    while exponent < ORDER {
        all[power(exponent) as usize] = power(ORDER - exponent);
        exponent += 1;
    }
    all
};

/// a * b.
pub const fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = double(a);
        b >>= 1;
    }
    product
}

/// 2^exponent.
pub const fn power(exponent: usize) -> u8 {
    let (mut a, mut left) = (1, exponent % ORDER);
    while left > 0 {
        a = double(a);
        left -= 1;
    }
    a
}

/// Multiplication by `c` as the 8x8 bit matrix of the `GF2P8AFFINEQB` instruction, which works for any polynomial
/// (`GF2P8MULB` is fixed to AES's 0x11b). Output bit `i` is the parity of byte `7 - i` of the matrix AND the input
/// (Intel SDM volume 2, GF2P8AFFINEQB).
pub const fn matrix(c: u8) -> u64 {
    let (mut rows, mut bit) = (0u64, 0);
    while bit < 8 {
        let (mut row, mut input) = (0u64, 0);
        while input < 8 {
            let image = multiply(c, 1 << input);
            row |= ((image >> bit & 1) as u64) << input;
            input += 1;
        }
        rows |= row << (8 * (7 - bit));
        bit += 1;
    }
    rows
}

/// Multiples of `c` by 0..16 and by 16 * (0..16): the two look-ups of a byte shuffle.
const fn nibbles(c: u8) -> ([u8; 16], [u8; 16]) {
    let (mut low, mut high, mut i) = ([0; 16], [0; 16], 0);
    while i < 16 {
        low[i] = multiply(c, i as u8);
        high[i] = multiply(c, (i as u8) << 4);
        i += 1;
    }
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_has_full_order() {
        let mut seen = [false; 256];
        for exponent in 0..ORDER {
            let element = power(exponent) as usize;
            assert!(!seen[element], "2^{exponent} repeats");
            seen[element] = true;
        }
        assert_eq!(power(ORDER), 1);
        // The first powers that overflow, from the published tables of this field.
        assert_eq!([power(8), power(9), power(10), power(254)], [0x1d, 0x3a, 0x74, 0x8e]);
    }

    #[test]
    fn every_element_times_its_inverse_is_one() {
        for a in 1..=255 {
            assert_eq!(multiply(a, INVERSES[a as usize]), 1, "{a}");
        }
    }

    #[test]
    fn matrix_and_nibbles_multiply() {
        for c in 0..=255u8 {
            let rows = matrix(c).to_le_bytes();
            let (low, high) = nibbles(c);
            for x in 0..=255u8 {
                let mut image = 0;
                for bit in 0..8 {
                    image |= ((rows[7 - bit] & x).count_ones() as u8 & 1) << bit;
                }
                assert_eq!(image, multiply(c, x), "matrix {c} * {x}");
                assert_eq!(low[(x & 15) as usize] ^ high[(x >> 4) as usize], multiply(c, x), "nibbles {c} * {x}");
            }
        }
    }
}
