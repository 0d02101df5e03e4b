//! What refusals and notes advise can be done, and helps: each was wrong once.

use std::cell::Cell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use api::{CreateRequest, DriveAdd, DriveFail, DriveReplace, FindRequest, Problem, Prospect, RescueRequest, Severity};
use rt::Rt;
use server::cores::OtherCores;
use server::ops::{World, check, create, drive, find, inspect, open, rescue, status, volume, wipe};
use server::registry::Registry;

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

    fn file(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        File::create(&path).unwrap().set_len(300 * MIB).unwrap();
        path
    }

    fn run<T>(&self, verb: impl AsyncFnOnce(World) -> T) -> T {
        let rt = Rt::real().unwrap();
        let registry = Registry::at(self.path("state"));
        rt.block_on(Box::pin(verb(World {
            rt: rt.clone(),
            registry,
            cores: OtherCores::default(),
            reserve: false,
            discard: array::Discard::Auto,
        })))
    }

    fn request(&self, drives: &[&Path]) -> CreateRequest {
        CreateRequest {
            name: "lab".into(),
            raid: "5".into(),
            drives: drives.iter().map(|d| d.display().to_string()).collect(),
            ..CreateRequest::default()
        }
    }

    fn plan(&self, request: &CreateRequest) -> Result<api::PlanView, Problem> {
        self.run(async |world| create::plan(&world, request).await)
    }

    /// An array `lab` over three files.
    fn lab(&self) -> Vec<PathBuf> {
        let drives: Vec<_> = (0..3).map(|n| self.file(&n.to_string())).collect();
        let request = self.request(&[&drives[0], &drives[1], &drives[2]]);
        self.run(async |world| {
            let (opened, _) = create::run(&world, &request, create::Host::Command).await.unwrap();
            opened.close(&world).await.unwrap();
        });
        drives
    }

    fn with_lab<T>(&self, verb: impl AsyncFnOnce(&World, &open::Opened) -> T) -> T {
        self.run(async |world| {
            let opened = open::by_name(&world, "lab", open::How::default()).await.unwrap();
            let result = verb(&world, &opened).await;
            opened.close(&world).await.unwrap();
            result
        })
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_hard_link_is_the_same_file() {
    let s = Scene::new();
    let (one, two) = (s.file("one"), s.path("two"));
    fs::hard_link(&one, &two).unwrap();
    let problem = s.plan(&s.request(&[&one, &s.file("other"), &two])).unwrap_err();
    assert_eq!(problem.code, "usage", "{problem}");
    assert!(
        problem.what.contains("two") && problem.why.contains("same file") && problem.why.contains("one"),
        "{problem}"
    );
}

#[test]
fn a_locked_drive_is_not_sent_to_a_verb_that_never_asks_a_server() {
    let s = Scene::new();
    let drive = s.file("d");
    let holder = File::open(&drive).unwrap();
    holder.lock().unwrap();
    let inspected = s.run(async |world| inspect::run(&world, &drive).await).unwrap_err();
    let wiped = s.run(async |world| wipe::run(&world, &drive, false, &[]).await).unwrap_err();
    for problem in [&inspected, &wiped] {
        assert!(problem.code == "drive_locked" && !problem.todo.contains("--control"), "{problem}");
    }
    assert!(wiped.todo.contains("drive replace ARRAY SEAT DRIVE --force"), "{wiped}");
    assert!(wiped.todo.contains("released within 10 s"), "a server looks twice, every 5 s: {wiped}");
}

#[test]
fn a_file_that_is_missing_can_be_made_by_the_verb_that_asks_for_it() {
    let s = Scene::new();
    s.lab();
    let with = text(&s.path("missing"));
    let problem = s.with_lab(async |world, opened| {
        drive::add(world, opened, &DriveAdd { with: with.clone(), ..DriveAdd::default() }).await.unwrap_err()
    });
    assert!(problem.todo.contains("--size 4G creates a file") && !problem.todo.contains("create --size"), "{problem}");
    let problem = s.run(async |world| inspect::run(&world, with.as_ref()).await).unwrap_err();
    assert!(!problem.todo.contains("--size"), "{problem}");
}

#[test]
fn what_a_rebuild_does_is_shown_by_the_form_for_one_array() {
    let s = Scene::new();
    let drives = s.lab();
    let with = text(&s.file("new"));
    let done = s.with_lab(async |world, opened| {
        let fail = DriveFail { drive: text(&drives[0]), ..DriveFail::default() };
        drive::fail(opened, &fail, (&[], 0)).await.unwrap();
        let request = DriveReplace { drive: "0".into(), with, ..DriveReplace::default() };
        drive::replace(world, opened, &request).await.unwrap()
    });
    assert!(done.notes.iter().any(|note| note.contains("`ashlar status lab --watch`")), "{done:?}");
}

#[test]
fn too_many_parts_may_be_fewer() {
    let s = Scene::new();
    let drives: Vec<_> = (0..3).map(|n| s.file(&n.to_string())).collect();
    let request = CreateRequest { parts: 16, ..s.request(&[&drives[0], &drives[1], &drives[2]]) };
    let problem = s.plan(&request).unwrap_err();
    assert!(problem.todo.contains("fewer parts"), "{problem}");
}

#[test]
fn sizes_that_are_slips_are_told() {
    let s = Scene::new();
    let new: Vec<_> = (0..3).map(|n| s.path(&format!("new{n}"))).collect();
    let request = CreateRequest { size_bytes: Some(5), ..s.request(&[&new[0], &new[1], &new[2]]) };
    let problem = s.plan(&request).unwrap_err();
    assert!(problem.what == "--size" && problem.todo.contains("4G"), "{problem}");
    let memory = ["mem:1T"; 3].map(PathBuf::from);
    let plan = s.plan(&s.request(&[&memory[0], &memory[1], &memory[2]])).unwrap();
    assert!(plan.notes.iter().any(|note| note.contains("3 TiB") && note.contains("of memory")), "{:?}", plan.notes);
}

#[test]
fn a_volume_far_beyond_the_array_is_told_how_far() {
    let s = Scene::new();
    s.lab();
    let done = s.with_lab(async |_, opened| volume::create(&opened.array, "v", 1 << 50).await.unwrap());
    assert!(done.notes.iter().any(|note| note.contains("times as much")), "{done:?}");
}

#[test]
fn a_check_says_that_drives_are_out() {
    let s = Scene::new();
    let drives = s.lab();
    let whole = s.run(async |world| check::run(&world, "lab", |_| {}).await).unwrap();
    assert!(whole.ok && whole.notes.is_empty(), "{whole:?}");
    fs::remove_file(&drives[1]).unwrap();
    let degraded = s.run(async |world| check::run(&world, "lab", |_| {}).await).unwrap();
    assert!(degraded.ok && degraded.notes.iter().any(|n| n.contains("1 drive is out or missing")), "{degraded:?}");
}

/// Of an array that is empty too: it opens with --degraded only, and every verb says so.
#[test]
fn half_of_the_drives_is_said_by_every_verb_that_looks() {
    let s = Scene::new();
    let drives = s.lab();
    let places = vec![s.path("").display().to_string()];
    drives[1..].iter().for_each(|drive| fs::remove_file(drive).unwrap());
    let open = |degraded| {
        s.run(async |world| {
            let how = open::How { degraded, ..open::How::default() };
            let opened = open::by_name(&world, "lab", how).await?;
            let state = opened.state();
            opened.close(&world).await.map(|()| state)
        })
    };
    assert_eq!(open(false).unwrap_err().code, "members_missing");
    let found = s.run(async |world| find::run(&world, &FindRequest { places }, &[]).await).unwrap();
    assert_eq!(found.arrays[0].prospect, Prospect::FewerThanHalf);
    let told = s.run(async |world| status::offline(&world, Some("lab")).await).unwrap();
    let is_half = |alarm: &&api::AlarmView| alarm.code == "half_missing";
    let alarm = told.arrays[0].alarms.iter().find(is_half).unwrap_or_else(|| panic!("{:?}", told.arrays[0].alarms));
    assert!(alarm.severity == Severity::Critical && alarm.todo.contains("--degraded"), "{alarm:?}");
    let checked = s.run(async |world| check::run(&world, "lab", |_| {}).await).unwrap();
    assert!(checked.notes.iter().any(|note| note.contains("half or fewer of its drives")), "{:?}", checked.notes);
    assert_eq!(open(true).unwrap(), api::ArrayState::Degraded);
    let told = s.run(async |world| status::offline(&world, Some("lab")).await).unwrap();
    assert!(
        !told.arrays[0].alarms.iter().any(|alarm| alarm.code == "half_missing"),
        "it was opened without the others"
    );
}

#[test]
fn a_rescued_file_has_its_name_when_it_is_complete() {
    let s = Scene::new();
    s.lab();
    s.with_lab(async |_, opened| volume::create(&opened.array, "v", 8 * MIB).await.unwrap());
    let (to, part) = (s.path("v.img"), s.path("v.img.partial"));
    let request = |force| RescueRequest { volume: "v".into(), to: to.clone(), force, ..RescueRequest::default() };
    let seen = Cell::new(0);
    let progress = |_, _| seen.set(seen.get() + usize::from(part.exists() && !to.exists()));
    s.run(async |world| rescue::run(&world, "lab", &request(false), progress).await).unwrap();
    assert!(seen.get() > 0 && to.exists() && !part.exists());
    assert_eq!(fs::metadata(&to).unwrap().len(), 8 * MIB);
    // What was interrupted is not written over unasked.
    fs::remove_file(&to).unwrap();
    File::create(&part).unwrap();
    let again = |force| s.run(async |world| rescue::run(&world, "lab", &request(force), |_, _| {}).await);
    assert_eq!(again(false).unwrap_err().code, "target_exists");
    again(true).unwrap();
    assert!(to.exists() && !part.exists());
}
