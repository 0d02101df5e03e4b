//! A block device of this machine over a namespace: made, taken over, left, removed.
//!
//! ```text
//!   create   add -> open -> fetch -> start                       what fails, or is dropped half way: stop, delete
//!   recover  look -> begin recovery -> open -> fetch -> end it   what fails: left as it was, requests wait
//!   leave    finish what is under way, begin no more             the kernel notices when the process ends
//!   remove   who has it open? -> stop -> close -> delete
//! ```
//!
//! Invariants:
//! - making and taking over are tasks of their own: a caller that is gone does not stop them half way, and what it would have got is
//!   removed or left;
//! - a request of a device that is taken over is never answered with an error because the taking over failed;
//! - only a device that was made here is deleted here.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{Either, select};
use rt::Rt;
use rt::ublk::{self, ControlError, Device, DeviceState, Parameters, Queue};

use super::request::Limits;
use super::service::{Service, State};
use super::{UblkError, parameters};
use crate::namespace::Namespace;

/// How long a stop waits for requests under way: a namespace may repair what it reads.
const STOP_PATIENCE: Duration = Duration::from_secs(60);
/// How long leaving waits for them. What is not finished then is asked of the next server again.
const LEAVE_PATIENCE: Duration = Duration::from_secs(20);
/// How long the queue of a stopped device may take to end.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);
/// How long the kernel may take to notice that a server died: 30 s when all it can ask was under way.
const NOTICE_PATIENCE: Duration = Duration::from_secs(45);
/// The same, where that never is.
const SOON: Duration = Duration::from_secs(10);
/// A process that was killed just now may still be there.
const DEATH_PATIENCE: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Error numbers of Linux.
const EBUSY: i32 = 16;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;

/// A block device that is served. Clones are the same one; when the last is dropped it is served no more, and stays in the kernel.
#[derive(Clone)]
pub struct BlockDevice(Rc<Handle>);

/// A device that a server left.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// The N of /dev/ublkbN.
    pub number: u32,
    /// What tells it from others.
    pub mark: u64,
    /// Whether its server knew that it was started: since then the kernel never asks all it can, and notices a death at once.
    pub started: bool,
}

type BytesNow = Rc<dyn Fn() -> u64>;

struct Handle {
    rt: Rt,
    number: u32,
    service: Rc<Service>,
    /// Length of the namespace now; None when it is served no more, and the namespace is given back.
    bytes_now: RefCell<Option<BytesNow>>,
    /// Whether the kernel knows that writes need a flush.
    volatile_cache: bool,
    removed: Cell<bool>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.service.abandon();
    }
}

impl BlockDevice {
    /// Makes a device for `namespace` and serves it. `number`: the wanted N of /dev/ublkbN; None: the kernel chooses. `mark` is
    /// what tells it from others when it is taken over.
    ///
    /// # Errors
    /// When the kernel cannot; then nothing is left of it.
    pub async fn create<N: Namespace>(
        rt: &Rt,
        namespace: N,
        number: Option<u32>,
        mark: u64,
    ) -> Result<BlockDevice, UblkError> {
        let world = rt.clone();
        let work = async move { make(&world, &namespace, number, mark).await };
        as_task(rt, work, Unclaimed::Removed).await
    }

    /// Takes over a device that a server left. The namespace may be longer than the device, which stays as long as it was until it
    /// is resized.
    ///
    /// # Errors
    /// When its mark is another, the namespace is shorter or of larger blocks, its server lives, or the kernel cannot. Then what
    /// was asked of it waits as before.
    pub async fn recover<N: Namespace>(rt: &Rt, namespace: N, left: Left) -> Result<BlockDevice, UblkError> {
        let world = rt.clone();
        let work = async move { take_over(&world, &namespace, left).await };
        as_task(rt, work, Unclaimed::Left).await
    }

    fn new<N: Namespace>(
        rt: &Rt,
        number: u32,
        service: Rc<Service>,
        namespace: &N,
        volatile_cache: bool,
    ) -> BlockDevice {
        let bytes_now = RefCell::new(Some(bytes_of(namespace)));
        let removed = Cell::new(false);
        BlockDevice(Rc::new(Handle { rt: rt.clone(), number, service, bytes_now, volatile_cache, removed }))
    }

    /// The N of /dev/ublkbN.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.number
    }

    /// Requests under way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.0.service.in_flight()
    }

    /// Requests that were begun since it was made or taken over.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.0.service.requests()
    }

    /// Whether requests are begun: not after it was left or removed, or the kernel ended its queue.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.0.service.state.get() == State::Serving
    }

    /// Waits until it is not served any more, whoever ended that.
    pub async fn ended(&self) {
        self.0.service.ended().await;
    }

    /// Ends it and takes it from the kernel. Once that was done, it is no error to do it again.
    ///
    /// # Errors
    /// [`ControlError::Busy`] while somebody has it open or mounted, unless `even_if_open`: what they do then fails. After an error it is
    /// still served.
    pub async fn remove(&self, even_if_open: bool) -> Result<(), UblkError> {
        let Handle { rt, number, service, removed, bytes_now, .. } = &*self.0;
        if removed.get() {
            return Ok(());
        }
        if matches!(service.state.get(), State::Leaving | State::Left) {
            return Err(UblkError::NotServed { number: *number });
        }
        let slow = |command, patience: Duration| {
            UblkError::from(ControlError::Slow { command, number: *number, seconds: patience.as_secs() })
        };
        let stop = ublk::stop(rt, *number, even_if_open);
        match at_most(rt, STOP_PATIENCE, stop).await.ok_or(slow("STOP_DEV", STOP_PATIENCE))? {
            // Another program has removed it.
            Err(ControlError::Kernel { errno: ENODEV, .. }) => {}
            stopped => stopped?,
        }
        at_most(rt, CLOSE_PATIENCE, service.closed()).await.ok_or(slow("the end of the queue", CLOSE_PATIENCE))?;
        match ublk::delete(rt, *number).await {
            Ok(()) | Err(ControlError::Kernel { errno: ENODEV, .. }) => removed.set(true),
            Err(error) => return Err(error.into()),
        }
        bytes_now.take();
        Ok(())
    }

    /// Stops serving: requests under way are finished, for 20 s at most; all others wait in the kernel for [`BlockDevice::recover`].
    /// That can be done when this process has ended, and with it its ring: until then the kernel counts it as the server,
    /// and [`BlockDevice::go_on`] is the way back. The namespace is given back.
    pub async fn leave(&self) {
        let Handle { rt, service, bytes_now, .. } = &*self.0;
        if service.state.get() == State::Serving {
            service.state.set(State::Leaving);
            at_most(rt, LEAVE_PATIENCE, service.idle()).await;
            service.abandon();
            bytes_now.take();
        }
    }

    /// Goes on after [`BlockDevice::leave`], in the process that left: what was asked meanwhile is done now.
    ///
    /// # Errors
    /// When it was not left, or the namespace does not fit, as with [`BlockDevice::recover`].
    pub fn go_on<N: Namespace>(&self, namespace: N) -> Result<(), UblkError> {
        let Handle { number, service, bytes_now, volatile_cache, .. } = &*self.0;
        let namespace = namespace.apart();
        let (info, limits) = (namespace.info(), service.limits.get());
        if service.state.get() != State::Left {
            return Err(UblkError::NotServed { number: *number });
        }
        if limits.bytes > info.bytes || limits.block < info.min_block {
            return Err(UblkError::Size { number: *number, device: limits.bytes, volume: info.bytes });
        }
        service.limits.set(Limits { read_only: info.read_only, ..limits });
        bytes_now.replace(Some(bytes_of(&namespace)));
        service.go_on(&namespace, info.volatile_cache && !volatile_cache);
        Ok(())
    }

    /// Makes it as long as the namespace is now.
    ///
    /// # Errors
    /// [`UblkError::Unsupported`] before Linux 6.16.
    pub async fn resize(&self) -> Result<(), UblkError> {
        let Handle { rt, number, service, bytes_now, .. } = &*self.0;
        let bytes_now = bytes_now.borrow().clone().ok_or(UblkError::NotServed { number: *number })?;
        if !ublk::features(rt).await?.can_resize() {
            return Err(UblkError::Unsupported);
        }
        let bytes = bytes_now();
        let limits = service.limits.get();
        // A longer one is served before the kernel knows of it.
        service.limits.set(Limits { bytes: bytes.max(limits.bytes), ..limits });
        match ublk::resize(rt, *number, bytes).await {
            Ok(()) => service.limits.set(Limits { bytes, ..limits }),
            Err(error) => {
                service.limits.set(limits);
                return Err(error.into());
            }
        }
        Ok(())
    }
}

/// Deletes what a dead server left, if it has this mark, whether the kernel has noticed that death or not. Where nothing is left, that
/// is no error.
///
/// # Errors
/// When it is not ours, its server lives, or somebody has it open, unless `even_if_open`.
pub async fn delete_left(rt: &Rt, number: u32, mark: u64, even_if_open: bool) -> Result<(), UblkError> {
    let is_stopped = match settled(rt, number, mark, DEATH_PATIENCE).await {
        Ok(device) => device.state == DeviceState::Dead,
        Err(UblkError::Unnoticed { .. }) => false,
        Err(UblkError::Absent { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    if !is_stopped {
        let slow = ControlError::Slow { command: "STOP_DEV", number, seconds: STOP_PATIENCE.as_secs() };
        at_most(rt, STOP_PATIENCE, ublk::stop(rt, number, even_if_open)).await.ok_or(slow)??;
    }
    Ok(ublk::delete(rt, number).await?)
}

/// What runs by itself to its end; the caller gets what comes of it, if there still is one.
async fn as_task(
    rt: &Rt,
    work: impl Future<Output = Result<BlockDevice, UblkError>> + 'static,
    unclaimed: fn(BlockDevice) -> Unclaimed,
) -> Result<BlockDevice, UblkError> {
    let (sender, receiver) = oneshot::channel();
    rt.spawn(async move {
        // A receiver that is gone gives back what is sent, and one that goes without having looked drops it.
        drop(sender.send(work.await.map(|device| Claim(Some(unclaimed(device))))));
    })
    .detach();
    match receiver.await {
        Ok(done) => done.map(Claim::claimed),
        Err(oneshot::Canceled) => std::future::pending().await,
    }
}

/// What becomes of a device whose caller is gone.
enum Unclaimed {
    Removed(BlockDevice),
    Left(BlockDevice),
}

/// A device on its way to its caller.
struct Claim(Option<Unclaimed>);

impl Claim {
    fn claimed(mut self) -> BlockDevice {
        match self.0.take() {
            Some(Unclaimed::Removed(device) | Unclaimed::Left(device)) => device,
            None => unreachable!("it is claimed once"),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let device = match self.0.take() {
            None => return,
            Some(Unclaimed::Left(device)) => {
                let rt = device.0.rt.clone();
                return rt.spawn(async move { device.leave().await }).detach();
            }
            Some(Unclaimed::Removed(device)) => device,
        };
        let rt = device.0.rt.clone();
        let remove = async move {
            if let Err(error) = device.remove(true).await {
                tracing::warn!("ublk: a device that no caller needs any more: {error}");
            }
        };
        rt.spawn(remove).detach();
    }
}

async fn make<N: Namespace>(rt: &Rt, namespace: &N, number: Option<u32>, mark: u64) -> Result<BlockDevice, UblkError> {
    let namespace = namespace.apart();
    let parameters = parameters::of(&namespace.info())?;
    let number = ublk::add(rt, number, mark, parameters).await?;
    let queue = match Queue::open(rt, number).await {
        Ok(queue) => queue,
        Err(error) => {
            let _gone = ublk::delete(rt, number).await;
            return Err(error.into());
        }
    };
    let service = Service::begin(rt, queue, &namespace, limits_of(&parameters), false);
    let device = BlockDevice::new(rt, number, service, &namespace, parameters.volatile_cache);
    match ublk::start(rt, number).await {
        Ok(()) => Ok(device),
        Err(error) => {
            // The kernel may have started it; nobody knows of it yet.
            if let Err(error) = device.remove(true).await {
                tracing::warn!("ublk: a device that could not be started: {error}");
            }
            Err(error.into())
        }
    }
}

async fn take_over<N: Namespace>(rt: &Rt, namespace: &N, left: Left) -> Result<BlockDevice, UblkError> {
    let Left { number, mark, started } = left;
    let namespace = namespace.apart();
    let info = namespace.info();
    let parameters = parameters::of(&info)?;
    ublk::features(rt).await?;
    let device = settled(rt, number, mark, if started { SOON } else { NOTICE_PATIENCE }).await?;
    if device.state == DeviceState::Dead || !device.is_recoverable {
        return Err(UblkError::Stopped { number });
    }
    if info.read_only && !device.read_only {
        return Err(UblkError::ReadOnly { number });
    }
    if device.bytes > info.bytes || device.logical_block < info.min_block {
        return Err(UblkError::Size { number, device: device.bytes, volume: info.bytes });
    }
    begin(rt, number).await?;
    let queue = Queue::open(rt, number).await?;
    let limits = Limits { bytes: device.bytes, ..limits_of(&parameters) };
    let durable = info.volatile_cache && !device.volatile_cache;
    let service = Service::begin(rt, queue, &namespace, limits, durable);
    let device = BlockDevice::new(rt, number, service, &namespace, device.volatile_cache);
    // After an error what waits goes on waiting: the tasks are dropped without an answer.
    ublk::end_recovery(rt, number).await?;
    Ok(device)
}

/// Begins to take it over; the kernel may still be busy with the death of its server.
async fn begin(rt: &Rt, number: u32) -> Result<(), UblkError> {
    let since = rt.now();
    loop {
        match ublk::begin_recovery(rt, number).await {
            Ok(()) => return Ok(()),
            // A server died between beginning it and fetching: it is begun.
            Err(ControlError::Kernel { errno: EINVAL, .. }) => return Ok(()),
            Err(ControlError::Kernel { errno: EBUSY, .. }) if rt.now() - since < NOTICE_PATIENCE => {
                rt.sleep(LOOK_AGAIN).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The device of this number and mark, when the kernel has noticed that its server is gone; it has so long.
async fn settled(rt: &Rt, number: u32, mark: u64, notice: Duration) -> Result<Device, UblkError> {
    let since = rt.now();
    loop {
        let device = ublk::look(rt, number).await?.ok_or(UblkError::Absent { number })?;
        if device.mark != mark {
            return Err(UblkError::NotOurs { number });
        }
        match (device.state, device.server) {
            (DeviceState::Quiesced | DeviceState::Dead, None) => return Ok(device),
            (DeviceState::Live | DeviceState::Dead | DeviceState::Quiesced, Some(pid)) => {
                if rt.now() - since >= DEATH_PATIENCE || pid == std::process::id() {
                    return Err(UblkError::Alive { number, pid });
                }
            }
            (DeviceState::Live, None) if rt.now() - since >= notice => {
                return Err(UblkError::Unnoticed { number, seconds: notice.as_secs() });
            }
            (DeviceState::Live, None) => {}
        }
        rt.sleep(LOOK_AGAIN).await;
    }
}

fn bytes_of<N: Namespace>(namespace: &N) -> BytesNow {
    let namespace = namespace.clone();
    Rc::new(move || namespace.info().bytes)
}

fn limits_of(parameters: &Parameters) -> Limits {
    Limits {
        bytes: parameters.bytes,
        block: parameters.logical_block,
        request_bytes_max: parameters.request_bytes_max,
        read_only: parameters.read_only,
    }
}

/// What `event` comes to, if it does not take longer than this.
async fn at_most<T>(rt: &Rt, patience: Duration, event: impl Future<Output = T>) -> Option<T> {
    match select(pin!(event), pin!(rt.sleep(patience))).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}
