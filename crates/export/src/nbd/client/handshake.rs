//! The client's side of the handshake. Section "Fixed newstyle negotiation".
//!
//! Invariant: a reply of the server is bounded before memory is allocated for it.

use rt::{Buf, Bytes, net::Stream};

use super::{Error, Export, Wishes};
use crate::{
    nbd::{
        limits::OPTION_BYTES_MAX,
        reply::OptionReply,
        wire::{
            BASE_ALLOCATION, CHUNK_HEADER_BYTES, EXPORT_NAME_ZEROES, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, Fields,
            INIT_MAGIC, OPTION_MAGIC, SIMPLE_REPLY_BYTES, info, opt, rep, string,
        },
    },
    stream::reader::Reader,
};

/// Header of a data chunk with its offset: what precedes a large payload.
const DATA_HEADER_BYTES: usize = CHUNK_HEADER_BYTES + 8;

struct Handshake<'a> {
    stream: &'a Stream,
    reader: Reader,
    no_zeroes: bool,
}

/// Negotiates an export and enters transmission.
pub async fn run(stream: &Stream, name: &str, wishes: Wishes) -> Result<(Export, Reader), Error> {
    let header_bytes = if wishes.structured { DATA_HEADER_BYTES } else { SIMPLE_REPLY_BYTES };
    let mut handshake = Handshake::begin(stream, header_bytes).await?;
    let mut export = Export { name: name.to_owned(), ..Export::default() };
    if wishes.structured {
        export.structured = handshake.is_accepted(opt::STRUCTURED_REPLY, &[]).await?;
    }
    if wishes.allocation && export.structured {
        let mut data = sized(name);
        data.extend_from_slice(&1u32.to_be_bytes());
        data.extend(sized(BASE_ALLOCATION));
        handshake.option(opt::SET_META_CONTEXT, &data).await?;
        let mut chosen = false;
        match handshake.replies(|reply, _| chosen |= reply == rep::META_CONTEXT).await {
            Ok(()) => export.allocation = chosen,
            Err(Error::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    if wishes.go {
        handshake.go(name, &mut export).await?;
    } else {
        handshake.export_name(name, &mut export).await?;
    }
    Ok((export, handshake.reader))
}

/// Names and descriptions of all exports.
pub async fn list(stream: &Stream) -> Result<Vec<(String, String)>, Error> {
    let mut handshake = Handshake::begin(stream, SIMPLE_REPLY_BYTES).await?;
    handshake.option(opt::LIST, &[]).await?;
    let mut exports = Vec::new();
    handshake
        .replies(|reply, data| {
            let mut fields = Fields(data);
            if let (rep::SERVER, Some(name)) = (reply, fields.string()) {
                exports.push((name.to_owned(), string(fields.0).unwrap_or_default().to_owned()));
            }
        })
        .await?;
    handshake.is_accepted(opt::ABORT, &[]).await?;
    Ok(exports)
}

/// A string with its length before it.
fn sized(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

impl<'a> Handshake<'a> {
    async fn begin(stream: &'a Stream, header_bytes: usize) -> Result<Self, Error> {
        let mut reader = Reader::new(stream.clone(), header_bytes);
        if u64::from_be_bytes(reader.array().await?) != INIT_MAGIC
            || u64::from_be_bytes(reader.array().await?) != OPTION_MAGIC
        {
            return Err(Error::Protocol("this is not a newstyle NBD server"));
        }
        let server = u16::from_be_bytes(reader.array().await?);
        if server & FLAG_FIXED_NEWSTYLE == 0 {
            return Err(Error::Protocol("the server does not speak fixed newstyle"));
        }
        let flags = u32::from(server & (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES));
        stream.send_all(vec![Bytes::from_slice(&flags.to_be_bytes())]).await?;
        Ok(Handshake { stream, reader, no_zeroes: server & FLAG_NO_ZEROES != 0 })
    }

    async fn option(&self, option: u32, data: &[u8]) -> Result<(), Error> {
        let mut message = OPTION_MAGIC.to_be_bytes().to_vec();
        message.extend_from_slice(&option.to_be_bytes());
        message.extend_from_slice(&(data.len() as u32).to_be_bytes());
        message.extend_from_slice(data);
        Ok(self.stream.send_all(vec![Bytes::from_slice(&message)]).await?)
    }

    /// Takes replies until the final one: `REP_ACK` is success, an error is [`Error::Refused`].
    async fn replies(&mut self, mut each: impl FnMut(u32, &[u8])) -> Result<(), Error> {
        loop {
            let Some(OptionReply { option, reply, bytes }) = OptionReply::parse(&self.reader.array().await?) else {
                return Err(Error::Protocol("an option reply without its magic"));
            };
            if bytes as usize > OPTION_BYTES_MAX {
                return Err(Error::Protocol("an option reply that is too long"));
            }
            let data: Buf = self.reader.bytes(bytes as usize).await?;
            if reply == rep::ACK {
                return Ok(());
            }
            if reply & rep::ERR_BIT != 0 {
                let message = String::from_utf8_lossy(&data).into_owned();
                return Err(Error::Refused { option, reply, message });
            }
            each(reply, &data);
        }
    }

    async fn is_accepted(&mut self, option: u32, data: &[u8]) -> Result<bool, Error> {
        self.option(option, data).await?;
        match self.replies(|_, _| {}).await {
            Ok(()) => Ok(true),
            Err(Error::Refused { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn go(&mut self, name: &str, export: &mut Export) -> Result<(), Error> {
        let requests = [3, info::NAME, info::DESCRIPTION, info::BLOCK_SIZE];
        let mut data = sized(name);
        requests.iter().for_each(|field: &u16| data.extend_from_slice(&field.to_be_bytes()));
        self.option(opt::GO, &data).await?;
        let mut described = false;
        self.replies(|_, data| described |= describe(export, data).is_some()).await?;
        if described { Ok(()) } else { Err(Error::Protocol("no INFO_EXPORT before the end of OPT_GO")) }
    }

    async fn export_name(&mut self, name: &str, export: &mut Export) -> Result<(), Error> {
        self.option(opt::EXPORT_NAME, name.as_bytes()).await?;
        export.bytes = u64::from_be_bytes(self.reader.array().await?);
        export.flags = u16::from_be_bytes(self.reader.array().await?);
        if !self.no_zeroes {
            self.reader.discard(EXPORT_NAME_ZEROES).await?;
        }
        Ok(())
    }
}

/// Takes over one `REP_INFO`; something when it is `INFO_EXPORT`.
fn describe(export: &mut Export, data: &[u8]) -> Option<()> {
    let mut fields = Fields(data);
    match fields.u16()? {
        info::EXPORT => {
            export.bytes = fields.u64()?;
            export.flags = fields.u16()?;
            return Some(());
        }
        info::NAME => export.name = string(fields.0)?.to_owned(),
        info::DESCRIPTION => export.description = string(fields.0)?.to_owned(),
        info::BLOCK_SIZE => export.block_sizes = Some([fields.u32()?, fields.u32()?, fields.u32()?]),
        // "clients MUST ignore information replies it does not understand"
        _ => {}
    }
    None
}
