//! The tree, as files in a directory.

use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::nvmet::address::Address;

const NQN: &str = "nqn.ours";
const DEVICE: &str = "/dev/ublkb0";

/// A tree of files. Directories that the kernel has made with others go with them.
struct Files {
    dir: TempDir,
    tree: Tree,
}

impl Files {
    fn new() -> Files {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("nvmet");
        for name in ["hosts", "subsystems", "ports"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        let block = dir.path().join("block");
        fs::create_dir_all(block.join("ublkb0")).unwrap();
        let remove = |path: &Path| fs::remove_dir_all(path);
        Files { tree: Tree { root, block, remove, cut: Duration::ZERO }, dir }
    }

    /// All files and links, a line for each.
    fn text(&self) -> String {
        let mut lines = vec![];
        let mut dirs = vec![self.tree.root.clone()];
        while let Some(dir) = dirs.pop() {
            for name in names(&dir) {
                let path = dir.join(&name);
                let short = path.strip_prefix(&self.tree.root).unwrap().display().to_string();
                match fs::read_link(&path) {
                    Ok(to) => lines.push(format!("{short} -> {}", to.strip_prefix(&self.tree.root).unwrap().display())),
                    Err(_) if path.is_dir() => dirs.push(path),
                    Err(_) => lines.push(format!("{short} = {}", read(&path))),
                }
            }
        }
        lines.sort();
        lines.join("\n")
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.tree.root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn apply(&self, plan: &Plan) -> Applied {
        self.tree.apply(plan)
    }
}

fn uuid() -> Uuid {
    Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef)
}

fn plan(at: &str) -> Plan {
    let at: Address = at.parse().unwrap();
    let namespace = Namespace { nsid: 3, uuid: uuid(), device: Some(DEVICE.into()), resized: false };
    let wanted = Wanted {
        nqn: NQN.to_owned(),
        serial: "S".to_owned(),
        model: "Ashlar fast".to_owned(),
        hosts: vec!["nqn.host".to_owned()],
        namespaces: vec![namespace],
        ports: [41_000].into(),
        hold: false,
    };
    let ports = vec![Port { number: 41_000, at }];
    Plan { subsystems: vec![wanted], ports, served: [DEVICE.into()].into(), ..Plan::default() }
}

fn gone(mut plan: Plan) -> Plan {
    plan.gone = plan.subsystems.drain(..).map(|wanted| wanted.nqn).collect();
    plan.ports_gone = std::mem::take(&mut plan.ports);
    plan
}

const RDMA: &str = "rdma:10.0.0.5:4420";

#[test]
fn hosts_then_namespaces_then_ports_and_the_reverse() {
    let files = Files::new();
    let done = files.apply(&plan(RDMA));
    assert_eq!(done.troubles, []);
    let steps = "mkdir subsystems/nqn.ours|echo 0 >subsystems/nqn.ours/attr_allow_any_host\
        |echo 32768 >subsystems/nqn.ours/attr_cntlid_min|echo Ashlar fast >subsystems/nqn.ours/attr_model\
        |echo S >subsystems/nqn.ours/attr_serial|mkdir subsystems/nqn.ours/allowed_hosts|mkdir hosts/nqn.host\
        |ln -s hosts/nqn.host subsystems/nqn.ours/allowed_hosts/nqn.host|mkdir subsystems/nqn.ours/namespaces/3\
        |echo /dev/ublkb0 >subsystems/nqn.ours/namespaces/3/device_path\
        |echo 01234567-89ab-cdef-0123-456789abcdef >subsystems/nqn.ours/namespaces/3/device_uuid\
        |echo 01234567-89ab-cdef-0123-456789abcdef >subsystems/nqn.ours/namespaces/3/device_nguid\
        |echo 1 >subsystems/nqn.ours/namespaces/3/enable|mkdir ports/41000|echo rdma >ports/41000/addr_trtype\
        |echo ipv4 >ports/41000/addr_adrfam|echo 10.0.0.5 >ports/41000/addr_traddr|echo 4420 >ports/41000/addr_trsvcid\
        |mkdir ports/41000/subsystems|ln -s subsystems/nqn.ours ports/41000/subsystems/nqn.ours";
    assert_eq!(done.steps.join("|"), steps);
    let brought = Brought { nqn: NQN.to_owned(), nsid: 3, port: 41_000 };
    assert_eq!(done.brought, [brought].into());
    assert_eq!(files.apply(&plan(RDMA)).steps, Vec::<String>::new(), "what is there is not written again");

    let done = files.apply(&gone(plan(RDMA)));
    assert_eq!(done.troubles, []);
    let steps = "rm ports/41000/subsystems/nqn.ours|echo 0 >subsystems/nqn.ours/namespaces/3/enable\
        |rmdir subsystems/nqn.ours/namespaces/3|rm subsystems/nqn.ours/allowed_hosts/nqn.host|rmdir subsystems/nqn.ours\
        |rmdir ports/41000";
    assert_eq!(done.steps.join("|"), steps);
    assert_eq!(files.text(), "");
    assert!(files.tree.root.join("hosts/nqn.host").is_dir(), "it is of all subsystems");
}

/// Not run on its hardware: nobody here has a Fibre Channel adapter.
#[test]
fn fibre_channel_as_a_text_not_run() {
    let files = Files::new();
    files.apply(&plan("fc:nn-0x20000090fa000001:pn-0x10000090fa000001"));
    let tree = "\
ports/41000/addr_adrfam = fc
ports/41000/addr_traddr = nn-0x20000090fa000001:pn-0x10000090fa000001
ports/41000/addr_trsvcid = none
ports/41000/addr_trtype = fc
ports/41000/subsystems/nqn.ours -> subsystems/nqn.ours
subsystems/nqn.ours/allowed_hosts/nqn.host -> hosts/nqn.host
subsystems/nqn.ours/attr_allow_any_host = 0
subsystems/nqn.ours/attr_cntlid_min = 32768
subsystems/nqn.ours/attr_model = Ashlar fast
subsystems/nqn.ours/attr_serial = S
subsystems/nqn.ours/namespaces/3/device_nguid = 01234567-89ab-cdef-0123-456789abcdef
subsystems/nqn.ours/namespaces/3/device_path = /dev/ublkb0
subsystems/nqn.ours/namespaces/3/device_uuid = 01234567-89ab-cdef-0123-456789abcdef
subsystems/nqn.ours/namespaces/3/enable = 1";
    assert_eq!(files.text(), tree);
}

#[test]
fn a_namespace_whose_device_is_not_served_is_not_touched() {
    let files = Files::new();
    files.apply(&plan(RDMA));
    let before = files.text();
    let not_served = |plan: Plan| Plan { served: BTreeSet::new(), ..plan };
    // To be gone; another device; no such volume any more.
    let done = files.apply(&not_served(gone(plan(RDMA))));
    assert!(done.troubles[0].is_left());
    assert_eq!((done.troubles[0].cause.clone(), done.steps), (Cause::NotServed, vec![]));
    let mut moved = not_served(plan(RDMA));
    moved.subsystems[0].namespaces[0].device = Some("/dev/ublkb7".into());
    let mut without = not_served(plan(RDMA));
    without.subsystems[0].namespaces.clear();
    for plan in [moved, without] {
        let done = files.apply(&plan);
        assert_eq!((done.troubles[0].cause.clone(), done.steps), (Cause::NotServed, vec![]));
    }
    // It waits: it is left.
    let mut waits = not_served(plan(RDMA));
    waits.subsystems[0].namespaces[0].device = None;
    let done = files.apply(&waits);
    assert_eq!((done.troubles.len(), done.steps.len(), done.brought.len()), (0, 0, 1));
    assert_eq!(files.text(), before);
    // The kernel has the device no more: nothing waits in it.
    fs::remove_dir(files.tree.block.join("ublkb0")).unwrap();
    let done = files.apply(&not_served(gone(plan(RDMA))));
    assert_eq!((done.troubles, files.text()), (vec![], String::new()));
}

#[test]
fn a_host_that_may_no_longer_is_refused_whatever_fails_beside() {
    let files = Files::new();
    files.apply(&plan(RDMA));
    let mut other = plan(RDMA);
    other.subsystems[0].hosts = vec!["nqn.other".to_owned()];
    let broken = Namespace { nsid: 9, ..other.subsystems[0].namespaces[0].clone() };
    other.subsystems[0].namespaces.insert(0, broken);
    // A file in the place of a directory: neither that namespace nor another port can be made.
    files.write("subsystems/nqn.ours/namespaces/9", "");
    files.write("ports/41001", "");
    other.ports.insert(0, Port { number: 41_001, at: "tcp:10.0.0.6:4420".parse().unwrap() });
    other.subsystems[0].ports.insert(41_001);
    let done = files.apply(&other);
    assert_eq!(names(&files.tree.root.join("subsystems/nqn.ours/allowed_hosts")), ["nqn.other"]);
    assert_eq!(done.steps[0], "rm subsystems/nqn.ours/allowed_hosts/nqn.host", "first");
    assert!(done.troubles.len() >= 2 && !done.troubles.iter().any(Trouble::is_left), "{:?}", done.troubles);
    assert!(done.brought.iter().any(|found| found.nsid == 3), "the others are there");
}

#[test]
fn what_is_of_others_stays() {
    let files = Files::new();
    files.write("ports/41000/addr_trtype", "tcp\n");
    files.write("ports/41000/addr_trsvcid", "4420\n");
    files.write("ports/1/addr_traddr", "10.0.0.5\n");
    files.write("subsystems/nqn.theirs/attr_serial", "T\n");
    let before = files.text();
    let done = files.apply(&plan(RDMA));
    let port = done.troubles.iter().find(|trouble| trouble.cause == Cause::PortTaken).unwrap();
    assert_eq!((port.port, done.brought.len()), (Some(41_000), 0));
    let done = files.apply(&gone(plan(RDMA)));
    assert_eq!((done.troubles, files.text()), (vec![], before));
}

#[test]
fn what_a_crash_left_half_done_is_finished() {
    let whole = Files::new();
    let steps = whole.apply(&plan(RDMA)).steps.len();
    let expected = whole.text();
    // The first steps as a shell would do them, then the rest.
    for many in 0..steps {
        let files = Files::new();
        for step in whole_steps(&plan(RDMA)).iter().take(many) {
            let root = &files.tree.root;
            match step.split_once(' ').unwrap() {
                ("mkdir", dir) => fs::create_dir_all(root.join(dir)).unwrap(),
                ("ln", rest) => {
                    let (to, link) = rest.trim_start_matches("-s ").split_once(' ').unwrap();
                    symlink(root.join(to), root.join(link)).unwrap();
                }
                (_, rest) => {
                    let (text, file) = rest.split_once(" >").unwrap();
                    fs::write(root.join(file), text).unwrap();
                }
            }
        }
        let done = files.apply(&plan(RDMA));
        assert_eq!((done.troubles, files.text()), (vec![], expected.clone()), "after {many} steps");
    }
}

fn whole_steps(plan: &Plan) -> Vec<String> {
    Files::new().apply(plan).steps
}

#[test]
fn hosts_find_a_subsystem_again_when_all_of_it_is_there() {
    let files = Files::new();
    let mut early = plan(RDMA);
    let late = Namespace { nsid: 4, device: None, ..early.subsystems[0].namespaces[0].clone() };
    early.subsystems[0].namespaces.push(late);
    early.subsystems[0].hold = true;
    let done = files.apply(&early);
    assert_eq!((done.troubles.len(), done.brought.len()), (0, 0));
    early.subsystems[0].hold = false;
    assert_eq!(files.apply(&early).brought.len(), 1, "not for ever");
}

#[test]
fn without_a_target_nothing_is_to_be_removed() {
    let files = Files::new();
    fs::remove_dir_all(&files.tree.root).unwrap();
    assert_eq!(files.apply(&gone(plan(RDMA))), Applied::default());
    assert_eq!(files.apply(&plan(RDMA)).troubles[0].cause, Cause::NoTarget);
    drop(files.dir);
}
