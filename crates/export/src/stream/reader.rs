//! Messages taken from a stream: headers in batches, large payloads straight into the memory they stay in.
//!
//! Small requests arrive many at a time, so one receive takes up to 64 KiB and the messages are cut out of it (a small
//! payload is copied). After a payload of 64 KiB or more the next receive takes little more than a header, so that the
//! payload that follows is received where it stays: next to no copy for streams of large writes.
//!
//! A peer that has sent little has little memory: the buffers are made when it first fills the one of the beginning.

use std::io;

use rt::{Buf, net::Stream};

/// One receive of small messages: fifteen 4 KiB writes, or two thousand requests without payload.
const BATCH_BYTES: usize = 64 << 10;

/// Receives before anything was received that filled this: those who only come in send less.
const FIRST_BYTES: usize = 4 << 10;

/// Payloads from here on are worth a receive of their own.
const DIRECT_BYTES: usize = 64 << 10;

/// The receiving half of a connection.
pub struct Reader {
    stream: Stream,
    /// Bytes received and not taken: `held[start..end]`.
    held: Buf,
    start: usize,
    end: usize,
    /// The other receive buffer: `batch` while `held` is header-sized, and the other way round. Empty at the beginning.
    spare: Buf,
    direct: bool,
    headers_bytes: usize,
}

impl Reader {
    /// Reads a stream of large payloads with up to `headers_bytes` between them: one header, or some if small messages
    /// stand there too. Of a payload that begins sooner its first bytes are copied.
    pub fn new(stream: Stream, headers_bytes: usize) -> Self {
        let (held, spare) = (Buf::zeroed(FIRST_BYTES), Buf::default());
        Reader { stream, held, start: 0, end: 0, spare, direct: false, headers_bytes }
    }

    fn widen(&mut self) {
        (self.held, self.spare) = (Buf::zeroed(BATCH_BYTES), Buf::zeroed(self.headers_bytes));
    }

    /// One that goes on where another has ended, with what that had received and not taken.
    pub fn resumed(stream: Stream, headers_bytes: usize, left: &[u8]) -> Self {
        let mut reader = Reader::new(stream, headers_bytes);
        reader.widen();
        reader.held[..left.len()].copy_from_slice(left);
        reader.end = left.len();
        reader
    }

    /// What was received and not taken.
    pub fn into_left(self) -> Vec<u8> {
        self.held[self.start..self.end].to_vec()
    }

    /// The next `N` bytes, if they have been received: most often they have, and a future that need not wait costs more than
    /// what it would do.
    pub fn at_hand<const N: usize>(&mut self) -> Option<[u8; N]> {
        let array = *self.held[self.start..self.end].first_chunk()?;
        self.start += N;
        Some(array)
    }

    /// The next `N` bytes.
    pub async fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut array = [0; N];
        let mut filled = 0;
        while filled < N {
            if self.start == self.end {
                self.receive().await?;
            }
            let n = (N - filled).min(self.end - self.start);
            array[filled..filled + n].copy_from_slice(&self.held[self.start..self.start + n]);
            self.start += n;
            filled += n;
        }
        Ok(array)
    }

    /// The next `n` bytes in memory of their own.
    pub async fn bytes(&mut self, n: usize) -> io::Result<Buf> {
        self.direct = n >= DIRECT_BYTES;
        let mut buf = Buf::for_overwrite(n);
        let early = n.min(self.end - self.start);
        buf[..early].copy_from_slice(&self.held[self.start..self.start + early]);
        self.start += early;
        let (result, buf) = self.stream.recv_rest(buf, early).await;
        result.map(|()| buf)
    }

    /// Takes `n` bytes and forgets them.
    pub async fn discard(&mut self, n: usize) -> io::Result<()> {
        self.direct = false;
        let mut left = n;
        while left > 0 {
            if self.start == self.end {
                self.receive().await?;
            }
            let taken = left.min(self.end - self.start);
            self.start += taken;
            left -= taken;
        }
        Ok(())
    }

    /// Receives at least one byte into `held`, which is empty.
    async fn receive(&mut self) -> io::Result<()> {
        if self.spare.is_empty() && self.end == self.held.len() {
            self.widen();
        }
        let held_is_batch = self.held.len() == BATCH_BYTES;
        if !self.spare.is_empty() && held_is_batch == self.direct {
            std::mem::swap(&mut self.held, &mut self.spare);
        }
        (self.start, self.end) = (0, 0);
        let (result, buf) = self.stream.recv(std::mem::take(&mut self.held)).await;
        self.held = buf;
        match result? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                self.end = n;
                Ok(())
            }
        }
    }
}
