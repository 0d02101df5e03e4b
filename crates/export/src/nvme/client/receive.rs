//! Answers sorted to the commands they answer, and data sent as R2Ts ask for it.
//!
//! Invariants: data is accepted only where it was asked for, and once; memory is allocated for what was asked for, not
//! for what a header claims.

use futures::channel::oneshot;
use rt::{Buf, Bytes};

use super::{Connection, Done, Error};
use crate::{
    nvme::{
        digest::digest,
        entry::Cqe,
        pdu::{self, COMMON_BYTES, Common, DataHeader, Frame, To, flag, kind},
        status::Status,
    },
    stream::reader::Reader,
};

/// A command in flight and what has arrived for it.
pub struct Pending {
    /// What an R2T may ask for.
    data: Option<Bytes>,
    asked: u32,
    /// What the controller may send.
    expected: u32,
    arriving: Option<Buf>,
    arrived: u32,
    sender: oneshot::Sender<Result<Done, Error>>,
}

impl Pending {
    pub fn new(data: Option<Bytes>, expected: u32, sender: oneshot::Sender<Result<Done, Error>>) -> Self {
        Pending { data, asked: 0, expected, arriving: None, arrived: 0, sender }
    }

    fn finish(self, cqe: Cqe, by_data_alone: bool) -> Result<(), Error> {
        if cqe.status.is_success() && self.arrived != self.expected {
            return Err(Error::Protocol("a success without all of its data"));
        }
        let data = self.arriving.map(Buf::freeze).unwrap_or_default();
        // Whoever asked may have lost interest.
        let _ = self.sender.send(Ok(Done { cqe, by_data_alone, data }));
        Ok(())
    }
}

/// Receives until the connection ends; why it did.
pub async fn receive(connection: &Connection, mut reader: Reader) -> Error {
    loop {
        if let Err(error) = receive_one(connection, &mut reader).await {
            return error;
        }
    }
}

/// What a C2HTermReq says.
pub async fn terminated(reader: &mut Reader, common: &Common) -> Error {
    if pdu::check_term(common).is_err() {
        return Error::Protocol("a malformed termination");
    }
    match reader.array().await {
        Ok(rest) => {
            let (fes, information) = pdu::parse_term(&rest);
            Error::Terminated { fes, information }
        }
        Err(error) => error.into(),
    }
}

async fn receive_one(connection: &Connection, reader: &mut Reader) -> Result<(), Error> {
    let header: [u8; COMMON_BYTES] = reader.array().await?;
    let common = Common::parse(&header);
    if common.kind == kind::C2H_TERM_REQ {
        return Err(terminated(reader, &common).await);
    }
    let frame = pdu::check(&common, To::Host, &connection.terms).map_err(|_| Error::Protocol("a malformed PDU"))?;
    let rest: [u8; 16] = reader.array().await?;
    if connection.terms.header_digest {
        let received = u32::from_le_bytes(reader.array().await?);
        if received != digest(&[&header[..], &rest].concat()) {
            return Err(Error::Protocol("a header that does not match its digest"));
        }
    }
    match common.kind {
        kind::CAPSULE_RESP => {
            let cqe = Cqe::parse(&rest);
            take(connection, cqe.command)?.finish(cqe, false)
        }
        kind::C2H_DATA => receive_data(connection, reader, &common, &DataHeader::parse(&rest), frame).await,
        _ => answer_r2t(connection, &DataHeader::parse(&rest)),
    }
}

const NOT_ASKED: Error = Error::Protocol("an answer to nothing that was asked");

fn take(connection: &Connection, command: u16) -> Result<Pending, Error> {
    connection.pending.borrow_mut().remove(&command).ok_or(NOT_ASKED)
}

async fn receive_data(
    connection: &Connection,
    reader: &mut Reader,
    common: &Common,
    header: &DataHeader,
    frame: Frame,
) -> Result<(), Error> {
    let fits = match connection.pending.borrow().get(&header.command) {
        Some(pending) => header.offset == pending.arrived && header.length <= pending.expected - pending.arrived,
        None => return Err(NOT_ASKED),
    };
    if frame.data != header.length || !fits || frame.data == 0 {
        return Err(Error::Protocol("data that was not asked for"));
    }
    reader.discard(frame.padding as usize).await?;
    let part = reader.bytes(frame.data as usize).await?;
    if frame.data_digest && u32::from_le_bytes(reader.array().await?) != digest(&part) {
        return Err(Error::Protocol("data that does not match its digest"));
    }
    let mut all = connection.pending.borrow_mut();
    // The connection may have ended meanwhile.
    let pending = all.get_mut(&header.command).ok_or(Error::Disconnected)?;
    if header.length == pending.expected {
        pending.arriving = Some(part);
    } else {
        let whole = pending.arriving.get_or_insert_with(|| Buf::zeroed(pending.expected as usize));
        whole[header.offset as usize..][..part.len()].copy_from_slice(&part);
    }
    pending.arrived += header.length;
    let last = pending.arrived == pending.expected;
    if last != (common.flags & flag::LAST != 0) {
        return Err(Error::Protocol("a last PDU that is none"));
    }
    drop(all);
    if common.flags & flag::SUCCESS != 0 {
        let cqe = Cqe { result: 0, head: 0, command: header.command, status: Status::SUCCESS };
        return take(connection, header.command)?.finish(cqe, true);
    }
    Ok(())
}

/// Sends what an R2T asks for, in PDUs of at most MAXH2CDATA.
fn answer_r2t(connection: &Connection, r2t: &DataHeader) -> Result<(), Error> {
    let mut all = connection.pending.borrow_mut();
    let pending = all.get_mut(&r2t.command).ok_or(Error::Protocol("an R2T for nothing that was asked"))?;
    let data = pending.data.as_ref().ok_or(Error::Protocol("an R2T for a command without data"))?;
    let end = r2t.offset.checked_add(r2t.length).filter(|end| *end as usize <= data.len());
    let (Some(end), true) = (end, r2t.offset == pending.asked && r2t.length > 0) else {
        return Err(Error::Protocol("an R2T for data that does not exist"));
    };
    pending.asked = end;
    let mut at = r2t.offset;
    while at < end {
        let length = (end - at).min(connection.data_max);
        let header = DataHeader { offset: at, length, ..*r2t };
        let parts = vec![data.slice(at as usize..(at + length) as usize)];
        at += length;
        let flags = if at == end { flag::LAST } else { 0 };
        let (header, terms) = (header.encode(), &connection.terms);
        connection.outbox.push((), |m| pdu::append(m, kind::H2C_DATA, flags, &header, parts, To::Controller, terms));
    }
    Ok(())
}
