//! A server in a temporary directory, a namespace that can be held and broken, and a peer that speaks raw bytes.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part of it")]

pub mod front_end;
pub mod nvme;

use std::{cell::Cell, cell::RefCell, collections::VecDeque, future::poll_fn, rc::Rc, task::Poll, task::Waker};

use export::{
    Answer, Exports, Fault, Memory, Namespace, NamespaceInfo, Request,
    nbd::{Server, client::Client, client::Wishes, wire},
};
use rt::{
    Buf, Bytes, Rt,
    net::{Addr, Stream},
};

pub const MIB: u32 = 1 << 20;

/// Memory that answers when it is told to, or with a fault.
#[derive(Clone)]
pub struct Puppet {
    pub memory: Memory,
    state: Rc<State>,
}

#[derive(Default)]
struct State {
    held: Cell<bool>,
    waiting: Cell<usize>,
    wakers: RefCell<Vec<Waker>>,
    faults: RefCell<VecDeque<Fault>>,
    calls: RefCell<Vec<String>>,
}

impl Puppet {
    pub fn new(name: &str, bytes: u64) -> Self {
        Puppet::from(Memory::new(name, bytes))
    }

    pub fn from(memory: Memory) -> Self {
        Puppet { memory, state: Rc::default() }
    }

    /// Requests wait from now on.
    pub fn hold(&self) {
        self.state.held.set(true);
    }

    /// All requests go on.
    pub fn release(&self) {
        self.state.held.set(false);
        self.state.wakers.borrow_mut().drain(..).for_each(Waker::wake);
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.state.waiting.get()
    }

    /// The next request fails.
    pub fn fail(&self, fault: Fault) {
        self.state.faults.borrow_mut().push_back(fault);
    }

    /// The calls so far, forgotten by this.
    pub fn calls(&self) -> Vec<String> {
        self.state.calls.take()
    }

    async fn enter(&self, call: String) -> Result<(), Fault> {
        self.state.calls.borrow_mut().push(call);
        self.state.waiting.set(self.state.waiting.get() + 1);
        poll_fn(|cx| {
            if !self.state.held.get() {
                return Poll::Ready(());
            }
            self.state.wakers.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
        self.state.waiting.set(self.state.waiting.get() - 1);
        self.state.faults.borrow_mut().pop_front().map_or(Ok(()), Err)
    }
}

impl Namespace for Puppet {
    fn info(&self) -> NamespaceInfo {
        self.memory.info()
    }

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        self.enter(match &request {
            Request::Read { offset, bytes } => format!("read {offset} {bytes}"),
            Request::Write { offset, data, fua } => format!("write {offset} {} {fua}", data.len()),
            Request::Flush => "flush".to_owned(),
            Request::WriteZeroes { offset, bytes, may_deallocate, fua } => {
                format!("write_zeroes {offset} {bytes} {may_deallocate} {fua}")
            }
            Request::Deallocate { offset, bytes, fua } => format!("deallocate {offset} {bytes} {fua}"),
            Request::Extents { offset, bytes, at_most } => format!("extents {offset} {bytes} {at_most}"),
        })
        .await?;
        Ok(match self.memory.submit(request).await? {
            Answer::Data(mut parts) => {
                let whole = parts.remove(0);
                // In two parts, as an array would.
                let half = whole.len() / 2;
                Answer::Data(vec![whole.slice(0..half), whole.slice(half..whole.len())])
            }
            answer @ (Answer::Done | Answer::Extents(_)) => answer,
        })
    }
}

/// A runtime, a server and where it listens.
pub struct World<N: Namespace> {
    pub rt: Rt,
    pub server: Rc<Server<Exports<N>>>,
    pub exports: Exports<N>,
    pub address: Addr,
    _directory: tempfile::TempDir,
}

impl<N: Namespace> World<N> {
    pub fn new(namespaces: impl IntoIterator<Item = N>) -> Self {
        let rt = Rt::real().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let address = Addr::Unix(directory.path().join("nbd.sock"));
        let exports = Exports::new(namespaces);
        let server = Rc::new(Server::start(&rt, exports.clone(), std::slice::from_ref(&address)).unwrap());
        World { rt, server, exports, address, _directory: directory }
    }

    pub async fn client(&self, name: &str) -> Client {
        Client::connect(&self.rt, &self.address, name).await.unwrap()
    }

    pub async fn client_with(&self, name: &str, wishes: Wishes) -> Client {
        Client::connect_with(&self.rt, &self.address, name, wishes).await.unwrap()
    }

    pub async fn raw(&self) -> Raw {
        Raw { stream: Stream::connect(&self.rt, &self.address).await.unwrap() }
    }
}

/// Runs a test on a world with one export "vol" of 64 MiB that is a puppet.
pub fn with_puppet<F: Future<Output = ()>>(test: impl FnOnce(Rc<World<Puppet>>, Puppet) -> F) {
    let puppet = Puppet::new("vol", 64 << 20);
    let world = Rc::new(World::new([puppet.clone()]));
    let rt = world.rt.clone();
    rt.block_on(test(world, puppet));
}

/// Lets other tasks run until the condition holds.
pub async fn until(rt: &Rt, mut condition: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if condition() {
            return;
        }
        rt.sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("the condition never held");
}

/// A peer that sends and expects bytes.
pub struct Raw {
    pub stream: Stream,
}

impl Raw {
    pub async fn send(&self, bytes: &[u8]) {
        self.stream.send_all(vec![Bytes::from_slice(bytes)]).await.unwrap();
    }

    /// Sends although the server may have closed.
    pub async fn try_send(&self, bytes: &[u8]) {
        let _ = self.stream.send_all(vec![Bytes::from_slice(bytes)]).await;
    }

    pub async fn receive(&self, n: usize) -> Vec<u8> {
        let (result, buf) = self.stream.recv_exact(Buf::zeroed(n)).await;
        result.unwrap();
        buf.to_vec()
    }

    /// Whether the server has closed the connection without another byte.
    pub async fn is_closed(&self) -> bool {
        matches!(self.stream.recv(Buf::zeroed(1)).await.0, Ok(0) | Err(_))
    }

    /// The greeting, answered with these client flags.
    pub async fn greet(&self, flags: u32) {
        assert_eq!(self.receive(18).await, b"NBDMAGICIHAVEOPT\0\x03");
        self.send(&flags.to_be_bytes()).await;
    }

    pub async fn option(&self, option: u32, data: &[u8]) {
        self.send(&option_bytes(option, data)).await;
    }

    /// One option reply: its type and data.
    pub async fn option_reply(&self, option: u32) -> (u32, Vec<u8>) {
        let header = self.receive(20).await;
        assert_eq!(header[..8], 0x0003_e889_0455_65a9u64.to_be_bytes());
        assert_eq!(header[8..12], option.to_be_bytes());
        let length = word(&header[16..]) as usize;
        (word(&header[12..]), self.receive(length).await)
    }

    /// Enters transmission on "vol"; with structured replies and block status or without.
    pub async fn go(&self, structured: bool) {
        self.greet(3).await;
        if structured {
            self.option(wire::opt::STRUCTURED_REPLY, &[]).await;
            assert_eq!(self.option_reply(wire::opt::STRUCTURED_REPLY).await.0, wire::rep::ACK);
            let data = [&named("vol")[..], &1u32.to_be_bytes(), &named("base:allocation")].concat();
            self.option(wire::opt::SET_META_CONTEXT, &data).await;
            assert_eq!(self.option_reply(wire::opt::SET_META_CONTEXT).await.0, wire::rep::META_CONTEXT);
            assert_eq!(self.option_reply(wire::opt::SET_META_CONTEXT).await.0, wire::rep::ACK);
        }
        self.option(wire::opt::GO, &[&named("vol")[..], &[0, 0]].concat()).await;
        while self.option_reply(wire::opt::GO).await.0 != wire::rep::ACK {}
    }

    pub async fn request(&self, kind: u16, flags: u16, cookie: u64, offset: u64, length: u32) {
        self.send(&request_bytes(kind, flags, cookie, offset, length)).await;
    }

    /// One simple reply: error and cookie.
    pub async fn simple_reply(&self) -> (u32, u64) {
        let reply = self.receive(16).await;
        assert_eq!(word(&reply), 0x6744_6698);
        (word(&reply[4..]), u64::from_be_bytes(reply[8..16].try_into().unwrap()))
    }

    /// One chunk: flags, type, cookie, payload.
    pub async fn chunk(&self) -> (u16, u16, u64, Vec<u8>) {
        let header = self.receive(20).await;
        assert_eq!(word(&header), 0x668e_33ef);
        let half = |at: usize| u16::from_be_bytes(header[at..at + 2].try_into().unwrap());
        let cookie = u64::from_be_bytes(header[8..16].try_into().unwrap());
        (half(4), half(6), cookie, self.receive(word(&header[16..]) as usize).await)
    }

    /// The error of an error chunk that is the only one.
    pub async fn error_chunk(&self, cookie: u64) -> u32 {
        let (flags, kind, found, payload) = self.chunk().await;
        assert_eq!((flags, kind, found), (1, 0x8001, cookie));
        assert_eq!(payload.len(), 6 + usize::from(u16::from_be_bytes([payload[4], payload[5]])));
        word(&payload)
    }
}

pub fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

pub fn named(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

pub fn option_bytes(option: u32, data: &[u8]) -> Vec<u8> {
    [&b"IHAVEOPT"[..], &option.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
}

pub fn request_bytes(kind: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    export::nbd::request::WireRequest { flags, kind, cookie, offset, length }.encode().to_vec()
}

pub fn pattern(seed: u8, bytes: usize) -> Bytes {
    let mut buf = Buf::zeroed(bytes);
    buf.iter_mut().enumerate().for_each(|(i, b)| *b = (i as u8).wrapping_mul(31).wrapping_add((i >> 9) as u8) ^ seed);
    buf.freeze()
}
