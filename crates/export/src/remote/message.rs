//! What crosses.

use rt::{
    Payload,
    cross::{self, Caller},
};

use crate::namespace::{Answer, Fault, NamespaceInfo, Request};

/// Which open namespace: the far end's number for it.
pub type Key = usize;

/// From the near end.
pub enum Message {
    Names,
    Open(String),
    Submit(Key, Request<Payload>),
    /// No request to it follows.
    Close(Key),
}

/// From the far end.
pub enum Reply {
    Names(Vec<String>),
    Opened(Option<(Key, NamespaceInfo)>),
    Submitted(Result<Answer<Payload>, Fault>),
}

impl cross::Message for Message {
    type Answer = Reply;

    fn discard(reply: Reply, caller: &Caller<Message>) {
        match reply {
            Reply::Submitted(Ok(answer)) => drop(answer.with(|payload| caller.trade().unpack(payload))),
            Reply::Opened(Some((key, _))) => caller.tell(Message::Close(key)),
            Reply::Names(_) | Reply::Opened(None) | Reply::Submitted(Err(_)) => {}
        }
    }
}
