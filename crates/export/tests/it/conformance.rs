//! The conformance suite on every back end, and on one seen through each protocol's server and client.

use crate::support::{
    Puppet, World,
    nvme::{RemoteDisk, Target, in_every_way},
};
use export::{
    Answer, Fault, Memory, Namespace, NamespaceInfo, Null, Request, conformance,
    nbd::{
        Errno,
        client::{Client, Error, Wishes, Zeroes},
    },
};
use rt::{Bytes, Rt};

fn read_only_info() -> NamespaceInfo {
    NamespaceInfo { read_only: true, ..Memory::new("ro", 16 << 20).info() }
}

#[test]
fn memory() {
    let rt = Rt::modelled(1);
    rt.block_on(conformance::run(&Memory::new("vol", (40 << 20) + 512)));
}

#[test]
fn memory_read_only() {
    let rt = Rt::modelled(1);
    rt.block_on(conformance::run_read_only(&Memory::with_info(read_only_info())));
}

#[test]
fn null() {
    let rt = Rt::modelled(1);
    rt.block_on(conformance::run_without_contents(&Null::new("vol", 1 << 50)));
}

#[test]
fn memory_gives_its_pages_back() {
    let rt = Rt::modelled(1);
    rt.block_on(async {
        let memory = Memory::new("vol", 1 << 40);
        memory.write(1 << 39, Bytes::zeroed(1 << 20), false).await.unwrap();
        assert_eq!(memory.bytes_allocated(), 1 << 20);
        memory.deallocate(1 << 39, 1 << 20, false).await.unwrap();
        assert_eq!(memory.bytes_allocated(), 0);
        memory.write_zeroes(0, 64 << 10, false, false).await.unwrap();
        assert_eq!(memory.bytes_allocated(), 64 << 10, "not deallocated when asked not to");
    });
}

/// An export seen through a client, as a namespace.
#[derive(Clone)]
struct Remote(Client);

impl Remote {
    fn fault(error: &Error) -> Fault {
        match error {
            Error::Failed { errno: Errno::NoSpace, .. } => Fault::NoSpace,
            Error::Failed { errno: Errno::Perm, .. } => Fault::ReadOnly,
            Error::Failed { errno: Errno::Io, .. } => Fault::Medium,
            other => panic!("unexpected: {other}"),
        }
    }

    /// What the protocol cannot tell apart: a range beyond the end has the same error as other things.
    fn range(&self, offset: u64, bytes: u64) -> Result<u32, Fault> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.0.export().bytes => Ok(u32::try_from(bytes).unwrap()),
            _ => Err(Fault::OutOfRange),
        }
    }
}

impl Namespace for Remote {
    fn info(&self) -> NamespaceInfo {
        let export = self.0.export();
        let [min_block, preferred_block, max_request] = export.block_sizes.unwrap_or([512, 4096, 32 << 20]);
        NamespaceInfo {
            name: export.name.clone(),
            uuid: NamespaceInfo::uuid_of_name(&export.name),
            bytes: export.bytes,
            min_block,
            preferred_block,
            max_request,
            read_only: export.is_read_only(),
            volatile_cache: true,
            description: export.description.clone(),
        }
    }

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        let Remote(client) = self;
        let done = match request {
            Request::Read { offset, bytes } => {
                self.range(offset, u64::from(bytes))?;
                client.read(offset, bytes).await.map(|data| Answer::Data(vec![data]))
            }
            Request::Write { offset, data, fua } => {
                self.range(offset, data.len() as u64)?;
                client.write(offset, data, fua).await.map(|()| Answer::Done)
            }
            Request::Flush => client.flush().await.map(|()| Answer::Done),
            Request::WriteZeroes { offset, bytes, may_deallocate, fua } => {
                let how = Zeroes { no_hole: !may_deallocate, fua, fast: false };
                client.write_zeroes(offset, self.range(offset, bytes)?, how).await.map(|()| Answer::Done)
            }
            Request::Deallocate { offset, bytes, fua } => {
                client.trim(offset, self.range(offset, bytes)?, fua).await.map(|()| Answer::Done)
            }
            Request::Extents { offset, bytes, at_most } => {
                let bytes = self.range(offset, bytes)?;
                client.block_status(offset, bytes, at_most == 1).await.map(|mut extents| {
                    extents.truncate(at_most);
                    Answer::Extents(extents)
                })
            }
        };
        done.map_err(|e| Remote::fault(&e))
    }
}

#[test]
fn memory_through_nbd() {
    let world = World::new([Puppet::new("vol", (40 << 20) + 512)]);
    world.rt.block_on(async {
        conformance::run(&Remote(world.client("vol").await)).await;
    });
}

#[test]
fn memory_through_nbd_with_simple_replies() {
    let world = World::new([Memory::new("vol", 40 << 20)]);
    world.rt.block_on(async {
        let wishes = Wishes { structured: false, allocation: false, go: false };
        let remote = Remote(world.client_with("vol", wishes).await);
        let data = crate::support::pattern(1, 5 << 20);
        remote.write(512, data.clone(), true).await.unwrap();
        assert!(remote.read(512, 5 << 20).await.unwrap()[0] == data);
        remote.write_zeroes(1024, 4096, true, false).await.unwrap();
        assert!(remote.read(1024, 4096).await.unwrap()[0].iter().all(|b| *b == 0));
    });
}

#[test]
fn read_only_through_nbd() {
    let world = World::new([Memory::with_info(read_only_info())]);
    world.rt.block_on(async {
        conformance::run_read_only(&Remote(world.client("ro").await)).await;
    });
}

#[test]
fn null_through_nbd() {
    let world = World::new([Null::new("vol", 1 << 50)]);
    world.rt.block_on(async {
        conformance::run_without_contents(&Remote(world.client("vol").await)).await;
    });
}

#[test]
fn memory_through_nvme() {
    for (wishes, way) in in_every_way().into_iter().flat_map(|w| crate::support::nvme::WAYS.map(|way| (w.clone(), way)))
    {
        let target = Target::with(Puppet::new("vol", (40 << 20) + 512), export::nvme::Access::Any, way);
        target.rt.clone().block_on(async {
            conformance::run(&RemoteDisk::connect(&target, 2, &wishes).await).await;
        });
    }
}

#[test]
fn read_only_through_nvme() {
    for way in crate::support::nvme::WAYS {
        let target = Target::with(Puppet::from(Memory::with_info(read_only_info())), export::nvme::Access::Any, way);
        target.rt.clone().block_on(async {
            let remote = RemoteDisk::connect(&target, 1, &target.wishes()).await;
            conformance::run_read_only(&remote).await;
        });
    }
}
