//! Requests that change an array's drives, rebuilds and scrubs.

use std::future::Future;
use std::rc::Rc;

use api::{
    ArrayView, Changed, Done, DriveAdd, DriveFail, DriveLocate, DriveReplace, DriveRetire, Problem, RebuildSet,
    Resource, ScrubSchedule, ScrubStart,
};
use axum::extract::State;

use super::answer::{Body, IfMatch, Path, on_data};
use super::{Answer, Context};
use crate::daemon::Data;
use crate::ops::open::Opened;
use crate::ops::{drive, rebuild as pace, scrub};

/// Runs a verb on a served array, which is the answer.
pub async fn on<F, Fut>(c: &Context, array: String, version: IfMatch, verb: F) -> Answer<Changed<ArrayView>>
where
    F: FnOnce(Rc<Data>, Opened) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Done, Problem>> + 'static,
{
    let changed = on_data(c, move |data| async move {
        let opened = data.array(&array)?;
        if version.asks() {
            version.agrees(&format!("array {}", opened.array.first().name()), &opened.view().await.etag())?;
        }
        let done = verb(data.clone(), opened.clone()).await?;
        Ok(Changed { done, resource: Resource::from(opened.view().await) })
    });
    changed.await.into()
}

/// Take a drive out.
#[utoipa::path(post, path = "/v1/arrays/{array}/drives/fail", tag = "drives", params(("array" = String, Path, description = "Its name or identity")),
    request_body = DriveFail, responses((status = 200, description = "It is out", body = Changed<ArrayView>)))]
pub async fn fail(
    State(c): State<Context>,
    Path(array): Path<String>,
    version: IfMatch,
    Body(r): Body<DriveFail>,
) -> Answer<Changed<ArrayView>> {
    on(&c, array, version, move |data, o| async move {
        let clients = data.clients(Some(&o.array.first().name()), None);
        drive::fail(&o, &r, (&clients, data.world.rt.unix_seconds())).await
    })
    .await
}

/// Put a drive in another's place.
#[utoipa::path(post, path = "/v1/arrays/{array}/drives/replace", tag = "drives", params(("array" = String, Path, description = "Its name or identity")),
    request_body = DriveReplace, responses((status = 200, description = "The rebuild has begun", body = Changed<ArrayView>)))]
pub async fn replace(
    State(c): State<Context>,
    Path(array): Path<String>,
    version: IfMatch,
    Body(r): Body<DriveReplace>,
) -> Answer<Changed<ArrayView>> {
    on(&c, array, version, move |data, o| async move {
        let done = drive::replace(&data.world, &o, &r).await?;
        drive::see_off_all(&data.world, &o).await;
        Ok(done)
    })
    .await
}

/// Add a drive.
#[utoipa::path(post, path = "/v1/arrays/{array}/drives/add", tag = "drives", params(("array" = String, Path, description = "Its name or identity")),
    request_body = DriveAdd, responses((status = 200, description = "It was added", body = Changed<ArrayView>)))]
pub async fn add(
    State(c): State<Context>,
    Path(array): Path<String>,
    version: IfMatch,
    Body(r): Body<DriveAdd>,
) -> Answer<Changed<ArrayView>> {
    on(&c, array, version, move |data, o| async move { drive::add(&data.world, &o, &r).await }).await
}

/// Let a drive go for good, once what lies on it is elsewhere.
#[utoipa::path(post, path = "/v1/arrays/{array}/drives/retire", tag = "drives", params(("array" = String, Path, description = "Its name or identity")),
    request_body = DriveRetire, responses((status = 200, description = "It is leaving", body = Changed<ArrayView>)))]
pub async fn retire(
    State(c): State<Context>,
    Path(array): Path<String>,
    version: IfMatch,
    Body(r): Body<DriveRetire>,
) -> Answer<Changed<ArrayView>> {
    on(&c, array, version, move |data, o| async move {
        let old = drive::member_of(&o, &r.drive).await?;
        let done = drive::retire(&o, &r).await?;
        drive::see_off_soon(&data.world, &o, old);
        Ok(done)
    })
    .await
}

/// Light a drive's lamp, or put it out.
#[utoipa::path(post, path = "/v1/arrays/{array}/drives/locate", tag = "drives", params(("array" = String, Path, description = "Its name or identity")),
    request_body = DriveLocate, responses((status = 200, description = "It is lit, or not", body = Changed<ArrayView>)))]
pub async fn locate(
    State(c): State<Context>,
    Path(array): Path<String>,
    Body(r): Body<DriveLocate>,
) -> Answer<Changed<ArrayView>> {
    on(&c, array, IfMatch::default(), move |_, o| async move { drive::locate(&o.view().await.members, &r) }).await
}

/// Set how fast rebuilds go, or let them wait.
#[utoipa::path(post, path = "/v1/arrays/{array}/rebuild", tag = "arrays", params(("array" = String, Path, description = "Its name or identity")),
    request_body = RebuildSet, responses((status = 200, description = "It is set", body = Changed<ArrayView>)))]
pub async fn rebuild(
    State(c): State<Context>,
    Path(array): Path<String>,
    version: IfMatch,
    Body(r): Body<RebuildSet>,
) -> Answer<Changed<ArrayView>> {
    on(&c, array, version, move |_, o| async move { pace::set(&o, &r).await }).await
}

/// Start a scrub.
#[utoipa::path(post, path = "/v1/arrays/{array}/scrub/start", tag = "arrays", params(("array" = String, Path, description = "Its name or identity")),
    request_body = ScrubStart, responses((status = 200, description = "It has begun", body = Changed<ArrayView>)))]
pub async fn scrub_start(
    State(c): State<Context>,
    Path(array): Path<String>,
    Body(r): Body<ScrubStart>,
) -> Answer<Changed<ArrayView>> {
    on(&c, array, IfMatch::default(), move |_, o| async move { scrub::start(&o, &r, false).await }).await
}

/// End the scrub that is running.
#[utoipa::path(post, path = "/v1/arrays/{array}/scrub/stop", tag = "arrays", params(("array" = String, Path, description = "Its name or identity")),
    responses((status = 200, description = "It has ended", body = Changed<ArrayView>)))]
pub async fn scrub_stop(State(c): State<Context>, Path(array): Path<String>) -> Answer<Changed<ArrayView>> {
    on(&c, array, IfMatch::default(), move |_, o| async move { scrub::stop(&o).await }).await
}

/// Say how often scrubs run by themselves.
#[utoipa::path(post, path = "/v1/arrays/{array}/scrub/schedule", tag = "arrays", params(("array" = String, Path, description = "Its name or identity")),
    request_body = ScrubSchedule, responses((status = 200, description = "It is set", body = Changed<ArrayView>)))]
pub async fn scrub_schedule(
    State(c): State<Context>,
    Path(array): Path<String>,
    version: IfMatch,
    Body(r): Body<ScrubSchedule>,
) -> Answer<Changed<ArrayView>> {
    on(&c, array, version, move |_, o| async move { scrub::schedule(&o, &r).await }).await
}
