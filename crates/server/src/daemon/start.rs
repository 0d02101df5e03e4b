//! The start of a server, as a list of named steps that the log reads like, and its life until the stop.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use api::{EventCode, Problem};
use array::Discard;
use futures::future::{Either, select};
use rt::cross::submissions;
use rt::net::Addr;
use rt::{Congestion, Rt, Ways};

use super::closed::{Closed, Way};
use super::control::{Control, Sockets};
use super::data::{Data, DataHandle};
use super::exports::{self, Exports, REQUESTS_MAX};
use super::notify::{Notify, Pulse};
use super::nvme::{self, Nvme, NvmeSettings};
use super::nvmet::keep_targets;
use super::reload::{self, Reread};
use super::socket::Socket;
use super::spares::{self, Spares};
use super::{arrays, stop};
use crate::blocks::Blocks;
use crate::config::{ArrayConfig, Linger};
use crate::cores::{self, Cores};
use crate::direct::{self, DirectDrive};
use crate::front::{self, ApiConfig, Front};
use crate::guests::{self, GuestSockets};
use crate::hooks::{HookConfig, Hooks};
use crate::journal::Journal;
use crate::listen::{Listening, metrics};
use crate::memory::Memory;
use crate::nvmet::Targets;
use crate::ops::World;
use crate::placement::Machine;
use crate::problem;
use crate::registry::Registry;

/// What to serve.
#[derive(Clone, Debug)]
pub enum What {
    /// All arrays this machine knows.
    Known,
    /// Those found on these drives and in these directories.
    Places(Vec<PathBuf>),
    /// Those of a configuration.
    Configured(Vec<ArrayConfig>),
}

/// How to serve it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The arrays.
    pub what: What,
    /// Drives to serve with nothing between.
    pub direct: Vec<String>,
    /// Drives that belong to no array: the first that lacks one gets it.
    pub spares: Vec<String>,
    /// The control socket.
    pub control: PathBuf,
    /// The directory of `arrays.toml`.
    pub state_dir: PathBuf,
    /// Addresses of the NBD export.
    pub nbd: Vec<String>,
    /// Whether that may be reached from other machines.
    pub nbd_insecure: bool,
    /// The NVMe/TCP export.
    pub nvme: NvmeSettings,
    /// The directory of the sockets for guests; none: no guests.
    pub guests: Option<PathBuf>,
    /// Where `/metrics` is beside the control socket.
    pub metrics: Option<SocketAddr>,
    /// The API over TCP.
    pub api: ApiConfig,
    /// Who else is told of events.
    pub hooks: Vec<HookConfig>,
    /// Opens every array for reading only.
    pub read_only: bool,
    /// Accepts half or fewer of the members.
    pub degraded: bool,
    /// Leaves out members with a history of their own.
    pub force_diverged: bool,
    /// Goes on over writes that are lost beyond repair.
    pub accept_loss: bool,
    /// Arrays that are taken from another server that has them.
    pub take_over: Vec<String>,
    /// Whether drives are reserved, where all of an array can be.
    pub reserve: bool,
    /// Which freed zones of arrays are deallocated on their drives.
    pub discard: Discard,
    /// What it may take in memory.
    pub memory: Memory,
    /// How drives are used, where they can be.
    pub ways: Ways,
    /// Cores that work: the first core, and others for connections and for parts of arrays.
    pub cores: usize,
    /// Whether each of them has a CPU of its own.
    pub pin: bool,
    /// How long an idle core looks for answers before it sleeps.
    pub linger: Linger,
    /// Congestion control of TCP connections.
    pub congestion: Congestion,
    /// Stops when standard input ends: for a parent that must not leave a server behind.
    pub stop_at_eof: bool,
    /// The service manager that is told how it stands.
    pub notify: Notify,
    /// Reads all this again at SIGHUP, where it comes from a file; without it SIGHUP stops the server.
    pub reread: Option<Reread>,
    /// The program's version, for `status`.
    pub program: String,
}

/// Serves until SIGINT, SIGTERM, `ashlar stop`, or SIGHUP where there is no configuration to be read again.
///
/// # Errors
/// When it cannot start, or an array cannot be closed cleanly.
pub fn run(settings: Settings) -> Result<(), Problem> {
    let rt = Rt::real_by(settings.ways).map_err(|e| problem::no_ring(&e))?;
    rt.set_linger(settings.linger.time());
    rt.set_congestion(settings.congestion.clone());
    let result = rt.block_on(Box::pin(live(&rt, settings)));
    drop(rt);
    result
}

async fn live(rt: &Rt, settings: Settings) -> Result<(), Problem> {
    let notify = settings.notify.clone();
    let step = Steps { rt, number: 0.into(), notify: &notify };
    let pulse = Pulse::start(rt, &notify);
    let addresses = exports::parse(&settings.nbd)?;
    exports::refuse_open(&addresses, settings.nbd_insecure)?;
    let nvme = nvme::parse(&settings.nvme)?;
    let cores = cores::checked(settings.cores)?;
    let machine = Machine::here(settings.pin.then_some(cores))?;
    let socket = step.run("control socket", async { Socket::claim(&settings.control) }).await?;
    Hooks::check(&settings.hooks)?;
    settings.metrics.map_or(Ok(()), metrics::refuse_open)?;
    // Behind the control socket, which makes the directory that the default socket of NBD is in, too.
    exports::refuse_impossible(&addresses, "NBD export", "--nbd")?;
    settings.guests.as_deref().map_or(Ok(()), guests::prepare)?;
    let memory = settings.memory.checked()?.within(crate::memory::of_machine())?;
    let cores = step.run("cores", Cores::start(rt, cores - 1, settings.ways, settings.linger, memory)).await?;
    let (journal, why) = Journal::open(&settings.state_dir)?;
    why.iter().for_each(|why| tracing::warn!("events: {why}"));
    journal.note(EventCode::ServerBegan, None, None, format!("{} begins", settings.program));
    // Whatever is wrong with these, arrays are served.
    let closed = Closed::default();
    let metrics = settings.metrics.map(|at| closed.open(Way::Metrics, at, metrics::listen));
    let (front, tls) = open_api(&settings, &closed);
    let sockets = Sockets { control: socket, metrics, tls, front: front.clone() };
    let registry = Registry::at(settings.state_dir.clone());
    let world =
        World { rt: rt.clone(), registry, cores: cores.to(), reserve: settings.reserve, discard: settings.discard };
    let direct = step.run("direct drives", open_direct(&world, &settings)).await?;
    let data = Rc::new(Data {
        world,
        direct,
        served: Rc::default(),
        absent: RefCell::new(BTreeMap::new()),
        promised: RefCell::default(),
        nbd: RefCell::default(),
        nvme: RefCell::default(),
        front,
        closed,
        spares: Spares::new(settings.spares.clone()),
        read_only: settings.read_only,
        machine,
        memory,
        blocks: Blocks::of(&settings.state_dir),
        guests: GuestSockets::of(settings.guests.clone()),
        targets: Targets::of(&settings.state_dir, nvme.access()),
        journal,
        notebooks: RefCell::default(),
        hooks: Hooks::default(),
        program: settings.program.clone(),
        began_at: rt.unix_seconds(),
        nbd_clients: RefCell::default(),
        dealer: RefCell::default(),
        queues: RefCell::default(),
    });
    data.memory.settle();
    data.settle();
    step.run("arrays", arrays::open_all(&data, &settings)).await?;
    data.clear_devices().await;
    let served = serve(rt, &data, sockets, (&addresses, nvme, &cores), &settings, (&step, &pulse)).await;
    if served.is_err() {
        data.leave_devices().await;
    }
    notify.stopping("closing the arrays");
    let closed = stop::close_arrays(&data).await;
    let (control, in_time) = served?;
    // Requests that hang keep their core.
    if in_time {
        cores.join();
    }
    // Last: who waits for the end waits for the socket to go.
    control.stop();
    data.journal.finish();
    tracing::info!("stopped");
    closed
}

/// What the API shows over TCP, and where it listens; nothing where it has no address.
fn open_api(settings: &Settings, closed: &Closed) -> (Option<Arc<Front>>, Vec<Listening>) {
    let wanted = &settings.api.listen;
    if wanted.is_empty() {
        return (None, vec![]);
    }
    let tls: Vec<Listening> = wanted.iter().map(|at| closed.open(Way::Api, *at, front::listen)).collect();
    let addresses = wanted.iter().zip(&tls).map(|(at, listening)| listening.address().unwrap_or(*at)).collect();
    let front = Front::open(&settings.api, &settings.state_dir, addresses);
    match (front.problem(), front.fingerprint()) {
        (None, Some(fingerprint)) => {
            let at: Vec<String> = front.addresses().iter().map(|at| format!("https://{at}")).collect();
            tracing::info!("API at {}, certificate SHA-256 {fingerprint}", at.join(", "));
        }
        (problem, _) => problem.iter().for_each(|problem| tracing::error!("API over TCP: {}", problem.line())),
    }
    (Some(front), tls)
}

/// Opens the direct drives.
async fn open_direct(world: &World, settings: &Settings) -> Result<(Rc<[DirectDrive]>, String), Problem> {
    if settings.read_only && !settings.direct.is_empty() {
        return Err(Problem::usage("--direct", "hosts write to direct drives", "leave out --read-only"));
    }
    let drives = direct::open(world, &settings.direct).await?;
    let names: Vec<&str> = drives.iter().map(DirectDrive::name).collect();
    let detail = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Ok((drives.into(), detail))
}

/// From open arrays to the wish to stop; whether all requests have ended.
async fn serve(
    rt: &Rt,
    data: &Rc<Data>,
    sockets: Sockets,
    (nbd, nvme, cores): (&[Addr], nvme::Wishes, &Cores),
    settings: &Settings,
    (step, pulse): (&Steps<'_>, &Pulse),
) -> Result<(Control, bool), Problem> {
    let exports = step.run("NBD export", Exports::listen(data, nbd, cores)).await?;
    let access = nvme.access();
    let nvme = match step.run("NVMe/TCP export", Nvme::listen(data, nvme, cores)).await {
        Ok(nvme) => nvme,
        Err(problem) => {
            exports.stop(rt, REQUESTS_MAX).await;
            return Err(problem);
        }
    };
    let (submitter, submitted) = submissions::<Rc<Data>>(rt);
    let (stop_now, mut stop_wish) = rt.mailbox::<&'static str>();
    let front = sockets.front.clone();
    let commands = async {
        let told = (data.journal.clone(), data.hooks.clone());
        Control::start(sockets, DataHandle(submitter), stop_now, told, settings, data.machine.allowed())
    };
    let control = match step.run("commands", commands).await {
        Ok(control) => control,
        Err(problem) => {
            futures::join!(exports.stop(rt, REQUESTS_MAX), nvme.stop(rt, REQUESTS_MAX));
            return Err(problem);
        }
    };
    if settings.reread.is_some() {
        match rt.hangups() {
            Ok(hangups) => {
                let listen = reload::listen(hangups, Rc::downgrade(data), settings.clone(), (access, front), ready);
                rt.spawn(listen).detach();
            }
            Err(error) => tracing::warn!("SIGHUP stops the server: {error}"),
        }
    }
    tracing::info!("ready: {}", ready(data));
    pulse.ready(&ready(data));
    rt.spawn(spares::share(Rc::downgrade(data))).detach();
    rt.spawn(keep_targets(Rc::downgrade(data))).detach();
    let why = {
        let work = Box::pin(submitted.serve(rt, data.clone()));
        let signal = Box::pin(rt.stop_signal());
        let wish = Box::pin(stop_wish.recv());
        match select(work, select(signal, wish)).await {
            Either::Left(((), _)) => "the control thread ended",
            Either::Right((Either::Left(((), _)), _)) => "SIGINT, SIGTERM or SIGHUP",
            Either::Right((Either::Right((why, _)), _)) => why.unwrap_or("the control thread ended"),
        }
    };
    tracing::info!("stop: {why}");
    data.journal.note(EventCode::ServerStops, None, None, format!("stop: {why}"));
    step.notify.stopping("ending connections");
    // After a stop by a verb none is left.
    let devices = data.leave_devices();
    let (nbd, nvme, ()) = futures::join!(exports.stop(rt, REQUESTS_MAX), nvme.stop(rt, REQUESTS_MAX), devices);
    Ok((control, nbd && nvme))
}

fn ready(data: &Data) -> String {
    let mut names = data.names();
    names.extend(data.direct.iter().map(|drive| drive.name().to_owned()));
    match (names.len(), data.absent.borrow().len()) {
        (0, 0) => "no array yet; `ashlar create` creates one, `ashlar import NAME` opens one".to_owned(),
        (_, 0) => format!("serving {}", names.join(", ")),
        (_, n) => format!(
            "serving {}; {n} could not be opened",
            if names.is_empty() { "nothing".into() } else { names.join(", ") }
        ),
    }
}

/// Numbers the steps and says how long each took.
struct Steps<'a> {
    rt: &'a Rt,
    number: std::cell::Cell<u32>,
    notify: &'a Notify,
}

impl Steps<'_> {
    async fn run<T>(&self, name: &str, work: impl Future<Output = Result<(T, String), Problem>>) -> Result<T, Problem> {
        self.number.set(self.number.get() + 1);
        self.notify.status(&format!("start {}, {name}", self.number.get()));
        let begun = self.rt.now();
        let (result, detail) = work.await?;
        let millis = (self.rt.now() - begun).as_millis();
        tracing::info!("start {}, {name}: {detail} ({millis} ms)", self.number.get());
        Ok(result)
    }
}
