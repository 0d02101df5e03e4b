//! Controllers whose hosts say nothing, of a subsystem of many namespaces, over loopback.

use std::{cell::Cell, collections::BTreeMap, rc::Rc, time::Duration};

use crate::support::{Puppet, nvme::NQN};
use export::{
    Memory, Namespace,
    nvme::{
        Access, Health, Mark, Server, Subsystem, SubsystemList, Subsystems,
        client::{Host, Wishes},
        event_config, feature_id, log,
    },
};
use rt::{Bytes, Rt};

/// How many hosts there are, and how many namespaces.
const HOSTS: u16 = 8;
const NAMESPACES: u32 = 200;

/// Long enough for several looks of a server that looks at all again and again.
const WHILE: Duration = Duration::from_millis(1600);

/// A list that counts how often its namespaces are looked at.
#[derive(Clone, Default)]
struct Counting {
    list: SubsystemList<Puppet>,
    looks: Rc<Cell<u64>>,
}

impl Subsystems for Counting {
    type N = Puppet;

    fn all(&self) -> Vec<Subsystem> {
        self.list.all()
    }

    fn namespaces(&self, nqn: &str) -> BTreeMap<u32, Puppet> {
        self.looks.set(self.looks.get() + 1);
        self.list.namespaces(nqn)
    }

    fn mark(&self, nqn: &str) -> Mark {
        self.list.mark(nqn)
    }
}

#[test]
fn idle_controllers_look_at_nothing_and_share_one_look_at_what_changes() {
    let rt = Rt::real().unwrap();
    let all = Counting::default();
    all.list.add(NQN, Access::Any);
    let add = |nsid: u32| all.list.attach(NQN, nsid, Puppet::from(Memory::new(&format!("vol{nsid}"), 1 << 20)));
    (1..=NAMESPACES).for_each(add);
    let any_port = "tcp:127.0.0.1:0".parse().unwrap();
    let server = Server::start(&rt, all.clone(), std::slice::from_ref(&any_port), &[]).unwrap();
    let address = server.local_addrs()[0].clone();
    rt.block_on(async {
        let mut hosts = vec![];
        for number in 0..HOSTS {
            let wishes = Wishes { host: format!("nqn.2014-08.org.x:h{number}"), ..Wishes::default() };
            let host = Host::connect(&rt, &address, NQN, 1, &wishes).await.unwrap();
            host.set_feature(feature_id::EVENTS, event_config::NAMESPACES | 0xff).await.unwrap();
            hosts.push(host);
        }
        assert_eq!(all.looks.get(), 1, "all controllers share one look");
        rt.sleep(WHILE).await;
        assert_eq!(all.looks.get(), 1, "nothing has changed");

        // What comes is looked at once, and every host is told.
        let events: Vec<_> = hosts.iter().map(Host::request_event).collect();
        add(NAMESPACES + 1);
        for event in events {
            assert_eq!(event.completion().await.unwrap().cqe.result, 0x0004_0002);
        }
        assert_eq!(all.looks.get(), 2);
        for host in &hosts {
            let page = host.log(log::CHANGED_NAMESPACES, 0, 4096).await.unwrap().data;
            assert_eq!(page[..4], (NAMESPACES + 1).to_le_bytes());
            assert_eq!(host.namespaces().await.unwrap().len() as u32, NAMESPACES + 1);
            let disk = host.disk(NAMESPACES + 1).await.unwrap();
            disk.write(0, Bytes::zeroed(4096), false).await.unwrap();
        }
        // A change of health alone is told without a look.
        let events: Vec<_> = hosts.iter().map(Host::request_event).collect();
        all.list.set_health(NQN, Health { degraded: true, frozen: false });
        for event in events {
            assert_eq!(event.completion().await.unwrap().cqe.result, 0x0002_0001);
        }
        rt.sleep(WHILE).await;
        assert_eq!(all.looks.get(), 2);
        // A host that comes sees what there is at that moment.
        all.list.detach(NQN, 1);
        let late = Host::connect(&rt, &address, NQN, 1, &Wishes::default()).await.unwrap();
        assert_eq!(late.namespaces().await.unwrap().len() as u32, NAMESPACES);
        assert_eq!(all.looks.get(), 3);
    });
}

#[test]
fn a_namespace_of_another_kind_under_its_old_number_serves_at_once() {
    crate::support::nvme::with_target(async |target| {
        let (host, disk) = target.disk().await;
        disk.write(0, Bytes::from_slice(&[7; 4096]), false).await.unwrap();
        // The same size and identity, but opened anew: nothing is told, and requests go there.
        let anew = Puppet::from(Memory::with_info(target.puppet.info()));
        target.list.attach(NQN, 1, anew);
        target.rt.sleep(WHILE).await;
        assert_eq!(disk.read(0, 4096).await.unwrap()[..], [0; 4096]);
        drop(host);
    });
}
