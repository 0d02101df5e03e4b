//! The namespaces' end: begins each request as a task, in the order of the letters.

use std::cell::RefCell;
use std::rc::Rc;

use rt::{MailReceiver, Rt};
use slab::Slab;

use super::letters::{Answer, Ask, Batch, Key, Post, Reply, Ticket, Verb};
use crate::namespace::{Directory, Namespace};
use crate::stream::workers::{WAITING_BYTES, Workers};

struct Host<D: Directory> {
    rt: Rt,
    directory: D,
    post: Post<Reply>,
    open: RefCell<Slab<D::N>>,
    workers: Rc<Workers<Job<D>>>,
}

/// A request to execute.
struct Job<D: Directory> {
    host: Rc<Host<D>>,
    ticket: Ticket,
    namespace: D::N,
    verb: Verb,
}

/// Serves the directory until the guest is gone. What is being done then is done to its end.
pub async fn serve<D: Directory>(rt: Rt, directory: D, mut inbox: MailReceiver<Batch<Ask>>, post: Post<Reply>) {
    let host = Rc::new(Host { rt, directory, post, open: RefCell::default(), workers: Workers::new(WAITING_BYTES) });
    while let Some(batch) = inbox.recv().await {
        host.post.receive(batch).into_iter().for_each(|ask| host.begin(ask));
    }
    let open = host.open.take();
    drop(open);
}

impl<D: Directory> Host<D> {
    fn begin(self: &Rc<Self>, ask: Ask) {
        let host = self.clone();
        match ask {
            Ask::Do(ticket, key, verb) => {
                let namespace = self.open.borrow()[key].clone();
                self.workers.begin(&self.rt, Job { host, ticket, namespace, verb }, work);
            }
            Ask::Names(ticket) => {
                self.rt.spawn(async move { host.answer(ticket, Answer::Names(host.directory.names().await)) }).detach();
            }
            Ask::Open(ticket, name) => {
                let opened = async move { host.answer(ticket, Answer::Opened(host.enter(&name).await)) };
                self.rt.spawn(opened).detach();
            }
            Ask::Close(key) => {
                let gone = self.open.borrow_mut().remove(key);
                drop(gone);
            }
        }
    }

    fn answer(&self, ticket: Ticket, answer: Answer) {
        self.post.put(Reply { ticket, answer });
    }

    async fn enter(&self, name: &str) -> Option<(Key, crate::NamespaceInfo)> {
        let namespace = self.directory.open(name).await?;
        let info = namespace.info();
        Some((self.open.borrow_mut().insert(namespace), info))
    }

    async fn execute(&self, namespace: &D::N, verb: Verb) -> Answer {
        match verb {
            Verb::Read { offset, bytes } => {
                let parts = namespace.read(offset, bytes).await;
                Answer::Read(parts.map(|parts| parts.into_iter().map(|part| self.post.pack(part)).collect()))
            }
            Verb::Write { offset, data, fua } => {
                Answer::Done(namespace.write(offset, self.post.unpack(data), fua).await)
            }
            Verb::Flush => Answer::Done(namespace.flush().await),
            Verb::WriteZeroes { offset, bytes, may_deallocate, fua } => {
                Answer::Done(namespace.write_zeroes(offset, bytes, may_deallocate, fua).await)
            }
            Verb::Deallocate { offset, bytes, fua } => Answer::Done(namespace.deallocate(offset, bytes, fua).await),
            Verb::Extents { offset, bytes, at_most } => {
                Answer::Extents(namespace.extents(offset, bytes, at_most).await)
            }
        }
    }
}

async fn work<D: Directory>(job: Job<D>) {
    let Job { host, ticket, namespace, verb } = job;
    host.answer(ticket, host.execute(&namespace, verb).await);
}

impl<D: Directory> Drop for Host<D> {
    fn drop(&mut self) {
        self.workers.close();
    }
}
