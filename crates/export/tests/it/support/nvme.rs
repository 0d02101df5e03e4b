//! An NVMe/TCP server on loopback, with one subsystem of one namespace that can be held and broken.

use std::rc::Rc;

use export::{
    Answer, Extent, ExtentState, Fault, Namespace, NamespaceInfo, Request,
    nvme::{
        Access, Deal, Server, Status, SubsystemList,
        client::{Disk, Error, Host, Link, Wishes},
        digest::digest,
        limits::TRANSFER_BYTES_MAX,
        pdu::{Initialize, kind},
    },
};
use rt::{
    Rt,
    net::{Addr, Stream},
};

use super::{Puppet, Raw};

/// The subsystem.
pub const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:6ad2cbb1-2f38-4d26-9f3f-6c1e6d4f6a55";

/// Workers, and which I/O queues are dealt to them.
pub const WAYS: [(usize, Deal); 3] = [(0, Deal::ToOthers), (2, Deal::ToOthers), (2, Deal::ByLoad)];

/// A runtime, a server and where it listens.
pub struct Target {
    pub rt: Rt,
    pub list: SubsystemList<Puppet>,
    pub server: Rc<Server<SubsystemList<Puppet>>>,
    pub address: Addr,
    pub puppet: Puppet,
}

impl Target {
    /// A subsystem that every host may use, with this namespace as number 1.
    pub fn new(puppet: Puppet) -> Target {
        Target::with(puppet, Access::Any, (0, Deal::ToOthers))
    }

    /// With I/O queues dealt to so many workers, or with none; workers have no threads of their own here.
    pub fn with(puppet: Puppet, access: Access, (workers, deal): (usize, Deal)) -> Target {
        let rt = Rt::real().unwrap();
        let list = SubsystemList::default();
        list.add(NQN, access);
        list.attach(NQN, 1, puppet.clone());
        let any_port = "tcp:127.0.0.1:0".parse().unwrap();
        let any_port = std::slice::from_ref(&any_port);
        let (server, workers) = Server::dealing(&rt, list.clone(), any_port, &[], (workers, deal)).unwrap();
        let server = Rc::new(server);
        for worker in workers {
            let of_worker = rt.clone();
            rt.spawn(async move { worker.serve(&of_worker).await }).detach();
        }
        let address = server.local_addrs()[0].clone();
        Target { rt, list, server, address, puppet }
    }

    pub fn wishes(&self) -> Wishes {
        Wishes::default()
    }

    pub async fn host(&self, queues: u16) -> Host {
        self.host_with(queues, &Wishes::default()).await
    }

    pub async fn host_with(&self, queues: u16, wishes: &Wishes) -> Host {
        Host::connect(&self.rt, &self.address, NQN, queues, wishes).await.unwrap()
    }

    pub async fn disk(&self) -> (Host, Disk) {
        self.disk_with(&Wishes::default()).await
    }

    pub async fn disk_with(&self, wishes: &Wishes) -> (Host, Disk) {
        let host = self.host_with(1, wishes).await;
        let disk = host.disk(1).await.unwrap();
        (host, disk)
    }

    pub async fn admin(&self, wishes: &Wishes) -> Result<(Link, u16), Error> {
        Link::connect(&self.rt, &self.address, wishes, NQN, 0, None).await
    }

    /// A peer that speaks raw bytes.
    pub async fn raw(&self) -> Raw {
        Raw { stream: Stream::connect(&self.rt, &self.address).await.unwrap() }
    }

    /// One that has exchanged ICReq and ICResp.
    pub async fn raw_initialized(&self, digests: u8) -> Raw {
        let raw = self.raw().await;
        raw.send(&Initialize { version: 0, alignment: 0, digests, limit: 0 }.encode(kind::IC_REQ)).await;
        assert_eq!(raw.receive(128).await[0], kind::IC_RESP);
        raw
    }
}

/// Runs a test on a server with a puppet of 64 MiB: once with all connections on one thread, once with all I/O queues dealt,
/// once with all but one.
pub fn with_target(test: impl AsyncFn(Rc<Target>)) {
    for way in WAYS {
        let target = Rc::new(Target::with(Puppet::new("vol", 64 << 20), Access::Any, way));
        let rt = target.rt.clone();
        rt.block_on(test(target));
    }
}

/// Ways in which data can go: digests, alignment, R2Ts at once, data in capsules, flow control.
pub fn in_every_way() -> Vec<Wishes> {
    let plain = Wishes::default();
    vec![
        plain.clone(),
        Wishes { header_digest: true, data_digest: true, ..plain.clone() },
        Wishes { data_digest: true, r2ts: 4, flow_control: false, ..plain.clone() },
        Wishes { header_digest: true, in_capsule: false, alignment: 31, ..plain.clone() },
        Wishes { in_capsule: false, r2ts: 16, flow_control: false, alignment: 15, entries: 2, ..plain },
    ]
}

/// FES and FEI of the C2HTermReq that comes next, and the header that it carries; then the end.
pub async fn termination(raw: &Raw) -> (u16, u32, Vec<u8>) {
    let header = raw.receive(24).await;
    assert_eq!((header[0], header[2]), (kind::C2H_TERM_REQ, 24));
    let bytes = u32::from_le_bytes(header[4..8].try_into().unwrap());
    let rest = raw.receive(bytes as usize - 24).await;
    assert!(raw.is_closed().await, "a terminated connection is closed");
    let fes = u16::from_le_bytes([header[8], header[9]]);
    (fes, u32::from_le_bytes(header[10..14].try_into().unwrap()), rest)
}

/// A header with its digest.
pub fn with_digest(header: &[u8]) -> Vec<u8> {
    [header, &digest(header).to_le_bytes()].concat()
}

pub fn failed<T: std::fmt::Debug>(result: Result<T, Error>) -> Status {
    match result {
        Err(Error::Failed { status, .. }) => status,
        other => panic!("not refused: {other:?}"),
    }
}

/// A namespace seen through a host.
#[derive(Clone)]
pub struct RemoteDisk {
    disk: Disk,
    _host: Rc<Host>,
}

impl RemoteDisk {
    pub async fn connect(target: &Target, queues: u16, wishes: &Wishes) -> RemoteDisk {
        let host = target.host_with(queues, wishes).await;
        RemoteDisk { disk: host.disk(1).await.unwrap(), _host: Rc::new(host) }
    }
}

fn fault(error: Error) -> Fault {
    match error {
        Error::Failed { status: Status::LBA_OUT_OF_RANGE, .. } => Fault::OutOfRange,
        Error::Failed { status: Status::WRITE_PROTECTED, .. } => Fault::ReadOnly,
        Error::Failed { status: Status::CAPACITY_EXCEEDED, .. } => Fault::NoSpace,
        other => panic!("unexpected: {other}"),
    }
}

/// A range in pieces of the longest transfer.
fn pieces(offset: u64, bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let most = u64::from(TRANSFER_BYTES_MAX);
    (0..bytes.div_ceil(most)).map(move |i| (offset + i * most, most.min(bytes - i * most)))
}

impl Namespace for RemoteDisk {
    fn info(&self) -> NamespaceInfo {
        NamespaceInfo {
            name: "remote".to_owned(),
            uuid: NamespaceInfo::uuid_of_name("remote"),
            bytes: self.disk.bytes,
            min_block: self.disk.block,
            preferred_block: 4096,
            max_request: TRANSFER_BYTES_MAX,
            read_only: self.disk.read_only,
            volatile_cache: true,
            description: String::new(),
        }
    }

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        match request {
            Request::Read { offset, bytes } => {
                let mut parts = Vec::new();
                for (at, n) in pieces(offset, u64::from(bytes)) {
                    parts.push(self.disk.read(at, n as u32).await.map_err(fault)?);
                }
                return Ok(Answer::Data(parts));
            }
            Request::Write { offset, data, fua } => {
                for (at, n) in pieces(offset, data.len() as u64) {
                    let from = (at - offset) as usize;
                    self.disk.write(at, data.slice(from..from + n as usize), fua).await.map_err(fault)?;
                }
            }
            Request::Flush => self.disk.flush().await.map_err(fault)?,
            Request::WriteZeroes { offset, bytes, may_deallocate, fua } => {
                self.disk.write_zeroes(offset, bytes, may_deallocate, fua).await.map_err(fault)?;
            }
            Request::Deallocate { offset, bytes, .. } => {
                self.disk.deallocate(&[(offset, bytes)]).await.map_err(fault)?
            }
            // The protocol does not tell.
            Request::Extents { offset, bytes, .. } => match offset.checked_add(bytes) {
                Some(end) if end <= self.disk.bytes => {
                    return Ok(Answer::Extents(vec![Extent { bytes, state: ExtentState::Allocated }]));
                }
                _ => return Err(Fault::OutOfRange),
            },
        }
        Ok(Answer::Done)
    }
}
