//! Closures for another core.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::LocalBoxFuture;

use crate::{MailReceiver, MailSender, Rt, Task};

/// A closure on its way; none: no other follows.
type Work<C> = Option<Box<dyn FnOnce(C) -> LocalBoxFuture<'static, ()> + Send>>;

/// The way to a core whose closures are given a `C`. For any thread; clones lead to the same core.
pub struct Submitter<C>(MailSender<Work<C>>);

/// The end of the core that does the work.
pub struct Submitted<C>(MailReceiver<Work<C>>);

/// What was submitted: what it says, or nothing when its core has ended before. It is done also when this is dropped.
pub struct Submission<T>(oneshot::Receiver<T>);

/// The two ends of a way; `rt` may be that of either.
#[must_use]
pub fn submissions<C: 'static>(rt: &Rt) -> (Submitter<C>, Submitted<C>) {
    let (works, inbox) = rt.mailbox();
    (Submitter(works), Submitted(inbox))
}

impl<C: 'static> Submitter<C> {
    /// Has the other core do `work`. It is on its way when this returns.
    pub fn submit<T, F>(&self, work: impl FnOnce(C) -> F + Send + 'static) -> Submission<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let (answer, answered) = oneshot::channel();
        // Who submitted it may not wait.
        let tell = |said| drop(answer.send(said));
        // A core that has ended drops the work, and its answer with it.
        self.0.send(Some(Box::new(|context| work(context).map(tell).boxed_local())));
        Submission(answered)
    }

    /// Nothing more will be submitted, by any clone.
    pub fn close(&self) {
        self.0.send(None);
    }
}

impl<C> Clone for Submitter<C> {
    fn clone(&self) -> Self {
        Submitter(self.0.clone())
    }
}

impl<T> Future for Submission<T> {
    type Output = Option<T>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_unpin(cx).map(Result::ok)
    }
}

impl<C: Clone + 'static> Submitted<C> {
    /// Does what is submitted, each beside the others, until nothing more will come and all of it is done.
    pub async fn serve(mut self, rt: &Rt, context: C) {
        let mut tasks: Vec<Task<()>> = vec![];
        while let Some(Some(work)) = self.0.recv().await {
            tasks.retain(|task| !task.is_finished());
            tasks.push(rt.spawn(work(context.clone())));
        }
        for task in tasks {
            task.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn work_is_done_to_its_end_and_answered() {
        let here = Rt::real().expect("a ring");
        let (submitter, submitted) = submissions::<(Rt, u32)>(&here);
        let thread = std::thread::spawn(move || {
            let rt = Rt::real().expect("a ring");
            rt.block_on(submitted.serve(&rt, (rt.clone(), 40)));
        });
        let (ended, end) = std::sync::mpsc::channel();
        drop(submitter.submit(async move |(rt, _): (Rt, u32)| {
            rt.sleep(Duration::from_millis(20)).await;
            ended.send(()).expect("the test waits");
        }));
        let said = here.block_on(submitter.submit(async |(_, number)| number + 2));
        assert_eq!(said, Some(42));
        submitter.close();
        thread.join().expect("it ends");
        assert!(end.try_recv().is_ok(), "what nobody awaited was done, too");
        assert_eq!(here.block_on(submitter.submit(async |_| ())), None, "its core has ended");
    }
}
