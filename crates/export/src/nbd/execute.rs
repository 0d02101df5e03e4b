//! One request against its namespace, and its reply. Section "Request types".
//!
//! Invariant: every request gets one reply; counters change with it.

use rt::Bytes;

use super::{
    errno::Errno,
    limits::EXTENTS_MAX,
    reply,
    request::{Command, Request},
    session::Session,
};
use crate::{
    counters::Counters,
    namespace::{Fault, Namespace},
    stream::budget::Permit,
};

/// Executes a command that has been checked and replies.
pub async fn run<N: Namespace>(session: &Session<N>, request: &Request, command: Command, data: Bytes, permit: Permit) {
    let namespace = &session.namespace;
    let long = u64::from(request.length);
    match command {
        Command::Read { offset, bytes } => match namespace.read(offset, bytes).await {
            Ok(parts) => read_done(session, request, parts, permit),
            Err(fault) => failed(session, request, fault, permit),
        },
        Command::BlockStatus { offset, bytes, one } => {
            let at_most = if one { 1 } else { EXTENTS_MAX };
            match namespace.extents(offset, u64::from(bytes), at_most).await {
                Ok(extents) => {
                    let extents = &extents[..extents.len().min(at_most)];
                    session.reply(permit, Vec::new(), |head| {
                        reply::block_status(head, request.cookie, bytes, extents);
                    });
                }
                Err(fault) => failed(session, request, fault, permit),
            }
        }
        Command::Write { offset, fua, .. } => {
            let result = namespace.write(offset, data, fua).await;
            finish(session, request, result, permit, |c| {
                c.writes += 1;
                c.bytes_written += long;
            });
        }
        Command::Flush => finish(session, request, namespace.flush().await, permit, |c| c.flushes += 1),
        Command::Deallocate { offset, bytes, fua } => {
            let result = namespace.deallocate(offset, bytes, fua).await;
            finish(session, request, result, permit, |c| {
                c.deallocates += 1;
                c.bytes_deallocated += bytes;
            });
        }
        Command::WriteZeroes { offset, bytes, may_deallocate, fua } => {
            let result = namespace.write_zeroes(offset, bytes, may_deallocate, fua).await;
            finish(session, request, result, permit, |c| {
                c.deallocates += 1;
                c.bytes_deallocated += bytes;
            });
        }
        // "the server MAY send a reply prior to the requested area being fully cached": there is no cache to fill.
        Command::Cache => finish(session, request, Ok(()), permit, |_| {}),
        Command::Disconnect => unreachable!("the receiving side ends with it"),
    }
}

fn read_done<N: Namespace>(session: &Session<N>, request: &Request, parts: Vec<Bytes>, permit: Permit) {
    let Request { cookie, offset, length, .. } = *request;
    let returned: usize = parts.iter().map(Bytes::len).sum();
    assert_eq!(returned, length as usize, "a namespace returns the bytes that were asked for");
    session.live.update(|c| {
        c.reads += 1;
        c.bytes_read += u64::from(length);
    });
    session.reply(permit, parts, |head| {
        if session.terms.structured {
            // One chunk whatever the flags: DF asks for no more, and the data is there before the header is sent.
            reply::offset_data(head, cookie, offset, length);
        } else {
            reply::simple(head, cookie, None);
        }
    });
}

fn finish<N: Namespace>(
    session: &Session<N>,
    request: &Request,
    result: Result<(), Fault>,
    permit: Permit,
    count: impl FnOnce(&mut Counters),
) {
    match result {
        Ok(()) => {
            session.live.update(count);
            session.reply_done(request, permit);
        }
        Err(fault) => failed(session, request, fault, permit),
    }
}

fn failed<N: Namespace>(session: &Session<N>, request: &Request, fault: Fault, permit: Permit) {
    session.live.update(|c| c.medium_errors += u64::from(fault == Fault::Medium));
    session.reply_error(request, Errno::from(fault), &fault.to_string(), permit);
}
