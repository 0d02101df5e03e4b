//! A connection of a front end: its messages in their order, and the queues that they set up.
//!
//! ```text
//!   features -> protocol features -> memory, requests in flight -> a queue's size, place, events -> enabled: it is served
//! ```
//!
//! Invariants:
//! - a message that is not understood ends the connection, one that cannot be done is answered so, where an answer is asked for, and
//!   else ends it;
//! - a queue is served when all of it is set up, and its setup does not change while it is;
//! - a connection that ends leaves no queue that answers.
//!
//! Not here: rings without events of the kernel.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures::future::{Either, select};
use rt::guest::{Event, Foreign, GuestMemory, MapError, REGIONS_MAX, Region, sealed_memory};
use rt::{Bytes, Rt, Stream};

use super::features::{self, QUEUES_MAX, RING_MAX};
use super::inflight::{self, Inflight};
use super::memory::{Log, Memory};
use super::message::{HEADER, Header, Message, MessageError, RingPlaces, config_change};
use super::queue::{Common, Queue};
use super::ring::{Parts, Ring, RingError};
use super::socket::{Shared, limits_of};
use crate::namespace::Namespace;
use crate::stream::pool::Pool;
use crate::stream::task_pool::{TaskPool, WAITING_BYTES};

/// Payload that one connection has under way, at most.
const PAYLOAD_BYTES_MAX: u64 = 32 << 20;

/// How long a connection waits for another one's queues to end: a front end that was started again comes before the end of the
/// one before is noticed.
const TURN_PATIENCE: Duration = Duration::from_secs(3);

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error(transparent)]
    Memory(#[from] MapError),
    #[error("a queue's ring: {0}")]
    Ring(#[from] RingError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}")]
    Refused(&'static str),
}

/// What a front end has set up of a queue.
struct Slot<N> {
    size: u16,
    next: u16,
    places: Option<RingPlaces>,
    kick: Option<Event>,
    call: Option<Event>,
    enabled: bool,
    served: Option<Rc<Queue<N>>>,
}

impl<N> Default for Slot<N> {
    fn default() -> Self {
        Slot { size: 0, next: 0, places: None, kick: None, call: None, enabled: false, served: None }
    }
}

/// A connection.
pub(super) struct Session<N> {
    common: Rc<Common<N>>,
    features: Cell<u64>,
    protocol: Cell<u64>,
    inflight: RefCell<Option<Inflight>>,
    /// Where pages are noted that are written, while the guest moves.
    log: RefCell<Option<Rc<Log>>>,
    slots: Vec<RefCell<Slot<N>>>,
    since: u64,
    number: u64,
    /// To the front end, for what it is not answered but told.
    channel: RefCell<Option<Foreign>>,
}

impl<N: Namespace> Session<N> {
    pub(super) fn new(rt: &Rt, socket: &Rc<Shared>, stream: Stream, namespace: &N) -> Rc<Session<N>> {
        let common = Common {
            rt: rt.clone(),
            socket: socket.clone(),
            stream,
            namespace: namespace.apart(),
            memory: RefCell::default(),
            flushes: Cell::new(false),
            payload: Pool::new(PAYLOAD_BYTES_MAX),
            payload_of_all: socket.guests.payload().clone(),
            tasks: TaskPool::new(WAITING_BYTES),
        };
        Rc::new(Session {
            common: Rc::new(common),
            features: Cell::new(0),
            protocol: Cell::new(0),
            inflight: RefCell::default(),
            log: RefCell::default(),
            slots: (0..QUEUES_MAX).map(|_| RefCell::default()).collect(),
            since: rt.unix_seconds(),
            number: socket.turns.connection(),
            channel: RefCell::default(),
        })
    }

    /// Serves it to its end.
    pub(super) async fn serve(&self) {
        let (socket, stream) = (&self.common.socket, &self.common.stream);
        let work = async {
            if let Err(error) = self.messages().await
                && !matches!(&error, SessionError::Io(e) if e.kind() == io::ErrorKind::UnexpectedEof)
            {
                socket.say(&error.to_string(), || {
                    tracing::warn!(peer = stream.peer(), "vhost-user: {}: {error}", socket.name);
                });
            }
        };
        select(pin!(work), pin!(stream.closed_by_peer())).await;
        self.served().for_each(|queue| queue.lose());
        socket.turns.end(self.number);
        self.common.tasks.close();
        stream.shutdown();
    }

    /// Takes no more requests, and finishes those that were taken.
    pub(super) async fn stop(&self) {
        for queue in self.served().collect::<Vec<_>>() {
            queue.stop().await;
        }
    }

    /// The connection ends, and with it [`Session::serve`].
    pub(super) fn hang_up(&self) {
        self.common.stream.shutdown();
    }

    pub(super) fn peer(&self) -> String {
        self.common.stream.peer()
    }

    /// Since when it is there, in seconds since 1970.
    pub(super) fn since(&self) -> u64 {
        self.since
    }

    /// Whether a guest's queue is served.
    pub(super) fn is_in_use(&self) -> bool {
        self.served().next().is_some()
    }

    /// Tells the front end that the device is longer now.
    pub(super) fn resized(&self) {
        if let Some(channel) = &*self.channel.borrow()
            && let Err(error) = channel.send(&config_change())
        {
            tracing::warn!(peer = self.peer(), "vhost-user: the guest is not told of the new size: {error}");
        }
    }

    fn served(&self) -> impl Iterator<Item = Rc<Queue<N>>> {
        self.slots.iter().filter_map(|slot| slot.borrow().served.clone())
    }

    async fn messages(&self) -> Result<(), SessionError> {
        let stream = &self.common.stream;
        loop {
            let (mut raw, mut passed) = ([0; HEADER], Vec::new());
            stream.recv_passed(&mut raw, &mut passed).await?;
            let header = Header::parse(&raw)?;
            let mut payload = vec![0; header.bytes as usize];
            stream.recv_passed(&mut payload, &mut passed).await?;
            let message = Message::parse(header.request, &payload, passed)?;
            // A front end may send one after the other without an end.
            self.common.rt.yield_now().await;
            tracing::trace!(?message, "vhost-user");
            let done = self.handle(&header, message).await;
            let acknowledged = header.wants_answer() && self.protocol.get() & features::P_REPLY_ACK != 0;
            match done {
                Ok(Answer::Given) => {}
                Ok(Answer::None) if !acknowledged => {}
                Ok(Answer::None) => self.reply(&header, &0_u64.to_ne_bytes()).await?,
                Ok(Answer::Bytes(answer)) => self.reply(&header, &answer).await?,
                Err(error) => {
                    if acknowledged {
                        self.reply(&header, &1_u64.to_ne_bytes()).await?;
                    }
                    return Err(error);
                }
            }
        }
    }

    async fn reply(&self, header: &Header, payload: &[u8]) -> Result<(), SessionError> {
        Ok(self.common.stream.send_all(vec![Bytes::from_slice(&header.answer(payload))]).await?)
    }

    async fn handle(&self, header: &Header, message: Message) -> Result<Answer, SessionError> {
        let (socket, common) = (&self.common.socket, &self.common);
        let number = |number: u64| Ok(Answer::Bytes(number.to_ne_bytes().to_vec()));
        match message {
            Message::GetFeatures => return number(socket.features),
            Message::SetFeatures(wanted) => {
                if wanted & !socket.features != 0 {
                    return Err(SessionError::Refused("features are wanted that are not offered"));
                }
                self.features.set(wanted);
                common.flushes.set(wanted & features::FLUSH != 0);
                self.note_writes();
            }
            Message::SetOwner | Message::ResetOwner | Message::SetVringErr | Message::SetLogFd => {}
            Message::GetProtocolFeatures => return number(features::PROTOCOL_ALL),
            Message::SetProtocolFeatures(wanted) => {
                if wanted & !features::PROTOCOL_ALL != 0 {
                    return Err(SessionError::Refused("protocol features are wanted that are not offered"));
                }
                self.protocol.set(wanted);
            }
            Message::GetQueueNum => return number(u64::from(QUEUES_MAX)),
            Message::SetMemTable(regions) => self.set_memory(GuestMemory::map(regions)?),
            Message::SetLogBase { bytes, offset, file } => {
                self.log.replace(Some(Rc::new(Log::map(file, bytes, offset)?)));
                self.note_writes();
                // Answered in any case.
                return Ok(Answer::Bytes(vec![]));
            }
            Message::GetMaxMemSlots => return number(REGIONS_MAX as u64),
            Message::AddMemReg(region, file) => {
                let memory = self.memory();
                self.set_memory(match memory {
                    Some(memory) => memory.guest().with(region, file)?,
                    None => GuestMemory::map(vec![(region, file)])?,
                });
            }
            Message::RemMemReg(region) => self.remove_region(&region)?,
            Message::GetConfig { offset, bytes } => {
                let mut answer = [offset, bytes, 0].iter().flat_map(|n| n.to_ne_bytes()).collect::<Vec<u8>>();
                let info = common.namespace.info();
                // A guest asks for no more than it was told.
                socket.limits.set(limits_of(&info));
                answer.extend(features::config(&info, offset, bytes));
                return Ok(Answer::Bytes(answer));
            }
            Message::SetConfig => return Err(SessionError::Refused("the configuration space is not written")),
            Message::SetBackendReqFd(channel) => {
                self.channel.replace(Some(channel));
            }
            Message::GetInflightFd { queues, size } => return self.give_inflight(header, queues, size),
            Message::SetInflightFd { bytes, offset, queues, size, file } => {
                limited(queues, size)?;
                if self.is_in_use() {
                    return Err(SessionError::Refused("notes of requests in flight come before queues are served"));
                }
                self.inflight.replace(Some(Inflight::map(file, bytes, offset, queues, size)?));
            }
            Message::ResetDevice => {
                self.stop().await;
                for slot in &self.slots {
                    slot.replace(Slot::default());
                }
                self.features.set(0);
                self.note_writes();
                common.flushes.set(false);
                socket.turns.end(self.number);
            }
            Message::SetVringNum { .. }
            | Message::SetVringBase { .. }
            | Message::SetVringAddr { .. }
            | Message::GetVringBase { .. }
            | Message::SetVringKick { .. }
            | Message::SetVringCall { .. }
            | Message::SetVringEnable { .. } => return self.handle_queue(message).await,
        }
        Ok(Answer::None)
    }

    async fn handle_queue(&self, message: Message) -> Result<Answer, SessionError> {
        match message {
            Message::SetVringNum { queue, size } => {
                let size = u16::try_from(size).ok().filter(|size| size.is_power_of_two() && *size <= RING_MAX);
                let size = size.ok_or(SessionError::Refused("a ring's size is no power of two up to 1024"))?;
                self.idle_slot(queue)?.borrow_mut().size = size;
            }
            Message::SetVringBase { queue, next } => {
                let next = u16::try_from(next).map_err(|_| SessionError::Refused("a ring's index has 16 bits"))?;
                self.idle_slot(queue)?.borrow_mut().next = next;
            }
            Message::SetVringAddr { queue, places } => {
                let slot = self.slot(queue)?;
                // When a guest begins to move its front end says this again, with a flag that is of no matter here.
                if slot.borrow().places != Some(places) {
                    self.idle_slot(queue)?.borrow_mut().places = Some(places);
                }
            }
            Message::GetVringBase { queue } => {
                self.stop_queue(queue).await?;
                let mut slot = self.slot(queue)?.borrow_mut();
                slot.kick = None;
                let state = [queue, u32::from(slot.next)];
                return Ok(Answer::Bytes(state.iter().flat_map(|n| n.to_ne_bytes()).collect()));
            }
            Message::SetVringKick { queue, event } => {
                let event = event.ok_or(SessionError::Refused("a queue without a kick's event is not served"))?;
                self.stop_queue(queue).await?;
                self.slot(queue)?.borrow_mut().kick = Some(Event::passed(&self.common.rt, event)?);
                self.begin_queue(queue).await?;
            }
            Message::SetVringCall { queue, event } => {
                let event = event.map(|event| Event::passed(&self.common.rt, event)).transpose()?;
                let mut slot = self.slot(queue)?.borrow_mut();
                slot.call = event.clone();
                if let Some(served) = &slot.served {
                    served.set_call(event);
                }
            }
            Message::SetVringEnable { queue, enabled } => {
                self.slot(queue)?.borrow_mut().enabled = enabled;
                if enabled {
                    self.begin_queue(queue).await?;
                } else {
                    self.stop_queue(queue).await?;
                }
            }
            other => unreachable!("{other:?} is none of a queue"),
        }
        Ok(Answer::None)
    }

    fn slot(&self, queue: u32) -> Result<&RefCell<Slot<N>>, SessionError> {
        self.slots.get(queue as usize).ok_or(SessionError::Refused("there is no queue of this number"))
    }

    /// One that is not served.
    fn idle_slot(&self, queue: u32) -> Result<&RefCell<Slot<N>>, SessionError> {
        let slot = self.slot(queue)?;
        if slot.borrow().served.is_some() {
            return Err(SessionError::Refused("a queue is set up while it is served"));
        }
        Ok(slot)
    }

    /// Stops a queue, if it is served.
    async fn stop_queue(&self, queue: u32) -> Result<(), SessionError> {
        let slot = self.slot(queue)?;
        let served = slot.borrow().served.clone();
        if let Some(served) = served {
            let next = served.stop().await;
            let mut slot = slot.borrow_mut();
            (slot.next, slot.served) = (next, None);
        }
        if !self.is_in_use() {
            self.common.socket.turns.end(self.number);
        }
        Ok(())
    }

    /// Begins to serve a queue whose setup is complete.
    async fn begin_queue(&self, number: u32) -> Result<(), SessionError> {
        let common = &self.common;
        if !self.is_complete(number)? {
            return Ok(());
        }
        self.have_turn().await?;
        let mut slot = self.slot(number)?.borrow_mut();
        let (Some(places), Some(kick), Some(memory)) = (slot.places, slot.kick.clone(), self.memory()) else {
            return Ok(());
        };
        if common.socket.is_closing.get() {
            return Ok(());
        }
        let has = |feature| self.features.get() & feature != 0;
        let at = |user| memory.guest().guest_address(user).ok_or(RingError::Address);
        let parts =
            Parts { descriptors: at(places.descriptors)?, available: at(places.available)?, used: at(places.used)? };
        let mut ring = Ring::new(&memory, slot.size, parts, has(features::EVENT_IDX), has(features::INDIRECT_DESC))?;
        let number = number as u16;
        let notes = self.inflight.borrow().as_ref().and_then(|all| all.queue(number, slot.size));
        let notes = match notes {
            None => {
                ring.go_on_at(slot.next);
                None
            }
            Some(mut notes) => {
                let again = notes.recover(ring.next_used()).map_err(RingError::from)?;
                // What was taken was noted: what is available behind it was not taken.
                ring.go_on_at(ring.next_used().wrapping_add(again.len() as u16));
                again.iter().try_for_each(|head| ring.begin(*head))?;
                Some((notes, again))
            }
        };
        if let Some((_, again)) = &notes
            && !again.is_empty()
        {
            tracing::info!(
                "vhost-user: {}: {} requests of queue {number} are done again",
                common.socket.name,
                again.len()
            );
        }
        slot.served = Some(Queue::begin(common, number, ring, notes, kick, slot.call.clone()));
        Ok(())
    }

    /// Whether a queue has all that it is served with, and is not served yet.
    fn is_complete(&self, number: u32) -> Result<bool, SessionError> {
        let slot = self.slot(number)?.borrow();
        let starts = slot.enabled || self.features.get() & features::PROTOCOL == 0;
        let has_all = slot.places.is_some() && slot.kick.is_some() && slot.size > 0;
        Ok(starts && has_all && slot.served.is_none() && self.memory().is_some())
    }

    /// Waits for what was begun for connections that are gone, which may still be written, and for another connection's queues.
    async fn have_turn(&self) -> Result<(), SessionError> {
        let turn = pin!(self.common.socket.turns.begin(self.number));
        match select(turn, pin!(self.common.rt.sleep(TURN_PATIENCE))).await {
            Either::Left(_) => Ok(()),
            Either::Right(_) => Err(SessionError::Refused(
                "another guest uses the volume, or requests of the one before are under way: it tries again",
            )),
        }
    }

    fn memory(&self) -> Option<Rc<Memory>> {
        self.common.memory.borrow().clone()
    }

    fn set_memory(&self, memory: GuestMemory) {
        let log = self.log.borrow().clone().filter(|_| self.features.get() & features::LOG_ALL != 0);
        self.common.memory.replace(Some(Rc::new(Memory::from(memory).noted_in(log))));
    }

    /// From now on pages that are written are noted, or not any more.
    fn note_writes(&self) {
        if let Some(memory) = self.memory() {
            self.set_memory(memory.guest().clone());
        }
    }

    fn remove_region(&self, region: &Region) -> Result<(), SessionError> {
        let memory = self.memory().ok_or(SessionError::Refused("there is no memory to take a region from"))?;
        if !memory.guest().has_region(region) {
            return Err(SessionError::Refused("there is no such region of memory"));
        }
        match memory.guest().without(region) {
            Some(memory) => self.set_memory(memory),
            None => drop(self.common.memory.take()),
        }
        Ok(())
    }

    /// New memory for requests in flight, for the front end to keep.
    fn give_inflight(&self, header: &Header, queues: u16, size: u16) -> Result<Answer, SessionError> {
        limited(queues, size)?;
        let bytes = inflight::bytes(queues, size);
        let file = sealed_memory(bytes)?;
        let mut answer = Vec::with_capacity(header.bytes as usize);
        answer.extend(bytes.to_ne_bytes());
        answer.extend(0_u64.to_ne_bytes());
        answer.extend(queues.to_ne_bytes());
        answer.extend(size.to_ne_bytes());
        answer.resize(header.bytes as usize, 0);
        self.common.stream.send_passing(&header.answer(&answer), &[file])?;
        Ok(Answer::Given)
    }
}

/// How a message is answered.
enum Answer {
    /// Not, unless an answer is asked for.
    None,
    /// With this payload.
    Bytes(Vec<u8>),
    /// It was answered.
    Given,
}

fn limited(queues: u16, size: u16) -> Result<(), SessionError> {
    if queues == 0 || queues > QUEUES_MAX || size == 0 || size > RING_MAX {
        return Err(SessionError::Refused("requests in flight are noted of 1 to 16 queues of 1 to 1024 each"));
    }
    Ok(())
}
