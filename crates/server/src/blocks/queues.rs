//! Which cores serve the queues of a block device: the first core, and those that have a part of its array.
//!
//! Not here: what a queue does (`export::ublk`).

use std::collections::BTreeSet;
use std::rc::Rc;

use export::remote;
use export::ublk::{Elsewhere, QueueFor};
use export::{Directory, Exports, Namespace};
use futures::FutureExt;

use crate::cores::Core;
use crate::namespace::VolumeNamespace;
use crate::ops::World;
use crate::ops::open::Opened;
use crate::routing::RoutedDirectory;

/// The cores beside the first one that have a part of the array.
pub fn elsewhere(world: &World, opened: &Opened, volume: &VolumeNamespace) -> Vec<Elsewhere> {
    let others = 1..=opened.array.others().len();
    let cores: BTreeSet<usize> = others.filter_map(|part| world.cores.of_part(part as u8)).collect();
    cores.into_iter().map(|core| on(core, world, volume)).collect()
}

/// A queue on this core: the volume's parts by the nearest way, and what is counted by the first core through that.
fn on(core: usize, world: &World, volume: &VolumeNamespace) -> Elsewhere {
    let (rt, cores, volume) = (world.rt.clone(), world.cores.clone(), volume.clone());
    Rc::new(move |queue: QueueFor| {
        let (far, near) = remote::way(&rt);
        far.serve(&rt, Exports::new([volume.apart()])).detach();
        let served = cores.submit(core, async move |Core { rt, routes }: Core| {
            let directory = RoutedDirectory { data_core: near.connect(&rt), routes };
            // Dropped, the queue says that it is not served.
            if let Some(volume) = directory.open("").await {
                queue.serve(&rt, &volume).await;
            }
        });
        served.map(drop).boxed_local()
    })
}
