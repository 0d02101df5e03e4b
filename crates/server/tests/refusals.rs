//! Each line of the table in `drives::checks`: a drive that must not be taken is refused with its name, and is as it
//! was before.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rt::Rt;
use server::Problem;
use server::cores::OtherCores;
use server::ops::{World, create, open, wipe};
use server::registry::Registry;
use server::view::CreateRequest;

const MIB: u64 = 1 << 20;

struct Scene {
    dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        Scene { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path(name);
        File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    }

    fn request(&self, drives: &[&Path]) -> CreateRequest {
        CreateRequest {
            name: "lab".into(),
            raid: "5".into(),
            drives: drives.iter().map(|d| d.display().to_string()).collect(),
            ..CreateRequest::default()
        }
    }

    fn run<T>(&self, verb: impl AsyncFnOnce(World) -> T) -> T {
        let rt = Rt::real().unwrap();
        let registry = Registry::at(self.path("state"));
        rt.block_on(Box::pin(verb(World { rt: rt.clone(), registry, cores: OtherCores::default(), reserve: false })))
    }

    fn create(&self, request: &CreateRequest) -> Result<(), Problem> {
        self.run(async |world| {
            let (opened, _) = create::run(&world, request, create::Host::Command).await?;
            opened.close(&world).await
        })
    }
}

/// The two bytes that make an ext4 superblock.
fn write_ext4_magic(path: &Path) {
    let mut file = File::options().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(1024 + 56)).unwrap();
    file.write_all(&[0x53, 0xef]).unwrap();
}

#[test]
fn what_holds_something_is_refused_and_untouched() {
    let s = Scene::new();
    let good: Vec<_> = (0..2).map(|n| s.file(&n.to_string(), 300 * MIB)).collect();
    let bad = s.file("ext4", 300 * MIB);
    write_ext4_magic(&bad);
    let before = fs::read(&bad).unwrap();
    let request = s.request(&[&good[0], &good[1], &bad]);
    let problem = s.create(&request).unwrap_err();
    assert_eq!(problem.code, "drive_has_data");
    assert!(problem.what.contains("ext4") && problem.todo.contains("--force"), "{problem}");
    assert!(fs::read(&bad).unwrap() == before, "untouched");
    s.create(&CreateRequest { force: true, ..request }).unwrap();
}

#[test]
fn every_bad_drive_is_named_at_once() {
    let s = Scene::new();
    let small = s.file("small", 10 * MIB);
    let locked = s.file("locked", 300 * MIB);
    let holder = File::open(&locked).unwrap();
    holder.lock().unwrap();
    let good = s.file("good", 300 * MIB);
    let request = s.request(&[&small, &locked, &s.path("absent"), &good, &good, Path::new("/dev/null")]);
    let problem = s.create(&CreateRequest { force: true, ..request }).unwrap_err();
    let mut codes = vec![problem.code.clone()];
    codes.extend(problem.others.iter().map(|p| p.code.clone()));
    assert_eq!(codes, ["drive_too_small", "drive_locked", "drive_not_found", "usage", "not_a_drive"], "{problem}");
}

#[test]
fn files_made_for_a_refused_request_go_again() {
    let s = Scene::new();
    let bad = s.file("ext4", 300 * MIB);
    write_ext4_magic(&bad);
    let request = CreateRequest { size_bytes: Some(300 * MIB), ..s.request(&[&s.path("d/0"), &s.path("d/1"), &bad]) };
    s.create(&request).unwrap_err();
    assert!(!s.path("d/0").exists() && !s.path("d/1").exists());
    let other_size = CreateRequest { size_bytes: Some(400 * MIB), ..s.request(&[&s.path("d/0"), &bad]) };
    assert_eq!(s.create(&other_size).unwrap_err().code, "drive_size");
    assert!(!s.path("d/0").exists());
}

#[test]
fn a_member_belongs_to_its_array_until_it_is_wiped() {
    let s = Scene::new();
    let drives: Vec<_> = (0..4).map(|n| s.file(&n.to_string(), 300 * MIB)).collect();
    let request = s.request(&[&drives[0], &drives[1], &drives[2]]);
    s.create(&request).unwrap();
    let other = CreateRequest { name: "other".into(), raid: "0".into(), ..s.request(&[&drives[0], &drives[3]]) };
    let problem = s.create(&other).unwrap_err();
    assert_eq!(problem.code, "drive_in_array");
    assert!(problem.why.contains("lab"), "{problem}");
    // The same name again, over other drives.
    let again = s.request(&[&drives[3]]);
    assert_eq!(s.create(&CreateRequest { raid: "0".into(), ..again }).unwrap_err().code, "array_exists");
    // While the array is open, its drives cannot be taken at all.
    s.run(async |world| {
        let opened = open::by_name(&world, "lab", open::How::default()).await.unwrap();
        let wish = wipe::run(&world, &drives[0], true).await.unwrap_err();
        assert_eq!(wish.code, "drive_locked");
        opened.close(&world).await.unwrap();
        wipe::run(&world, &drives[0], false).await.unwrap();
    });
    s.create(&other).unwrap();
}
