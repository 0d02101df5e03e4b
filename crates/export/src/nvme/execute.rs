//! One I/O command against its namespace, and its answer. NVM Command Set 1.0, 3.2.
//!
//! Invariants: every command gets one answer, unless its connection has ended; counters change with it; a command has no
//! effect before all its data has arrived intact.

use std::rc::Rc;

use rt::Bytes;

use super::{
    controller::{Attached, Controller},
    entry::{NSID_ALL, Sqe, io},
    request::{Request, ranges},
    session::{FromHost, Session},
    status::Status,
    subsystem::Subsystems,
};
use crate::{
    counters::Counters,
    namespace::{Namespace, NamespaceInfo},
    stream::budget::Permit,
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

/// Executes a command that has been checked and answers it. `data` is what came in its capsule.
pub async fn run<S: Subsystems>(
    session: &Session<S>,
    sqe: &Sqe,
    request: Request,
    target: Target<S::N>,
    data: Bytes,
    mut permit: Permit,
) {
    let to_fetch = if data.is_empty() { request.data_from_host() } else { 0 };
    let payload = u64::from(to_fetch) + u64::from(request.data_read());
    if payload > 0 {
        session.account.payload(&mut permit, payload).await;
    }
    let (data, begun) = if to_fetch == 0 {
        (data, None)
    } else {
        match session.fetch(sqe, to_fetch).await {
            Some(FromHost { data, intact: true, begun }) => (data, Some(begun)),
            Some(FromHost { intact: false, .. }) => return session.fail(sqe, Status::TRANSPORT_ERROR, permit),
            None => return,
        }
    };
    let executing = session.shared.progress.executing();
    match target {
        Target::One(attached) => one(session, sqe, request, &attached, data, permit).await,
        Target::All(all) => {
            let mut result = Ok(());
            for attached in all.namespaces {
                result = result.and(attached.namespace.flush().await.map_err(Status::of_write));
            }
            answer(session, sqe, result, permit);
        }
    }
    drop((executing, begun));
}

async fn one<S: Subsystems>(
    session: &Session<S>,
    sqe: &Sqe,
    request: Request,
    attached: &Attached<S::N>,
    data: Bytes,
    permit: Permit,
) {
    let live = &attached.live;
    live.update(|c| c.in_flight += 1);
    let result = match request {
        Request::Read { offset, bytes } => match read(attached, offset, bytes).await {
            Ok(parts) => {
                live.update(|c| c.in_flight -= 1);
                return session.succeed_with_data(sqe, parts, permit);
            }
            Err(status) => Err(status),
        },
        _ => change(attached, request, data).await,
    };
    live.update(|c| {
        c.in_flight -= 1;
        c.errors += u64::from(result.is_err());
        let medium = [Err(Status::UNRECOVERED_READ), Err(Status::WRITE_FAULT)].contains(&result);
        c.medium_errors += u64::from(medium);
    });
    answer(session, sqe, result, permit);
}

fn answer<S: Subsystems>(session: &Session<S>, sqe: &Sqe, result: Result<(), Status>, permit: Permit) {
    match result {
        Ok(()) => session.succeed(sqe, permit),
        Err(status) => session.fail(sqe, status, permit),
    }
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
