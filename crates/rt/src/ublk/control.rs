//! Commands to the ublk driver, each on a thread of its own, which lets a process send it: some wait for requests that this very
//! runtime serves, or for whoever has a device open.
//!
//! Invariants: no command runs on the runtime's thread; a command whose caller is gone is carried out all the same; a device that the
//! kernel does not tell of in time has one process that waits for it, not one for each time it is asked.
//!
//! Not here: who may use a device, and what its mark means (`export::ublk`).

use std::collections::BTreeSet;
use std::fs;
use std::pin::pin;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use futures::future::{Either, select};
use zerocopy::IntoBytes;

use super::error::ControlError;
use super::openers;
use super::process::send;
use super::wire::{self, DeviceInfo, Params};
use crate::Rt;

/// How long the deletion of a device is waited for whose last descriptor is being closed.
const DELETE_PATIENCE: Duration = Duration::from_secs(10);

/// How long the kernel may take to tell of a device.
const LOOK_PATIENCE: Duration = Duration::from_secs(10);
/// Devices that it has not told of in time, and a process still waits.
static LATE: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// What the driver can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features(u64);

impl Features {
    /// Whether a device may change its size while it is used: Linux 6.16.
    #[must_use]
    pub fn can_resize(self) -> bool {
        self.0 & wire::UPDATE_SIZE != 0
    }

    /// That nothing is missing.
    pub(super) fn check(self) -> Result<Features, ControlError> {
        match wire::NEEDED.iter().find(|(bit, _)| self.0 & bit == 0) {
            Some((_, feature)) => Err(ControlError::Missing { feature }),
            None => Ok(self),
        }
    }
}

/// How a device presents itself. Sizes of blocks are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Length of the device.
    pub bytes: u64,
    /// Unit of addressing, from 512 to a page.
    pub logical_block: u32,
    /// Unit that is written wholly or not at all.
    pub physical_block: u32,
    /// Unit of requests that cost least.
    pub preferred_block: u32,
    /// Longest read or write.
    pub request_bytes_max: u32,
    /// Longest discard or write of zeroes; nothing where there are none.
    pub zero_bytes_max: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether completed writes need a flush to be durable.
    pub volatile_cache: bool,
}

impl Parameters {
    pub(super) fn wire(&self) -> Params {
        let mut attributes = if self.read_only { wire::READ_ONLY } else { 0 };
        if self.volatile_cache {
            attributes |= wire::VOLATILE_CACHE | wire::FUA;
        }
        let shift = |block: u32| block.trailing_zeros() as u8;
        let basic = Params {
            bytes: wire::PARAMS_BYTES,
            types: wire::BASIC,
            attributes,
            logical_shift: shift(self.logical_block),
            physical_shift: shift(self.physical_block),
            io_opt_shift: shift(self.preferred_block),
            io_min_shift: shift(self.preferred_block),
            sectors_max: self.request_bytes_max >> 9,
            device_sectors: self.bytes >> 9,
            ..Params::default()
        };
        if self.read_only || self.zero_bytes_max == 0 {
            return basic;
        }
        // A request of the block layer has its length in 32 bits.
        let longest = u32::MAX - u32::MAX % self.preferred_block;
        let sectors = (self.zero_bytes_max.min(u64::from(longest)) >> 9) as u32;
        Params {
            types: wire::BASIC | wire::DISCARD,
            discard_granularity: self.preferred_block,
            discard_sectors_max: sectors,
            write_zeroes_sectors_max: sectors,
            discard_segments_max: 1,
            ..basic
        }
    }
}

/// Where a device is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// It was added and not started, or stopped.
    Dead,
    /// It has a server, or one that died just now.
    Live,
    /// Its server is gone: what is asked of it waits for the next one.
    Quiesced,
}

/// What the kernel has under a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its number.
    pub number: u32,
    /// The mark of who made it.
    pub mark: u64,
    /// Its length.
    pub bytes: u64,
    /// Unit of addressing.
    pub logical_block: u32,
    /// Whether it has told the kernel that writes need a flush.
    pub volatile_cache: bool,
    /// Whether it refuses writes.
    pub read_only: bool,
    /// Whether it can be recovered by a next server, as devices of ours can.
    pub is_recoverable: bool,
    /// Where it is in its life.
    pub state: DeviceState,
    /// The process that serves it, or makes it.
    pub server: Option<u32>,
}

/// What the driver can.
///
/// # Errors
/// When there is no driver, this process may not use it, or it lacks what is needed.
pub async fn features(rt: &Rt) -> Result<Features, ControlError> {
    on_thread(rt, read_features).await
}

/// Adds a device that nothing serves yet; its number.
///
/// # Errors
/// [`ControlError::Taken`] when the wanted number is in use; as [`features`]. Then nothing was added.
pub async fn add(rt: &Rt, number: Option<u32>, mark: u64, parameters: Parameters) -> Result<u32, ControlError> {
    on_thread(rt, move || add_blocking(number, mark, &parameters)).await
}

/// Starts it, when its queue fetches: reads its partitions, so the queue must be served meanwhile.
///
/// # Errors
/// When the kernel refuses.
pub async fn start(rt: &Rt, number: u32) -> Result<(), ControlError> {
    on_thread(rt, move || of_this_process("START_DEV", wire::START_DEV, number)).await
}

/// Stops it: its block device goes, and its queue ends. Its queue must be served meanwhile, if it has a server.
///
/// # Errors
/// [`ControlError::Busy`] when somebody has it open, unless `even_if_open`; what they do then fails.
pub async fn stop(rt: &Rt, number: u32, even_if_open: bool) -> Result<(), ControlError> {
    on_thread(rt, move || stop_blocking(number, even_if_open)).await
}

/// Deletes a device that was stopped. It may stay in the kernel, under its number, until nobody has it open.
///
/// # Errors
/// When the kernel refuses.
pub async fn delete(rt: &Rt, number: u32) -> Result<(), ControlError> {
    let delete = on_thread(rt, move || match plain("DEL_DEV_ASYNC", wire::DEL_DEV_ASYNC, number, 0) {
        Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => plain("DEL_DEV", wire::DEL_DEV, number, 0).map(drop),
        other => other.map(drop),
    });
    match select(pin!(delete), pin!(rt.sleep(DELETE_PATIENCE))).await {
        Either::Left((deleted, _)) => deleted,
        // It is off the kernel's list of devices, and the thread waits for the rest.
        Either::Right(_) => Ok(()),
    }
}

/// Begins to take a device over whose server is gone.
///
/// # Errors
/// When the kernel refuses: it has a server, or was stopped.
pub async fn begin_recovery(rt: &Rt, number: u32) -> Result<(), ControlError> {
    on_thread(rt, move || plain("START_USER_RECOVERY", wire::START_USER_RECOVERY, number, 0).map(drop)).await
}

/// Ends the taking over, when the queue fetches: what waits is asked.
///
/// # Errors
/// When the kernel refuses.
pub async fn end_recovery(rt: &Rt, number: u32) -> Result<(), ControlError> {
    on_thread(rt, move || of_this_process("END_USER_RECOVERY", wire::END_USER_RECOVERY, number)).await
}

/// What the kernel has under this number.
///
/// # Errors
/// When it does not tell, within ten seconds: [`ControlError::Slow`]. A command for that device waits in the kernel then, maybe for ever,
/// and every other one would.
pub async fn look(rt: &Rt, number: u32) -> Result<Option<Device>, ControlError> {
    let slow = ControlError::Slow { command: "GET_PARAMS", number, seconds: LOOK_PATIENCE.as_secs() };
    if LATE.lock().unwrap_or_else(PoisonError::into_inner).contains(&number) {
        return Err(slow);
    }
    let done = Arc::new(AtomicBool::new(false));
    let late = {
        let done = done.clone();
        move |is_late: bool| {
            let mut late = LATE.lock().unwrap_or_else(PoisonError::into_inner);
            if !is_late {
                done.store(true, Ordering::Relaxed);
                late.remove(&number);
            } else if !done.load(Ordering::Relaxed) {
                late.insert(number);
            }
        }
    };
    let look = {
        let late = late.clone();
        move || {
            let found = look_blocking(number);
            late(false);
            found
        }
    };
    match select(pin!(on_thread(rt, look)), pin!(rt.sleep(LOOK_PATIENCE))).await {
        Either::Left((found, _)) => found,
        Either::Right(_) => {
            late(true);
            Err(slow)
        }
    }
}

/// Gives a device another length.
///
/// # Errors
/// When the kernel cannot: [`Features::can_resize`].
pub async fn resize(rt: &Rt, number: u32, bytes: u64) -> Result<(), ControlError> {
    on_thread(rt, move || plain("UPDATE_SIZE", wire::SET_SIZE, number, bytes >> 9).map(drop)).await
}

/// What `work` comes to, on a thread of its own; never on this one.
async fn on_thread<T: Send + 'static>(
    rt: &Rt,
    work: impl FnOnce() -> Result<T, ControlError> + Send + 'static,
) -> Result<T, ControlError> {
    if rt.is_modelled() {
        return Err(ControlError::NoModule);
    }
    let (sender, mut answer) = rt.mailbox();
    let there = move || {
        sender.send(work());
    };
    let no_thread =
        ControlError::Kernel { command: "a thread for a command to /dev/ublk-control", errno: libc::EAGAIN };
    thread::Builder::new().name("ublk".into()).spawn(there).map_err(|_| no_thread)?;
    answer.recv().await.unwrap_or(Err(no_thread))
}

fn read_features() -> Result<Features, ControlError> {
    let mut bits = 0u64.to_ne_bytes();
    match send("GET_FEATURES", wire::GET_FEATURES, (!0, 0), &mut bits) {
        Ok(_) => Features(u64::from_ne_bytes(bits)).check(),
        // Linux before 6.5, which has no user copy either.
        Err(error) if matches!(error.errno(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENODEV)) => {
            Features(0).check()
        }
        Err(error) => Err(error),
    }
}

fn add_blocking(number: Option<u32>, mark: u64, parameters: &Parameters) -> Result<u32, ControlError> {
    let features = read_features()?;
    let wanted = wire::NEEDED.iter().fold(features.0 & wire::UPDATE_SIZE, |bits, (bit, _)| bits | bit);
    let mut info = DeviceInfo {
        queues: 1,
        depth: super::DEPTH,
        request_bytes_max: parameters.request_bytes_max,
        number: number.unwrap_or(!0),
        pid: process::id().cast_signed(),
        flags: wanted,
        mark,
        ..DeviceInfo::default()
    };
    let wanted = info.number;
    match (send("ADD_DEV", wire::ADD_DEV, (wanted, 0), info.as_mut_bytes()), number) {
        (Ok(_), _) => {}
        (Err(error), Some(number)) if error.errno() == Some(libc::EEXIST) => {
            return Err(ControlError::Taken { number });
        }
        (Err(error), _) => return Err(error),
    }
    let number = info.number;
    let mut params = parameters.wire();
    let params = &mut params.as_mut_bytes()[..wire::PARAMS_BYTES as usize];
    let ready = Features(info.flags).check().and_then(|_| send("SET_PARAMS", wire::SET_PARAMS, (number, 0), params));
    if let Err(error) = ready {
        // It was never started: nobody has it open.
        let _gone = plain("DEL_DEV", wire::DEL_DEV, number, 0);
        return Err(error);
    }
    Ok(number)
}

fn stop_blocking(number: u32, even_if_open: bool) -> Result<(), ControlError> {
    if even_if_open {
        return plain("STOP_DEV", wire::STOP_DEV, number, 0).map(drop);
    }
    let knows_openers = read_features()?.0 & wire::SAFE_STOP_DEV != 0;
    openers::retried(number, || {
        if knows_openers {
            return match plain("TRY_STOP_DEV", wire::TRY_STOP_DEV, number, 0) {
                Err(error) if error.errno() == Some(libc::EBUSY) => {
                    Err(ControlError::Busy { number, by: openers::find(number) })
                }
                other => other.map(drop),
            };
        }
        // Claimed until it is stopped, so that nobody mounts it in between.
        let _claim = openers::claim(number)?;
        plain("STOP_DEV", wire::STOP_DEV, number, 0).map(drop)
    })
}

fn look_blocking(number: u32) -> Result<Option<Device>, ControlError> {
    let mut info = DeviceInfo::default();
    match send("GET_DEV_INFO", wire::GET_DEV_INFO, (number, 0), info.as_mut_bytes()) {
        Ok(_) => {}
        Err(error) if error.errno() == Some(libc::ENODEV) => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut params = Params { bytes: wire::PARAMS_BYTES, ..Params::default() };
    send("GET_PARAMS", wire::GET_PARAMS, (number, 0), &mut params.as_mut_bytes()[..wire::PARAMS_BYTES as usize])?;
    let state = match info.state {
        wire::LIVE => DeviceState::Live,
        wire::DEAD => DeviceState::Dead,
        // Also a state of later kernels, in which requests fail instead of waiting.
        wire::QUIESCED.. => DeviceState::Quiesced,
    };
    let pid = u32::try_from(info.pid).ok().filter(|pid| *pid != 0);
    Ok(Some(Device {
        number,
        mark: info.mark,
        bytes: params.device_sectors << 9,
        logical_block: 1 << u32::from(params.logical_shift).min(31),
        volatile_cache: params.attributes & wire::VOLATILE_CACHE != 0,
        read_only: params.attributes & wire::READ_ONLY != 0,
        is_recoverable: Features(info.flags).check().is_ok(),
        state,
        server: pid.filter(|pid| state != DeviceState::Quiesced && is_alive(*pid)),
    }))
}

/// Whether there is a process of this number that has not ended.
fn is_alive(pid: u32) -> bool {
    // The state stands behind the program's name, which may contain anything.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// A command of this process for a device: the kernel notes its number.
fn of_this_process(name: &'static str, operation: u32, number: u32) -> Result<(), ControlError> {
    plain(name, operation, number, u64::from(process::id())).map(drop)
}

/// A command that points to nothing.
fn plain(name: &'static str, operation: u32, number: u32, data: u64) -> Result<i32, ControlError> {
    send(name, operation, (number, data), &mut [])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Parameters = Parameters {
        bytes: 1 << 30,
        logical_block: 512,
        physical_block: 4096,
        preferred_block: 65536,
        request_bytes_max: 256 << 10,
        zero_bytes_max: 1 << 40,
        read_only: false,
        volatile_cache: true,
    };

    #[test]
    fn parameters_as_the_kernel_takes_them() {
        let params = SOME.wire();
        assert_eq!((params.bytes, params.types, params.attributes), (60, 3, 12));
        assert_eq!(
            (params.logical_shift, params.physical_shift, params.io_min_shift, params.io_opt_shift),
            (9, 12, 16, 16)
        );
        assert_eq!((params.sectors_max, params.device_sectors), (512, 2 << 20));
        assert_eq!((params.discard_granularity, params.discard_segments_max), (65536, 1));
        // No longer than 32 bits count, and whole blocks.
        assert_eq!(params.discard_sectors_max, (u32::MAX - 65535) >> 9);
        assert_eq!(params.write_zeroes_sectors_max, params.discard_sectors_max);
    }

    #[test]
    fn what_is_read_only_has_no_discard() {
        let params = Parameters { read_only: true, volatile_cache: false, ..SOME }.wire();
        assert_eq!((params.types, params.attributes, params.discard_sectors_max), (1, 1, 0));
    }

    #[test]
    fn missing_features_have_names() {
        let all = wire::NEEDED.iter().fold(0, |bits, (bit, _)| bits | bit);
        assert_eq!(Features(all).check(), Ok(Features(all)));
        let without = Features(all & !wire::USER_COPY).check();
        assert_eq!(without, Err(ControlError::Missing { feature: "UBLK_F_USER_COPY" }));
    }

    #[test]
    fn this_process_is_alive() {
        assert!(is_alive(process::id()));
        assert!(!is_alive(u32::MAX));
    }

    #[test]
    fn a_modelled_world_has_no_driver() {
        let rt = Rt::modelled(1);
        assert_eq!(rt.block_on(features(&rt)), Err(ControlError::NoModule));
    }
}
