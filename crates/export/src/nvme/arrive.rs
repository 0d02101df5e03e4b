//! From a connection's first byte to a queue: ICReq, then Connect commands until one is accepted.
//!
//! Invariants: each of the two takes ten seconds at most, whatever the host sends meanwhile; one command is held in memory
//! at a time; what was received behind the Connect command is the queue's.
//!
//! Not here: what a Connect command means (`connect`), queues (`session`).

use std::{io, pin::pin, rc::Rc, time::Duration};

use futures::future::{Either, select};
use rt::{Bytes, net::Stream};

use super::{
    connect::{Connected, Refusal, connect},
    entry::{Cqe, Sqe},
    limits::{ADMIN_CAPSULE_DATA_MAX, CONNECT_SECONDS_MAX, H2C_DATA_MAX},
    pdu::{self, COMMON_BYTES, Common, Fatal, Fes, HEADERS_BYTES, Initialize, TAG_AT, Terms, To, kind},
    server::Shared,
    session::{End, data, linger, rest, terminated},
    status::Status,
    subsystem::Subsystems,
};
use crate::stream::{door::Guest, reader::Reader};

/// A connection that has become a queue; its Connect command is not answered yet.
pub struct Arrived<S: Subsystems> {
    pub connected: Connected<S>,
    /// Identifier of the Connect command.
    pub connect: u16,
    pub terms: Terms,
    /// What follows the command.
    pub reader: Reader,
}

/// Receives until the connection is a queue; nothing when it never becomes one.
pub async fn arrive<S: Subsystems>(shared: &Rc<Shared<S>>, stream: &Stream, guest: &Guest) -> Option<Arrived<S>> {
    let mut reader = Reader::new(stream.clone(), HEADERS_BYTES);
    let patience = || shared.rt.sleep(Duration::from_secs(CONNECT_SECONDS_MAX));
    let initialized = match select(pin!(initialize(stream, &mut reader)), pin!(patience())).await {
        Either::Left((initialized, _)) => initialized,
        Either::Right(_) => return None,
    };
    let terms = match initialized {
        Ok(terms) => terms,
        Err(end) => {
            refuse(shared, stream, &mut reader, end).await;
            return None;
        }
    };
    let connected = {
        let mut house = Reception { shared, stream, guest, terms: &terms };
        let connected = Box::pin(house.connected(&mut reader));
        match select(connected, pin!(patience())).await {
            Either::Left((connected, _)) => connected,
            Either::Right(_) => {
                let line = || tracing::warn!(peer = stream.peer(), "nvme: no Connect command");
                shared.rare.say("connections without a Connect command", line);
                return None;
            }
        }
    };
    match connected {
        Ok((connected, connect)) => Some(Arrived { connected, connect, terms, reader }),
        Err(end) => {
            refuse(shared, stream, &mut reader, end).await;
            None
        }
    }
}

/// Tells the log, and the host where the transport provides for it.
async fn refuse<S: Subsystems>(shared: &Shared<S>, stream: &Stream, reader: &mut Reader, end: End) {
    match end {
        End::Disconnected => {}
        End::Terminated(status) => {
            let line = || tracing::warn!(peer = stream.peer(), status, "nvme: the host terminates the connection");
            shared.rare.say("connections that hosts terminate", line);
        }
        End::Violation(fatal, header) => {
            let line = || tracing::warn!(peer = stream.peer(), ?fatal, "nvme: terminating the connection");
            shared.rare.say("connections terminated", line);
            let term = pdu::encode_term(kind::C2H_TERM_REQ, fatal, &header);
            if stream.send_all(vec![Bytes::from_slice(&term)]).await.is_ok() {
                linger(&shared.rt, reader).await;
            }
        }
    }
}

/// Receives the ICReq, which is checked before the rest of it is received, and answers it.
async fn initialize(stream: &Stream, reader: &mut Reader) -> Result<Terms, End> {
    let header = reader.array().await?;
    let common = Common::parse(&header);
    Initialize::check_common(kind::IC_REQ, &common).map_err(|fatal| End::Violation(fatal, header.to_vec()))?;
    let rest = reader.array().await?;
    let request = Initialize::parse(kind::IC_REQ, &common, &rest)
        .map_err(|fatal| End::Violation(fatal, [&header[..], &rest].concat()))?;
    let terms = Terms {
        header_digest: request.digests & 1 != 0,
        data_digest: request.digests & 2 != 0,
        alignment: (u32::from(request.alignment) + 1) * 4,
        r2ts_max: request.limit.saturating_add(1),
    };
    let digests = u8::from(terms.header_digest) | u8::from(terms.data_digest) << 1;
    let response = Initialize { version: 0, alignment: 0, digests, limit: H2C_DATA_MAX };
    stream.send_all(vec![Bytes::from_slice(&response.encode(kind::IC_RESP))]).await?;
    Ok(terms)
}

/// A connection between its ICReq and its Connect command.
struct Reception<'a, S: Subsystems> {
    shared: &'a Shared<S>,
    stream: &'a Stream,
    guest: &'a Guest,
    terms: &'a Terms,
}

impl<S: Subsystems> Reception<'_, S> {
    /// The queue, and the identifier of the command that made it one. A host whose command is refused may try again.
    async fn connected(&mut self, reader: &mut Reader) -> Result<(Connected<S>, u16), End> {
        loop {
            let (sqe, data, intact) = self.command(reader).await?;
            let connected = if intact {
                connect(self.shared, self.stream, self.guest, &sqe, &data).await
            } else {
                Err(Status::TRANSPORT_ERROR.into())
            };
            match connected {
                Ok(connected) => return Ok((connected, sqe.command())),
                Err(refusal) => self.answer(&sqe, &refusal).await?,
            }
        }
    }

    /// The next command, and whether its data is intact.
    async fn command(&self, reader: &mut Reader) -> Result<(Sqe, Bytes, bool), End> {
        let header: [u8; COMMON_BYTES] = reader.array().await?;
        let common = Common::parse(&header);
        if common.kind == kind::H2C_TERM_REQ {
            return Err(terminated(reader, &common).await);
        }
        let violation = |fatal| End::Violation(fatal, header.to_vec());
        let frame = pdu::check(&common, To::Controller, self.terms).map_err(violation)?;
        if common.kind != kind::CAPSULE_CMD {
            // Data that no R2T asked for.
            let rest: [u8; pdu::DATA_HEADER_BYTES - COMMON_BYTES] = rest(reader, &header, self.terms).await?;
            let field = if frame.data == 0 { 4 } else { TAG_AT };
            return Err(End::Violation(Fatal::field(field), [&header[..], &rest].concat()));
        }
        if frame.data > ADMIN_CAPSULE_DATA_MAX {
            return Err(violation(Fatal { fes: Fes::LimitExceeded, information: 4 }));
        }
        let sqe = Sqe(rest(reader, &header, self.terms).await?);
        let (data, intact) = data(reader, frame).await?;
        Ok((sqe, data.freeze(), intact))
    }

    async fn answer(&self, sqe: &Sqe, refusal: &Refusal) -> io::Result<()> {
        let result = u64::from(refusal.result);
        let cqe = Cqe { result, head: 0, command: sqe.command(), status: refusal.status };
        let response = pdu::encode(kind::CAPSULE_RESP, 0, &cqe.encode(), &[], To::Host, self.terms);
        self.stream.send_all(vec![Bytes::from_slice(&response.head)]).await
    }
}
