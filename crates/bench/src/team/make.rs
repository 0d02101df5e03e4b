//! How a team comes by what it has: slices and handles of drives, parts of an array, ways between the cores.

use std::rc::Rc;
use std::sync::Arc;

use array::parts::{Job, Part, STRIPE_BYTES, create_by, slices_of, to_send};
use array::{CreateSpec, Refused, RefusedCode, Whole};
use export::remote::{self, FarEnd, NearEnd};
use export::{Directory, Either, Exports, Striped};
use futures::future::{join_all, try_join_all};
use rt::cross::submissions;
use rt::{Drive, DriveKind, Rt, SentDrive};
use volume::LocalVolume;

use super::core::Own;
use super::{Asks, Inner, Team};
use crate::drives::touch;
use crate::error::Error;
use crate::stripe::{Stripe, failed};
use crate::target::Target;

impl Team {
    /// So many cores with handles on the same drives, or with slices of memory drives, which hold nothing.
    ///
    /// # Errors
    /// When a thread cannot be had, or a drive cannot be used on it.
    pub async fn direct(rt: &Rt, drives: &[Drive], cores: usize) -> Result<Team, Error> {
        let mut team = Inner::start(rt, cores).await?;
        team.apart = drives.iter().any(is_memory);
        let mut of_cores: Vec<Vec<SentDrive>> = (0..cores).map(|_| vec![]).collect();
        for drive in drives {
            let handles = if team.apart { slices_of(drive, cores as u8)? } else { vec![drive.clone(); cores] };
            for (own, handle) in of_cores.iter_mut().zip(handles) {
                let cannot = |error| Error::NotSent { name: drive.info().name.clone(), error: Arc::new(error) };
                own.push(handle.to_send().map_err(cannot)?);
            }
        }
        let asked = team.cores.iter().zip(of_cores).map(|(core, sent)| {
            core.ask(|own| async move {
                let stripe = Stripe::new(arrived(&own.rt, sent).await?)?;
                own.target.replace(Some(Target::Direct(stripe)));
                Ok(())
            })
        });
        try_join_all(asked.collect::<Vec<_>>()).await?.into_iter().collect::<Result<(), Error>>()?;
        Ok(Team(Rc::new(team)))
    }

    /// So many cores with a part each of a new array, whatever the drives carried, and one volume of `volume_bytes`, rounded
    /// up to whole stripes. Memory drives hold nothing.
    ///
    /// # Errors
    /// When the level does not go with slices of the drives, a drive fails, or a thread cannot be had.
    pub async fn array(
        rt: &Rt,
        drives: &[Drive],
        spec: &CreateSpec,
        cores: usize,
        volume_bytes: u64,
        asks: Asks,
    ) -> Result<Team, Error> {
        let mut team = Inner::start(rt, cores).await?;
        team.apart = asks == Asks::Own;
        // Here and not by `create`: that writes to all, and memory that was written to cannot be sent.
        for drive in drives.iter().filter(|drive| !is_memory(drive)) {
            array::wipe(drive).await.map_err(|e| failed(drive, e))?;
        }
        let (spec, name) = (CreateSpec { force: false, ..spec.clone() }, &spec.name);
        let place = async |job: Job, slices| team.part(rt, job, slices).await;
        let mut parts = create_by(rt, drives.to_vec(), &spec, cores as u8, place).await?.into_iter();
        let Some(Part::Here(first)) = parts.next() else { unreachable!("the first part is on this core") };
        let whole = Whole::of(first.clone(), parts.collect()).await?;
        whole.volume_create(name, volume_bytes).await?;
        let tag = first.volume(name).expect("it was made just now").uuid().to_string();
        team.whole = Some(whole);
        let met = team.cores.iter().zip(ways(rt, cores)).enumerate().map(|(core, (asked, ways))| {
            // The volume is called otherwise in the first part.
            let name = if core == 0 { name.clone() } else { tag.clone() };
            asked.ask(move |own| async move { own.meet(&name, ways, asks).await })
        });
        try_join_all(met.collect::<Vec<_>>()).await?.into_iter().collect::<Result<(), Error>>()?;
        Ok(Team(Rc::new(team)))
    }
}

impl Inner {
    /// Makes a part on the core that is to have it.
    async fn part(&self, rt: &Rt, job: Job, slices: Vec<Drive>) -> Result<Part, Refused> {
        let part = job.part();
        let slices = slices.iter().map(to_send).collect::<Result<Vec<_>, _>>()?;
        let (there, end) = submissions(rt);
        let made = self.cores[usize::from(part.index)].ask(move |own| async move {
            let io = |error: Error| Refused::new(RefusedCode::Io, "a slice", error.to_string(), "Look at the drive");
            let array = job.run(&own.rt, arrived(&own.rt, slices).await.map_err(io)?).await?;
            // What an array takes in memory its parts divide, as in a server.
            let memory = array.status();
            array.set_map_memory(memory.map_memory_bytes_max / u64::from(part.of));
            array.set_memtable_memory(memory.memtable_bytes_max / u64::from(part.of));
            own.part.replace(Some(array.clone()));
            if part.index > 0 {
                let rt = own.rt.clone();
                own.rt.spawn(async move { end.serve(&rt, array).await }).detach();
            }
            Ok::<(), Refused>(())
        });
        let ended = |ended: Error| Refused::new(RefusedCode::Io, "its core", ended.to_string(), "Measure on one core");
        made.await.map_err(ended)??;
        Ok(if part.index == 0 { Part::Here(self.own.array()) } else { Part::There(there) })
    }
}

impl Own {
    fn array(&self) -> array::Array {
        self.part.borrow().clone().expect("its part was made")
    }

    /// Serves what it has of a volume to the other cores, and finds what they have.
    async fn meet(&self, name: &str, ways: Ways, asks: Asks) -> Result<(), Error> {
        let own = Either::Left(LocalVolume(self.array().volume(name).ok_or(Error::CoreEnded)?));
        let exports = Exports::new([own.clone()]);
        self.serving.borrow_mut().extend(ways.far.into_iter().map(|end| end.serve(&self.rt, exports.clone())));
        let mut parts = vec![];
        for end in ways.near {
            match end {
                None => parts.push(own.clone()),
                Some(_) if asks == Asks::Own => {}
                // It has one only.
                Some(end) => {
                    let there = end.connect(&self.rt).open("").await;
                    parts.push(Either::Right(there.ok_or(Error::CoreEnded)?));
                }
            }
        }
        self.target.replace(Some(Target::Parts(Striped::new(parts, STRIPE_BYTES))));
        Ok(())
    }
}

/// The ways from one core to the others, and from the others to it.
struct Ways {
    /// In the order of the cores; none to itself.
    near: Vec<Option<NearEnd>>,
    far: Vec<FarEnd>,
}

fn ways(rt: &Rt, cores: usize) -> Vec<Ways> {
    let mut all: Vec<Ways> = (0..cores).map(|_| Ways { near: vec![], far: vec![] }).collect();
    for from in 0..cores {
        for to in 0..cores {
            let near = (from != to).then(|| {
                let (far, near) = remote::way(rt);
                all[to].far.push(far);
                near
            });
            all[from].near.push(near);
        }
    }
    all
}

/// The drives on their core; memory is taken from the kernel there.
async fn arrived(rt: &Rt, sent: Vec<SentDrive>) -> Result<Vec<Drive>, Error> {
    let drives = join_all(sent.into_iter().map(|drive| drive.arrive(rt))).await;
    for drive in drives.iter().filter(|drive| is_memory(drive)) {
        touch(drive).await?;
    }
    Ok(drives)
}

fn is_memory(drive: &Drive) -> bool {
    drive.info().kind == DriveKind::Memory
}
