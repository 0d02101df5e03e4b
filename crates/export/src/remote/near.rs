//! The connections' end: a directory and namespaces that ask another core.

use std::rc::Rc;

use rt::cross::Caller;

use super::message::{Key, Message, Reply};
use crate::namespace::{Answer, Directory, Fault, Namespace, NamespaceInfo, Request};

/// The directory of another core.
#[derive(Clone)]
pub struct Remote(pub(super) Caller<Message>);

impl Directory for Remote {
    type N = RemoteNamespace;

    async fn names(&self) -> Vec<String> {
        match self.0.call(Message::Names).await {
            Some(Reply::Names(names)) => names,
            None => vec![],
            Some(Reply::Opened(_) | Reply::Submitted(_)) => unreachable!("names are answered with names"),
        }
    }

    async fn open(&self, name: &str) -> Option<RemoteNamespace> {
        match self.0.call(Message::Open(name.to_owned())).await {
            Some(Reply::Opened(opened)) => {
                let (key, info) = opened?;
                Some(RemoteNamespace(Rc::new(Open { far: self.0.clone(), key, info })))
            }
            None => None,
            Some(Reply::Names(_) | Reply::Submitted(_)) => unreachable!("an open is answered with a namespace"),
        }
    }
}

/// A namespace of another core.
#[derive(Clone)]
pub struct RemoteNamespace(Rc<Open>);

struct Open {
    far: Caller<Message>,
    key: Key,
    info: NamespaceInfo,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.far.tell(Message::Close(self.key));
    }
}

impl Namespace for RemoteNamespace {
    /// As it was when it was opened.
    fn info(&self) -> NamespaceInfo {
        self.0.info.clone()
    }

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        let Open { far, key, .. } = &*self.0;
        match far.call(Message::Submit(*key, request.with(|data| far.trade().pack(data)))).await {
            Some(Reply::Submitted(result)) => result.map(|answer| answer.with(|payload| far.trade().unpack(payload))),
            None => Err(Fault::Gone),
            Some(Reply::Names(_) | Reply::Opened(_)) => unreachable!("a request is answered with its result"),
        }
    }
}
