//! `drive`: fail, replace, add, retire, locate.

use api::{
    ArrayView, ClientView, Done, DriveAdd, DriveFail, DriveLocate, DriveReplace, DriveRetire, MemberView, Problem,
    SeatState,
};
use array::RefusedCode;

use super::open::{self, Opened, named};
use super::{World, clients};
use crate::drives::checks::{Checks, Purpose};
use crate::drives::files::NewFiles;
use crate::drives::names::{self, name_of};
use crate::drives::{Source, locate};
use crate::size::{Size, human};

/// Takes a member out. Where no redundancy is left then, and hosts are `connected`, only by force; `now` is in
/// seconds since 1970.
///
/// # Errors
/// When there is no such member, the array would lose data, or hosts would be at risk.
pub async fn fail(
    opened: &Opened,
    request: &DriveFail,
    (connected, now): (&[ClientView], u64),
) -> Result<Done, Problem> {
    let (seat, member) = member(opened, &request.drive).await?;
    let last = opened.array.uses_up_redundancy(seat).await.map_err(|r| named(&opened.array, r))?;
    if last && !connected.is_empty() && !request.force {
        return Err(Problem::refused(
            "clients_connected",
            format!("drive {} (seat {}) of {}", name_of(&member), member.seat, opened.array.first().name()),
            format!(
                "without it no further drive may fail, and {}: {}",
                clients::counted(connected),
                clients::lines(connected, now).join("; ")
            ),
            "`ashlar drive replace` keeps redundancy until another drive has its data; --force fails it now",
        ));
    }
    if let Err(refused) = opened.array.drive_fail(seat).await {
        let uncovered = refused.code == RefusedCode::Redundancy;
        let problem = named(&opened.array, refused);
        return Err(if uncovered { without_redundancy(&opened.view().await, problem) } else { problem });
    }
    Ok(Done::new(format!(
        "drive {} (seat {}) of {} is out",
        name_of(&member),
        member.seat,
        opened.array.first().name()
    )))
}

/// The refusal to fail a drive of an array that has no redundancy left for it: which drives are out, and what helps now.
fn without_redundancy(view: &ArrayView, problem: Problem) -> Problem {
    let seats = |list: &[u16]| {
        let noun = if list.len() == 1 { "seat" } else { "seats" };
        format!("{noun} {}", list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
    };
    let gone: Vec<String> = [("failed", &view.exposure.failed), ("missing", &view.exposure.missing)]
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(word, list)| format!("{word}: {}", seats(list)))
        .collect();
    let why = match (view.exposure.tolerates, gone.is_empty()) {
        (0, _) => format!("{} has no redundancy: without this drive data is lost", view.level),
        (_, true) => "the array has no redundancy left without this drive".to_owned(),
        (_, false) => format!("the array has no redundancy left ({})", gone.join("; ")),
    };
    let todo = if view.exposure.tolerates == 0 {
        format!("move its data to another drive: `ashlar drive replace {} SEAT NEW-DRIVE`", view.name)
    } else if view.rebuild.as_ref().is_some_and(|rebuild| rebuild.waits.is_none()) && !view.rebuild_paused {
        format!("wait until the rebuild is done; {}", shows_it(&view.name))
    } else if view.rebuild_paused {
        format!("resume rebuilds first: `ashlar rebuild {} resume`", view.name)
    } else {
        format!("replace or reconnect the drives that are out: `ashlar status {}` lists them", view.name)
    };
    Problem::refused(&problem.code, &problem.what, why, todo)
}

/// Puts a new drive in a member's place; the rebuild starts by itself. What a drive that is in holds is copied, and it
/// stays until nothing lies on it ([`see_off`]). The new one may be the old one: a drive that was away too long comes
/// back as new.
///
/// # Errors
/// When there is no such member, or the new drive is refused.
pub async fn replace(world: &World, opened: &Opened, request: &DriveReplace) -> Result<Done, Problem> {
    let (seat, old) = member(opened, &request.drive).await?;
    let (with, files) =
        new_drive(world, opened, &request.with, request.size_bytes, (request.force, &request.take_from)).await?;
    let before = remember_first(world, opened, &with)?;
    let usable = opened.view().await.usable_bytes;
    let replaced = opened.array.drive_replace(seat, with.clone(), request.force || !request.take_from.is_empty()).await;
    if let Err(refused) = replaced {
        forget_again(world, opened, &with, before).await;
        return Err(named(&opened.array, refused));
    }
    files.keep();
    if opened.view().await.members.iter().any(|m| m.member == seat.0 && m.state == SeatState::Leaving) {
        opened.take_in(with.clone(), None);
        let view = opened.view().await;
        let mut done = Done::new(format!("drive {} replaces {} in {}", request.with, name_of(&old), view.name));
        let what = format!("drive {} stays in until its data is copied", name_of(&old));
        done.notes.push(format!("{what}; {}", shows_it(&view.name)));
        done.notes.extend(about_size(&view, &with, usable));
        return Ok(done);
    }
    // A drive that is not here is known by its name only.
    let gone = opened.take_in(with.clone(), Some(&old)).unwrap_or_else(|| old.drive_name.clone());
    let view = opened.view().await;
    open::remember(world, &view.name, view.uuid, std::slice::from_ref(&with), Some(&gone))?;
    let mut done = Done::new(format!(
        "drive {} takes the place of {} in {} (seat {})",
        request.with,
        name_of(&old),
        view.name,
        old.seat
    ));
    done.notes.push(format!("the rebuild has started; {}", shows_it(&view.name)));
    done.notes.extend(about_size(&view, &with, usable));
    Ok(done)
}

/// Where the progress of a rebuild is seen: the form for one array, since the list of all shows none.
fn shows_it(array: &str) -> String {
    format!("`ashlar status {array} --watch` shows the progress")
}

/// Lets a member go for good: it leaves when nothing lies on it any more ([`see_off`]).
///
/// # Errors
/// When there is no such member, or the array cannot do without it.
pub async fn retire(opened: &Opened, request: &DriveRetire) -> Result<Done, Problem> {
    let (seat, old) = member(opened, &request.drive).await?;
    opened.array.drive_retire(seat).await.map_err(|r| named(&opened.array, r))?;
    let mut done =
        Done::new(format!("drive {} (seat {}) leaves {}", name_of(&old), old.seat, opened.array.first().name()));
    if old.state == SeatState::In {
        done.notes.push(format!("its data is moved to the others; {}", shows_it(&opened.array.first().name())));
    }
    Ok(done)
}

/// Waits until the member called `name` has left, or stays after all; then lets go of its drive and forgets it.
///
/// # Errors
/// When the list of known arrays cannot be written.
pub async fn see_off(world: &World, opened: &Opened, old: &MemberView) -> Result<bool, Problem> {
    if !opened.array.drive_left(base::MemberId(old.member)).await? {
        return Ok(false);
    }
    let gone = opened.let_go(old).unwrap_or_else(|| old.drive_name.clone());
    let view = opened.view().await;
    open::remember(world, &view.name, view.uuid, &[], Some(&gone))?;
    Ok(true)
}

/// Sees off, in the background, every member that is leaving.
pub async fn see_off_all(world: &World, opened: &Opened) {
    let leaving = |m: &MemberView| m.state == SeatState::Leaving;
    opened.view().await.members.into_iter().filter(leaving).for_each(|old| see_off_soon(world, opened, old));
}

/// Sees off one in the background.
pub fn see_off_soon(world: &World, opened: &Opened, old: MemberView) {
    let (world, opened) = (world.clone(), opened.clone());
    let rt = world.rt.clone();
    let seen_off = async move {
        match see_off(&world, &opened, &old).await {
            Ok(true) => tracing::info!("drive {} has left {}", name_of(&old), opened.array.first().name()),
            Ok(false) => {}
            Err(problem) => tracing::warn!("{}", problem.line()),
        }
    };
    rt.spawn(seen_off).detach();
}

/// The member that `name` means.
///
/// # Errors
/// When it means none, or more than one.
pub async fn member_of(opened: &Opened, name: &str) -> Result<MemberView, Problem> {
    Ok(member(opened, name).await?.1)
}

/// Lights a member's lamp, or puts it out.
///
/// # Errors
/// When there is no such member, or this machine has no lamp for it.
pub fn locate(members: &[MemberView], request: &DriveLocate) -> Result<Done, Problem> {
    let member = names::member_of(members, &request.drive)?;
    let lamp = locate::light(std::path::Path::new("/sys"), &member.drive, !request.off)?;
    let done = if request.off { "is off" } else { "is on" };
    Ok(Done::new(format!("the locate LED of drive {} {done} ({})", name_of(&member), lamp.display())))
}

/// Adds a spare, or a drive that takes part at once.
///
/// # Errors
/// When the drive is refused.
pub async fn add(world: &World, opened: &Opened, request: &DriveAdd) -> Result<Done, Problem> {
    let (with, files) =
        new_drive(world, opened, &request.with, request.size_bytes, (request.force, &request.take_from)).await?;
    let before = remember_first(world, opened, &with)?;
    let force = request.force || !request.take_from.is_empty();
    let usable = opened.view().await.usable_bytes;
    let added = match request.grow {
        true => opened.array.drive_grow(with.clone(), force).await,
        false => opened.array.drive_add_spare(with.clone(), force).await,
    };
    if let Err(refused) = added {
        forget_again(world, opened, &with, before).await;
        return Err(named(&opened.array, refused));
    }
    files.keep();
    opened.take_in(with.clone(), None);
    let view = opened.view().await;
    open::remember(world, &view.name, view.uuid, std::slice::from_ref(&with), None)?;
    let mut done = Done::new(match request.grow {
        true => format!("drive {} joined {}: new segments use it", request.with, view.name),
        false => format!("drive {} is a spare of {}", request.with, view.name),
    });
    done.notes.extend(about_size(&view, &with, usable));
    Ok(done)
}

/// What is to be said of a drive that joined and is larger or smaller than the others; `usable` is what volumes could fill
/// before.
fn about_size(view: &ArrayView, with: &rt::Drive, usable: u64) -> Vec<String> {
    let mut notes = vec![];
    let Some(new) = view.members.iter().find(|m| m.drive == with.info().name) else { return notes };
    if let Some(sizes) = new.size_sentence() {
        notes.push(format!("it has {sizes}: the array cannot use more of it"));
    }
    let smallest = view.members.iter().filter(|m| m.state == SeatState::In).map(|m| m.zones).min();
    if new.state == SeatState::Spare && smallest.is_some_and(|zones| new.zones < zones) {
        notes.push("it is smaller than the drives in use: usable shrinks when it takes the place of one".to_owned());
    }
    if view.usable_bytes < usable {
        notes.push(format!("usable shrinks from {} to {}", human(usable), human(view.usable_bytes)));
    } else if view.usable_bytes > usable {
        notes.push(format!("usable grows from {} to {}", human(usable), human(view.usable_bytes)));
    }
    notes
}

/// Writes down a drive before the array takes it: a start after a kill in between looks for it then. One too many in
/// the list does no harm: it carries no label of the array.
fn remember_first(world: &World, opened: &Opened, with: &rt::Drive) -> Result<Before, Problem> {
    let first = opened.array.first();
    let uuid = first.uuid();
    let before = match world.registry.list()?.into_iter().find(|known| known.uuid == uuid) {
        None => Before::NoArray,
        Some(known) if known.drives.contains(&with.info().stable_name) => Before::Drive,
        Some(_) => Before::NoDrive,
    };
    open::remember(world, &first.name(), uuid, std::slice::from_ref(with), None)?;
    Ok(before)
}

/// What this machine knew before it wrote down a drive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    NoArray,
    NoDrive,
    Drive,
}

/// Takes a drive off the list again that the array has refused. One that some part of it has taken stays.
async fn forget_again(world: &World, opened: &Opened, with: &rt::Drive, before: Before) {
    let (view, info) = (opened.view().await, with.info());
    if view.members.iter().any(|m| m.drive == info.name || m.drive_name == info.stable_name) {
        return;
    }
    let done = match before {
        Before::Drive => Ok(()),
        Before::NoDrive => open::remember(world, &view.name, view.uuid, &[], Some(&info.stable_name)),
        Before::NoArray => world.registry.forget(view.uuid),
    };
    if let Err(problem) = done {
        tracing::warn!("{}", problem.line());
    }
}

async fn member(opened: &Opened, name: &str) -> Result<(base::MemberId, MemberView), Problem> {
    let member = names::member_of(&opened.view().await.members, name)?;
    Ok((base::MemberId(member.member), member))
}

async fn new_drive(
    world: &World,
    opened: &Opened,
    name: &str,
    size: Option<u64>,
    (force, take_from): (bool, &[String]),
) -> Result<(rt::Drive, NewFiles), Problem> {
    let sources = names::sources(&[name.to_owned()])?;
    let mut files = NewFiles::default();
    if let Some(drive) = former_member(opened, name, force).await? {
        return Ok((drive, files));
    }
    if let (Some(size), Some(path)) = (size, sources.first().and_then(Source::path)) {
        files.ensure(&world.rt, path, Size(size)).await?;
    }
    let uuid = opened.array.first().uuid();
    let checks = Checks { rt: &world.rt, registry: &world.registry, purpose: Purpose::Join(uuid), force, take_from };
    let mut drives = checks.open_all(&sources).await?;
    let drive = drives.remove(0);
    if drive.info().kind == rt::DriveKind::Memory && !opened.volatile {
        return Err(Problem::refused(
            "memory_drive",
            format!("drive {name}"),
            "memory drives cannot join an array on disks",
            "give a block device or a file",
        ));
    }
    Ok((drive, files))
}

/// The drive called `name` if it is open here as one that is out, or that was replaced: it may come back as new.
async fn former_member(opened: &Opened, name: &str, force: bool) -> Result<Option<rt::Drive>, Problem> {
    let real = std::fs::canonicalize(name).map(|p| p.display().to_string()).unwrap_or_default();
    let same = |d: &rt::Drive| d.info().name == name || d.info().stable_name == real || d.info().name == real;
    let former = match opened.array.others().is_empty() {
        true => opened.array.first().former_drives(),
        false => opened.former(),
    };
    let mut here = opened.drives().into_iter().chain(former);
    let Some(drive) = here.find(same) else { return Ok(None) };
    let members = opened.view().await.members;
    let at_work = |m: &MemberView| matches!(m.state, SeatState::In | SeatState::Leaving | SeatState::Spare);
    let in_use = |m: &&MemberView| m.drive == drive.info().name && at_work(m);
    let what = format!("drive {name}");
    if let Some(m) = members.iter().find(in_use) {
        let why = format!("it is already in the array (seat {})", m.seat);
        return Err(Problem::refused("drive_in_array", what, why, "name another drive"));
    }
    if !force {
        let why = "it was in this array; its data is old and will be lost";
        return Err(Problem::refused("drive_in_array", what, why, "give --force to use it as a new drive"));
    }
    // What was sent to it in its former life must not arrive in the new one.
    drive.idle().await;
    Ok(Some(drive))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{ExposureView, RebuildView};

    #[test]
    fn a_refusal_to_fail_a_drive_says_what_helps_now() {
        let refused = Problem::refused("redundancy", "drive d/1", "the engine's words", "wait for the rebuild");
        let view = |tolerates, rebuild: bool, paused| ArrayView {
            name: "lab".into(),
            level: "RAID 5".into(),
            exposure: ExposureView { tolerates, failed: vec![0], missing: vec![2, 3], ..ExposureView::default() },
            rebuild: rebuild.then(RebuildView::default),
            rebuild_paused: paused,
            ..ArrayView::default()
        };
        let told = |view: &ArrayView| without_redundancy(view, refused.clone());
        let stuck = told(&view(1, false, false));
        assert!(stuck.why.contains("failed: seat 0; missing: seats 2, 3") && stuck.code == "redundancy", "{stuck}");
        assert!(!stuck.todo.contains("wait") && stuck.todo.contains("`ashlar status lab`"), "{stuck}");
        assert!(told(&view(1, true, false)).todo.starts_with("wait until the rebuild is done"));
        assert!(told(&view(1, true, true)).todo.contains("`ashlar rebuild lab resume`"));
        assert!(told(&view(0, false, false)).todo.contains("`ashlar drive replace lab SEAT NEW-DRIVE`"));
    }
}
