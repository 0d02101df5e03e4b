//! The namespaces' end: begins each request as a task, in the order of the letters.

use std::cell::RefCell;
use std::rc::Rc;

use rt::{MailReceiver, Parcel, Rt};
use slab::Slab;

use super::letters::{Ask, Batch, Key, Post, Reply, Said, Ticket};
use crate::namespace::{Directory, Namespace, Request};
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
    request: Request<Parcel>,
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
            Ask::Do(ticket, key, request) => {
                let namespace = self.open.borrow()[key].clone();
                self.workers.begin(&self.rt, Job { host, ticket, namespace, request }, work);
            }
            Ask::Names(ticket) => {
                self.rt.spawn(async move { host.answer(ticket, Said::Names(host.directory.names().await)) }).detach();
            }
            Ask::Open(ticket, name) => {
                let opened = async move { host.answer(ticket, Said::Opened(host.enter(&name).await)) };
                self.rt.spawn(opened).detach();
            }
            Ask::Close(key) => {
                let gone = self.open.borrow_mut().remove(key);
                drop(gone);
            }
        }
    }

    fn answer(&self, ticket: Ticket, answer: Said) {
        self.post.put(Reply { ticket, answer });
    }

    async fn enter(&self, name: &str) -> Option<(Key, crate::NamespaceInfo)> {
        let namespace = self.directory.open(name).await?;
        let info = namespace.info();
        Some((self.open.borrow_mut().insert(namespace), info))
    }
}

async fn work<D: Directory>(job: Job<D>) {
    let Job { host, ticket, namespace, request } = job;
    let answer = namespace.submit(request.with(|parcel| host.post.unpack(parcel))).await;
    host.answer(ticket, Said::Done(answer.map(|answer| answer.with(|data| host.post.pack(data)))));
}

impl<D: Directory> Drop for Host<D> {
    fn drop(&mut self) {
        self.workers.close();
    }
}
