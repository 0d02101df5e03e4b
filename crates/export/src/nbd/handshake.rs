//! The server's side of the handshake: from the first byte to an export. Sections "Handshake" and "Option types".
//!
//! Invariants: one reply sequence per option, in order; an option that is refused changes nothing, but for
//! `OPT_SET_META_CONTEXT`, which forgets the earlier choice first.

use std::io;

use rt::{Bytes, Party, Rt, net::Stream};

use super::{
    limits::{DISCARD_BYTES_MAX, OPTION_BYTES_MAX, REQUEST_BYTES_MAX},
    option::{self, Header, Message, Requests},
    reply::{self, ALLOCATION_CONTEXT},
    request::Terms,
    wire::{
        BASE_ALLOCATION, EXPORT_NAME_ZEROES, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, INIT_MAGIC, OPTION_MAGIC, info, opt,
        rep, transmission,
    },
};
use crate::{
    clients::{Client, Clients, Present, Protocol, Used},
    namespace::{Directory, Namespace, NamespaceInfo},
    stream::{
        door::{Full, Guest},
        progress::Progress,
        rare::Rare,
        reader::Reader,
    },
};

/// For whom exports are listed: all who ask together.
const LIST: Party = Party { group: u64::MAX, member: 0 };

/// What one export in a list costs, in about a microsecond.
const LISTED_COST: u32 = 10;

/// What a handshake ends with when transmission begins.
pub struct Agreed<N> {
    pub namespace: N,
    pub name: String,
    pub terms: Terms,
}

/// What the server has, and is doing.
pub struct House<'a, D> {
    pub rt: &'a Rt,
    pub directory: &'a D,
    pub progress: &'a Progress,
    pub rare: &'a Rare,
    pub clients: &'a Clients,
}

struct Handshake<'a, D: Directory> {
    house: &'a House<'a, D>,
    stream: &'a Stream,
    guest: &'a Guest,
    directory: &'a D,
    no_zeroes: bool,
    structured: bool,
    /// The export for which `base:allocation` was chosen.
    allocation: Option<String>,
}

/// What follows an option.
enum Next<N> {
    Option,
    Transmission(Agreed<N>, Present),
    Close,
}

/// Runs the handshake. Nothing when the client leaves or is sent away.
pub async fn run<D: Directory>(
    house: &House<'_, D>,
    stream: &Stream,
    guest: &Guest,
    reader: &mut Reader,
) -> io::Result<Option<(Agreed<D::N>, Present)>> {
    let flags = FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES;
    let mut greeting = Vec::with_capacity(18);
    greeting.extend_from_slice(&INIT_MAGIC.to_be_bytes());
    greeting.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    greeting.extend_from_slice(&flags.to_be_bytes());
    send(stream, &greeting).await?;

    let client = u32::from_be_bytes(reader.array().await?);
    if client & !u32::from(flags) != 0 {
        // "Client flags": "the server MUST drop the TCP connection if the client sets an unknown flag".
        return Ok(None);
    }
    let no_zeroes = client & u32::from(FLAG_NO_ZEROES) != 0;
    let directory = house.directory;
    let mut handshake = Handshake { house, stream, guest, directory, no_zeroes, structured: false, allocation: None };
    loop {
        let Some(header) = Header::parse(&reader.array().await?) else {
            return Ok(None);
        };
        if header.bytes as usize > OPTION_BYTES_MAX {
            if header.bytes > DISCARD_BYTES_MAX || header.option == opt::EXPORT_NAME {
                return Ok(None);
            }
            reader.discard(header.bytes as usize).await?;
            handshake.refuse(header.option, rep::ERR_TOO_BIG, "the option is too long").await?;
            continue;
        }
        let data = reader.bytes(header.bytes as usize).await?;
        let next = if house.progress.is_stopping() && header.option != opt::ABORT {
            handshake.shut_down(header.option).await?
        } else {
            handshake.option(header.option, &data).await?
        };
        match next {
            // Options may all be there, and their answers leave without waiting: others have their turn between them.
            Next::Option => house.rt.yield_turn().await,
            Next::Transmission(agreed, present) => return Ok(Some((agreed, present))),
            Next::Close => return Ok(None),
        }
    }
}

async fn send(stream: &Stream, message: &[u8]) -> io::Result<()> {
    stream.send_all(vec![Bytes::from_slice(message)]).await
}

impl<D: Directory> Handshake<'_, D> {
    async fn option(&mut self, number: u32, data: &[u8]) -> io::Result<Next<D::N>> {
        let message = match option::parse(number, data) {
            Ok(message) => message,
            // The option that cannot be answered with an error.
            Err(_) if number == opt::EXPORT_NAME => return Ok(Next::Close),
            Err(error) => {
                let (reply, why) = match error {
                    option::Error::Unsupported => (rep::ERR_UNSUP, "this server does not have the option"),
                    option::Error::Invalid => (rep::ERR_INVALID, "the option's data is malformed"),
                };
                if number == opt::SET_META_CONTEXT {
                    self.allocation = None;
                }
                return self.refuse(number, reply, why).await;
            }
        };
        match message {
            Message::Abort => {
                // The client may be gone already: "the server SHOULD gracefully handle" that.
                let _ = self.acknowledge(number).await;
                Ok(Next::Close)
            }
            Message::List => self.list().await,
            Message::StructuredReply => {
                self.structured = true;
                self.acknowledge(number).await
            }
            Message::MetaContext { name, allocation, set } => self.meta_context(number, name, allocation, set).await,
            Message::ExportName(name) => self.export_name(name).await,
            Message::Info { name, requests, go } => self.info(number, name, requests, go).await,
        }
    }

    async fn list(&self) -> io::Result<Next<D::N>> {
        let mut out = Vec::new();
        for name in self.directory.names().await {
            // There may be thousands, of which each is looked for.
            self.house.rt.step(LIST, LISTED_COST).await;
            let Some(namespace) = self.directory.open(&name).await else {
                continue;
            };
            let description = namespace.info().description;
            let length = (name.len() as u32).to_be_bytes();
            reply::option(&mut out, opt::LIST, rep::SERVER, &[&length, name.as_bytes(), description.as_bytes()]);
        }
        reply::option(&mut out, opt::LIST, rep::ACK, &[]);
        send(self.stream, &out).await?;
        Ok(Next::Option)
    }

    async fn meta_context(&mut self, number: u32, name: &str, allocation: bool, set: bool) -> io::Result<Next<D::N>> {
        if set {
            // "replaces all previously-set metadata contexts (including when this command fails)"
            self.allocation = None;
        }
        if !self.structured {
            return self.refuse(number, rep::ERR_INVALID, "structured replies come first").await;
        }
        let Some(namespace) = self.directory.open(name).await else {
            return self.refuse(number, rep::ERR_UNKNOWN, "no such export").await;
        };
        let mut out = Vec::new();
        if allocation {
            let id = if set { ALLOCATION_CONTEXT } else { 0 };
            reply::option(&mut out, number, rep::META_CONTEXT, &[&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()]);
            self.allocation = if set { Some(namespace.info().name) } else { self.allocation.take() };
        }
        reply::option(&mut out, number, rep::ACK, &[]);
        send(self.stream, &out).await?;
        Ok(Next::Option)
    }

    async fn export_name(&self, name: &str) -> io::Result<Next<D::N>> {
        let Some(namespace) = self.directory.open(name).await else {
            return Ok(Next::Close);
        };
        if self.seat().await.is_err() {
            return Ok(Next::Close);
        }
        let present = self.present(&namespace);
        let agreed = self.agree(namespace);
        let mut out = Vec::new();
        out.extend_from_slice(&agreed.terms.bytes.to_be_bytes());
        out.extend_from_slice(&flags(&agreed.terms).to_be_bytes());
        if !self.no_zeroes {
            out.extend_from_slice(&[0; EXPORT_NAME_ZEROES]);
        }
        send(self.stream, &out).await?;
        Ok(Next::Transmission(agreed, present))
    }

    async fn info(&self, number: u32, name: &str, requests: Requests, go: bool) -> io::Result<Next<D::N>> {
        let Some(namespace) = self.directory.open(name).await else {
            return self.refuse(number, rep::ERR_UNKNOWN, "no such export").await;
        };
        if go && let Err(full) = self.seat().await {
            let why = format!("no more connections: {full}");
            return self.refuse(number, rep::ERR_POLICY, &why).await;
        }
        let present = go.then(|| self.present(&namespace));
        let NamespaceInfo { name, description, preferred_block, .. } = namespace.info();
        let agreed = self.agree(namespace);
        let terms = &agreed.terms;
        let mut out = Vec::new();
        let mut item = |kind: u16, parts: &[&[u8]]| {
            let data: Vec<u8> = [&kind.to_be_bytes()[..]].iter().chain(parts).flat_map(|p| p.iter().copied()).collect();
            reply::option(&mut out, number, rep::INFO, &[&data]);
        };
        item(info::EXPORT, &[&terms.bytes.to_be_bytes(), &flags(terms).to_be_bytes()]);
        if requests.name {
            item(info::NAME, &[name.as_bytes()]);
        }
        if requests.description {
            item(info::DESCRIPTION, &[description.as_bytes()]);
        }
        // Sent unasked too: a client that did not ask and misaligns gets EINVAL, as "Size constraints" wants.
        let sizes = [terms.min_block, preferred_block.max(terms.min_block), terms.max_request].map(u32::to_be_bytes);
        item(info::BLOCK_SIZE, &[&sizes[0], &sizes[1], &sizes[2]]);
        reply::option(&mut out, number, rep::ACK, &[]);
        send(self.stream, &out).await?;
        Ok(match present {
            Some(present) => Next::Transmission(agreed, present),
            None => Next::Option,
        })
    }

    /// A place for a client that has chosen an export.
    async fn seat(&self) -> Result<(), Full> {
        self.guest.seat(self.house.rt, false).await.inspect_err(|full| {
            let peer = self.stream.peer();
            self.house.rare.say("connections refused", || tracing::warn!(peer, %full, "nbd: a connection is refused"));
        })
    }

    /// Puts the client on the list of those that use an export, before it is told that it may.
    fn present(&self, namespace: &D::N) -> Present {
        self.house.clients.enter(Client {
            protocol: Protocol::Nbd,
            peer: self.stream.peer(),
            host: None,
            used: Used::Namespace(namespace.info().uuid),
            since_unix_seconds: self.house.rt.unix_seconds(),
            connections: 1,
        })
    }

    /// The terms for an export, as it is now.
    fn agree(&self, namespace: D::N) -> Agreed<D::N> {
        let info = namespace.info();
        let min_block = info.min_block.max(1);
        let terms = Terms {
            bytes: info.bytes - info.bytes % u64::from(min_block),
            min_block,
            max_request: info.max_request.min(REQUEST_BYTES_MAX),
            read_only: info.read_only,
            structured: self.structured,
            allocation: self.structured && self.allocation.as_ref() == Some(&info.name),
        };
        Agreed { namespace, name: info.name, terms }
    }

    /// "If the server is in the process of being shut down it ... SHOULD error further options".
    async fn shut_down(&self, option: u32) -> io::Result<Next<D::N>> {
        if option == opt::EXPORT_NAME {
            return Ok(Next::Close);
        }
        self.refuse(option, rep::ERR_SHUTDOWN, "the server is being shut down").await
    }

    async fn acknowledge(&self, option: u32) -> io::Result<Next<D::N>> {
        let mut out = Vec::new();
        reply::option(&mut out, option, rep::ACK, &[]);
        send(self.stream, &out).await?;
        Ok(Next::Option)
    }

    async fn refuse(&self, option: u32, reply: u32, why: &str) -> io::Result<Next<D::N>> {
        let mut out = Vec::new();
        reply::option(&mut out, option, reply, &[why.as_bytes()]);
        send(self.stream, &out).await?;
        Ok(Next::Option)
    }
}

/// "Transmission flags". Flush and FUA are offered without a volatile cache too: they cost nothing then.
fn flags(terms: &Terms) -> u16 {
    let mut flags = transmission::HAS_FLAGS
        | transmission::SEND_FLUSH
        | transmission::SEND_FUA
        | transmission::CAN_MULTI_CONN
        | transmission::SEND_CACHE;
    if terms.structured {
        flags |= transmission::SEND_DF;
    }
    if terms.read_only {
        flags |= transmission::READ_ONLY;
    } else {
        flags |= transmission::SEND_TRIM | transmission::SEND_WRITE_ZEROES | transmission::SEND_FAST_ZERO;
    }
    flags
}
