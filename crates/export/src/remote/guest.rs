//! The connections' end: a directory and namespaces that ask another thread.

use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use rt::{Bytes, MailReceiver, Rt};

use super::letters::{Answer, Ask, Batch, Key, Post, Reply, Ticket, Verb};
use super::tickets::{Tickets, Waiting};
use crate::namespace::{Directory, Extent, Fault, Namespace, NamespaceInfo};

/// The directory of another thread.
#[derive(Clone)]
pub struct Remote(Rc<Guest>);

struct Guest {
    post: Post<Ask>,
    requests: Rc<Tickets<Answer>>,
}

impl Remote {
    pub(super) fn new(rt: &Rt, inbox: MailReceiver<Batch<Reply>>, post: Post<Ask>) -> Remote {
        let guest = Rc::new(Guest { post, requests: Rc::default() });
        rt.spawn(receive(Rc::downgrade(&guest), inbox)).detach();
        Remote(guest)
    }
}

/// Hands answers to those who wait, until the host is gone or no handle of the guest is left.
async fn receive(guest: Weak<Guest>, mut inbox: MailReceiver<Batch<Reply>>) {
    while let Some(batch) = inbox.recv().await {
        let Some(guest) = guest.upgrade() else { return };
        for Reply { ticket, answer } in guest.post.receive(batch) {
            if let Some(unwanted) = guest.requests.answered(ticket, answer) {
                guest.throw_away(unwanted);
            }
        }
    }
    if let Some(guest) = guest.upgrade() {
        guest.requests.end();
    }
}

impl Guest {
    /// An answer that nobody wants: what it holds goes back to where it came from.
    fn throw_away(self: &Rc<Self>, answer: Answer) {
        match answer {
            Answer::Read(Ok(parcels)) => parcels.into_iter().for_each(|parcel| drop(self.post.unpack(parcel))),
            Answer::Opened(Some((key, _))) => self.post.put(Ask::Close(key)),
            Answer::Names(_) | Answer::Opened(None) | Answer::Read(Err(_)) | Answer::Done(_) | Answer::Extents(_) => {}
        }
    }

    /// Sends a request; nothing when the other thread is gone.
    fn ask(self: &Rc<Self>, letter: impl FnOnce(Ticket) -> Ask) -> Asked {
        let (ticket, answer) = self.requests.take();
        self.post.put(letter(ticket));
        Asked { guest: self.clone(), answer }
    }
}

/// A request on its way.
struct Asked {
    guest: Rc<Guest>,
    answer: Waiting<Answer>,
}

impl Future for Asked {
    type Output = Option<Answer>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Answer>> {
        Pin::new(&mut self.answer).poll(cx)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(unwanted) = self.answer.leave() {
            self.guest.throw_away(unwanted);
        }
    }
}

impl Directory for Remote {
    type N = RemoteNamespace;

    async fn names(&self) -> Vec<String> {
        match self.0.ask(Ask::Names).await {
            Some(Answer::Names(names)) => names,
            None => vec![],
            Some(_) => unreachable!("names are answered with names"),
        }
    }

    async fn open(&self, name: &str) -> Option<RemoteNamespace> {
        match self.0.ask(|ticket| Ask::Open(ticket, name.to_owned())).await {
            Some(Answer::Opened(opened)) => {
                let (key, info) = opened?;
                Some(RemoteNamespace(Rc::new(Open { guest: self.0.clone(), key, info })))
            }
            None => None,
            Some(_) => unreachable!("an open is answered with a namespace"),
        }
    }
}

/// A namespace of another thread.
#[derive(Clone)]
pub struct RemoteNamespace(Rc<Open>);

struct Open {
    guest: Rc<Guest>,
    key: Key,
    info: NamespaceInfo,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.guest.post.put(Ask::Close(self.key));
    }
}

impl RemoteNamespace {
    async fn ask(&self, verb: Verb) -> Result<Answer, Fault> {
        self.0.guest.ask(|ticket| Ask::Do(ticket, self.0.key, verb)).await.ok_or(Fault::Gone)
    }

    async fn done(&self, verb: Verb) -> Result<(), Fault> {
        match self.ask(verb).await? {
            Answer::Done(result) => result,
            _ => unreachable!("what changes something is answered with whether it is done"),
        }
    }
}

impl Namespace for RemoteNamespace {
    /// As it was when it was opened.
    fn info(&self) -> NamespaceInfo {
        self.0.info.clone()
    }

    async fn read(&self, offset: u64, bytes: u32) -> Result<Vec<Bytes>, Fault> {
        match self.ask(Verb::Read { offset, bytes }).await? {
            Answer::Read(result) => Ok(result?.into_iter().map(|parcel| self.0.guest.post.unpack(parcel)).collect()),
            _ => unreachable!("a read is answered with data"),
        }
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), Fault> {
        self.done(Verb::Write { offset, data: self.0.guest.post.pack(data), fua }).await
    }

    async fn flush(&self) -> Result<(), Fault> {
        self.done(Verb::Flush).await
    }

    async fn write_zeroes(&self, offset: u64, bytes: u64, may_deallocate: bool, fua: bool) -> Result<(), Fault> {
        self.done(Verb::WriteZeroes { offset, bytes, may_deallocate, fua }).await
    }

    async fn deallocate(&self, offset: u64, bytes: u64, fua: bool) -> Result<(), Fault> {
        self.done(Verb::Deallocate { offset, bytes, fua }).await
    }

    async fn extents(&self, offset: u64, bytes: u64, at_most: usize) -> Result<Vec<Extent>, Fault> {
        match self.ask(Verb::Extents { offset, bytes, at_most }).await? {
            Answer::Extents(result) => result,
            _ => unreachable!("extents are answered with extents"),
        }
    }
}
