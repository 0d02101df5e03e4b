//! The connections' end: a directory and namespaces that ask another thread.

use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use rt::{MailReceiver, Rt};

use super::letters::{Ask, Batch, Key, Post, Reply, Said, Ticket};
use super::tickets::{Tickets, Waiting};
use crate::namespace::{Answer, Directory, Fault, Namespace, NamespaceInfo, Request};

/// The directory of another thread.
#[derive(Clone)]
pub struct Remote(Rc<Guest>);

struct Guest {
    post: Post<Ask>,
    requests: Rc<Tickets<Said>>,
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
    fn throw_away(self: &Rc<Self>, answer: Said) {
        match answer {
            Said::Done(Ok(Answer::Data(parcels))) => {
                parcels.into_iter().for_each(|parcel| drop(self.post.unpack(parcel)))
            }
            Said::Opened(Some((key, _))) => self.post.put(Ask::Close(key)),
            Said::Names(_) | Said::Opened(None) | Said::Done(Ok(Answer::Done | Answer::Extents(_)) | Err(_)) => {}
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
    answer: Waiting<Said>,
}

impl Future for Asked {
    type Output = Option<Said>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Said>> {
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
            Some(Said::Names(names)) => names,
            None => vec![],
            Some(_) => unreachable!("names are answered with names"),
        }
    }

    async fn open(&self, name: &str) -> Option<RemoteNamespace> {
        match self.0.ask(|ticket| Ask::Open(ticket, name.to_owned())).await {
            Some(Said::Opened(opened)) => {
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

impl Namespace for RemoteNamespace {
    /// As it was when it was opened.
    fn info(&self) -> NamespaceInfo {
        self.0.info.clone()
    }

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        let Open { guest, key, .. } = &*self.0;
        let request = request.with(|data| guest.post.pack(data));
        match guest.ask(|ticket| Ask::Do(ticket, *key, request)).await {
            Some(Said::Done(result)) => Ok(result?.with(|parcel| guest.post.unpack(parcel))),
            None => Err(Fault::Gone),
            Some(Said::Names(_) | Said::Opened(_)) => unreachable!("a request is answered by whether it is done"),
        }
    }
}
