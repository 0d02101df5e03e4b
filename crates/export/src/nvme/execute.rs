//! One I/O command against its namespace. NVM Command Set 1.0, 3.2.
//!
//! Invariant: counters change with it.

use std::rc::Rc;

use rt::Bytes;

use super::{
    controller::{Attached, Controller},
    entry::{NSID_ALL, Sqe, io},
    request::{Request, ranges},
    status::Status,
    subsystem::Subsystems,
};
use crate::{
    counters::Counters,
    namespace::{Namespace, NamespaceInfo},
};

/// All namespaces, and what the host was told of one.
pub struct All<N> {
    namespaces: Vec<Rc<Attached<N>>>,
    info: NamespaceInfo,
}

/// What a command is for.
pub enum Target<N> {
    /// One namespace.
    One(Rc<Attached<N>>),
    /// All of them: a flush.
    All(Box<All<N>>),
}

impl<N: Namespace> Target<N> {
    /// What the host was told of it.
    pub fn info(&self) -> &NamespaceInfo {
        match self {
            Target::One(attached) => &attached.info,
            Target::All(all) => &all.info,
        }
    }

    /// The command was refused.
    pub fn count_error(&self) {
        if let Target::One(attached) = self {
            attached.live.update(|c| c.errors += 1);
        }
    }
}

/// The namespace of a command.
///
/// # Errors
/// There is none.
pub fn target<S: Subsystems>(controller: &Controller<S>, sqe: &Sqe) -> Result<Target<S::N>, Status> {
    if sqe.nsid() == NSID_ALL && sqe.opcode() == io::FLUSH {
        let namespaces = controller.all_namespaces();
        let info = namespaces.first().map(|n| n.info.clone()).ok_or(Status::INVALID_NAMESPACE)?;
        return Ok(Target::All(Box::new(All { namespaces, info })));
    }
    controller.namespace(sqe.nsid()).map(Target::One).ok_or(Status::INVALID_NAMESPACE)
}

/// Makes everything of all namespaces durable, as far as they can.
pub async fn flush_all<S: Subsystems>(controller: &Controller<S>) {
    for attached in controller.all_namespaces() {
        if let Err(fault) = attached.namespace.flush().await {
            tracing::warn!(namespace = attached.info.name, %fault, "nvme: the flush of a shutdown failed");
        }
    }
}

/// Executes a command that has been checked and whose data is there; what a read reads, nothing for the others.
///
/// # Errors
/// The status to answer with.
pub async fn run<N: Namespace>(target: Target<N>, request: Request, data: Bytes) -> Result<Vec<Bytes>, Status> {
    match target {
        Target::One(attached) => one(request, &attached, data).await,
        Target::All(all) => {
            let mut result = Ok(vec![]);
            for attached in all.namespaces {
                result = result.and(attached.namespace.flush().await.map(|()| vec![]).map_err(Status::of_write));
            }
            result
        }
    }
}

async fn one<N: Namespace>(request: Request, attached: &Attached<N>, data: Bytes) -> Result<Vec<Bytes>, Status> {
    let live = &attached.live;
    live.update(|c| c.in_flight += 1);
    let result = match request {
        Request::Read { offset, bytes } => read(attached, offset, bytes).await,
        _ => change(attached, request, data).await.map(|()| vec![]),
    };
    live.update(|c| {
        c.in_flight -= 1;
        c.errors += u64::from(result.is_err());
        let medium =
            [Some(Status::UNRECOVERED_READ), Some(Status::WRITE_FAULT)].contains(&result.as_ref().err().copied());
        c.medium_errors += u64::from(medium);
    });
    result
}

async fn read<N: Namespace>(attached: &Attached<N>, offset: u64, bytes: u32) -> Result<Vec<Bytes>, Status> {
    let parts = attached.namespace.read(offset, bytes).await.map_err(Status::of_read)?;
    let returned: usize = parts.iter().map(Bytes::len).sum();
    assert_eq!(returned, bytes as usize, "a namespace returns the bytes that were asked for");
    attached.live.update(|c| {
        c.reads += 1;
        c.bytes_read += u64::from(bytes);
    });
    Ok(parts)
}

/// A command that is answered without data.
async fn change<N: Namespace>(attached: &Attached<N>, request: Request, data: Bytes) -> Result<(), Status> {
    let namespace = &attached.namespace;
    let done = |count: &dyn Fn(&mut Counters)| attached.live.update(|c| count(c));
    match request {
        Request::Flush => {
            namespace.flush().await.map_err(Status::of_write)?;
            done(&|c| c.flushes += 1);
        }
        Request::Write { offset, bytes, fua } => {
            namespace.write(offset, data, fua).await.map_err(Status::of_write)?;
            done(&|c| {
                c.writes += 1;
                c.bytes_written += u64::from(bytes);
            });
        }
        Request::Compare { offset, bytes } => {
            let parts = read(attached, offset, bytes).await?;
            if !is_equal(&parts, &data) {
                return Err(Status::COMPARE_FAILURE);
            }
        }
        Request::WriteZeroes { offset, bytes, may_deallocate, fua } => {
            namespace.write_zeroes(offset, bytes, may_deallocate, fua).await.map_err(Status::of_write)?;
            done(&|c| {
                c.deallocates += 1;
                c.bytes_deallocated += bytes;
            });
        }
        Request::Deallocate { ranges: count, .. } => {
            for (offset, bytes) in ranges(&data, count, &attached.info)? {
                namespace.deallocate(offset, bytes, false).await.map_err(Status::of_write)?;
                done(&|c| {
                    c.deallocates += 1;
                    c.bytes_deallocated += bytes;
                });
            }
        }
        // The ranges are checked, and nothing is done with them.
        Request::Hint { ranges: count, .. } => drop(ranges(&data, count, &attached.info)?),
        Request::Read { .. } => unreachable!("answered with data"),
    }
    Ok(())
}

fn is_equal(parts: &[Bytes], data: &[u8]) -> bool {
    let mut rest = data;
    parts.iter().all(|part| {
        let Some((front, back)) = rest.split_at_checked(part.len()) else { return false };
        rest = back;
        front == &part[..]
    })
}
