//! One look at everything, for readers.

use api::{AlarmView, Arrays, Buffers, HistogramView, Severity, VERSION};
use futures::future::join_all;
use rt::{Nanos, Rt};

use super::Data;
use crate::ops::open::Opened;
use crate::snapshot::{CoreLook, Look};

impl Data {
    /// The server, its arrays and their counters, now.
    pub async fn look(&self) -> Look {
        let served: Vec<Opened> = self.served.borrow().values().cloned().collect();
        let mut arrays = join_all(served.iter().map(Opened::view_worked)).await;
        arrays.iter_mut().for_each(|array| self.name_local_ways(&mut array.volumes));
        let Nanos(now) = self.world.rt.now();
        Look {
            program: self.program.clone(),
            began_at: self.began_at,
            status: Arrays { arrays, absent: self.absent(), ..self.of_server() },
            at_millis: now / 1_000_000,
            registry: self.world.registry.clone(),
            clients: self.clients(None, None),
            placement: self.placement(),
            cores: self.cores().await,
        }
    }

    /// What the server says of itself, without arrays.
    fn of_server(&self) -> Arrays {
        let rt = &self.world.rt;
        Arrays {
            version: VERSION,
            served: true,
            nbd: self.nbd.borrow().clone(),
            nvme: self.nvme.borrow().clone(),
            guests: self.guests.directory().map(|directory| directory.display().to_string()),
            buffers: Some(buffers()),
            linger_us: Some(rt.linger().as_micros() as u64),
            congestion: Some(rt.congestion().to_string()),
            spares: self.spares.left(),
            alarms: self.own_alarms(),
            ..Arrays::default()
        }
    }

    /// Standing alarms that are of no array.
    fn own_alarms(&self) -> Vec<AlarmView> {
        let closed = self.closed.alarms(self.front.as_ref().and_then(|front| front.problem()));
        self.nbd_is_open()
            .into_iter()
            .map(nbd_alarm)
            .chain(self.guests_alarm())
            .chain(closed)
            .chain(self.hooks.alarms())
            .chain(self.target_alarm())
            .collect()
    }

    /// Each core, this one first. One that has ended says nothing.
    async fn cores(&self) -> Vec<Option<CoreLook>> {
        let cores = &self.world.cores;
        let others = (0..cores.count()).map(|core| cores.submit(core, async move |core| core_look(&core.rt)));
        let others = join_all(others).await;
        [Some(core_look(&self.world.rt))].into_iter().chain(others).collect()
    }
}

/// The calling core.
fn core_look(rt: &Rt) -> CoreLook {
    let lengths = rt.turn_lengths();
    let turns = HistogramView { counts: lengths.counts, nanos: lengths.nanos };
    CoreLook { busy: rt.cpu_time(), buffers: buffers(), turns }
}

/// An NBD export that is open to others, as a standing alarm.
fn nbd_alarm(what: String) -> AlarmView {
    let todo = "Serve NBD on loopback or a Unix socket, or use NVMe/TCP, which can restrict hosts";
    AlarmView {
        code: "nbd_open".to_owned(),
        severity: Severity::Warning,
        seat: None,
        what,
        todo: todo.to_owned(),
        acknowledged: None,
    }
}

/// Freed buffers that the calling thread keeps.
fn buffers() -> Buffers {
    let rt::buf::KeptBuffers { bytes, bytes_max, hits, misses } = rt::buf::kept();
    Buffers { bytes, bytes_max, hits, misses }
}
