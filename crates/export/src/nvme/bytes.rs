//! Little-endian fields at fixed places.
//!
//! Invariant: places are constants of the protocol and lie within the structure; a place outside is our bug.

/// The 16-bit field at `at`.
#[must_use]
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

/// The 32-bit field at `at`.
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

/// The 64-bit field at `at`.
#[must_use]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// The `N` bytes at `at`.
#[must_use]
pub fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

/// Puts bytes at `at`.
pub fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

/// Puts a text at `at`, cut and filled with `fill` to `length`.
pub fn put_text(bytes: &mut [u8], at: usize, length: usize, text: &str, fill: u8) {
    let field = &mut bytes[at..at + length];
    field.fill(fill);
    let n = text.len().min(length);
    field[..n].copy_from_slice(&text.as_bytes()[..n]);
}

/// The text of a field that ends at its first NUL; nothing when it has none or is no UTF-8.
#[must_use]
pub fn text_at(bytes: &[u8], at: usize, length: usize) -> Option<&str> {
    let field = &bytes[at..at + length];
    let end = field.iter().position(|b| *b == 0)?;
    std::str::from_utf8(&field[..end]).ok()
}
