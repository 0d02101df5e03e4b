//! A namespace that is one of two kinds.

use crate::namespace::{Answer, Fault, Namespace, NamespaceInfo, Request};

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

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        match self {
            Either::Left(n) => n.submit(request).await,
            Either::Right(n) => n.submit(request).await,
        }
    }
}
