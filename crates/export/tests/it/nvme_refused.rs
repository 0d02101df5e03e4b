//! Connect commands that are refused, and hosts that give no name: what they are answered with, and what the log says.

use std::{
    fmt::{self, Write},
    sync::{Arc, Mutex},
};

use crate::support::{
    Puppet,
    nvme::{NQN, Target},
};
use export::nvme::{
    Access, Deal, Status,
    client::{Error, Host, Link, Wishes},
};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// The lines that are logged on this thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Lines {
    fn with(&self, words: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|line| line.contains(words)).count()
    }
}

fn named(host: &str) -> Wishes {
    Wishes { host: host.to_owned(), ..Wishes::default() }
}

fn on_target(access: Access, test: impl AsyncFn(&Target)) -> Lines {
    let lines = Lines::default();
    let target = Target::with(Puppet::new("vol", 1 << 20), access, (0, Deal::ToOthers));
    tracing::subscriber::with_default(lines.clone(), || target.rt.clone().block_on(test(&target)));
    lines
}

/// The status of a refused Connect command, and the field that it names.
async fn refused(target: &Target, wishes: &Wishes, subsystem: &str) -> (Status, u64) {
    match Link::connect(&target.rt, &target.address, wishes, subsystem, 0, None).await {
        Err(Error::Failed { status, result }) => (status, result),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("not refused"),
    }
}

#[test]
fn a_host_without_a_name_may_use_what_every_host_may() {
    on_target(Access::Any, async |target| {
        let (_, seen) = Host::discover(&target.rt, &target.address, &named("")).await.unwrap();
        assert_eq!(seen.len(), 1);
        let host = Host::connect(&target.rt, &target.address, NQN, 1, &named("")).await.unwrap();
        host.disk(1).await.unwrap().read(0, 4096).await.unwrap();
        assert_eq!(target.server.clients()[0].host, None);
    });
    let lines = on_target(Access::Hosts(vec!["nqn.a".to_owned()]), async |target| {
        let (_, seen) = Host::discover(&target.rt, &target.address, &named("")).await.unwrap();
        assert!(seen.is_empty());
        let answer = refused(target, &named(""), NQN).await;
        assert_eq!(answer, (Status::CONNECT_INVALID_PARAMETERS, 1 << 16 | 512));
        Host::connect(&target.rt, &target.address, NQN, 1, &named("nqn.a")).await.unwrap();
    });
    assert_eq!(lines.with("the host gives no name, and the subsystem accepts named hosts only"), 1);
}

#[test]
fn a_refused_connect_is_logged_with_its_reason_a_few_times() {
    let lines = on_target(Access::Any, async |target| {
        refused(target, &named("iqn.x"), NQN).await;
        refused(target, &named("nqn.a"), "nqn.none").await;
        refused(target, &Wishes { entries: 1, ..named("nqn.a") }, NQN).await;
        for _ in 0..50 {
            refused(target, &named("nqn.a"), "nqn.none").await;
        }
    });
    for why in [
        "the host's name is not an NVMe qualified name",
        "there is no such subsystem",
        "its queue (SQSIZE) has 1 entry, or more than 128",
    ] {
        assert_eq!(lines.with(why), 1, "{why}");
    }
    assert_eq!(lines.with("a Connect command is refused"), 3, "a flood is a few lines");
}
