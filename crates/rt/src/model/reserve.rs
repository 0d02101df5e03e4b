//! Reservations of a modelled drive: which machines are registered, with which keys, and which of them holds it. One type only,
//! Write Exclusive: whoever does not hold it reads, and does not write.
//!
//! A write is judged when it lands, so none lands after its machine was put out. (A real drive may be in the middle of one.)
//!
//! Not here: what a server makes of them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Disk;
use crate::drive::{Reserve, ReserveError, Reserved};
use crate::{IoError, Rt};

/// What a command takes.
const TAKES: Duration = Duration::from_micros(100);

/// Who is registered, and who holds it.
#[derive(Clone, Debug, Default)]
pub(super) struct Reservations {
    /// Keys by machine.
    registered: BTreeMap<u64, u64>,
    holder: Option<u64>,
}

impl Reservations {
    /// Whether a machine may not write.
    pub(super) fn refuse(&self, machine: u64) -> bool {
        self.holder.is_some_and(|holder| holder != machine)
    }

    fn told(&self) -> Reserved {
        let holder = self.holder.and_then(|machine| self.registered.get(&machine)).copied();
        Reserved { holder, keys: self.registered.values().copied().collect() }
    }

    fn step(&mut self, machine: u64, step: Reserve) -> Result<(), ReserveError> {
        let conflict = Err(ReserveError::Io(IoError::Conflict));
        match step {
            Reserve::Register(key) => {
                self.registered.insert(machine, key);
            }
            Reserve::Acquire(key) if self.registered.get(&machine) != Some(&key) || self.refuse(machine) => {
                return conflict;
            }
            Reserve::Acquire(_) => self.holder = Some(machine),
            Reserve::Preempt { own, .. } if self.registered.get(&machine) != Some(&own) => return conflict,
            Reserve::Preempt { victim, .. } => {
                if self.told().holder == Some(victim) {
                    self.holder = Some(machine);
                }
                self.registered.retain(|other, key| *other == machine || *key != victim);
            }
            Reserve::Leave(key) if self.registered.get(&machine) != Some(&key) => return conflict,
            Reserve::Leave(_) => self.put_out(machine),
        }
        Ok(())
    }

    fn put_out(&mut self, machine: u64) {
        self.registered.remove(&machine);
        self.holder = self.holder.filter(|holder| *holder != machine);
    }
}

impl Disk {
    pub(crate) async fn reserved(&self, rt: &Rt) -> Result<Reserved, ReserveError> {
        self.answer_reservation(rt).await?;
        Ok(self.0.state.borrow().reservations.told())
    }

    pub(crate) async fn reserve(&self, rt: &Rt, step: Reserve) -> Result<(), ReserveError> {
        self.answer_reservation(rt).await?;
        self.0.state.borrow_mut().reservations.step(rt.inner.machine(), step)
    }

    async fn answer_reservation(&self, rt: &Rt) -> Result<(), ReserveError> {
        if !self.0.params.reservable {
            return Err(ReserveError::Unable("it has no reservations".to_owned()));
        }
        rt.sleep(TAKES).await;
        if self.is_attached() { Ok(()) } else { Err(ReserveError::Io(IoError::Gone)) }
    }

    /// A reset that costs the drive all its reservations.
    pub fn forget_reservations(&self) {
        self.0.state.borrow_mut().reservations = Reservations::default();
    }

    /// A reset after which the drive does not know a machine for the one it was: what that had stays, as a stranger's.
    pub fn forget_machine(&self, machine: u64) {
        let reservations = &mut self.0.state.borrow_mut().reservations;
        let stranger = !machine;
        if let Some(key) = reservations.registered.remove(&machine) {
            reservations.registered.insert(stranger, key);
            reservations.holder = reservations.holder.map(|holder| if holder == machine { stranger } else { holder });
        }
    }

    /// The key that holds it.
    #[must_use]
    pub fn held_by(&self) -> Option<u64> {
        self.0.state.borrow().reservations.told().holder
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::DiskParams;
    use crate::{Buf, Drive};
    use base::MemberLba;

    #[test]
    fn who_does_not_hold_it_does_not_write() {
        let disk = Disk::new("d", DiskParams { reservable: true, ..DiskParams::default() }, 1);
        let (one, two) = (Rt::modelled(1), Rt::modelled_on(2, Duration::ZERO, 1));
        let (a, b) = (Drive::modelled(&one, &disk), Drive::modelled(&two, &disk));
        let write = |rt: &Rt, d: &Drive| rt.block_on(d.write(MemberLba(0), Buf::zeroed(4096).freeze()));
        let conflict = Err(ReserveError::Io(IoError::Conflict));
        assert_eq!(one.block_on(a.reserve(Reserve::Register(7))), Ok(()));
        assert_eq!(one.block_on(a.reserve(Reserve::Acquire(7))), Ok(()));
        assert_eq!((write(&one, &a), write(&two, &b)), (Ok(()), Err(IoError::Conflict)));
        // Registered is not enough; a victim's key before the own one is wrong.
        assert_eq!(two.block_on(b.reserve(Reserve::Register(8))), Ok(()));
        assert_eq!(two.block_on(b.reserve(Reserve::Acquire(8))), conflict);
        assert_eq!(write(&two, &b), Err(IoError::Conflict));
        assert_eq!(two.block_on(b.reserve(Reserve::Preempt { own: 7, victim: 8 })), conflict);
        assert_eq!(two.block_on(b.reserve(Reserve::Preempt { own: 8, victim: 7 })), Ok(()));
        assert_eq!((write(&one, &a), write(&two, &b)), (Err(IoError::Conflict), Ok(())));
        // Who registers again may write no more than before.
        assert_eq!(one.block_on(a.reserve(Reserve::Register(7))), Ok(()));
        assert_eq!(write(&one, &a), Err(IoError::Conflict));
        assert_eq!(two.block_on(b.reserved()), Ok(Reserved { holder: Some(8), keys: vec![7, 8] }));
        // A reset: the drive does not know who held it.
        disk.forget_machine(1);
        assert_eq!((write(&two, &b), disk.held_by()), (Err(IoError::Conflict), Some(8)));
        assert_eq!(two.block_on(b.reserve(Reserve::Register(8))), Ok(()));
        assert_eq!(two.block_on(b.reserve(Reserve::Preempt { own: 8, victim: 8 })), Ok(()));
        assert_eq!(write(&two, &b), Ok(()));
        assert_eq!(two.block_on(b.reserve(Reserve::Leave(8))), Ok(()));
        assert_eq!(write(&one, &a), Ok(()));
    }
}
