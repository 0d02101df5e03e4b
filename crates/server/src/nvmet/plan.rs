//! What the kernel's target shall have, made of what is listed and of how arrays stand.
//!
//! ```text
//!   array                          in the plan
//!   served, exports listed         a subsystem; volumes that have their device are namespaces, others are left as they are
//!   being stopped by a verb        gone, until it is served again
//!   not served (yet)               nothing: the kernel's tree is left alone
//!   unknown on this machine        gone
//! ```
//!
//! Invariant: what waits is neither made nor removed.
//!
//! Not here: the kernel's side ([`super::tree`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::address::Address;
use crate::subsystem::{nqn, serial};

/// Characters of the kernel's `attr_model`. NVMe Base 2.0, 5.17.2.1, MN.
const MODEL_MAX: usize = 40;

/// A volume at an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    /// The array.
    pub array: Uuid,
    /// The volume.
    pub volume: Uuid,
    /// Where.
    pub at: Address,
    /// The number of the kernel's port there.
    pub port: u16,
}

impl Export {
    /// What it is, whatever number its port has.
    #[must_use]
    pub fn key(&self) -> Key {
        (self.volume, self.at.clone())
    }
}

/// A volume and an address.
pub type Key = (Uuid, Address);

/// Numbers of volumes, and the devices of those that have one.
pub type Volumes = BTreeMap<Uuid, (u32, Option<PathBuf>)>;

/// How an array stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArrayNow {
    /// It is served.
    Served {
        /// Its name.
        name: String,
        /// Hosts that may use it.
        hosts: Vec<String>,
        /// Its volumes.
        volumes: Volumes,
        /// Whether devices that are not there are waited for before hosts find it again.
        patient: bool,
    },
    /// It is not, and may be.
    Waiting,
    /// It is being stopped by a verb, or nobody knows it any more; devices of it that are served.
    Ending(BTreeSet<PathBuf>),
}

/// What the kernel's target shall have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Subsystems that shall be there.
    pub subsystems: Vec<Wanted>,
    /// Names of those that shall not.
    pub gone: Vec<String>,
    /// Ports that shall be there.
    pub ports: Vec<Port>,
    /// Those that shall not.
    pub ports_gone: Vec<Port>,
    /// Devices that are served: what is done with others may wait in the kernel for ever.
    pub served: BTreeSet<PathBuf>,
}

/// An array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Its qualified name.
    pub nqn: String,
    /// Its serial number.
    pub serial: String,
    /// Its model.
    pub model: String,
    /// Hosts that may use it.
    pub hosts: Vec<String>,
    /// Its volumes.
    pub namespaces: Vec<Namespace>,
    /// Numbers of its ports.
    pub ports: BTreeSet<u16>,
    /// Whether it comes to no port that it is not at: a host that finds it without a namespace forgets that namespace.
    pub hold: bool,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Its number.
    pub nsid: u32,
    /// Its identity.
    pub uuid: Uuid,
    /// Its device; without one it is left as it is.
    pub device: Option<PathBuf>,
    /// Whether its size has changed.
    pub resized: bool,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Its number.
    pub number: u16,
    /// Its address.
    pub at: Address,
}

/// The plan for what is listed. `ending`: exports that are being taken away; `resized`: volumes.
pub fn plan(
    listed: &[Export],
    ending: &BTreeSet<Key>,
    resized: &BTreeSet<Uuid>,
    now: impl Fn(Uuid) -> ArrayNow,
) -> Plan {
    let mut plan = Plan::default();
    let mut kept: BTreeMap<u16, Address> = BTreeMap::new();
    let arrays: BTreeSet<Uuid> = listed.iter().map(|export| export.array).collect();
    for array in arrays {
        let stays = |export: &&Export| export.array == array && !ending.contains(&export.key());
        let exports: Vec<&Export> = listed.iter().filter(stays).collect();
        let mut keep = || kept.extend(exports.iter().map(|export| (export.port, export.at.clone())));
        match now(array) {
            ArrayNow::Served { name, hosts, volumes, patient } => {
                plan.served.extend(volumes.values().filter_map(|(_, device)| device.clone()));
                if exports.is_empty() {
                    plan.gone.push(nqn(array));
                    continue;
                }
                keep();
                let ports = exports.iter().map(|export| (export.port, export.at.clone()));
                let wanted = wanted(array, &name, hosts, (&exports, &volumes), (resized, patient));
                plan.ports.extend(ports.map(|(number, at)| Port { number, at }));
                plan.subsystems.push(wanted);
            }
            ArrayNow::Waiting => keep(),
            ArrayNow::Ending(devices) => {
                plan.served.extend(devices);
                plan.gone.push(nqn(array));
            }
        }
    }
    plan.ports.sort_by_key(|port| port.number);
    plan.ports.dedup();
    let mut gone: BTreeMap<u16, Address> = listed.iter().map(|export| (export.port, export.at.clone())).collect();
    gone.retain(|number, _| !kept.contains_key(number));
    plan.ports_gone = gone.into_iter().map(|(number, at)| Port { number, at }).collect();
    plan
}

fn wanted(
    array: Uuid,
    name: &str,
    mut hosts: Vec<String>,
    (exports, volumes): (&[&Export], &Volumes),
    (resized, patient): (&BTreeSet<Uuid>, bool),
) -> Wanted {
    let exported: BTreeSet<Uuid> = exports.iter().map(|export| export.volume).collect();
    let namespace = |uuid: Uuid| {
        // A volume that was deleted has no number.
        let (nsid, device) = volumes.get(&uuid)?.clone();
        Some(Namespace { nsid, uuid, device, resized: resized.contains(&uuid) })
    };
    let namespaces: Vec<Namespace> = exported.into_iter().filter_map(namespace).collect();
    // A name is a directory of the kernel's tree.
    hosts.retain(|host| !host.contains('/'));
    hosts.sort();
    hosts.dedup();
    Wanted {
        nqn: nqn(array),
        serial: serial(array),
        model: model(name),
        hosts,
        hold: patient && namespaces.iter().any(|namespace| namespace.device.is_none()),
        namespaces,
        ports: exports.iter().map(|export| export.port).collect(),
    }
}

/// The model of an array, cut where the kernel would refuse it.
fn model(name: &str) -> String {
    let all = format!("Ashlar {name}");
    all.chars().filter(char::is_ascii).take(MODEL_MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const RDMA: &str = "rdma:10.0.0.5:4420";
    const TCP: &str = "tcp:10.0.0.5:4420";

    fn export(array: u128, volume: u128, at: &str, port: u16) -> Export {
        Export { array: Uuid::from_u128(array), volume: Uuid::from_u128(volume), at: at.parse().unwrap(), port }
    }

    fn served(volumes: &[(u128, u32, Option<&str>)]) -> ArrayNow {
        let one = |v: &(u128, u32, Option<&str>)| (Uuid::from_u128(v.0), (v.1, v.2.map(PathBuf::from)));
        let (name, hosts) = ("a".to_owned(), vec!["nqn.h".to_owned()]);
        ArrayNow::Served { name, hosts, volumes: volumes.iter().map(one).collect(), patient: true }
    }

    #[test]
    fn what_waits_is_neither_made_nor_removed() {
        let listed = [export(1, 10, RDMA, 7), export(2, 20, RDMA, 7), export(3, 30, TCP, 8)];
        let now = |array: Uuid| match array.as_u128() {
            1 => served(&[(10, 1, Some("/dev/ublkb0"))]),
            2 => ArrayNow::Waiting,
            _ => ArrayNow::Ending([PathBuf::from("/dev/ublkb3")].into()),
        };
        let made = plan(&listed, &BTreeSet::new(), &BTreeSet::new(), now);
        assert_eq!(made.subsystems.iter().map(|s| &s.nqn).collect::<Vec<_>>(), [&nqn(Uuid::from_u128(1))]);
        assert_eq!(made.gone, [nqn(Uuid::from_u128(3))]);
        assert_eq!(made.ports, [Port { number: 7, at: RDMA.parse().unwrap() }]);
        assert_eq!(made.ports_gone, [Port { number: 8, at: TCP.parse().unwrap() }]);
        assert!(made.served.contains(Path::new("/dev/ublkb3")), "it may be let go of");
        let waiting = plan(&listed, &BTreeSet::new(), &BTreeSet::new(), |_| ArrayNow::Waiting);
        assert_eq!(waiting, Plan::default());
    }

    #[test]
    fn an_export_that_is_taken_away_leaves_what_others_need() {
        let listed = [export(1, 10, RDMA, 7), export(1, 11, RDMA, 7), export(1, 10, TCP, 8)];
        let now = |_| served(&[(10, 1, Some("/dev/ublkb0")), (11, 2, Some("/dev/ublkb1"))]);
        let of = |ending: &[usize]| {
            let ending = ending.iter().map(|at| listed[*at].key()).collect();
            plan(&listed, &ending, &BTreeSet::new(), now)
        };
        let without = of(&[2]);
        assert_eq!((without.subsystems[0].namespaces.len(), without.ports.len()), (2, 1));
        assert_eq!(without.ports_gone.iter().map(|port| port.number).collect::<Vec<_>>(), [8]);
        let without = of(&[1]);
        assert_eq!(without.subsystems[0].namespaces.iter().map(|n| n.nsid).collect::<Vec<_>>(), [1]);
        assert!(without.ports_gone.is_empty());
        let none = of(&[0, 1, 2]);
        assert_eq!((none.subsystems.len(), none.gone.len(), none.ports_gone.len()), (0, 1, 2));
        assert_eq!(none.served.len(), 2, "devices that are served may be let go of");
    }

    #[test]
    fn a_volume_without_its_device_waits_and_one_that_is_gone_does_not() {
        let listed = [export(1, 10, RDMA, 7), export(1, 11, RDMA, 7), export(1, 12, RDMA, 7)];
        let now = |_| served(&[(10, 1, Some("/dev/ublkb0")), (11, 2, None)]);
        let made = plan(&listed, &BTreeSet::new(), &BTreeSet::new(), now);
        let namespaces: Vec<_> = made.subsystems[0].namespaces.iter().map(|n| (n.nsid, n.device.is_some())).collect();
        assert_eq!(namespaces, [(1, true), (2, false)]);
        assert!(made.subsystems[0].hold, "hosts that come now would forget the second");
    }

    #[test]
    fn models_are_cut() {
        let long = model(&"x".repeat(60));
        assert_eq!((long.len(), model("fast").as_str()), (40, "Ashlar fast"));
        assert_eq!(serial(Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef)), "0123456789abcdef0123");
    }
}
