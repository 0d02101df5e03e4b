//! One namespace of several: stripes, dealt to them in turn.
//!
//! ```text
//!   stripe    0 1 2 3 4 5 ...          of three parts:
//!   part      0 1 2 0 1 2 ...          stripe s lies in part s mod 3, there as stripe s / 3
//! ```
//!
//! So a range is one range in each part: it is read, zeroed and deallocated with one request a part. What is written is
//! in one piece, and goes stripe by stripe: no byte is copied for it.
//!
//! Invariants: a byte has one place; a flush is one of every part; a request that goes to several parts fails when it
//! fails in one.
//!
//! Not here: parts on other threads ([`remote`](crate::remote)).

use std::ops::Range;
use std::rc::Rc;

use futures::future::try_join_all;
use rt::Bytes;

use crate::namespace::{Answer, Extent, Fault, Namespace, NamespaceInfo, Request};

/// A namespace that consists of others.
#[derive(Clone)]
pub struct Striped<N> {
    parts: Rc<[N]>,
    stripe_bytes: u64,
}

/// A piece of a range: what lies in one stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    part: usize,
    /// Where it begins there.
    at: u64,
    bytes: u64,
}

impl<N: Namespace> Striped<N> {
    /// What describes it is the first part's, its size that of the first times their number. The others are as large at
    /// least.
    ///
    /// # Panics
    /// Of no parts there is no namespace, nor of stripes that are no whole pages.
    #[must_use]
    pub fn new(parts: Vec<N>, stripe_bytes: u64) -> Striped<N> {
        assert!(!parts.is_empty(), "a namespace consists of one part at least");
        assert!(stripe_bytes > 0 && stripe_bytes.is_multiple_of(4096), "blocks lie in one stripe");
        Striped { parts: parts.into(), stripe_bytes }
    }

    /// Size in bytes.
    fn bytes(&self, first: &NamespaceInfo) -> u64 {
        first.bytes / self.stripe_bytes * self.stripe_bytes * self.parts.len() as u64
    }

    /// Of what lies in one stripe its part knows best; of the rest nothing may be done when it does not fit.
    fn check(&self, offset: u64, bytes: u64) -> Result<(), Fault> {
        if self.lone(offset, bytes).is_some() {
            return Ok(());
        }
        let info = self.parts[0].info();
        let block = u64::from(info.min_block);
        if !offset.is_multiple_of(block) || !bytes.is_multiple_of(block) {
            return Err(Fault::Misaligned);
        }
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes(&info) => Ok(()),
            _ => Err(Fault::OutOfRange),
        }
    }

    /// Which part has the byte at `offset`, where, and how many more lie there behind it in its stripe.
    fn place(&self, offset: u64) -> Piece {
        let (stripe, within) = (offset / self.stripe_bytes, offset % self.stripe_bytes);
        let parts = self.parts.len() as u64;
        let at = stripe / parts * self.stripe_bytes + within;
        Piece { part: (stripe % parts) as usize, at, bytes: self.stripe_bytes - within }
    }

    /// The piece at `offset` when a range of `bytes` lies in one stripe.
    fn lone(&self, offset: u64, bytes: u64) -> Option<Piece> {
        let piece = self.place(offset);
        (bytes <= piece.bytes).then_some(Piece { bytes, ..piece })
    }

    fn pieces(&self, offset: u64, bytes: u64) -> impl Iterator<Item = Piece> {
        let (mut at, end) = (offset, offset + bytes);
        std::iter::from_fn(move || {
            let piece = self.place(at);
            let piece = Piece { bytes: piece.bytes.min(end - at), ..piece };
            at += piece.bytes;
            (piece.bytes > 0).then_some(piece)
        })
    }

    /// What a range is in each part; empty where it does not reach.
    fn shares(&self, offset: u64, bytes: u64) -> Vec<Range<u64>> {
        let mut shares = vec![0..0; self.parts.len()];
        // Stripes of a part follow each other there: its first piece and its last say where its share lies.
        let rounds = self.stripe_bytes * self.parts.len() as u64;
        let ends = self.pieces(offset, bytes.min(rounds));
        let skipped = (bytes.saturating_sub(rounds) / rounds) * rounds;
        let last = self.pieces(offset + skipped, bytes - skipped);
        for Piece { part, at, bytes } in ends.chain(last) {
            let share = &mut shares[part];
            if share.start == share.end {
                *share = at..at + bytes;
            }
            share.end = share.end.max(at + bytes);
        }
        shares
    }

    /// Asks every part that a range reaches.
    async fn each<T>(
        &self,
        offset: u64,
        bytes: u64,
        ask: impl AsyncFn(&N, u64, u64) -> Result<T, Fault>,
    ) -> Result<Vec<Option<T>>, Fault> {
        self.check(offset, bytes)?;
        let ask = &ask;
        let shares = self.parts.iter().zip(self.shares(offset, bytes));
        let asked = shares.map(|(part, share)| async move {
            if share.start == share.end {
                return Ok(None);
            }
            ask(part, share.start, share.end - share.start).await.map(Some)
        });
        try_join_all(asked).await
    }
}

/// What a part answered with, taken from its beginning on.
struct Answered(std::vec::IntoIter<Bytes>, Option<Bytes>);

impl Answered {
    /// The next `bytes`, in as many parts as they came.
    fn take(&mut self, mut bytes: u64, into: &mut Vec<Bytes>) {
        while bytes > 0 {
            let next = self.1.take().or_else(|| self.0.next()).expect("a read answers with all its bytes");
            let taken = bytes.min(next.len() as u64);
            if taken < next.len() as u64 {
                self.1 = Some(next.slice(taken as usize..next.len()));
            }
            into.push(if taken < next.len() as u64 { next.slice(0..taken as usize) } else { next });
            bytes -= taken;
        }
    }
}

impl<N: Namespace> Namespace for Striped<N> {
    fn info(&self) -> NamespaceInfo {
        let first = self.parts[0].info();
        NamespaceInfo { bytes: self.bytes(&first), ..first }
    }

    fn apart(&self) -> Self {
        Striped { parts: self.parts.iter().map(N::apart).collect(), stripe_bytes: self.stripe_bytes }
    }

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        match request {
            Request::Read { offset, bytes } => self.gather(offset, bytes).await.map(Answer::Data),
            Request::Write { offset, data, fua } => self.scatter(offset, data, fua).await,
            Request::Flush => try_join_all(self.parts.iter().map(Namespace::flush)).await.map(|_| Answer::Done),
            Request::WriteZeroes { offset, bytes, may_deallocate, fua } => {
                let zero = async |part: &N, at, bytes| part.write_zeroes(at, bytes, may_deallocate, fua).await;
                self.each(offset, bytes, zero).await.map(|_| Answer::Done)
            }
            Request::Deallocate { offset, bytes, fua } => {
                let deallocate = async |part: &N, at, bytes| part.deallocate(at, bytes, fua).await;
                self.each(offset, bytes, deallocate).await.map(|_| Answer::Done)
            }
            Request::Extents { offset, bytes, at_most } => self.runs(offset, bytes, at_most).await.map(Answer::Extents),
        }
    }
}

impl<N: Namespace> Striped<N> {
    async fn gather(&self, offset: u64, bytes: u32) -> Result<Vec<Bytes>, Fault> {
        if let Some(piece) = self.lone(offset, u64::from(bytes)) {
            return self.parts[piece.part].read(piece.at, bytes).await;
        }
        let read = self.each(offset, u64::from(bytes), async |part, at, bytes| part.read(at, bytes as u32).await);
        let mut read: Vec<_> =
            read.await?.into_iter().map(|answer| Answered(answer.unwrap_or_default().into_iter(), None)).collect();
        let mut all = vec![];
        self.pieces(offset, u64::from(bytes)).for_each(|piece| read[piece.part].take(piece.bytes, &mut all));
        Ok(all)
    }

    async fn scatter(&self, offset: u64, data: Bytes, fua: bool) -> Result<Answer, Fault> {
        let bytes = data.len() as u64;
        if let Some(piece) = self.lone(offset, bytes) {
            return self.parts[piece.part].submit(Request::Write { offset: piece.at, data, fua }).await;
        }
        self.check(offset, bytes)?;
        let mut from = 0;
        let writes = self.pieces(offset, bytes).map(|piece| {
            let to = from + piece.bytes as usize;
            let data = data.slice(from..to);
            from = to;
            self.parts[piece.part].write(piece.at, data, fua)
        });
        try_join_all(writes.collect::<Vec<_>>()).await.map(|_| Answer::Done)
    }

    async fn runs(&self, offset: u64, bytes: u64, at_most: usize) -> Result<Vec<Extent>, Fault> {
        let of_parts = self.each(offset, bytes, async |part, at, bytes| part.extents(at, bytes, at_most).await).await?;
        let mut of_parts: Vec<_> = of_parts.into_iter().map(|extents| Runs::of(extents.unwrap_or_default())).collect();
        let mut all: Vec<Extent> = vec![];
        let mut at = offset;
        while at < offset + bytes {
            let piece = self.place(at);
            let Some(run) = of_parts[piece.part].next else { break };
            let bytes = match alike(&of_parts, self.stripe_bytes)
                .filter(|_| at.is_multiple_of(self.stripe_bytes) && piece.part == 0)
            {
                // Whole rounds of one state at once: a large volume has many that hold nothing.
                Some(rounds) if rounds > 0 => {
                    of_parts.iter_mut().for_each(|runs| runs.take(rounds * self.stripe_bytes));
                    rounds * self.stripe_bytes * self.parts.len() as u64
                }
                _ => {
                    let bytes = run.bytes.min(piece.bytes);
                    of_parts[piece.part].take(bytes);
                    bytes
                }
            };
            let full = all.len() == at_most;
            match all.last_mut() {
                Some(last) if last.state == run.state => last.bytes += bytes,
                _ if full => break,
                _ => all.push(Extent { bytes, state: run.state }),
            }
            at += bytes;
        }
        Ok(all)
    }
}

/// The extents of a part that are not taken yet.
struct Runs {
    next: Option<Extent>,
    rest: std::vec::IntoIter<Extent>,
}

impl Runs {
    fn of(extents: Vec<Extent>) -> Runs {
        let mut rest = extents.into_iter();
        Runs { next: rest.next(), rest }
    }

    /// Takes `bytes` of the next one, which has as many at least.
    fn take(&mut self, bytes: u64) {
        let next = self.next.as_mut().expect("there is one");
        next.bytes -= bytes;
        if next.bytes == 0 {
            self.next = self.rest.next();
        }
    }
}

/// Stripes that are in one state in all parts from here on, when each part is at the beginning of one.
fn alike(of_parts: &[Runs], stripe_bytes: u64) -> Option<u64> {
    let first = of_parts[0].next?;
    of_parts.iter().try_fold(u64::MAX, |stripes, runs| {
        let next = runs.next.filter(|next| next.state == first.state)?;
        Some(stripes.min(next.bytes / stripe_bytes))
    })
}
