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

use super::notify::Notify;
use super::start::{Settings, What};
use super::{Data, exports, nvme, spares};
use crate::config::ArrayConfig;
use crate::cores;
use crate::front::Front;
use crate::hooks::Hooks;
use crate::listen::metrics;
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
    settings.metrics.map_or(Ok(()), metrics::refuse_open)?;
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
    let keys: [Key; 21] = [
        ("control", |s| format!("{:?}", s.control)),
        ("state_dir", |s| format!("{:?}", s.state_dir)),
        ("nbd", |s| format!("{:?}", s.nbd)),
        ("nbd_insecure", |s| format!("{:?}", s.nbd_insecure)),
        ("guests", |s| format!("{:?}", s.guests)),
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
        ("discard", |s| format!("{:?}", s.discard)),
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

#[cfg(test)]
mod tests {
    use array::Discard;
    use rt::{Congestion, Ways};

    use super::*;
    use crate::config::{Deal, Linger};
    use crate::daemon::NvmeSettings;
    use crate::front::ApiConfig;
    use crate::hooks::HookConfig;
    use crate::memory::Memory;
    use crate::size::Size;
    use crate::subsystem::Rule;

    fn settings() -> Settings {
        Settings {
            what: What::Configured(vec![ArrayConfig { name: "a".into(), ..ArrayConfig::default() }]),
            direct: vec![],
            spares: vec![],
            control: "c".into(),
            state_dir: "s".into(),
            nbd: vec![],
            nbd_insecure: false,
            guests: None,
            nvme: NvmeSettings::default(),
            metrics: None,
            api: ApiConfig::default(),
            hooks: vec![],
            read_only: false,
            degraded: false,
            force_diverged: false,
            accept_loss: false,
            take_over: vec![],
            reserve: true,
            discard: Discard::Auto,
            memory: Memory::default(),
            ways: Ways::Plain,
            cores: 1,
            pin: false,
            linger: Linger::default(),
            congestion: Congestion::Auto,
            stop_at_eof: false,
            notify: Notify::default(),
            reread: None,
            program: "test".into(),
        }
    }

    /// What one change of the settings wants a restart for.
    fn after(change: impl Fn(&mut Settings)) -> Vec<&'static str> {
        let mut new = settings();
        change(&mut new);
        restart_for(&settings(), &new)
    }

    #[test]
    fn each_key_that_needs_a_restart_is_named_alone() {
        type Change = fn(&mut Settings);
        let memory = "map_memory, memtable_memory or buffer_memory";
        let changes: [(&str, Change); 25] = [
            ("control", |s| s.control = "d".into()),
            ("state_dir", |s| s.state_dir = "d".into()),
            ("nbd", |s| s.nbd.push("unix:n".into())),
            ("nbd_insecure", |s| s.nbd_insecure = true),
            ("guests", |s| s.guests = Some("g".into())),
            ("nvme", |s| s.nvme.addresses.push("tcp:127.0.0.1:4420".into())),
            ("nvme_advertise", |s| s.nvme.advertise.push("10.0.0.1:4420".into())),
            ("metrics", |s| s.metrics = "127.0.0.1:9450".parse().ok()),
            ("api.listen", |s| s.api.listen.push(([127, 0, 0, 1], 9460).into())),
            ("hook", |s| s.hooks.push(HookConfig::default())),
            ("deal", |s| s.nvme.deal = Deal::Connect),
            ("read_only", |s| s.read_only = true),
            (memory, |s| s.memory.map = Some(Size(1))),
            (memory, |s| s.memory.memtable = Some(Size(1))),
            (memory, |s| s.memory.buffers = Some(Size(1))),
            ("cores", |s| s.cores = 2),
            ("pin", |s| s.pin = true),
            ("linger", |s| s.linger = "1".parse().expect("microseconds")),
            ("congestion", |s| s.congestion = Congestion::System),
            ("io", |s| s.ways = Ways::Poll),
            ("reservations", |s| s.reserve = false),
            ("discard", |s| s.discard = Discard::None),
            ("array", |s| s.what = What::Known),
            ("array", |s| s.what = What::Places(vec!["d".into()])),
            ("array", |s| s.what = What::Configured(vec![])),
        ];
        let mut named: Vec<&str> = changes.iter().map(|(key, _)| *key).collect();
        for (key, change) in changes {
            assert_eq!(after(change), [key]);
        }
        named.dedup();
        let all = |s: &mut Settings| changes.iter().for_each(|(_, change)| change(s));
        assert_eq!(after(all), named, "in one order");
    }

    #[test]
    fn what_can_be_reloaded_needs_no_restart() {
        assert!(after(|_| ()).is_empty());
        assert!(after(|s| s.spares.push("d".into())).is_empty());
        assert!(after(|s| s.nvme.access.all = Rule { hosts: vec!["nqn.a".into()], any: true }).is_empty());
        assert!(after(|s| s.api.names.push("nas".into())).is_empty());
        assert!(after(|s| (s.api.certificate, s.api.key) = (Some("c".into()), Some("k".into()))).is_empty());
        let hosts = |s: &mut Settings| {
            let What::Configured(arrays) = &mut s.what else { panic!("it is configured") };
            (arrays[0].allow_hosts, arrays[0].allow_any) = (vec!["nqn.a".into()], true);
        };
        assert!(after(hosts).is_empty());
    }
}
