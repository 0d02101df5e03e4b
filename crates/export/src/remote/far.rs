//! The namespaces' end: begins each request as a task, in the order of sending.

use std::cell::RefCell;
use std::rc::Rc;

use rt::Rt;
use rt::cross::{self, Callee};
use slab::Slab;

use super::message::{Key, Message, Reply};
use crate::namespace::{Directory, Namespace, NamespaceInfo, Request};
use crate::stream::task_pool::{TaskPool, WAITING_BYTES};

/// A request to execute.
struct Job<N> {
    namespace: N,
    request: Request,
    reply: cross::Reply<Message>,
}

/// Those who do the requests; they end after what they do when this is dropped, as it is when serving is cancelled.
struct Jobs<N: 'static>(Rc<TaskPool<Job<N>>>);

impl<N> Drop for Jobs<N> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Serves the directory until the near end is gone. What is being done then is done to its end.
pub async fn serve<D: Directory>(rt: Rt, directory: D, mut callee: Callee<Message>) {
    let open: Rc<RefCell<Slab<D::N>>> = Rc::default();
    let Jobs(tasks) = &Jobs(TaskPool::new(WAITING_BYTES));
    while let Some((message, reply)) = callee.next().await {
        match message {
            Message::Submit(key, request) => {
                let namespace = open.borrow()[key].clone();
                let request = request.with(|payload| reply.trade().unpack(payload));
                tasks.begin(&rt, Job { namespace, request, reply }, work);
            }
            Message::Names => {
                let directory = directory.clone();
                rt.spawn(async move { reply.send(Reply::Names(directory.names().await)) }).detach();
            }
            Message::Open(name) => {
                let (directory, open) = (directory.clone(), open.clone());
                rt.spawn(async move { reply.send(Reply::Opened(enter(&directory, &open, &name).await)) }).detach();
            }
            Message::Close(key) => {
                let closed = open.borrow_mut().remove(key);
                drop(closed);
            }
        }
    }
    let open = open.take();
    drop(open);
}

async fn enter<D: Directory>(directory: &D, open: &RefCell<Slab<D::N>>, name: &str) -> Option<(Key, NamespaceInfo)> {
    let namespace = directory.open(name).await?;
    let info = namespace.info();
    Some((open.borrow_mut().insert(namespace), info))
}

async fn work<N: Namespace>(job: Job<N>) {
    let Job { namespace, request, reply } = job;
    let done = namespace.submit(request).await;
    let done = done.map(|answer| answer.with(|data| reply.trade().pack(data)));
    reply.send(Reply::Submitted(done));
}
