//! Where the first core and the other cores run: on the node that most drives are attached to; pinned, each on a CPU of its
//! own there. What a core touches first lies there, too, and the kernel gives each CPU queues of a drive of its own.
//!
//! Invariant: threads that are no cores (commands) run wherever the process may.
//!
//! Not here: what sysfs says (`rt::topology`). Never measured: no machine with two nodes was at hand.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use api::{Placement, PlacementNode, Problem};
use rt::topology::{Node, SYSFS, allowed_cpus, device_of, list, node_of, nodes, run_on, siblings_last};

/// The machine, as it was when the server began.
#[derive(Debug)]
pub struct Machine {
    nodes: Vec<Node>,
    /// What the process was given: by taskset, systemd, a cpuset; one of each physical core first.
    allowed: Vec<u32>,
    /// Cores that are to have a CPU each; none: they share those of the plan.
    pinned: Option<usize>,
    /// The node of each drive that was asked for since it was settled last.
    known: RefCell<BTreeMap<String, Option<u32>>>,
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
    /// This one, of which so many cores have a CPU each; none: they are not pinned. To be asked before [`Machine::settle`].
    ///
    /// # Errors
    /// When the process may use fewer CPUs than that.
    pub fn here(pinned: Option<usize>) -> Result<Machine, Problem> {
        let allowed = siblings_last(Path::new(SYSFS), &allowed_cpus());
        let (cores, cpus) = (pinned.unwrap_or(1), allowed.len());
        if cores > cpus && pinned.is_some() {
            let why = format!("{cores} cores need as many CPUs, but this process may run on {cpus} only");
            return Err(Problem::usage("--pin", why, "give fewer --cores, or omit --pin"));
        }
        Ok(Machine { nodes: nodes(Path::new(SYSFS)), allowed, pinned, known: RefCell::default() })
    }

    /// Brings the calling thread, which is the first core, to where the plan for these drives wants it; the plan.
    #[must_use]
    pub fn settle(&self, drives: &[String]) -> Placement {
        self.known.borrow_mut().clear();
        if let Some(cpus) = self.cpus(drives, 0)
            && let Err(e) = run_on(&cpus)
        {
            tracing::warn!("placement: the first core cannot be moved: {e}");
        }
        self.plan(drives)
    }

    /// The CPUs that the plan for these drives keeps a core to, the first core being the first; none when it is any.
    #[must_use]
    pub fn cpus(&self, drives: &[String], core: usize) -> Option<Vec<u32>> {
        let choice = self.choose(&self.near(drives));
        match self.pinned {
            Some(_) => Some(vec![choice.cpus[core]]),
            None => choice.node.map(|_| choice.cpus),
        }
    }

    /// What the process was given.
    #[must_use]
    pub fn allowed(&self) -> &[u32] {
        &self.allowed
    }

    /// The plan for these drives.
    #[must_use]
    pub fn plan(&self, drives: &[String]) -> Placement {
        self.told(drives, &self.near(drives))
    }

    /// The node of each drive.
    fn near(&self, drives: &[String]) -> Vec<Option<u32>> {
        let find = |d: &String| node_of(Path::new(SYSFS), device_of(Path::new(d))?);
        let mut known = self.known.borrow_mut();
        drives.iter().map(|d| *known.entry(d.clone()).or_insert_with(|| find(d))).collect()
    }

    fn choose(&self, near: &[Option<u32>]) -> Choice {
        let anywhere = |why: &str| Choice { node: None, cpus: self.allowed.clone(), why: why.to_owned() };
        let usable = |n: &Node| -> Vec<u32> { self.allowed.iter().filter(|c| n.cpus.contains(c)).copied().collect() };
        let wanted = self.pinned.unwrap_or(1).max(1);
        let candidates: Vec<(&Node, Vec<u32>)> =
            self.nodes.iter().map(|n| (n, usable(n))).filter(|(_, cpus)| cpus.len() >= wanted).collect();
        match candidates.len() {
            0 if self.nodes.is_empty() => return anywhere("the kernel reports no NUMA nodes"),
            0 => return anywhere("no node has a CPU for each core"),
            1 => return anywhere("it may run on one node only"),
            _ => {}
        }
        let drives_at = |id: u32| near.iter().filter(|n| **n == Some(id)).count();
        // Of nodes with as many, the first.
        let best = candidates.iter().rev().max_by_key(|(n, _)| drives_at(n.id)).expect("there are two");
        let (node, cpus) = best;
        match drives_at(node.id) {
            0 => anywhere("no drive reports its node"),
            n => Choice {
                node: Some(node.id),
                cpus: cpus.clone(),
                why: format!("{n} of {} drives are attached there", near.len()),
            },
        }
    }

    fn told(&self, drives: &[String], near: &[Option<u32>]) -> Placement {
        let choice = self.choose(near);
        let pinned = self.pinned.map_or(vec![], |cores| choice.cpus[..cores].to_vec());
        let mut cpus = if pinned.is_empty() { choice.cpus } else { pinned[..1].to_vec() };
        cpus.sort_unstable();
        let at = |node: Option<u32>| -> Vec<String> {
            drives.iter().zip(near).filter(|(_, n)| **n == node).map(|(d, _)| d.clone()).collect()
        };
        let nodes = self.nodes.iter();
        Placement {
            version: api::VERSION,
            measured: false,
            data_node: choice.node,
            data_cpus: list(&cpus),
            pinned,
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
        Machine {
            nodes: nodes.iter().enumerate().map(node).collect(),
            allowed: allowed.to_vec(),
            pinned: None,
            known: RefCell::default(),
        }
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
    fn pinned_cores_have_a_cpu_each() {
        let pinned = |cores, nodes: &[&[u32]]| Machine { pinned: Some(cores), ..machine(nodes, &BOTH) };
        let two = pinned(3, &[&[0, 2, 4, 6], &[1, 3, 5, 7]]);
        let told = two.told(&[], &[Some(1)]);
        assert_eq!((told.data_node, told.data_cpus, told.pinned), (Some(1), "1".to_owned(), vec![1, 3, 5]));
        // No node has room for five: they are dealt over both.
        let many = pinned(5, &[&[0, 2, 4, 6], &[1, 3, 5, 7]]).told(&[], &[Some(1)]);
        assert_eq!((many.data_node, many.pinned), (None, vec![0, 1, 2, 3, 4]));
        let one = pinned(2, &[&BOTH]);
        assert_eq!((one.cpus(&[], 0), one.cpus(&[], 1)), (Some(vec![0]), Some(vec![1])));
        assert_eq!(machine(&[&BOTH], &BOTH).cpus(&[], 1), None, "unpinned on one node");
        let many = Machine::here(Some(100_000)).expect_err("there are fewer");
        assert_eq!(many.what, "--pin");
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
