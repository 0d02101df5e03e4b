//! Volumes of arrays in parts, as the connections of a core beside the first core reach them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::rc::Rc;

use api::CreateRequest;
use array::Limits;
use export::{Directory, Fault, Namespace, remote};
use futures::channel::oneshot;
use rt::{Buf, Bytes, Rt, Ways};
use server::config::Linger;
use server::cores::{Core, Cores, OtherCores};
use server::memory::Memory;
use server::namespace::{All, Served};
use server::ops::open::{self, How, Opened};
use server::ops::{World, create};
use server::registry::Registry;
use server::routing::{RoutedDirectory, RoutedVolume};

const STRIPE: u64 = array::parts::STRIPE_BYTES;
const VOLUME_BYTES: u64 = 48 << 20;

/// An array in parts on files, served by the calling thread and two more cores.
struct Scene {
    _dir: tempfile::TempDir,
    world: World,
    served: Served,
    cores: Cores,
}

impl Scene {
    async fn of_parts(rt: &Rt, parts: u8) -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: String| dir.path().canonicalize().unwrap().join(name);
        let (cores, _) = Cores::start(rt, 2, Ways::default(), Linger::default(), Memory::default()).await.unwrap();
        let world = World {
            rt: rt.clone(),
            registry: Registry::at(path("state".into())),
            cores: cores.to(),
            reserve: false,
            discard: array::Discard::Auto,
        };
        let drives = (0..4).map(|n| {
            let path = path(format!("d{n}"));
            File::create(&path).unwrap().set_len(1 << 30).unwrap();
            path.display().to_string()
        });
        let request = CreateRequest {
            name: "lab".into(),
            raid: "5".into(),
            drives: drives.collect(),
            zone_bytes: Some(1 << 20),
            parts,
            ..CreateRequest::default()
        };
        let (opened, _) = create::run(&world, &request, create::Host::Server).await.unwrap();
        opened.array.volume_create("v", VOLUME_BYTES).await.unwrap();
        let served = Rc::new(RefCell::new(BTreeMap::from([("lab".to_owned(), opened)])));
        Scene { _dir: dir, world, served, cores }
    }

    fn opened(&self) -> Opened {
        self.served.borrow()["lab"].clone()
    }

    /// The volume as the first core has it.
    async fn here(&self) -> impl Namespace {
        self.all().open("lab/v").await.unwrap()
    }

    fn all(&self) -> All {
        All { served: self.served.clone(), direct: Rc::new([]) }
    }

    /// What `work` says of the volume on another core, which has it open as a connection there has.
    async fn on_core<T, F>(&self, core: usize, work: impl FnOnce(Core, RoutedVolume) -> F + Send + 'static) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let (far, near) = remote::way(&self.world.rt);
        let serving = far.serve(&self.world.rt, self.all());
        let said = self.world.cores.submit(core, async move |core: Core| {
            let near = RoutedDirectory { data_core: near.connect(&core.rt), routes: core.routes.clone() };
            let volume = near.open("lab/v").await.unwrap();
            work(core, volume).await
        });
        let answer = said.await.unwrap();
        serving.cancel();
        answer
    }

    async fn end(self) {
        let opened = self.served.borrow_mut().remove("lab").unwrap();
        opened.close(&self.world).await.unwrap();
        self.cores.join();
    }
}

fn filled(byte: u8, bytes: u64) -> Bytes {
    let mut data = Buf::zeroed(bytes as usize);
    data.iter_mut().for_each(|b| *b = byte);
    data.freeze()
}

fn joined(parts: Vec<Bytes>) -> Vec<u8> {
    parts.iter().flat_map(|part| part.iter().copied()).collect()
}

#[test]
fn a_volume_in_parts_is_a_namespace_on_every_core() {
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        // Parts 0 and 3 on the first core, 1 on the first of the others, 2 on the second.
        let scene = Scene::of_parts(&rt, 4).await;
        for core in 0..2 {
            scene
                .on_core(core, async |_, volume: RoutedVolume| {
                    assert!(volume.is_near());
                    export::conformance::run(&volume).await;
                })
                .await;
        }
        scene.end().await;
    });
}

#[test]
fn all_cores_see_the_same_volume() {
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let scene = Scene::of_parts(&rt, 3).await;
        let here = scene.here().await;
        for (core, byte) in [(0, 1), (1, 2)] {
            scene
                .on_core(core, async move |_, volume: RoutedVolume| {
                    // Over two borders: a piece in each part.
                    volume.write(STRIPE / 2, filled(byte, 2 * STRIPE), false).await.unwrap();
                    volume.flush().await.unwrap();
                })
                .await;
            let read = joined(here.read(0, 3 << 20).await.unwrap());
            let (at, end) = ((STRIPE / 2) as usize, (STRIPE / 2 + 2 * STRIPE) as usize);
            assert!(read[..at].iter().all(|b| *b == 0) && read[at..end].iter().all(|b| *b == byte));
            assert!(read[end..].iter().all(|b| *b == 0));
        }
        here.write(STRIPE, filled(9, STRIPE), true).await.unwrap();
        let read =
            scene.on_core(1, async |_, volume: RoutedVolume| joined(volume.read(STRIPE, 4096).await.unwrap())).await;
        assert!(read.iter().all(|b| *b == 9));
        scene.end().await;
    });
}

#[test]
fn limits_are_asked_on_the_data_core() {
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let scene = Scene::of_parts(&rt, 2).await;
        let opened = scene.opened();
        for (iops, near) in [(100_000, false), (0, true)] {
            opened.array.volume_limit("v", Limits { iops, ..Limits::default() }).await.unwrap();
            server::parts::tell_limits(&scene.world.cores, &opened.array);
            assert_eq!(
                scene.on_core(0, async |_, volume: RoutedVolume| volume.is_near()).await,
                near,
                "{iops} a second"
            );
        }
        // One that was set before the array was opened.
        opened.array.volume_limit("v", Limits { iops: 10, ..Limits::default() }).await.unwrap();
        drop(opened);
        let opened = scene.served.borrow_mut().remove("lab").unwrap();
        reopen(&scene, opened).await;
        let began = rt.now();
        let near = scene
            .on_core(1, async |_, volume: RoutedVolume| {
                for _ in 0..4 {
                    volume.read(0, 4096).await.unwrap();
                }
                volume.is_near()
            })
            .await;
        assert!(!near && (rt.now() - began).as_millis() >= 290, "four at ten a second");
        scene.end().await;
    });
}

/// Closes the array and opens it again.
async fn reopen(scene: &Scene, opened: Opened) {
    let drives = opened.drives();
    let names: Vec<String> = drives.iter().map(|d| d.info().name.clone()).collect();
    drop(drives);
    opened.close(&scene.world).await.unwrap();
    let how = rt::OpenDrive { read_only: false, lock: true };
    let mut drives = vec![];
    for name in names {
        drives.push(rt::Drive::open(&scene.world.rt, name.as_ref(), how).await.unwrap());
    }
    let opened = open::open(&scene.world, drives, How::default(), vec![]).await.unwrap();
    scene.served.borrow_mut().insert("lab".into(), opened);
}

#[test]
fn a_closed_array_is_let_go_of() {
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let scene = Scene::of_parts(&rt, 3).await;
        let (opened, is_open) = oneshot::channel();
        let (closed, is_closed) = oneshot::channel();
        // A connection that stays, with a request now and then.
        let stays = scene.on_core(0, move |_, volume: RoutedVolume| async move {
            volume.write(0, filled(7, 3 * STRIPE), true).await.unwrap();
            opened.send(()).unwrap();
            is_closed.await.unwrap();
            let mut answers = vec![];
            for stripe in 0..3 {
                answers.push(volume.read(stripe * STRIPE, 4096).await.err());
            }
            answers
        });
        let closes = async {
            is_open.await.unwrap();
            let array = scene.served.borrow_mut().remove("lab").unwrap();
            // The locks of its drives can be had at once, though the connection stays.
            reopen(&scene, array).await;
            closed.send(()).unwrap();
        };
        let (answers, ()) = futures::join!(stays, closes);
        assert_eq!(answers, [Some(Fault::Gone); 3]);
        // One that comes afterwards has it near again.
        let read = scene.on_core(1, async |_, volume: RoutedVolume| {
            assert!(volume.is_near());
            joined(volume.read(STRIPE, 4096).await.unwrap())
        });
        assert!(read.await.iter().all(|b| *b == 7));
        scene.end().await;
    });
}

#[test]
fn an_array_in_one_piece_is_asked_by_the_data_core() {
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let scene = Scene::of_parts(&rt, 1).await;
        let near = scene.on_core(0, async |_, volume: RoutedVolume| {
            volume.write(0, filled(3, 4096), false).await.unwrap();
            volume.is_near()
        });
        assert!(!near.await);
        assert_eq!(scene.world.cores.count(), 2);
        assert_eq!(OtherCores::default().count(), 0);
        scene.end().await;
    });
}
