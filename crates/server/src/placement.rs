//! Where the data core runs: on the node that most drives are attached to. What it touches first lies there, too, and the
//! kernel gives each core queues of a drive of its own.
//!
//! Not here: what sysfs says (`rt::topology`). Never measured: no machine with two nodes was at hand.

use std::path::Path;

use rt::topology::{Node, SYSFS, allowed_cpus, device_of, list, node_of, nodes, run_on};

use crate::view::{Placement, PlacementNode};

/// The machine, as it was when the server began.
#[derive(Debug)]
pub struct Machine {
    nodes: Vec<Node>,
    /// What the process was given: by taskset, systemd, a cpuset.
    allowed: Vec<u32>,
}

/// What was decided, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice {
    /// `None`: it runs wherever the process may.
    node: Option<u32>,
    cpus: Vec<u32>,
    why: String,
}

impl Machine {
    /// This one. To be asked before [`Machine::settle`].
    #[must_use]
    pub fn here() -> Machine {
        Machine { nodes: nodes(Path::new(SYSFS)), allowed: allowed_cpus() }
    }

    /// Brings the calling thread to where the plan for these drives wants it; the plan.
    #[must_use]
    pub fn settle(&self, drives: &[String]) -> Placement {
        let plan = self.plan(drives);
        if let Choice { node: Some(_), cpus, .. } = self.choose(&self.near(drives))
            && let Err(e) = run_on(&cpus)
        {
            tracing::warn!("placement: the data core stays where it is: {e}");
        }
        plan
    }

    /// The CPUs that the plan for these drives keeps to; none when it is any.
    #[must_use]
    pub fn cpus(&self, drives: &[String]) -> Option<Vec<u32>> {
        let Choice { node, cpus, .. } = self.choose(&self.near(drives));
        node.map(|_| cpus)
    }

    /// The plan for these drives.
    #[must_use]
    pub fn plan(&self, drives: &[String]) -> Placement {
        self.told(drives, &self.near(drives))
    }

    /// The node of each drive.
    fn near(&self, drives: &[String]) -> Vec<Option<u32>> {
        let find = |d: &String| node_of(Path::new(SYSFS), device_of(Path::new(d))?);
        drives.iter().map(find).collect()
    }

    fn choose(&self, near: &[Option<u32>]) -> Choice {
        let anywhere = |why: &str| Choice { node: None, cpus: self.allowed.clone(), why: why.to_owned() };
        let usable = |n: &Node| -> Vec<u32> { n.cpus.iter().filter(|c| self.allowed.contains(c)).copied().collect() };
        let candidates: Vec<(&Node, Vec<u32>)> =
            self.nodes.iter().map(|n| (n, usable(n))).filter(|(_, cpus)| !cpus.is_empty()).collect();
        match candidates.len() {
            0 => return anywhere("the kernel tells of no nodes"),
            1 => return anywhere("there is one node that it may run on"),
            _ => {}
        }
        let drives_at = |id: u32| near.iter().filter(|n| **n == Some(id)).count();
        // Of nodes with as many, the first.
        let best = candidates.iter().rev().max_by_key(|(n, _)| drives_at(n.id)).expect("there are two");
        let (node, cpus) = best;
        match drives_at(node.id) {
            0 => anywhere("no drive says which node it is attached to"),
            n => Choice {
                node: Some(node.id),
                cpus: cpus.clone(),
                why: format!("{n} of {} drives are attached there", near.len()),
            },
        }
    }

    fn told(&self, drives: &[String], near: &[Option<u32>]) -> Placement {
        let choice = self.choose(near);
        let at = |node: Option<u32>| -> Vec<String> {
            drives.iter().zip(near).filter(|(_, n)| **n == node).map(|(d, _)| d.clone()).collect()
        };
        let nodes = self.nodes.iter();
        Placement {
            version: crate::view::VERSION,
            measured: false,
            data_node: choice.node,
            data_cpus: list(&choice.cpus),
            why: choice.why,
            nodes: nodes.map(|n| PlacementNode { node: n.id, cpus: list(&n.cpus), drives: at(Some(n.id)) }).collect(),
            elsewhere: at(None),
            connections: vec![],
            parts: vec![],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(nodes: &[&[u32]], allowed: &[u32]) -> Machine {
        let node = |(id, cpus): (usize, &&[u32])| Node { id: id as u32, cpus: cpus.to_vec() };
        Machine { nodes: nodes.iter().enumerate().map(node).collect(), allowed: allowed.to_vec() }
    }

    const BOTH: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

    #[test]
    fn where_most_drives_are() {
        let two = machine(&[&[0, 2, 4, 6], &[1, 3, 5, 7], &[]], &BOTH);
        let choice = two.choose(&[Some(0), Some(1), Some(1), None]);
        assert_eq!((choice.node, &choice.cpus[..]), (Some(1), &[1, 3, 5, 7][..]));
        assert_eq!(choice.why, "2 of 4 drives are attached there");
        assert_eq!(two.choose(&[Some(0), Some(1)]).node, Some(0), "of equals the first");
        assert_eq!(two.choose(&[Some(2), Some(2), Some(1)]).node, Some(1), "memory runs nothing");
    }

    #[test]
    fn what_the_process_was_given_is_kept_to() {
        let some = machine(&[&[0, 1, 2, 3], &[4, 5, 6, 7]], &[2, 3, 7]);
        assert_eq!(some.choose(&[Some(0); 3]).cpus, [2, 3]);
        let one = machine(&[&[0, 1, 2, 3], &[4, 5, 6, 7]], &[0, 1]);
        assert_eq!((one.choose(&[Some(1); 3]).node, one.choose(&[Some(1); 3]).cpus), (None, vec![0, 1]));
    }

    #[test]
    fn nothing_to_choose() {
        for (m, near) in [
            (machine(&[], &BOTH), vec![Some(0)]),
            (machine(&[&BOTH], &BOTH), vec![Some(0)]),
            (machine(&[&[0, 1], &[2, 3]], &BOTH), vec![None, None]),
            (machine(&[&[0, 1], &[2, 3]], &BOTH), vec![]),
        ] {
            assert_eq!((m.choose(&near).node, m.choose(&near).cpus), (None, BOTH.to_vec()));
        }
    }

    #[test]
    fn every_drive_is_told_once() {
        let two = machine(&[&[0, 1], &[2, 3]], &BOTH);
        let drives: Vec<String> = ["/dev/a", "/dev/b", "/dev/c"].map(str::to_owned).into();
        let told = two.told(&drives, &[Some(1), None, Some(0)]);
        assert_eq!(
            (told.nodes[0].drives.clone(), told.nodes[1].drives.clone()),
            (vec!["/dev/c".into()], vec!["/dev/a".into()])
        );
        assert_eq!(told.elsewhere, ["/dev/b"]);
        assert!(!told.measured);
    }
}
