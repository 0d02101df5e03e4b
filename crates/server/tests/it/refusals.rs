//! Each line of the table in `drives::checks`: a drive that must not be taken is refused with its name, and is as it
//! was before.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use api::{
    ArrayView, CreateRequest, DriveAdd, DriveFail, DriveReplace, FindRequest, ImportRequest, Problem, Prospect,
    SeatState,
};
use rt::Rt;
use server::cores::OtherCores;
use server::ops::{World, create, destroy, drive, export, find, forget, import, open, wipe};
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
        rt.block_on(Box::pin(verb(World {
            rt: rt.clone(),
            registry,
            cores: OtherCores::default(),
            reserve: false,
            discard: array::Discard::Auto,
        })))
    }

    fn create(&self, request: &CreateRequest) -> Result<(), Problem> {
        self.run(async |world| {
            let (opened, _) = create::run(&world, request, create::Host::Command).await?;
            opened.close(&world).await
        })
    }
}

/// What is written first when a drive is taken: its beginning and its end.
fn ends_of(path: &Path) -> Vec<u8> {
    let mut file = File::open(path).unwrap();
    let mut ends = vec![0; 16 << 20];
    file.read_exact(&mut ends).unwrap();
    file.seek(SeekFrom::End(-(1 << 20))).unwrap();
    file.read_to_end(&mut ends).unwrap();
    ends
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
    assert_eq!(problem.code, "drive_in_known_array");
    assert!(problem.why.contains("seat 0 of array lab (RAID 5, 3 of its 3 drives are present, known"), "{problem}");
    // The same name again, over other drives.
    let again = s.request(&[&drives[3]]);
    assert_eq!(s.create(&CreateRequest { raid: "0".into(), ..again }).unwrap_err().code, "array_exists");
    // While the array is open, its drives cannot be taken at all.
    s.run(async |world| {
        let opened = open::by_name(&world, "lab", open::How::default()).await.unwrap();
        let wish = wipe::run(&world, &drives[0], true, &[]).await.unwrap_err();
        assert_eq!(wish.code, "drive_locked");
        opened.close(&world).await.unwrap();
        let known = wipe::run(&world, &drives[0], true, &[]).await.unwrap_err();
        assert_eq!(known.code, "drive_in_known_array");
        wipe::run(&world, &drives[0], false, &["lab".to_owned()]).await.unwrap();
    });
    s.create(&other).unwrap();
}

fn registry_of(s: &Scene) -> String {
    fs::read_to_string(s.path("state/arrays.toml")).unwrap_or_default()
}

#[test]
fn force_does_not_take_from_an_array_that_is_known_here() {
    let s = Scene::new();
    let drives: Vec<_> = (0..4).map(|n| s.file(&n.to_string(), 300 * MIB)).collect();
    let all: Vec<&Path> = drives.iter().map(PathBuf::as_path).collect();
    s.create(&s.request(&all)).unwrap();
    let fs_drive = s.file("ext4", 300 * MIB);
    write_ext4_magic(&fs_drive);
    let other = CreateRequest {
        name: "other".into(),
        force: true,
        ..s.request(&[&drives[0], &drives[1], &drives[2], &fs_drive])
    };
    let before = ends_of(&drives[0]);
    let problem = s.create(&other).unwrap_err();
    assert_eq!((problem.code.as_str(), problem.others.len()), ("drive_in_known_array", 2), "{problem}");
    assert!(problem.todo.contains("--take-from lab"), "{problem}");
    assert!(ends_of(&drives[0]) == before, "untouched");
    // Its own word takes them; what is lost is named, member by member.
    let named = CreateRequest { take_from: vec!["lab".into()], ..other };
    let plan = s.run(async |world| create::plan(&world, &named).await).unwrap();
    let lost: Vec<&str> = plan.losses.iter().map(|held| held.what.as_str()).collect();
    let member =
        |seat| format!("is seat {seat} of array lab (RAID 5, 4 of its 4 drives are present, known on this machine)");
    assert_eq!(lost, [member(0).as_str(), &member(1), &member(2), "holds ext4"]);
    assert_eq!((plan.losses[2].seat, plan.losses[2].known), (Some(2), true));
    s.create(&named).unwrap();
    // A word for one array is none for another.
    let again = CreateRequest { name: "third".into(), force: true, ..s.request(&[&drives[0], &drives[1]]) };
    let wrong = CreateRequest { raid: "0".into(), take_from: vec!["lab".into()], ..again };
    assert_eq!(s.create(&wrong).unwrap_err().code, "drive_in_known_array");
}

#[test]
fn a_drive_that_its_array_gave_up_is_taken_by_force_alone() {
    let s = Scene::new();
    let drives: Vec<_> = (0..4).map(|n| s.file(&n.to_string(), 300 * MIB)).collect();
    let all: Vec<&Path> = drives.iter().map(PathBuf::as_path).collect();
    s.create(&s.request(&all)).unwrap();
    s.run(async |world| {
        let opened = open::by_name(&world, "lab", open::How::default()).await.unwrap();
        let fail = DriveFail { drive: "1".into(), force: false };
        drive::fail(&opened, &fail, (&[], 0)).await.unwrap();
        opened.close(&world).await.unwrap();
        wipe::run(&world, &drives[1], false, &[]).await.unwrap();
    });
}

#[test]
fn a_refused_drive_leaves_no_trace() {
    let s = Scene::new();
    let drives: Vec<_> = (0..3).map(|n| s.file(&n.to_string(), 300 * MIB)).collect();
    let all: Vec<&Path> = drives.iter().map(PathBuf::as_path).collect();
    s.create(&s.request(&all)).unwrap();
    let before = registry_of(&s);
    let with = s.path("new/dir/small").display().to_string();
    for grow in [false, true] {
        let request = DriveAdd { with: with.clone(), grow, size_bytes: Some(8 * MIB), force: false, take_from: vec![] };
        s.run(async |world| {
            let opened = open::by_name(&world, "lab", open::How::default()).await.unwrap();
            drive::add(&world, &opened, &request).await.unwrap_err();
            let replace = DriveReplace {
                drive: "0".into(),
                with: with.clone(),
                size_bytes: Some(8 * MIB),
                force: false,
                take_from: vec![],
            };
            drive::replace(&world, &opened, &replace).await.unwrap_err();
            opened.close(&world).await.unwrap();
        });
    }
    assert_eq!(registry_of(&s), before);
    assert!(!s.path("new").exists(), "the directories that were made for it are gone");
}

#[test]
fn a_refused_create_leaves_no_trace() {
    let s = Scene::new();
    let bad = s.file("ext4", 300 * MIB);
    write_ext4_magic(&bad);
    let request = CreateRequest { size_bytes: Some(300 * MIB), ..s.request(&[&s.path("x/y/0"), &s.path("x/1"), &bad]) };
    s.create(&request).unwrap_err();
    assert!(!s.path("x").exists() && !s.path("state").exists());
}

#[test]
fn an_absent_array_keeps_its_name_until_it_is_forgotten() {
    let s = Scene::new();
    let drives: Vec<_> = (0..3).map(|n| s.file(&n.to_string(), 300 * MIB)).collect();
    let all: Vec<&Path> = drives.iter().map(PathBuf::as_path).collect();
    s.create(&s.request(&all)).unwrap();
    let refused = s.run(async |world| forget::run(&world, "lab", false).await.map(drop)).unwrap_err();
    assert_eq!(refused.code, "array_here");
    fs::create_dir(s.path("shelf")).unwrap();
    drives.iter().for_each(|d| fs::rename(d, s.path("shelf").join(d.file_name().unwrap())).unwrap());
    let new: Vec<_> = (0..3).map(|n| s.file(&format!("new{n}"), 300 * MIB)).collect();
    let request = s.request(&new.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    let problem = s.create(&request).unwrap_err();
    assert_eq!(problem.code, "array_absent");
    assert!(problem.todo.contains("`ashlar forget lab`"), "{problem}");
    s.run(async |world| forget::run(&world, "lab", false).await.map(drop)).unwrap();
    s.create(&request).unwrap();
    // The old one is found again, and told from the new one by its identity.
    let shelf = FindRequest { places: vec![s.path("shelf").display().to_string()] };
    let found = s.run(async |world| find::run(&world, &shelf, &[]).await).unwrap();
    assert_eq!((found.arrays.len(), found.arrays[0].known), (1, false));
}

#[test]
fn a_search_opens_nothing_and_says_what_is_there() {
    let s = Scene::new();
    let drives: Vec<_> = (0..4).map(|n| s.file(&n.to_string(), 300 * MIB)).collect();
    let all: Vec<&Path> = drives.iter().map(PathBuf::as_path).collect();
    s.create(&CreateRequest { raid: "6".into(), ..s.request(&all) }).unwrap();
    let twins: Vec<_> = (0..3).map(|n| s.file(&format!("t{n}"), 300 * MIB)).collect();
    s.run(async |world| {
        let request = s.request(&twins.iter().map(PathBuf::as_path).collect::<Vec<_>>());
        let world = World { registry: Registry::at(s.path("elsewhere")), ..world };
        let (opened, _) = create::run(&world, &request, create::Host::Command).await.unwrap();
        opened.close(&world).await.unwrap();
    });
    fs::remove_file(&drives[3]).unwrap();
    let before: Vec<_> = drives[..3].iter().map(|d| ends_of(d)).collect();
    let registry = registry_of(&s);
    let places = vec![s.dir.path().canonicalize().unwrap().display().to_string()];
    let found = s.run(async |world| find::run(&world, &FindRequest { places: places.clone() }, &[]).await).unwrap();
    assert_eq!(found.arrays.iter().map(|a| a.name.as_str()).collect::<Vec<_>>(), ["lab", "lab"]);
    let of = |level: &str| found.arrays.iter().find(|a| a.level.as_deref() == Some(level)).unwrap();
    let (six, five) = (of("RAID 6"), of("RAID 5"));
    assert_eq!((six.drives_found, six.drives_of, six.prospect, six.known), (3, 4, Prospect::Degraded, true));
    assert_eq!((five.drives_found, five.drives_of, five.prospect, five.known), (3, 3, Prospect::Whole, false));
    assert_eq!((six.members[3].seat, &six.members[3].drive, six.members[3].state), (3, &None, SeatState::Missing));
    // Of two arrays of one name an identity says which.
    let by_name = ImportRequest { places: places.clone(), array: Some("lab".into()), ..ImportRequest::default() };
    let problem = s.run(async |world| import::search(&world, &by_name).await.map(drop)).unwrap_err();
    assert!(problem.code == "array_ambiguous" && problem.why.contains(&five.uuid.to_string()), "{problem}");
    let by_identity = ImportRequest { array: Some(five.uuid.to_string()), ..by_name };
    assert_eq!(s.run(async |world| import::search(&world, &by_identity).await).unwrap().0.len(), 1);
    assert_eq!(import::says_which(&ImportRequest::default()).unwrap_err().code, "usage");
    let same = drives[..3].iter().zip(&before).all(|(d, before)| ends_of(d) == *before);
    assert!(same && registry_of(&s) == registry, "nothing was written");
    // In use by another program: its lock says so.
    let holder = File::open(&drives[0]).unwrap();
    holder.lock().unwrap();
    let found = s.run(async |world| find::run(&world, &FindRequest { places }, &[]).await).unwrap();
    let six = found.arrays.iter().find(|a| a.level.as_deref() == Some("RAID 6")).unwrap();
    assert!(six.used_by.as_ref().is_some_and(|by| by.contains("another program")), "{six:?}");
}

#[test]
fn an_array_that_is_read_only_is_not_destroyed() {
    let s = Scene::new();
    let drives: Vec<_> = (0..3).map(|n| s.file(&n.to_string(), 300 * MIB)).collect();
    let all: Vec<&Path> = drives.iter().map(PathBuf::as_path).collect();
    s.create(&s.request(&all)).unwrap();
    let before = registry_of(&s);
    s.run(async |world| {
        let opened = open::by_name(&world, "lab", open::How::READ_ONLY).await.unwrap();
        for refused in [destroy::opened(&world, opened.clone()).await, export::opened(&world, opened.clone()).await] {
            let problem = refused.unwrap_err();
            assert_eq!((problem.code.as_str(), problem.kind.exit_code()), ("read_only", 3));
        }
        assert!(opened.lease("none").is_none() && opened.array.first().volumes().is_empty(), "it is open still");
        opened.close(&world).await.unwrap();
    });
    assert_eq!(registry_of(&s), before);
}

#[test]
fn a_replacement_keeps_the_number_of_the_seat() {
    let s = Scene::new();
    let drives: Vec<_> = (0..4).map(|n| s.file(&n.to_string(), 300 * MIB)).collect();
    let all: Vec<&Path> = drives.iter().map(PathBuf::as_path).collect();
    s.create(&s.request(&all)).unwrap();
    s.run(async |world| {
        let opened = open::by_name(&world, "lab", open::How::default()).await.unwrap();
        let fail = DriveFail { drive: "2".into(), force: false };
        drive::fail(&opened, &fail, (&[], 0)).await.unwrap();
        let with = s.file("new", 300 * MIB).display().to_string();
        let replace =
            DriveReplace { drive: "2".into(), with: with.clone(), size_bytes: None, force: false, take_from: vec![] };
        drive::replace(&world, &opened, &replace).await.unwrap();
        opened.array.rebuild_done().await.unwrap();
        let seats = |view: ArrayView| view.members.iter().map(|m| (m.seat, m.drive.clone())).collect::<Vec<_>>();
        let name = |n: usize| drives[n].display().to_string();
        let wanted = vec![(0, name(0)), (1, name(1)), (2, with.clone()), (3, name(3))];
        let mut now: Vec<_> = seats(opened.view().await);
        now.retain(|(_, drive)| *drive != name(2));
        assert_eq!(now, wanted);
        // The same words again mean the drive that is there now.
        assert_eq!(drive::member_of(&opened, "2").await.unwrap().drive, with);
        opened.close(&world).await.unwrap();
        let again = open::by_name(&world, "lab", open::How::default()).await.unwrap();
        assert_eq!(drive::member_of(&again, "2").await.unwrap().drive, with);
        again.close(&world).await.unwrap();
    });
}
