//! A controller: one host's association with a subsystem, and its admin commands. NVMe Base 2.0, 3.1 and 5.
//!
//! Invariants: admin commands do no I/O, so they are answered at once and in order; what a host sees of the namespaces
//! ([`View`]) changes only in `refresh`, which tells it.
//!
//! Not here: queues and their connections (`session`), I/O commands (`execute`), who may connect (`connect`).

mod begun;
mod connection;
pub mod event;
pub mod feature;
pub mod identify;
pub mod property;
mod view;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    rc::Rc,
    time::Duration,
};

use begun::Begun;
pub use connection::Connection;
use event::{Event, Events};
use feature::Ask;
use identify::cns;
use property::{Change, Life, Properties};
use rt::Nanos;
use view::View;
pub use view::{Attached, Views};

use super::{
    entry::{NSID_ALL, Sqe, admin},
    limits::{DISCOVERY_SECONDS_MAX, IO_QUEUES_MAX, KEEP_ALIVE_UNIT_MILLIS, NSID_MAX, TRANSFER_BYTES_MAX},
    log::{self, ErrorEntry, ErrorLog},
    request::check_to_host,
    status::Status,
    subsystem::{Access, Subsystem, Subsystems},
};
use crate::{
    counters::{Counters, Live},
    namespace::NamespaceInfo,
    stream::signal::Signal,
};

/// The discovery subsystem's qualified name. NVMe Base 2.0, 4.5.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// What all controllers of a server share.
pub struct Common<S: Subsystems> {
    /// What is exported.
    pub subsystems: S,
    /// Where hosts reach it.
    pub advertised: Vec<SocketAddr>,
    /// Changes of the list of subsystems.
    pub generation: Cell<u64>,
    /// Counters by the namespace's name.
    pub counters: RefCell<BTreeMap<String, Rc<Live>>>,
    /// What is exported, as it was when it was looked at last: of the subsystems that have controllers.
    pub views: Views<S::N>,
}

impl<S: Subsystems> Common<S> {
    /// The subsystem of this name, or the discovery subsystem.
    pub fn find(&self, nqn: &str) -> Option<Subsystem> {
        if nqn == DISCOVERY_NQN {
            let (serial, model) = ("discovery".to_owned(), "Ashlar".to_owned());
            return Some(Subsystem { nqn: nqn.to_owned(), serial, model, access: Access::Any });
        }
        self.subsystems.all().into_iter().find(|s| s.nqn == nqn)
    }
}

/// Who is at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its qualified name.
    pub nqn: String,
    /// Its identifier.
    pub id: [u8; 16],
}

/// What an admin command leads to.
#[derive(Debug)]
pub enum Outcome {
    /// An answer.
    Now(Answer),
    /// An answer later, by an event.
    Later,
    /// The end of the event request of this identifier, then an answer.
    Aborts(u16),
}

impl<A: Into<Answer>> From<A> for Outcome {
    fn from(answer: A) -> Self {
        Outcome::Now(answer.into())
    }
}

/// What an admin command is answered with.
#[derive(Debug, Default)]
pub struct Answer {
    /// Completion dwords 0 and 1.
    pub result: u64,
    /// Data for the host.
    pub data: Vec<u8>,
}

impl From<u32> for Answer {
    fn from(result: u32) -> Self {
        Answer { result: u64::from(result), data: Vec::new() }
    }
}

impl From<Vec<u8>> for Answer {
    fn from(data: Vec<u8>) -> Self {
        Answer { result: 0, data }
    }
}

/// A controller.
pub struct Controller<S: Subsystems> {
    /// Its identifier.
    pub id: u16,
    /// Its subsystem.
    pub subsystem: Subsystem,
    /// Its host.
    pub host: Host,
    /// Whether it is of the discovery subsystem.
    pub is_discovery: bool,
    /// When it began, in seconds since 1970.
    pub since_unix_seconds: u64,
    common: Rc<Common<S>>,
    properties: RefCell<Properties>,
    events: RefCell<Events>,
    /// An event may have to be told, or the controller has ended.
    pub events_changed: Signal,
    errors: RefCell<ErrorLog>,
    changed: RefCell<BTreeSet<u32>>,
    generation: Cell<u64>,
    /// What the host was told.
    view: RefCell<Rc<View<S::N>>>,
    /// Those that its host has used since it was told: apart from other hosts'.
    used: RefCell<BTreeMap<u32, Rc<Attached<S::N>>>>,
    keep_alive_millis: Cell<u32>,
    /// The host has said something since [`Controller::is_silent`] was asked last.
    heard: Cell<bool>,
    /// When it was asked last and the host had.
    heard_before: Cell<Nanos>,
    queues_allowed: Cell<u16>,
    /// Its queues' connections.
    pub queues: RefCell<BTreeMap<u16, Rc<Connection>>>,
    /// Its commands that may change something.
    pub begun: Begun,
}

impl<S: Subsystems> Controller<S> {
    /// A controller for a host that may use the subsystem.
    pub fn new(
        common: &Rc<Common<S>>,
        id: u16,
        subsystem: Subsystem,
        host: Host,
        keep_alive_millis: u32,
        (now, since_unix_seconds): (Nanos, u64),
    ) -> Rc<Self> {
        let is_discovery = subsystem.nqn == DISCOVERY_NQN;
        let view = if is_discovery { Rc::default() } else { common.view(&subsystem.nqn) };
        Rc::new(Controller {
            id,
            is_discovery,
            since_unix_seconds,
            properties: RefCell::new(Properties::new(is_discovery)),
            events: RefCell::default(),
            events_changed: Signal::default(),
            errors: RefCell::default(),
            changed: RefCell::default(),
            generation: Cell::new(common.generation.get()),
            view: RefCell::new(view),
            used: RefCell::default(),
            keep_alive_millis: Cell::new(keep_alive_millis),
            heard: Cell::new(false),
            heard_before: Cell::new(now),
            queues_allowed: Cell::new(IO_QUEUES_MAX),
            queues: RefCell::default(),
            begun: Begun::default(),
            common: common.clone(),
            subsystem,
            host,
        })
    }

    /// Whether it takes other commands than those of Fabrics.
    pub fn is_ready(&self) -> bool {
        match self.properties.borrow().life() {
            Life::Ready | Life::ShuttingDown | Life::ShutDown => true,
            Life::Disabled | Life::Failed => false,
        }
    }

    /// I/O queues that the host may connect.
    pub fn queues_allowed(&self) -> u16 {
        if self.is_discovery { 0 } else { self.queues_allowed.get() }
    }

    fn namespaces(&self) -> Rc<BTreeMap<u32, Rc<Attached<S::N>>>> {
        self.view.borrow().namespaces.clone()
    }

    /// The namespace of this identifier, for its host's commands.
    pub fn namespace(&self, nsid: u32) -> Option<Rc<Attached<S::N>>> {
        if let Some(used) = self.used.borrow().get(&nsid) {
            return Some(used.clone());
        }
        let apart = Rc::new(self.view.borrow().namespaces.get(&nsid)?.apart());
        self.used.borrow_mut().insert(nsid, apart.clone());
        Some(apart)
    }

    /// All namespaces.
    pub fn all_namespaces(&self) -> Vec<Rc<Attached<S::N>>> {
        self.namespaces().values().cloned().collect()
    }

    /// The host has said something.
    pub fn heard(&self) {
        self.heard.set(true);
    }

    /// Whether the host has been silent for longer than its keep-alive timer allows. 5.27.1.12; 3.9.
    pub fn is_silent(&self, now: Nanos) -> bool {
        let millis = match (self.keep_alive_millis.get(), self.is_discovery) {
            (0, true) => DISCOVERY_SECONDS_MAX * 1000,
            (0, false) => return false,
            (millis, _) => u64::from(millis) + u64::from(KEEP_ALIVE_UNIT_MILLIS),
        };
        if self.heard.take() {
            self.heard_before.set(now);
        }
        now - self.heard_before.get() > Duration::from_millis(millis)
    }

    /// Whether there is something that the host was not told.
    pub fn is_behind(&self) -> bool {
        if self.is_discovery {
            return self.generation.get() != self.common.generation.get();
        }
        self.common.views.last(&self.subsystem.nqn).is_some_and(|now| !Rc::ptr_eq(&now, &self.view.borrow()))
    }

    /// Takes what is exported now for what the host sees, and tells it what has changed.
    pub fn refresh(&self) {
        if self.is_discovery {
            if self.generation.replace(self.common.generation.get()) != self.common.generation.get() {
                self.happened(Event::Discovery);
            }
            return;
        }
        let now = self.common.view(&self.subsystem.nqn);
        let before = self.view.replace(now.clone());
        // Always: a namespace may have been opened anew under its old name.
        self.used.borrow_mut().clear();
        let differ = before.differences(&now);
        if !differ.is_empty() {
            let mut changed = self.changed.borrow_mut();
            changed.extend(differ);
            // One more than the log page holds says as much as all.
            while changed.len() > log::CHANGED_MAX + 1 {
                changed.pop_last();
            }
            drop(changed);
            self.happened(Event::Namespaces);
        }
        let new = log::critical_warning(&now.mark.health) & !log::critical_warning(&before.mark.health);
        if new != 0 {
            self.happened(Event::Reliability);
        }
    }

    fn happened(&self, event: Event) {
        self.events.borrow_mut().happened(event);
        self.events_changed.notify();
    }

    /// The next event to tell: the command identifier of a request, and the result of its completion.
    pub fn next_event(&self) -> Option<(u16, u32)> {
        self.events.borrow_mut().next()
    }

    /// Keeps an error for the error log.
    pub fn failed(&self, queue: u16, sqe: &Sqe, status: Status) {
        let lba = if queue == 0 { 0 } else { sqe.qword(10) };
        let entry = ErrorEntry { queue, command: sqe.command(), status, lba, nsid: sqe.nsid() };
        self.errors.borrow_mut().add(entry);
    }

    /// Property Get. 6.5.
    ///
    /// # Errors
    /// A property that does not exist.
    pub fn property_get(&self, sqe: &Sqe) -> Result<u64, Status> {
        self.properties.borrow().get(sqe.dword(11), wide(sqe)?)
    }

    /// Property Set. 6.6. What it asks for beyond the properties is the caller's to do.
    ///
    /// # Errors
    /// A property that does not exist or cannot be set.
    pub fn property_set(&self, sqe: &Sqe) -> Result<Change, Status> {
        let change = self.properties.borrow_mut().set(sqe.dword(11), wide(sqe)?, sqe.qword(12))?;
        if change == Change::Reset {
            self.events.borrow_mut().reset();
            self.changed.borrow_mut().clear();
            self.queues_allowed.set(IO_QUEUES_MAX);
            let queues = self.queues.borrow_mut().split_off(&1);
            queues.values().for_each(|connection| connection.cut());
        }
        Ok(change)
    }

    /// Who is at the other end of its admin queue.
    pub fn peer(&self) -> String {
        self.queues.borrow().get(&0).map_or_else(|| "gone".to_owned(), |connection| connection.peer())
    }

    /// Waits until nothing that this controller's host has sent before may still change something.
    pub async fn settled(&self) {
        self.queues.borrow().values().for_each(|connection| connection.cut_if_left());
        self.begun.done().await;
    }

    /// The shutdown that `property_set` asked for is done.
    pub fn shutdown_done(&self) {
        self.properties.borrow_mut().shutdown_done();
    }

    /// An admin command.
    ///
    /// # Errors
    /// The status to answer with.
    pub fn admin(&self, sqe: &Sqe) -> Result<Outcome, Status> {
        if sqe.is_fused() {
            return Err(Status::INVALID_FIELD);
        }
        Ok(match sqe.opcode() {
            admin::IDENTIFY => self.identify(sqe)?.into(),
            admin::GET_LOG_PAGE => self.log_page(sqe)?.into(),
            admin::SET_FEATURES => self.set_feature(sqe)?.into(),
            admin::GET_FEATURES => self.feature(sqe)?.into(),
            admin::ABORT => self.abort(sqe),
            admin::KEEP_ALIVE => Answer::default().into(),
            admin::ASYNC_EVENT_REQUEST => {
                self.events.borrow_mut().request(sqe.command())?;
                self.events_changed.notify();
                Outcome::Later
            }
            _ => return Err(Status::INVALID_OPCODE),
        })
    }

    /// Abort. 5.1. Only waiting event requests can be: bit 0 of the answer says that nothing was aborted.
    fn abort(&self, sqe: &Sqe) -> Outcome {
        let (queue, command) = (sqe.dword(10) as u16, (sqe.dword(10) >> 16) as u16);
        if queue == 0 && self.events.borrow_mut().abort(command) {
            return Outcome::Aborts(command);
        }
        1u32.into()
    }

    /// Identify. 5.17.
    fn identify(&self, sqe: &Sqe) -> Result<Vec<u8>, Status> {
        check_to_host(sqe, identify::PAGE_BYTES as u32)?;
        let structure = sqe.dword(10) as u8;
        if structure == cns::CONTROLLER {
            let volatile_cache = self.namespaces().values().any(|n| n.info.volatile_cache);
            let (id, is_discovery) = (self.id, self.is_discovery);
            return Ok(identify::controller(&identify::Me {
                id,
                is_discovery,
                subsystem: &self.subsystem,
                volatile_cache,
            }));
        }
        if self.is_discovery {
            return Err(Status::INVALID_FIELD);
        }
        self.identify_namespaces(sqe, structure)
    }

    fn identify_namespaces(&self, sqe: &Sqe, structure: u8) -> Result<Vec<u8>, Status> {
        let nsid = sqe.nsid();
        let is_nvm = sqe.dword(11) >> 24 == 0;
        let exists = |nsid: u32| if (1..=NSID_MAX).contains(&nsid) { Ok(()) } else { Err(Status::INVALID_NAMESPACE) };
        let zeroes = || vec![0; identify::PAGE_BYTES];
        // An identifier without a namespace is inactive: its structures are zero.
        let of = |page: fn(&NamespaceInfo) -> Vec<u8>| {
            exists(nsid).map(|()| self.namespaces().get(&nsid).map_or_else(zeroes, |attached| page(&attached.info)))
        };
        match structure {
            cns::NAMESPACE => of(identify::namespace),
            cns::NAMESPACE_COMMON => of(identify::namespace_common),
            cns::DESCRIPTORS => {
                let namespaces = self.namespaces();
                let attached = namespaces.get(&nsid).ok_or(Status::INVALID_NAMESPACE)?;
                Ok(identify::descriptors(&attached.info))
            }
            cns::ACTIVE if nsid >= NSID_ALL - 1 => Err(Status::INVALID_NAMESPACE),
            cns::ACTIVE => Ok(identify::active(&self.namespaces(), nsid)),
            // No protection information, no limits beyond MDTS.
            cns::NAMESPACE_OF_SET if is_nvm => exists(nsid).map(|()| zeroes()),
            cns::CONTROLLER_OF_SET if is_nvm => Ok(zeroes()),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// Get Log Page. 5.16.
    fn log_page(&self, sqe: &Sqe) -> Result<Vec<u8>, Status> {
        let (low, high) = (sqe.dword(10), sqe.dword(11));
        let bytes = (u64::from(high & 0xffff) << 16 | u64::from(low >> 16)) * 4 + 4;
        let offset = sqe.qword(12);
        // Offsets by index (dword 14 bit 23) are for pages that we do not have.
        if bytes > u64::from(TRANSFER_BYTES_MAX) || !offset.is_multiple_of(4) || sqe.dword(14) & 1 << 23 != 0 {
            return Err(Status::INVALID_FIELD);
        }
        check_to_host(sqe, bytes as u32)?;
        let (id, retain) = (low as u8, low & 1 << 15 != 0);
        let page = self.whole_log_page(id, low >> 8 & 0x7f, sqe.nsid())?;
        if offset > page.len() as u64 {
            return Err(Status::INVALID_FIELD);
        }
        if !retain {
            self.events.borrow_mut().read(id);
            if id == log::CHANGED_NAMESPACES {
                self.changed.borrow_mut().clear();
            }
            self.events_changed.notify();
        }
        // Behind its end a page reads as zero.
        let mut data = page[offset as usize..].to_vec();
        data.resize(bytes as usize, 0);
        Ok(data)
    }

    fn whole_log_page(&self, id: u8, specific: u32, nsid: u32) -> Result<Vec<u8>, Status> {
        const OF_IO: [u8; 7] =
            [log::SUPPORTED, log::ERROR, log::HEALTH, log::FIRMWARE, log::CHANGED_NAMESPACES, log::EFFECTS, log::ANA];
        const OF_DISCOVERY: [u8; 4] = [log::SUPPORTED, log::ERROR, log::EFFECTS, log::DISCOVERY];
        let supported = if self.is_discovery { &OF_DISCOVERY[..] } else { &OF_IO };
        if !supported.contains(&id) {
            return Err(Status::INVALID_LOG_PAGE);
        }
        Ok(match id {
            log::SUPPORTED => log::supported(supported),
            log::ERROR => self.errors.borrow().page(),
            log::HEALTH if nsid != 0 && nsid != NSID_ALL => return Err(Status::INVALID_FIELD),
            log::HEALTH => {
                let health = self.common.subsystems.mark(&self.subsystem.nqn).health;
                log::health(&health, &self.counters(), self.errors.borrow().count())
            }
            log::FIRMWARE => log::firmware(identify::FIRMWARE),
            log::CHANGED_NAMESPACES => log::changed_namespaces(&self.changed.borrow()),
            log::EFFECTS => log::effects(self.is_discovery),
            // Log specific field bit 0: groups only.
            log::ANA => {
                let nsids: Vec<u32> = self.namespaces().keys().copied().collect();
                log::ana(&nsids, specific & 1 != 0)
            }
            _ => self.discovery_log(),
        })
    }

    fn discovery_log(&self) -> Vec<u8> {
        let all = self.common.subsystems.all();
        let allowed = all.into_iter().filter(|s| s.access.allows(&self.host.nqn)).map(|s| s.nqn);
        log::discovery(self.common.generation.get(), &allowed.collect::<Vec<_>>(), &self.common.advertised)
    }

    /// The counters of all its namespaces together.
    fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for attached in self.namespaces().values() {
            let counters = attached.live.read();
            sum.reads += counters.reads;
            sum.bytes_read += counters.bytes_read;
            sum.writes += counters.writes;
            sum.bytes_written += counters.bytes_written;
            sum.medium_errors += counters.medium_errors;
        }
        sum
    }

    /// Get Features. 5.15.
    fn feature(&self, sqe: &Sqe) -> Result<Answer, Status> {
        let ask = Ask::new(sqe.dword(10), sqe.dword(11));
        ask.check_get()?;
        Ok(match ask.id {
            feature::id::EVENTS => self.events.borrow().configuration.into(),
            feature::id::KEEP_ALIVE => self.keep_alive_millis.get().into(),
            feature::id::QUEUES if !self.is_discovery => feature::queues_result(self.queues_allowed.get()).into(),
            feature::id::VOLATILE_CACHE if !self.is_discovery => u32::from(self.has_volatile_cache()).into(),
            // EXHID: Fabrics have identifiers of 128 bits only.
            feature::id::HOST_ID if ask.value & 1 != 0 => {
                check_to_host(sqe, 16)?;
                self.host.id.to_vec().into()
            }
            _ => return Err(Status::INVALID_FIELD),
        })
    }

    fn has_volatile_cache(&self) -> bool {
        self.namespaces().values().any(|n| n.info.volatile_cache)
    }

    /// Set Features. 5.27.
    fn set_feature(&self, sqe: &Sqe) -> Result<u32, Status> {
        let ask = Ask::new(sqe.dword(10), sqe.dword(11));
        ask.check_set()?;
        match ask.id {
            feature::id::EVENTS => {
                feature::check_events(ask.value, self.is_discovery)?;
                self.events.borrow_mut().configuration = ask.value;
                Ok(0)
            }
            feature::id::KEEP_ALIVE => {
                self.keep_alive_millis.set(ask.value);
                Ok(0)
            }
            // "after I/O queues have been created": too late.
            feature::id::QUEUES if !self.is_discovery && self.queues.borrow().len() > 1 => Err(Status::SEQUENCE_ERROR),
            feature::id::QUEUES if !self.is_discovery => {
                let pairs = feature::queues(ask.value, IO_QUEUES_MAX)?;
                self.queues_allowed.set(pairs);
                Ok(feature::queues_result(pairs))
            }
            // The cache is the array's, and hosts cannot turn it on or off.
            feature::id::VOLATILE_CACHE if !self.is_discovery => {
                if (ask.value & 1 != 0) == self.has_volatile_cache() {
                    Ok(0)
                } else {
                    Err(Status::FEATURE_NOT_CHANGEABLE)
                }
            }
            // Connect has set it. 5.27.1.25.
            feature::id::HOST_ID => Err(Status::SEQUENCE_ERROR),
            _ => Err(Status::INVALID_FIELD),
        }
    }
}

/// Byte 40: whether a property has 8 bytes. 6.5.
fn wide(sqe: &Sqe) -> Result<bool, Status> {
    match sqe.0[40] & 7 {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Status::INVALID_FIELD),
    }
}
