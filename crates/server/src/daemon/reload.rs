//! SIGHUP: the configuration is read again, and what can change without a lost connection changes.
//!
//! ```text
//!   SIGHUP -> read and look at all of it -+-> wrong: nothing changes, the log says why
//!                                         +-> right: hosts that may connect, spares, and the API's names and
//!                                             certificate are those of the file;
//!                                             other keys that differ are named: they need a restart
//! ```
//!
//! Invariants: a file that is wrong anywhere changes nothing; a host that is connected stays connected, also when it may not
//! connect any more.

use std::cell::RefCell;
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use api::Problem;
use rt::Hangups;

use super::control;
use super::notify::Notify;
use super::start::{Settings, What};
use super::{Data, exports, nvme, spares};
use crate::config::ArrayConfig;
use crate::cores;
use crate::front::Front;
use crate::hooks::Hooks;
use crate::subsystem::AccessRules;

/// Reads the settings again, where they come from a file.
#[derive(Clone)]
pub struct Reread(Arc<dyn Fn() -> Result<Settings, Problem> + Send + Sync>);

impl Reread {
    /// By this.
    pub fn new(read: impl Fn() -> Result<Settings, Problem> + Send + Sync + 'static) -> Reread {
        Reread(Arc::new(read))
    }
}

impl fmt::Debug for Reread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reread")
    }
}

/// What is wrong with settings, as far as they alone tell.
///
/// # Errors
/// The first problem.
pub fn look_at(settings: &Settings) -> Result<(), Problem> {
    let addresses = exports::parse(&settings.nbd)?;
    exports::refuse_open(&addresses, settings.nbd_insecure)?;
    nvme::parse(&settings.nvme)?;
    cores::checked(settings.cores)?;
    Hooks::check(&settings.hooks)?;
    settings.metrics.map_or(Ok(()), control::refuse_open)?;
    settings.api.check()?;
    settings.memory.checked()?.within(crate::memory::of_machine()).map(drop)
}

/// Listens for SIGHUP as long as the server lives; `ready` says how it stands.
pub async fn listen(
    hangups: Hangups,
    data: Weak<Data>,
    mut settings: Settings,
    (access, front): (Rc<RefCell<AccessRules>>, Option<Arc<Front>>),
    ready: fn(&Data) -> String,
) {
    let (Some(reread), notify) = (settings.reread.clone(), settings.notify.clone()) else { return };
    loop {
        hangups.next().await;
        let Some(data) = data.upgrade() else { return };
        notify.reloading();
        let done = (reread.0)().and_then(|new| look_at(&new).map(|()| new)).and_then(|new| {
            let shown = front.as_ref().map(|front| front.next(&new.api)).transpose()?;
            Ok((new, shown))
        });
        let told = match done {
            Ok((new, shown)) => {
                front.iter().zip(shown).for_each(|(front, shown)| front.show(shown));
                let waiting = apply(&data, &settings, &new, &access);
                // What needs a restart is compared with what the server began with.
                settings.spares = new.spares;
                waiting
                    .map_or("reload: done".to_owned(), |keys| format!("reload: done; a restart is needed for {keys}"))
            }
            Err(problem) => {
                tracing::error!("{}", problem.line());
                "reload: refused, nothing has changed".to_owned()
            }
        };
        tracing::info!("{told}");
        tell(&notify, &ready(&data), &told);
    }
}

fn tell(notify: &Notify, stands: &str, told: &str) {
    notify.ready(&format!("{stands}; {told}"));
}

/// Uses what can be used at once; the keys that need a restart, if there are any.
fn apply(data: &Rc<Data>, old: &Settings, new: &Settings, access: &RefCell<AccessRules>) -> Option<String> {
    access.replace(new.nvme.access.clone());
    if data.spares.replace(&old.spares, &new.spares) {
        data.world.rt.spawn(spares::share(Rc::downgrade(data))).detach();
    }
    let keys = restart_for(old, new);
    (!keys.is_empty()).then(|| keys.join(", "))
}

/// A key of the file, and what it says.
type Key = (&'static str, fn(&Settings) -> String);

/// The keys that differ and are used at a start only.
fn restart_for(old: &Settings, new: &Settings) -> Vec<&'static str> {
    let differ = |of: fn(&Settings) -> String| of(old) != of(new);
    let keys: [Key; 19] = [
        ("control", |s| format!("{:?}", s.control)),
        ("state_dir", |s| format!("{:?}", s.state_dir)),
        ("nbd", |s| format!("{:?}", s.nbd)),
        ("nbd_insecure", |s| format!("{:?}", s.nbd_insecure)),
        ("nvme", |s| format!("{:?}", s.nvme.addresses)),
        ("nvme_advertise", |s| format!("{:?}", s.nvme.advertise)),
        ("metrics", |s| format!("{:?}", s.metrics)),
        ("api.listen", |s| format!("{:?}", s.api.listen)),
        ("hook", |s| format!("{:?}", s.hooks)),
        ("deal", |s| format!("{:?}", s.nvme.deal)),
        ("read_only", |s| format!("{:?}", s.read_only)),
        ("map_memory, memtable_memory or buffer_memory", |s| format!("{:?}", s.memory)),
        ("cores", |s| format!("{:?}", s.cores)),
        ("pin", |s| format!("{:?}", s.pin)),
        ("linger", |s| format!("{:?}", s.linger)),
        ("congestion", |s| format!("{:?}", s.congestion)),
        ("io", |s| format!("{:?}", s.ways)),
        ("reservations", |s| format!("{:?}", s.reserve)),
        ("array", |s| served(&s.what)),
    ];
    keys.into_iter().filter(|(_, of)| differ(*of)).map(|(key, _)| key).collect()
}

/// What is served, without who may use it.
fn served(what: &What) -> String {
    let without = |a: &ArrayConfig| ArrayConfig { allow_hosts: vec![], allow_any: false, ..a.clone() };
    match what {
        // The same arrays with other hosts only: also when there is no other word of them.
        What::Configured(arrays) => format!("{:?}", arrays.iter().map(without).collect::<Vec<_>>()),
        What::Known => "known".to_owned(),
        What::Places(places) => format!("{places:?}"),
    }
}
