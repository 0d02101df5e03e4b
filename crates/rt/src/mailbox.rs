//! Mail from other threads to a task: the one way into a runtime from outside.
//!
//! Invariant: a message sent before the last sender was dropped is received before the end is.
//!
//! Not here: answers (send a oneshot's sender along), limits on the number of messages (the sender's side keeps
//! them).

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::mpsc::{self, TryRecvError};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;

use crate::Rt;

/// The writing end: `Send`, `Clone`, for any thread.
pub struct MailSender<T> {
    /// None only inside of `drop`.
    messages: Option<mpsc::Sender<T>>,
    bell: Arc<AtomicWaker>,
}

impl<T> MailSender<T> {
    /// Sends a message; false when nobody can receive it any more.
    pub fn send(&self, message: T) -> bool {
        let sent = self.messages.as_ref().is_some_and(|l| l.send(message).is_ok());
        self.bell.wake();
        sent
    }
}

impl<T> Clone for MailSender<T> {
    fn clone(&self) -> Self {
        MailSender { messages: self.messages.clone(), bell: self.bell.clone() }
    }
}

impl<T> Drop for MailSender<T> {
    fn drop(&mut self) {
        // First the sender, then the bell, so that the receiver sees the end.
        self.messages = None;
        self.bell.wake();
    }
}

/// The reading end: `Send` until it is first asked, then on the thread of its runtime.
pub struct MailReceiver<T> {
    messages: mpsc::Receiver<T>,
    bell: Arc<AtomicWaker>,
}

impl<T> MailReceiver<T> {
    /// The next message; None when every sender is gone.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// A message that has arrived already.
    pub fn try_recv(&mut self) -> Option<T> {
        self.messages.try_recv().ok()
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.bell.register(cx.waker());
        match self.messages.try_recv() {
            Ok(message) => Poll::Ready(Some(message)),
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Disconnected) => Poll::Ready(None),
        }
    }
}

impl Rt {
    /// A mailbox to this runtime, or to that of the thread that the reading end is sent to. In the modelled world only for use within the one thread: a message from another
    /// thread would come at a time that no seed decides.
    #[must_use]
    pub fn mailbox<T: Send + 'static>(&self) -> (MailSender<T>, MailReceiver<T>) {
        let (sender, messages) = mpsc::channel();
        let bell = Arc::new(AtomicWaker::new());
        (MailSender { messages: Some(sender), bell: bell.clone() }, MailReceiver { messages, bell })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn messages_in_order_then_the_end() {
        let rt = Rt::modelled(7);
        let (sender, mut receiver) = rt.mailbox();
        let writer = rt.clone();
        drop(rt.spawn(async move {
            for n in 0..3 {
                assert!(sender.send(n));
                writer.sleep(Duration::from_millis(1)).await;
            }
        }));
        let got = rt.block_on(async move {
            let mut got = vec![];
            while let Some(n) = receiver.recv().await {
                got.push(n);
            }
            got
        });
        assert_eq!(got, [0, 1, 2]);
        let (sender, receiver) = rt.mailbox();
        drop(receiver);
        assert!(!sender.send(1));
    }
}
