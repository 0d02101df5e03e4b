//! Opening what a server was told to serve. One array that cannot be opened does not keep the others from their
//! hosts; it is named in the log and in `status`.

use std::rc::Rc;

use api::{ImportRequest, Kind, Problem};

use super::Data;
use super::start::{Settings, What};
use crate::config::ArrayConfig;
use crate::ops::open::{self, How, Opened, Patience};
use crate::ops::{create, import, volume};
use crate::problem;
use crate::registry::Known;

/// Opens everything that `settings` ask for.
///
/// # Errors
/// When something was asked for and nothing could be opened.
pub async fn open_all(data: &Rc<Data>, settings: &Settings) -> Result<((), String), Problem> {
    let how = How {
        read_only: settings.read_only,
        degraded: settings.degraded,
        force_diverged: settings.force_diverged,
        accept_loss: settings.accept_loss,
        previous: false,
        take_over: false,
        patience: Patience::Long,
    };
    match &settings.what {
        What::Known => {
            let known = data.world.registry.list()?;
            known_to_take(settings, known.iter().map(|k| k.name.as_str()))?;
            for known in known {
                let how = taking(settings, &known.name, how);
                let result = Box::pin(open::known(&data.world, &known, how)).await;
                take(data, &known.name, result).await;
            }
        }
        What::Places(places) if places.is_empty() => {}
        What::Places(places) => open_places(data, places, how, settings).await?,
        What::Configured(arrays) => {
            known_to_take(settings, arrays.iter().map(|a| a.name.as_str()))?;
            for array in arrays {
                let how = taking(settings, &array.name, how);
                let result = Box::pin(configured(data, array, how)).await;
                take(data, &array.name, result).await;
            }
        }
    }
    let (served, absent) = (data.names(), data.absent());
    if served.is_empty()
        && let Some(problem) = Problem::all(absent.iter().map(|a| a.problem.clone()).collect())
    {
        return Err(problem);
    }
    for absent in &absent {
        tracing::error!("{}", absent.problem.line());
    }
    let detail = format!("{} open, {} not", served.len(), absent.len());
    Ok(((), detail))
}

/// How to open an array of this name.
fn taking(settings: &Settings, name: &str, how: How) -> How {
    let take_over = settings.take_over.iter().any(|taken| taken == name);
    if take_over {
        tracing::warn!(
            "array {name} is taken over; a server that is suspended now can still write to drives without \
             reservations once it continues"
        );
    }
    How { take_over, ..how }
}

/// Whether all that is to be taken over is among `names`.
fn known_to_take<'a>(settings: &Settings, names: impl Iterator<Item = &'a str>) -> Result<(), Problem> {
    let names: Vec<&str> = names.collect();
    match settings.take_over.iter().find(|taken| !names.contains(&taken.as_str())) {
        Some(taken) => Err(import::unknown_to_take(taken, names.into_iter())),
        None => Ok(()),
    }
}

async fn open_places(
    data: &Rc<Data>,
    places: &[std::path::PathBuf],
    how: How,
    settings: &Settings,
) -> Result<(), Problem> {
    let request = ImportRequest {
        places: places.iter().map(|p| p.display().to_string()).collect(),
        array: None,
        all: true,
        read_only: how.read_only,
        degraded: how.degraded,
        force_diverged: how.force_diverged,
        accept_loss: how.accept_loss,
        previous_generation: false,
        take_over: None,
    };
    let (found, problems) = import::search(&data.world, &request).await?;
    if let Some(problem) = Problem::all(problems) {
        return Err(problem);
    }
    known_to_take(settings, found.iter().map(|a| a.name.as_str()))?;
    for array in found {
        let take_over = taking(settings, &array.name, how).take_over.then(|| array.name.clone());
        let request = ImportRequest { take_over, ..request.clone() };
        let result = Box::pin(import::open(&data.world, &array, &request, Patience::Long)).await;
        take(data, &array.name, result).await;
    }
    Ok(())
}

/// Opens a configured array, or makes it when its drives are empty, and makes its volumes.
async fn configured(data: &Rc<Data>, config: &ArrayConfig, how: How) -> Result<Opened, Problem> {
    let how = How { read_only: how.read_only || config.read_only, degraded: how.degraded || config.degraded, ..how };
    let world = &data.world;
    let known = if config.drives.is_empty() {
        Some(world.registry.find(&config.name)?)
    } else {
        find_configured(data, config).await?
    };
    let opened = match known {
        Some(known) => Box::pin(open::known(world, &known, how)).await?,
        None if config.create && !how.read_only => {
            let (opened, plan) = Box::pin(create::run(world, &config.create_request(), create::Host::Server)).await?;
            tracing::info!("array {}: created, {} {}", config.name, plan.level, plan.scheme);
            opened
        }
        None => {
            return Err(Problem::refused(
                "array_gone",
                format!("array {}", config.name),
                "its drives carry no Ashlar label",
                "check the drives' names; create = true makes a new array of empty drives",
            ));
        }
    };
    if !opened.read_only {
        for wanted in &config.volumes {
            if opened.array.first().volumes().iter().all(|v| *v.name != *wanted.name) {
                volume::create(&opened.array, &wanted.name, wanted.size.0).await?;
            }
        }
    }
    Ok(opened)
}

/// The array that the configured drives carry, if they carry any.
async fn find_configured(data: &Rc<Data>, config: &ArrayConfig) -> Result<Option<Known>, Problem> {
    let request = ImportRequest {
        places: config.drives.iter().filter(|d| !d.starts_with("mem:")).cloned().collect(),
        ..ImportRequest::default()
    };
    if request.places.is_empty() {
        return Ok(None);
    }
    let (found, _) = match import::search(&data.world, &request).await {
        Ok(found) => found,
        // Nothing is there yet: to be made.
        Err(p) if p.kind == Kind::NotFound || p.code == "drive_without_label" => return Ok(None),
        Err(p) => return Err(p),
    };
    match &found[..] {
        [one] if one.name == config.name => {
            Ok(Some(Known { name: one.name.clone(), uuid: one.uuid, drives: config.drives.clone() }))
        }
        _ => Err(Problem::refused(
            "array_other",
            format!("array {}", config.name),
            format!("its drives carry {}", found.iter().map(|f| f.name.as_str()).collect::<Vec<_>>().join(", ")),
            "check the drives' names in the configuration",
        )),
    }
}

async fn take(data: &Rc<Data>, name: &str, result: Result<Opened, Problem>) {
    let taken = match result {
        Ok(opened) => {
            log_open(&opened).await;
            data.serve(opened).await
        }
        Err(problem) => Err(problem),
    };
    if let Err(problem) = taken {
        data.absent.borrow_mut().insert(name.to_owned(), problem);
    }
}

/// Puts what opening an array took into the log.
pub async fn log_open(opened: &Opened) {
    let view = opened.view().await;
    for note in &opened.notes {
        tracing::warn!("array {}: {note}", view.name);
    }
    for step in opened.recovery().await.steps {
        tracing::info!("array {}: {}: {} ({} ms)", view.name, step.name, step.detail, step.millis);
    }
}

/// Opens the arrays that an import request means and serves them.
///
/// # Errors
/// When none is found.
pub async fn import_and_serve(data: &Rc<Data>, mut request: ImportRequest) -> Result<api::Imported, Problem> {
    import::says_which(&request)?;
    request.read_only |= data.read_only;
    let (found, mut problems) = import::search(&data.world, &request).await?;
    let mut answer = api::Imported { version: api::VERSION, served: true, ..Default::default() };
    for array in found {
        if data.array(&array.uuid.to_string()).is_ok() {
            problems.push(Problem::refused(
                "array_served",
                format!("array {}", array.name),
                "this Ashlar serves it already",
                "nothing to do; `ashlar status` shows it",
            ));
            continue;
        }
        if data.served.borrow().contains_key(&array.name) {
            problems.push(problem::name_taken(&array.name));
            continue;
        }
        match Box::pin(import::open(&data.world, &array, &request, Patience::Short)).await {
            Ok(opened) => {
                log_open(&opened).await;
                answer.arrays.push(import::answer(&opened).await);
                data.serve(opened).await?;
            }
            Err(problem) => problems.push(problem),
        }
    }
    answer.problems = problems;
    Ok(answer)
}
