//! Messages taken from a stream: headers in batches, large payloads straight into the memory they stay in.
//!
//! Small requests arrive many at a time, so one receive takes up to 64 KiB and the messages are cut out of it (a small
//! payload is copied). After a payload of 64 KiB or more the next receive takes little more than a header, so that the
//! payload that follows is received where it stays: next to no copy for streams of large writes.
//!
//! What is taken at once goes on together: the writes of one receive share a record of the log, whose header, parity and
//! requests to drives they would each pay for alone, and an answer. So a peer that fills its buffer gets a larger one, once it
//! is known; and large payloads that are there are taken without a turn between them, a few of them.
//!
//! A peer that has sent little has little memory: the buffers are made when it first fills the one of the beginning.

use std::io;

use rt::{Buf, net::Stream};

/// One receive of small messages: fifteen 4 KiB writes, or nine hundred requests without payload.
const BATCH_BYTES: usize = 64 << 10;

/// The same of a peer that is known, and has filled that: sixty writes.
const DEEP_BYTES: usize = 256 << 10;

/// Receives before anything was received that filled this: those who only come in send less.
const FIRST_BYTES: usize = 4 << 10;

/// Payloads from here on are worth a receive of their own.
const DIRECT_BYTES: usize = 64 << 10;

/// Bytes of such payloads that are taken one after the other before others have their turn.
const AT_ONCE_BYTES: usize = 512 << 10;

/// The receiving half of a connection.
pub struct Reader {
    stream: Stream,
    /// Bytes received and not taken: `held[start..end]`.
    held: Buf,
    start: usize,
    end: usize,
    /// The other receive buffer: that of batches while `held` is header-sized, and the other way round. Empty at the beginning.
    spare: Buf,
    holds_batch: bool,
    direct: bool,
    headers_bytes: usize,
    batch_bytes_max: usize,
    /// Bytes that may be taken without a turn of the others.
    at_once: usize,
}

impl Reader {
    /// Reads a stream of large payloads with up to `headers_bytes` between them: one header, or some if small messages
    /// stand there too. Of a payload that begins sooner its first bytes are copied.
    pub fn new(stream: Stream, headers_bytes: usize) -> Self {
        Reader {
            stream,
            held: Buf::zeroed(FIRST_BYTES),
            start: 0,
            end: 0,
            spare: Buf::default(),
            holds_batch: true,
            direct: false,
            headers_bytes,
            batch_bytes_max: BATCH_BYTES,
            at_once: 0,
        }
    }

    /// One that goes on where another has ended, with what that had received and not taken.
    pub fn resumed(stream: Stream, headers_bytes: usize, left: &[u8]) -> Self {
        let mut reader = Reader::new(stream, headers_bytes);
        reader.widen(BATCH_BYTES.max(left.len()));
        reader.held[..left.len()].copy_from_slice(left);
        reader.end = left.len();
        reader
    }

    /// The peer is known: it may have more memory.
    pub fn peer_is_known(&mut self) {
        self.batch_bytes_max = DEEP_BYTES;
    }

    /// From now on a batch has so many bytes. Nothing is held.
    fn widen(&mut self, bytes: usize) {
        self.held = Buf::zeroed(bytes);
        if self.spare.is_empty() {
            self.spare = Buf::zeroed(self.headers_bytes);
        }
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
            filled += self.copy(&mut array[filled..]);
        }
        Ok(array)
    }

    /// The next `n` bytes in memory of their own.
    pub async fn bytes(&mut self, n: usize) -> io::Result<Buf> {
        self.direct = n >= DIRECT_BYTES;
        let mut buf = Buf::for_overwrite(n);
        let mut filled = self.copy(&mut buf);
        // The rest of a small payload comes together with what is behind it.
        while filled < n && !self.direct {
            self.receive().await?;
            filled += self.copy(&mut buf[filled..]);
        }
        while filled < n {
            match self.take_at_once(&mut buf[filled..])? {
                Some(taken) => filled += taken,
                None => {
                    self.at_once = AT_ONCE_BYTES;
                    let (result, whole) = self.stream.recv_rest(buf, filled).await;
                    return result.map(|()| whole);
                }
            }
        }
        Ok(buf)
    }

    /// Takes what has arrived, while others need not have their turn.
    fn take_at_once(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        if self.at_once == 0 {
            return Ok(None);
        }
        let most = into.len().min(self.at_once);
        let taken = self.stream.recv_now(&mut into[..most])?;
        self.at_once -= taken.unwrap_or(0);
        if taken == Some(0) { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(taken) }
    }

    /// Takes as much of what is held as `into` has room for.
    fn copy(&mut self, into: &mut [u8]) -> usize {
        let n = into.len().min(self.end - self.start);
        into[..n].copy_from_slice(&self.held[self.start..self.start + n]);
        self.start += n;
        n
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
        if self.holds_batch && !self.direct && self.end == self.held.len() {
            let wider = if self.held.len() < BATCH_BYTES { BATCH_BYTES } else { self.batch_bytes_max };
            if wider > self.held.len() {
                self.widen(wider);
            }
        }
        if !self.spare.is_empty() && self.holds_batch == self.direct {
            std::mem::swap(&mut self.held, &mut self.spare);
            self.holds_batch = !self.direct;
        }
        (self.start, self.end) = (0, 0);
        if self.direct {
            let mut held = std::mem::take(&mut self.held);
            let taken = self.take_at_once(&mut held);
            self.held = held;
            if let Some(taken) = taken? {
                self.end = taken;
                return Ok(());
            }
        }
        self.at_once = AT_ONCE_BYTES;
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
