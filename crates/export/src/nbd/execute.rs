//! One request against its namespace, and its reply. Section "Request types".
//!
//! Invariant: every request gets one reply; counters change with it.

use rt::Bytes;

use super::{
    errno::Errno,
    reply,
    request::{Command, WireRequest},
    session::Session,
};
use crate::{
    namespace::{Answer, Fault, Namespace, Request},
    stream::budget::Permit,
};

/// Executes a command that has been checked and replies.
pub async fn run<N: Namespace>(
    session: &Session<N>,
    wire: &WireRequest,
    command: Command,
    data: Bytes,
    permit: Permit,
) {
    let request = match command {
        Command::Io(request) => request,
        // "the server MAY send a reply prior to the requested area being fully cached": there is no cache to fill.
        Command::Cache => return session.reply_done(wire, permit),
        Command::Disconnect => unreachable!("the receiving side ends with it"),
    };
    match session.namespace.submit(request.with(|_| data)).await {
        Ok(answer) => {
            session.live.update(|c| c.add(&request));
            reply(session, wire, &request, answer, permit);
        }
        Err(fault) => failed(session, wire, fault, permit),
    }
}

fn reply<N: Namespace>(
    session: &Session<N>,
    wire: &WireRequest,
    request: &Request<u32>,
    answer: Answer,
    permit: Permit,
) {
    let WireRequest { cookie, offset, length, .. } = *wire;
    match answer {
        Answer::Done => session.reply_done(wire, permit),
        Answer::Data(parts) => {
            let returned: usize = parts.iter().map(Bytes::len).sum();
            assert_eq!(returned, length as usize, "a namespace returns the bytes that were asked for");
            session.reply(permit, parts, |head| {
                if session.terms.structured {
                    // One chunk whatever the flags: DF asks for no more, and the data is there before the header is sent.
                    reply::offset_data(head, cookie, offset, length);
                } else {
                    reply::simple(head, cookie, None);
                }
            });
        }
        Answer::Extents(mut extents) => {
            if let Request::Extents { at_most, .. } = request {
                extents.truncate(*at_most);
            }
            session.reply(permit, Vec::new(), |head| reply::block_status(head, cookie, length, &extents));
        }
    }
}

fn failed<N: Namespace>(session: &Session<N>, wire: &WireRequest, fault: Fault, permit: Permit) {
    session.live.update(|c| c.medium_errors += u64::from(fault == Fault::Medium));
    session.reply_error(wire, Errno::from(fault), &fault.to_string(), permit);
}
