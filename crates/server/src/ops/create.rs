//! `create`: a new array out of drives that nobody needs any more.
//!
//! Invariant: everything that can be refused is refused before the first byte is written, and files that were made
//! for a refused request are taken away again.

use api::{CreateRequest, HeldView, Kind, PlanView, Problem};
use array::parts::{self, create_by};
use array::{Array, CreateSpec};
use base::BLOCK_BYTES;
use ondisk::Level;
use rt::{Drive, probe};

use super::World;
use super::open::{self, Opened};
use crate::drives::checks::{Checks, Purpose};
use crate::drives::files::NewFiles;
use crate::drives::holds::Look;
use crate::drives::{Source, names};
use crate::parts::place;
use crate::problem;
use crate::registry::Known;
use crate::size::{Size, human};

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// A server: memory drives live as long as it does.
    Server,
    /// A command that ends: memory drives make no sense.
    Command,
}

/// What an array of this request would be like. Checks the drives; writes nothing and makes no file.
///
/// # Errors
/// When `create` would refuse.
pub async fn plan(world: &World, request: &CreateRequest) -> Result<PlanView, Problem> {
    let (spec, sources) = read(request)?;
    let mut blocks = Vec::with_capacity(sources.len());
    let mut present = vec![];
    for source in &sources {
        match (source, request.size_bytes) {
            (Source::Memory(size), _) => blocks.push(size.0 / BLOCK_BYTES as u64),
            (Source::Path(path), Some(size)) if !path.exists() => blocks.push(size / BLOCK_BYTES as u64),
            (Source::Path(_), _) => present.push(source.clone()),
        }
    }
    let drives = checks(world, request).open_all(&present).await?;
    blocks.extend(drives.iter().map(|d| d.info().blocks.0));
    name_is_free(world, request, &sources).await?;
    let mut plan = parts::plan(&spec, &blocks, request.parts)?;
    plan.notes.extend(about_parts(request.parts));
    plan.notes.extend(room_for_files(request, &sources));
    plan.notes.extend(room_in_memory(&sources));
    plan.losses = losses(world, &request.drives).await?;
    Ok(plan)
}

/// What drives of these names hold that is lost when they are taken. Nothing is locked.
///
/// # Errors
/// When a name cannot be one of a drive.
pub async fn losses(world: &World, drives: &[String]) -> Result<Vec<HeldView>, Problem> {
    let sources = names::sources(drives)?;
    Ok(Look { rt: &world.rt, registry: &world.registry, beside: &sources }.all().await)
}

/// Makes the array. It is open for writing afterwards.
///
/// # Errors
/// When a drive or the name is refused, or a drive fails.
pub async fn run(world: &World, request: &CreateRequest, host: Host) -> Result<(Opened, PlanView), Problem> {
    let (spec, sources) = read(request)?;
    let volatile = sources.iter().any(|s| s.path().is_none());
    if volatile && host == Host::Command {
        return Err(Problem::refused(
            "memory_drive",
            format!("array {}", request.name),
            "a memory drive is gone when this command ends",
            "start `ashlar serve` first: it creates the array and keeps it; or use files (--size)",
        ));
    }
    let superseded = name_is_free(world, request, &sources).await?;
    let mut files = NewFiles::default();
    if let Some(size) = request.size_bytes {
        for path in sources.iter().filter_map(Source::path) {
            files.ensure(&world.rt, path, Size(size)).await?;
        }
    }
    let drives = checks(world, request).open_all(&sources).await?;
    let blocks: Vec<u64> = drives.iter().map(|d| d.info().blocks.0).collect();
    let mut plan = parts::plan(&spec, &blocks, request.parts)?;
    plan.notes.extend(about_parts(request.parts));
    plan.notes.extend(room_for_files(request, &sources));
    plan.notes.extend(room_in_memory(&sources));
    plan.losses = losses(world, &request.drives).await?;
    world.registry.prepare()?;
    let mut opened = match request.parts {
        1 => {
            let array = Array::create(&world.rt, drives.clone(), &spec).await?;
            world.cores.memory().give(&array, 1);
            array.set_discard(world.discard);
            Opened::new(array.into(), drives.clone())
        }
        parts => {
            let place = |job, slices| place(world, job, slices);
            let made = create_by(&world.rt, drives.clone(), &spec, parts, place).await?;
            Opened::of(world, made, drives.clone()).await?
        }
    };
    if world.reserve {
        let reserved = opened.array.reserve().await;
        reserved.map_err(|fault| problem::fault(format!("array {}", request.name), fault))?;
    }
    files.keep();
    if let Some(old) = superseded {
        world.registry.forget(old.uuid)?;
    }
    forget_taken(world, request, &drives)?;
    if !volatile {
        open::remember(world, &request.name, opened.array.first().uuid(), &drives, None)?;
    }
    opened.volatile = volatile;
    Ok((opened.remembering(world), plan))
}

/// Forgets arrays of which all drives were taken.
fn forget_taken(world: &World, request: &CreateRequest, drives: &[Drive]) -> Result<(), Problem> {
    let known = world.registry.list()?;
    let is_named = |k: &&Known| request.take_from.iter().any(|n| *n == k.name || *n == k.uuid.to_string());
    for known in known.iter().filter(is_named) {
        if known.drives.iter().all(|name| drives.iter().any(|d| d.info().stable_name == *name)) {
            world.registry.forget(known.uuid)?;
        }
    }
    Ok(())
}

fn checks<'a>(world: &'a World, request: &'a CreateRequest) -> Checks<'a> {
    let (force, take_from) = (request.force, &request.take_from[..]);
    Checks { rt: &world.rt, registry: &world.registry, purpose: Purpose::Create, force, take_from }
}

fn read(request: &CreateRequest) -> Result<(CreateSpec, Vec<Source>), Problem> {
    let what = || format!("array {}", request.name);
    let level: Level =
        request.raid.parse().map_err(|e: String| Problem::usage(what(), e, "give a level, for instance --raid 6"))?;
    size_is_meant(request)?;
    let sources = names::sources(&request.drives)?;
    let zone_blocks = match request.zone_bytes {
        None => None,
        Some(bytes) => Some(u32::try_from(bytes / BLOCK_BYTES as u64).map_err(|_| {
            Problem::usage(what(), format!("a zone of {} is too large (at most 4 GiB)", human(bytes)), "omit --zone")
        })?),
    };
    // Whose drives are taken was checked; the array itself knows no names of others.
    let force = request.force || !request.take_from.is_empty();
    let spec = CreateSpec { name: request.name.clone(), level, width: request.width, zone_blocks, force };
    Ok((spec, sources))
}

/// Bytes below which a file's size is a slip: "5" where "5G" was meant.
const FILE_BYTES_MIN: u64 = 1 << 20;

/// Refuses a size for new files that nobody means.
fn size_is_meant(request: &CreateRequest) -> Result<(), Problem> {
    match request.size_bytes {
        Some(bytes) if bytes < FILE_BYTES_MIN => Err(Problem::usage(
            "--size",
            format!("{} are too few for a drive", human(bytes)),
            "give a size with its unit, such as 4G",
        )),
        Some(_) | None => Ok(()),
    }
}

/// A note when drives in memory are larger than the memory of this machine.
fn room_in_memory(sources: &[Source]) -> Option<String> {
    let size = |source: &Source| if let Source::Memory(size) = source { size.0 } else { 0 };
    let wanted = sources.iter().map(size).fold(0, u64::saturating_add);
    let has = crate::memory::of_machine()?;
    (wanted > has).then(|| {
        format!("The memory drives can grow to {} in all; this machine has {} of memory.", human(wanted), human(has))
    })
}

/// Whether the array's name may be used: also that of one whose drives all carry something else by now, or are all about to
/// be overwritten. Such an array is superseded.
async fn name_is_free(world: &World, request: &CreateRequest, sources: &[Source]) -> Result<Option<Known>, Problem> {
    let old = match world.registry.find(&request.name) {
        Ok(old) => old,
        Err(p) if p.kind == Kind::NotFound => return Ok(None),
        Err(p) => return Err(p),
    };
    let new: Vec<_> = sources.iter().filter_map(|s| s.path()?.canonicalize().ok()).collect();
    for name in &old.drives {
        if std::fs::canonicalize(name).is_ok_and(|p| new.contains(&p)) {
            continue;
        }
        let (code, why, todo) = match carries(world, name, &old).await {
            Carries::Other => continue,
            Carries::It => (
                "array_exists",
                format!("an array of this name exists already (drive {name} belongs to it)"),
                format!("choose another name, or `ashlar destroy {}` first", request.name),
            ),
            Carries::NotHere => (
                "array_absent",
                format!("this machine already knows an array of this name, whose drive {name} is not here"),
                format!("choose another name; if its drives are gone for good: `ashlar forget {}`", request.name),
            ),
        };
        return Err(Problem::refused(code, format!("array {}", request.name), why, todo));
    }
    Ok(Some(old))
}

/// What a drive of a known array carries now.
enum Carries {
    It,
    Other,
    NotHere,
}

async fn carries(world: &World, name: &str, old: &Known) -> Carries {
    let how = rt::OpenDrive { read_only: true, lock: false };
    let Ok(drive) = Drive::open(&world.rt, name.as_ref(), how).await else { return Carries::NotHere };
    match array::identify(&drive).await {
        Ok(Some(identity)) if identity.array.0 == old.uuid => Carries::It,
        Ok(Some(_) | None) => Carries::Other,
        Err(_) => Carries::NotHere,
    }
}

/// What parts are for.
fn about_parts(parts: u8) -> Option<String> {
    let word = "parts, each with its own log, map and cleaner; `ashlar serve --cores` sets how many cores they use";
    (parts > 1).then(|| format!("{parts} {word}."))
}

/// A note when sparse files may outgrow their file system.
fn room_for_files(request: &CreateRequest, sources: &[Source]) -> Option<String> {
    let size = request.size_bytes?;
    let paths: Vec<_> = sources.iter().filter_map(Source::path).collect();
    let dir = paths.first()?.ancestors().skip(1).find(|d| d.is_dir())?;
    let dir = if dir.as_os_str().is_empty() { std::path::Path::new(".") } else { dir };
    let free = probe::free_bytes(dir).ok()?;
    let wanted = size.saturating_mul(paths.len() as u64);
    (wanted > free).then(|| {
        format!("The files can grow to {} in all; {} are free in {}.", human(wanted), human(free), dir.display())
    })
}
