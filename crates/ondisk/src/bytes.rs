//! A bounded little-endian reader and writer for the variable parts of the format.
//!
//! Invariant: the reader never reads beyond its bytes and never panics.

use crate::FormatError;

/// Appends fields to a growing image.
#[derive(Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty image.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One byte.
    pub fn u8(&mut self, v: u8) {
        self.bytes.push(v);
    }

    /// Two bytes.
    pub fn u16(&mut self, v: u16) {
        self.raw(&v.to_le_bytes());
    }

    /// Four bytes.
    pub fn u32(&mut self, v: u32) {
        self.raw(&v.to_le_bytes());
    }

    /// Eight bytes.
    pub fn u64(&mut self, v: u64) {
        self.raw(&v.to_le_bytes());
    }

    /// Bytes as they are.
    pub fn raw(&mut self, v: &[u8]) {
        self.bytes.extend_from_slice(v);
    }

    /// `n` zero bytes.
    pub fn zeros(&mut self, n: usize) {
        self.bytes.resize(self.bytes.len() + n, 0);
    }

    /// A text in a field of `width` bytes: length in the first two, zeros behind; panics when it does not fit.
    pub fn text(&mut self, text: &str, width: usize) {
        assert!(text.len() + 2 <= width, "text of {} bytes in a field of {width}", text.len());
        self.u16(text.len() as u16);
        self.raw(text.as_bytes());
        self.zeros(width - 2 - text.len());
    }

    /// Bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The image.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Takes fields from an image, front to back.
pub struct Reader<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes`, naming the structure `what` in errors.
    #[must_use]
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Reader { what, rest: bytes }
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn raw(&mut self, n: usize) -> Result<&'a [u8], FormatError> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(FormatError::Short(self.what))?;
        self.rest = rest;
        Ok(head)
    }

    /// The next `N` bytes as an array.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(FormatError::Short(self.what))?;
        self.rest = rest;
        Ok(*head)
    }

    /// One byte.
    ///
    /// # Errors
    /// When there is none.
    pub fn u8(&mut self) -> Result<u8, FormatError> {
        self.array::<1>().map(|[b]| b)
    }

    /// Two bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn u16(&mut self) -> Result<u16, FormatError> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn u32(&mut self) -> Result<u32, FormatError> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn u64(&mut self) -> Result<u64, FormatError> {
        self.array().map(u64::from_le_bytes)
    }

    /// `n` bytes that must be zero.
    ///
    /// # Errors
    /// When there are fewer, or one is not zero.
    pub fn zeros(&mut self, n: usize, field: &'static str) -> Result<(), FormatError> {
        if are_zero(self.raw(n)?) { Ok(()) } else { Err(self.field(field)) }
    }

    /// A text written by [`Writer::text`] with the same `width`.
    ///
    /// # Errors
    /// When it is not one.
    pub fn text(&mut self, width: usize, field: &'static str) -> Result<String, FormatError> {
        let bad = self.field(field);
        let n = usize::from(self.u16()?);
        let body = self.raw(width - 2)?;
        let (text, pad) = body.split_at_checked(n).ok_or(bad.clone())?;
        if !are_zero(pad) {
            return Err(bad);
        }
        String::from_utf8(text.to_vec()).map_err(|_| bad)
    }

    /// The error for an impossible `field`.
    #[must_use]
    pub fn field(&self, field: &'static str) -> FormatError {
        FormatError::Field(self.what, field)
    }

    /// Bytes left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }
}

/// Whether all are zero. Nearly always they are: without a way out between them the compiler looks at many at once.
pub(crate) fn are_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |all, byte| all | byte) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_bounds() {
        let mut w = Writer::new();
        w.u8(1);
        w.u16(2);
        w.u32(3);
        w.u64(4);
        w.text("five", 16);
        w.zeros(3);
        let image = w.finish();
        let mut r = Reader::new("test", &image);
        assert_eq!((r.u8(), r.u16(), r.u32(), r.u64()), (Ok(1), Ok(2), Ok(3), Ok(4)));
        assert_eq!(r.text(16, "t").unwrap(), "five");
        assert_eq!(r.zeros(3, "z"), Ok(()));
        assert_eq!(r.u8(), Err(FormatError::Short("test")));
    }

    #[test]
    fn text_length_beyond_its_field_is_refused() {
        let mut r = Reader::new("test", &[255, 0, b'a', b'b']);
        assert_eq!(r.text(4, "t"), Err(FormatError::Field("test", "t")));
    }
}
