//! A small NBD client of our own: for demonstrations, measurements and tests.
//!
//! One connection, many requests in flight through cloned handles. Structured replies and `base:allocation` are asked
//! for unless told otherwise, and done without where a server lacks them.
//!
//! Invariants: a reply that answers nothing, or not what was asked, ends the connection; a request in flight when the
//! connection ends gets [`Error::Disconnected`].
//!
//! Does not: reconnect, speak TLS, or limit the requests in flight (the caller does).

mod handshake;
mod replies;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    io,
    rc::Rc,
};

use futures::channel::oneshot;
use replies::{Answer, Pending};
use rt::{
    Bytes, Rt,
    net::{Addr, Stream},
};

use super::{
    errno::Errno,
    request::WireRequest,
    wire::{cmd, cmd_flag, transmission},
};
use crate::{namespace::Extent, stream::outbox::Outbox};

/// Why something did not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The server refuses an option of the handshake.
    #[error("the server refuses option {option}: reply {reply:#x} {message}")]
    Refused {
        /// The option's number.
        option: u32,
        /// The reply type, one of `wire::rep::ERR_*`.
        reply: u32,
        /// What the server says.
        message: String,
    },
    /// The server answers a request with an error.
    #[error("{errno}: {message}")]
    Failed {
        /// The error.
        errno: Errno,
        /// What the server says; empty with simple replies.
        message: String,
    },
    /// The server breaks the protocol.
    #[error("the server breaks the protocol: {0}")]
    Protocol(&'static str),
    /// The connection ended.
    #[error("the connection ended")]
    Disconnected,
    /// The connection cannot be made, or broke.
    #[error("the connection failed: {0}")]
    Io(io::ErrorKind),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::Disconnected,
            kind => Error::Io(kind),
        }
    }
}

/// What a connection asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// Structured replies.
    pub structured: bool,
    /// `base:allocation`, which needs structured replies.
    pub allocation: bool,
    /// `OPT_GO`; else the older `OPT_EXPORT_NAME`.
    pub go: bool,
}

impl Default for Wishes {
    fn default() -> Self {
        Wishes { structured: true, allocation: true, go: true }
    }
}

/// What the server told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// Its canonical name.
    pub name: String,
    /// A line for people.
    pub description: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Transmission flags.
    pub flags: u16,
    /// Minimum block, preferred block, maximum payload.
    pub block_sizes: Option<[u32; 3]>,
    /// Whether structured replies were agreed on.
    pub structured: bool,
    /// Whether block status can be asked for.
    pub allocation: bool,
}

impl Export {
    /// Whether writes are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.flags & transmission::READ_ONLY != 0
    }
}

/// How to write zeroes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zeroes {
    /// The range stays allocated.
    pub no_hole: bool,
    /// Fail with `ENOTSUP` when it is not faster than a write.
    pub fast: bool,
    /// Durable when answered.
    pub fua: bool,
}

/// A connection in transmission. Clones share it; it closes when the last is dropped.
#[derive(Clone)]
pub struct Client {
    handle: Rc<Handle>,
}

struct Handle {
    connection: Rc<Connection>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.connection.end();
    }
}

/// What the handles and the two tasks of a connection share.
struct Connection {
    stream: Stream,
    export: Export,
    outbox: Outbox<()>,
    pending: RefCell<BTreeMap<u64, Pending>>,
    next_cookie: Cell<u64>,
    ended: Cell<bool>,
}

impl Connection {
    /// Ends the connection; all requests in flight fail.
    fn end(&self) {
        self.ended.set(true);
        self.outbox.discard();
        self.stream.shutdown();
        let pending = std::mem::take(&mut *self.pending.borrow_mut());
        drop(pending);
    }

    async fn send(&self) {
        while let Some(batch) = self.outbox.batch().await {
            if self.stream.send_all(batch.parts).await.is_err() {
                return self.end();
            }
        }
    }
}

impl Client {
    /// Connects to an export with everything the server offers.
    ///
    /// # Errors
    /// When the server cannot be reached, or has no such export.
    pub async fn connect(rt: &Rt, address: &Addr, name: &str) -> Result<Client, Error> {
        Client::connect_with(rt, address, name, Wishes::default()).await
    }

    /// Connects to an export.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect_with(rt: &Rt, address: &Addr, name: &str, wishes: Wishes) -> Result<Client, Error> {
        let stream = Stream::connect(rt, address).await?;
        let (export, reader) = handshake::run(&stream, name, wishes).await?;
        let connection = Rc::new(Connection {
            stream,
            export,
            outbox: Outbox::new(),
            pending: RefCell::default(),
            next_cookie: Cell::new(1),
            ended: Cell::new(false),
        });
        let (sender, receiver) = (connection.clone(), connection.clone());
        rt.spawn(async move { sender.send().await });
        rt.spawn(async move {
            if let Error::Protocol(why) = replies::receive(&receiver, reader).await {
                tracing::warn!(why, "nbd client: the server breaks the protocol");
            }
            receiver.end();
        });
        Ok(Client { handle: Rc::new(Handle { connection }) })
    }

    /// Names and descriptions of a server's exports.
    ///
    /// # Errors
    /// When the server cannot be reached or does not tell.
    pub async fn list(rt: &Rt, address: &Addr) -> Result<Vec<(String, String)>, Error> {
        let stream = Stream::connect(rt, address).await?;
        handshake::list(&stream).await
    }

    /// What the server told about the export.
    #[must_use]
    pub fn export(&self) -> &Export {
        &self.handle.connection.export
    }

    /// Reads.
    ///
    /// # Errors
    /// The server's error, or that of the connection; so for all requests.
    pub async fn read(&self, offset: u64, bytes: u32) -> Result<Bytes, Error> {
        match self.request(cmd::READ, 0, offset, bytes, None).await? {
            Answer::Data(data) => Ok(data),
            Answer::Done | Answer::Extents(_) => Err(Error::Protocol("a read is answered with data")),
        }
    }

    /// Writes; with `fua` the data is durable when answered.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), Error> {
        let bytes = u32::try_from(data.len()).map_err(|_| Error::Protocol("a request is shorter than 4 GiB"))?;
        self.done(cmd::WRITE, fua_flag(fua), offset, bytes, Some(data)).await
    }

    /// Makes durable what has been answered.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub async fn flush(&self) -> Result<(), Error> {
        self.done(cmd::FLUSH, 0, 0, 0, None).await
    }

    /// Deallocates.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub async fn trim(&self, offset: u64, bytes: u32, fua: bool) -> Result<(), Error> {
        self.done(cmd::TRIM, fua_flag(fua), offset, bytes, None).await
    }

    /// Writes zeroes.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub async fn write_zeroes(&self, offset: u64, bytes: u32, how: Zeroes) -> Result<(), Error> {
        let mut flags = fua_flag(how.fua);
        flags |= if how.no_hole { cmd_flag::NO_HOLE } else { 0 };
        flags |= if how.fast { cmd_flag::FAST_ZERO } else { 0 };
        self.done(cmd::WRITE_ZEROES, flags, offset, bytes, None).await
    }

    /// Announces reads.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub async fn cache(&self, offset: u64, bytes: u32) -> Result<(), Error> {
        self.done(cmd::CACHE, 0, offset, bytes, None).await
    }

    /// States of a range from its start on; with `one` a single extent.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub async fn block_status(&self, offset: u64, bytes: u32, one: bool) -> Result<Vec<Extent>, Error> {
        let flags = if one { cmd_flag::REQ_ONE } else { 0 };
        match self.request(cmd::BLOCK_STATUS, flags, offset, bytes, None).await? {
            Answer::Extents(extents) => Ok(extents),
            Answer::Done | Answer::Data(_) => Err(Error::Protocol("block status is answered with extents")),
        }
    }

    /// Any request, good or bad, for tests of servers: the answer without its data.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub async fn raw(&self, kind: u16, flags: u16, offset: u64, bytes: u32) -> Result<(), Error> {
        let payload = (kind == cmd::WRITE).then(|| Bytes::zeroed(bytes as usize));
        self.request(kind, flags, offset, bytes, payload).await.map(drop)
    }

    /// Says good-bye after the requests in flight: waits until the server has closed the connection.
    pub async fn disconnect(self) {
        let _ = self.request(cmd::DISC, 0, 0, 0, None).await;
    }

    async fn done(&self, kind: u16, flags: u16, offset: u64, bytes: u32, data: Option<Bytes>) -> Result<(), Error> {
        match self.request(kind, flags, offset, bytes, data).await? {
            Answer::Done => Ok(()),
            Answer::Data(_) | Answer::Extents(_) => Err(Error::Protocol("an answer with data that was not asked for")),
        }
    }

    async fn request(
        &self,
        kind: u16,
        flags: u16,
        offset: u64,
        length: u32,
        data: Option<Bytes>,
    ) -> Result<Answer, Error> {
        let connection = &self.handle.connection;
        if connection.ended.get() {
            return Err(Error::Disconnected);
        }
        let cookie = connection.next_cookie.get();
        connection.next_cookie.set(cookie + 1);
        let request = WireRequest { flags, kind, cookie, offset, length };
        let (sender, receiver) = oneshot::channel();
        connection.pending.borrow_mut().insert(cookie, Pending::new(&request, sender));
        connection.outbox.push((), |message| {
            message.pieces().extend_from_slice(&request.encode());
            message.parts(data.into_iter().collect());
        });
        receiver.await.unwrap_or(Err(Error::Disconnected))
    }
}

fn fua_flag(fua: bool) -> u16 {
    if fua { cmd_flag::FUA } else { 0 }
}
