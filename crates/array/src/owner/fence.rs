//! Reservations of the drives of one array: all by the same key, which is drawn for each open and stands in the owner marks.

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use rt::{Drive, IoError, Reserve, ReserveError, Reserved, Rt};

/// In this time a drive says who has reserved it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Times that the own reservation is tried to be taken again.
const TRIES: usize = 3;

/// Who has reserved a drive.
pub(super) async fn look(rt: &Rt, drive: &Drive) -> Result<Reserved, ReserveError> {
    match select(pin!(drive.reserved()), pin!(rt.sleep(PATIENCE))).await {
        Either::Left((answer, _)) => answer,
        Either::Right(_) => Err(ReserveError::Io(IoError::TimedOut)),
    }
}

/// Ends the own reservation of a drive, if that answers in time.
pub(super) async fn leave(rt: &Rt, drive: &Drive, key: u64) -> Result<(), ReserveError> {
    match select(pin!(drive.reserve(Reserve::Leave(key))), pin!(rt.sleep(PATIENCE))).await {
        Either::Left((answer, _)) => answer,
        Either::Right(_) => Err(ReserveError::Io(IoError::TimedOut)),
    }
}

/// Takes the own reservation again, if the drive says that it still holds; else why not.
pub(super) async fn hold_again(rt: &Rt, drive: &Drive, key: u64) -> Result<(), String> {
    for _ in 0..TRIES {
        match look(rt, drive).await {
            Ok(Reserved { holder: Some(holder), .. }) if holder == key => {}
            Ok(Reserved { holder: Some(holder), .. }) => {
                return Err(format!("another host has reserved it, by key {holder:#018x}"));
            }
            Ok(Reserved { holder: None, .. }) => return Err("another host had reserved it".to_owned()),
            Err(e) => return Err(format!("another host has reserved it; which one cannot be read ({e})")),
        }
        if take(drive, key, Some(key)).await.is_ok() {
            return Ok(());
        }
    }
    Err("it cannot be reserved again".to_owned())
}

/// Reserves a drive by `key`, from the holder of the key `victim` where there is one. True when that one was shut out.
pub(super) async fn take(drive: &Drive, key: u64, victim: Option<u64>) -> Result<bool, ReserveError> {
    drive.reserve(Reserve::Register(key)).await?;
    match drive.reserve(Reserve::Acquire(key)).await {
        Err(ReserveError::Io(IoError::Conflict)) => {}
        other => return other.map(|()| false),
    }
    let Some(victim) = victim else { return Err(ReserveError::Io(IoError::Conflict)) };
    drive.reserve(Reserve::Preempt { own: key, victim }).await?;
    drive.reserve(Reserve::Acquire(key)).await.map(|()| true)
}
