//! Nodes and drives of machines whose sysfs is in `machines/`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rt::topology::{list, node_of, nodes, siblings_last};

/// A tree as the file says.
fn machine(name: &str) -> tempfile::TempDir {
    let tree = tempfile::tempdir().expect("a directory");
    let text = fs::read_to_string(Path::new("tests/machines").join(name)).expect("a machine");
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let (path, content, is_link) = match line.split_once(" -> ") {
            Some((path, target)) => (path, target, true),
            None => line.split_once(" =").map(|(path, content)| (path, content.trim(), false)).expect("PATH = CONTENT"),
        };
        let path = tree.path().join(path);
        fs::create_dir_all(path.parent().expect("below the tree")).expect("its directory");
        let made = if is_link { symlink(content, path) } else { fs::write(path, format!("{content}\n")) };
        made.expect(line);
    }
    tree
}

fn node(sysfs: &Path, major: u32, minor: u32) -> Option<u32> {
    node_of(sysfs, rustix::fs::makedev(major, minor))
}

#[test]
fn two_sockets() {
    let m = machine("two-sockets.txt");
    let told: Vec<(u32, String)> = nodes(m.path()).iter().map(|n| (n.id, list(&n.cpus))).collect();
    assert_eq!(told, [(0, "0-31,64-95".to_owned()), (1, "32-63,96-127".to_owned())]);
    let drives: Vec<Option<u32>> = (0..16).map(|i| node(m.path(), 259, i)).collect();
    assert_eq!(drives, [[Some(0); 6].as_slice(), [Some(1); 10].as_slice()].concat());
    assert_eq!((node(m.path(), 259, 105), node(m.path(), 259, 106)), (Some(0), Some(1)), "partitions");
    assert_eq!(node(m.path(), 259, 99), None, "no such device");
}

#[test]
fn cores_that_take_turns_and_memory_alone() {
    let m = machine("interleaved.txt");
    let told: Vec<usize> = nodes(m.path()).iter().map(|n| n.cpus.len()).collect();
    assert_eq!(told, [8, 8, 0]);
    assert_eq!(nodes(m.path())[1].cpus, [1, 3, 5, 7, 9, 11, 13, 15]);
}

#[test]
fn several_paths() {
    let m = machine("two-paths.txt");
    assert_eq!(node(m.path(), 259, 0), None, "its paths are on both");
    assert_eq!(node(m.path(), 259, 1), Some(1));
    assert_eq!(node(m.path(), 254, 0), None, "-1 is no node");
}

#[test]
fn siblings_come_last() {
    let m = machine("interleaved.txt");
    // 0 and 8 are one core, 2 and 10 another; of the rest nothing is said.
    assert_eq!(siblings_last(m.path(), &[0, 2, 4, 8, 10]), [0, 2, 4, 8, 10]);
    assert_eq!(siblings_last(m.path(), &[0, 8, 2, 10, 4]), [0, 2, 4, 8, 10]);
    assert_eq!(siblings_last(m.path(), &[8, 10, 2]), [8, 2, 10], "its sibling may not be used");
}

#[test]
fn no_sysfs() {
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(siblings_last(empty.path(), &[1, 3]), [1, 3]);
    assert!(nodes(empty.path()).is_empty());
}
