//! One I/O command against its namespace. NVM Command Set 1.0, 3.2.
//!
//! Invariant: counters change with it.

use std::rc::Rc;

use rt::Bytes;

use super::{
    controller::{Attached, Controller},
    entry::{self, NSID_ALL, Sqe},
    request::{Command, ranges},
    status::Status,
    subsystem::Subsystems,
};
use crate::namespace::{Answer, Fault, Namespace, NamespaceInfo, Request};

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
    if sqe.nsid() == NSID_ALL && sqe.opcode() == entry::io::FLUSH {
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
pub async fn run<N: Namespace>(target: Target<N>, command: Command, data: Bytes) -> Result<Vec<Bytes>, Status> {
    match target {
        Target::One(attached) => one(command, &attached, data).await,
        Target::All(all) => {
            let mut result = Ok(vec![]);
            for attached in all.namespaces {
                result = result.and(attached.namespace.flush().await.map(|()| vec![]).map_err(Status::of_write));
            }
            result
        }
    }
}

async fn one<N: Namespace>(command: Command, attached: &Attached<N>, data: Bytes) -> Result<Vec<Bytes>, Status> {
    let live = &attached.live;
    live.update(|c| c.in_flight += 1);
    let result = match command {
        Command::Io(request) => answered(attached, &request, attached.namespace.submit(request.with(|_| data)).await),
        Command::Compare { offset, bytes } => {
            let read = attached.namespace.submit(Request::Read { offset, bytes }).await;
            let read = answered(attached, &Request::Read { offset, bytes }, read);
            read.and_then(|parts| if is_equal(&parts, &data) { Ok(vec![]) } else { Err(Status::COMPARE_FAILURE) })
        }
        Command::Deallocate { ranges: count, .. } => deallocate(attached, count, &data).await,
        // The ranges are checked, and nothing is done with them.
        Command::Hint { ranges: count, .. } => ranges(&data, count, &attached.info).map(|_| vec![]),
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

/// What a request to the namespace comes to: what a read reads, nothing for the others.
fn answered<N>(
    attached: &Attached<N>,
    request: &Request<u32>,
    result: Result<Answer, Fault>,
) -> Result<Vec<Bytes>, Status> {
    match result {
        Ok(answer) => {
            attached.live.update(|c| c.add(request));
            match answer {
                Answer::Data(parts) => {
                    let returned: usize = parts.iter().map(Bytes::len).sum();
                    let asked = request.bytes_read() as usize;
                    assert_eq!(returned, asked, "a namespace returns the bytes that were asked for");
                    Ok(parts)
                }
                Answer::Done | Answer::Extents(_) => Ok(vec![]),
            }
        }
        Err(fault) if request.bytes_read() > 0 => Err(Status::of_read(fault)),
        Err(fault) => Err(Status::of_write(fault)),
    }
}

async fn deallocate<N: Namespace>(attached: &Attached<N>, count: u32, data: &[u8]) -> Result<Vec<Bytes>, Status> {
    for (offset, bytes) in ranges(data, count, &attached.info)? {
        let request = Request::Deallocate { offset, bytes, fua: false };
        answered(attached, &request, attached.namespace.submit(request.with(|_| Bytes::default())).await)?;
    }
    Ok(vec![])
}

fn is_equal(parts: &[Bytes], data: &[u8]) -> bool {
    let mut rest = data;
    parts.iter().all(|part| {
        let Some((front, back)) = rest.split_at_checked(part.len()) else { return false };
        rest = back;
        front == &part[..]
    })
}
