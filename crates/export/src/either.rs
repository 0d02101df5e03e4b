//! A namespace that is one of two kinds.

use rt::Bytes;

use crate::namespace::{Extent, Fault, Namespace, NamespaceInfo};

/// One of two.
#[derive(Clone, Debug)]
pub enum Either<L, R> {
    /// The one.
    Left(L),
    /// The other.
    Right(R),
}

impl<L: Namespace, R: Namespace> Namespace for Either<L, R> {
    fn info(&self) -> NamespaceInfo {
        match self {
            Either::Left(n) => n.info(),
            Either::Right(n) => n.info(),
        }
    }

    fn apart(&self) -> Self {
        match self {
            Either::Left(n) => Either::Left(n.apart()),
            Either::Right(n) => Either::Right(n.apart()),
        }
    }

    async fn read(&self, offset: u64, bytes: u32) -> Result<Vec<Bytes>, Fault> {
        match self {
            Either::Left(n) => n.read(offset, bytes).await,
            Either::Right(n) => n.read(offset, bytes).await,
        }
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), Fault> {
        match self {
            Either::Left(n) => n.write(offset, data, fua).await,
            Either::Right(n) => n.write(offset, data, fua).await,
        }
    }

    async fn flush(&self) -> Result<(), Fault> {
        match self {
            Either::Left(n) => n.flush().await,
            Either::Right(n) => n.flush().await,
        }
    }

    async fn write_zeroes(&self, offset: u64, bytes: u64, may_deallocate: bool, fua: bool) -> Result<(), Fault> {
        match self {
            Either::Left(n) => n.write_zeroes(offset, bytes, may_deallocate, fua).await,
            Either::Right(n) => n.write_zeroes(offset, bytes, may_deallocate, fua).await,
        }
    }

    async fn deallocate(&self, offset: u64, bytes: u64, fua: bool) -> Result<(), Fault> {
        match self {
            Either::Left(n) => n.deallocate(offset, bytes, fua).await,
            Either::Right(n) => n.deallocate(offset, bytes, fua).await,
        }
    }

    async fn extents(&self, offset: u64, bytes: u64, at_most: usize) -> Result<Vec<Extent>, Fault> {
        match self {
            Either::Left(n) => n.extents(offset, bytes, at_most).await,
            Either::Right(n) => n.extents(offset, bytes, at_most).await,
        }
    }
}
