//! Routes of an array's volumes and drives.

use std::future::Future;

use api::{
    Done, DriveAdd, DriveFail, DriveLocate, DriveReplace, DriveRetire, Forced, Kind, Problem, RebuildSet,
    ScrubSchedule, ScrubStart, VolumeCreate, VolumeGrow, VolumeLimit, VolumeRename, Volumes,
};
use axum::extract::{Path, Query, State};

use super::answer::Body;
use super::{Answer, Context};
use crate::ops::open::Opened;
use crate::ops::{World, drive, rebuild as pace, scrub, volume};
use crate::parts::tell_limits;

/// Runs a verb on a served array and puts what it did into the log.
async fn on<F, Fut>(c: Context, array: String, verb: F) -> Answer<Done>
where
    F: FnOnce(World, Opened) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Done, Problem>> + 'static,
{
    let ask = c.data.ask(move |data| async move {
        let opened = data.array(&array)?;
        logged(verb(data.world.clone(), opened).await)
    });
    Answer(ask.await)
}

/// What a verb did, put into the log.
fn logged(result: Result<Done, Problem>) -> Result<Done, Problem> {
    match &result {
        Ok(done) => tracing::info!("{}", done.done),
        Err(problem) if problem.kind == Kind::Failed => tracing::warn!("{}", problem.line()),
        // What a user may not do, or mistyped, is for the user alone.
        Err(problem) => tracing::info!("refused: {}", problem.line()),
    }
    result
}

pub async fn volumes(State(c): State<Context>, Path(array): Path<String>) -> Answer<Volumes> {
    Answer(c.data.ask(move |data| async move { volume::list(&data.array(&array)?.array).await }).await)
}

pub async fn volume_create(
    State(c): State<Context>,
    Path(array): Path<String>,
    Body(r): Body<VolumeCreate>,
) -> Answer<Done> {
    on(c, array, move |_, o| async move { volume::create(&o.array, &r.name, r.bytes).await }).await
}

pub async fn volume_grow(
    State(c): State<Context>,
    Path((array, name)): Path<(String, String)>,
    Body(r): Body<VolumeGrow>,
) -> Answer<Done> {
    on(c, array, move |_, o| async move { volume::grow(&o.array, &name, r.bytes).await }).await
}

pub async fn volume_rename(
    State(c): State<Context>,
    Path((array, name)): Path<(String, String)>,
    Body(r): Body<VolumeRename>,
) -> Answer<Done> {
    on(c, array, move |_, o| async move { volume::rename(&o.array, &name, &r.to).await }).await
}

pub async fn volume_limit(
    State(c): State<Context>,
    Path((array, name)): Path<(String, String)>,
    Body(r): Body<VolumeLimit>,
) -> Answer<Done> {
    on(c, array, move |world, o| async move {
        let done = volume::limit(&o.array, &name, r).await?;
        tell_limits(&world.cores, &o.array);
        Ok(done)
    })
    .await
}

pub async fn volume_delete(
    State(c): State<Context>,
    Path((array, name)): Path<(String, String)>,
    Query(how): Query<Forced>,
) -> Answer<Done> {
    let ask = c.data.ask(move |data| async move {
        let opened = data.array(&array)?;
        let array = opened.array.first().name();
        if opened.array.first().volume(&name).is_some() {
            data.refuse_if_used(&format!("volume {array}/{name}"), (Some(&array), Some(&name)), how.force).await?;
        }
        logged(volume::delete(&opened.array, &name).await)
    });
    Answer(ask.await)
}

pub async fn drive_fail(State(c): State<Context>, Path(array): Path<String>, Body(r): Body<DriveFail>) -> Answer<Done> {
    let ask = c.data.ask(move |data| async move {
        let opened = data.array(&array)?;
        let clients = data.clients(Some(&opened.array.first().name()), None);
        logged(drive::fail(&opened, &r, (&clients, data.world.rt.unix_seconds())).await)
    });
    Answer(ask.await)
}

pub async fn drive_replace(
    State(c): State<Context>,
    Path(array): Path<String>,
    Body(r): Body<DriveReplace>,
) -> Answer<Done> {
    on(c, array, move |world, o| async move {
        let done = drive::replace(&world, &o, &r).await?;
        drive::see_off_all(&world, &o).await;
        Ok(done)
    })
    .await
}

pub async fn drive_add(State(c): State<Context>, Path(array): Path<String>, Body(r): Body<DriveAdd>) -> Answer<Done> {
    on(c, array, move |world, o| async move { drive::add(&world, &o, &r).await }).await
}

pub async fn drive_retire(
    State(c): State<Context>,
    Path(array): Path<String>,
    Body(r): Body<DriveRetire>,
) -> Answer<Done> {
    on(c, array, move |world, o| async move {
        let old = drive::member_of(&o, &r.drive).await?;
        let done = drive::retire(&o, &r).await?;
        drive::see_off_soon(&world, &o, old);
        Ok(done)
    })
    .await
}

pub async fn drive_locate(
    State(c): State<Context>,
    Path(array): Path<String>,
    Body(r): Body<DriveLocate>,
) -> Answer<Done> {
    on(c, array, move |_, o| async move { drive::locate(&o.view().await.members, &r) }).await
}

pub async fn rebuild(State(c): State<Context>, Path(array): Path<String>, Body(r): Body<RebuildSet>) -> Answer<Done> {
    on(c, array, move |_, o| async move { pace::set(&o, &r).await }).await
}

pub async fn scrub_start(
    State(c): State<Context>,
    Path(array): Path<String>,
    Body(r): Body<ScrubStart>,
) -> Answer<Done> {
    on(c, array, move |_, o| async move { scrub::start(&o, &r, false).await }).await
}

pub async fn scrub_stop(State(c): State<Context>, Path(array): Path<String>) -> Answer<Done> {
    on(c, array, move |_, o| async move { scrub::stop(&o).await }).await
}

pub async fn scrub_schedule(
    State(c): State<Context>,
    Path(array): Path<String>,
    Body(r): Body<ScrubSchedule>,
) -> Answer<Done> {
    on(c, array, move |_, o| async move { scrub::schedule(&o, &r).await }).await
}
