//! Routes of the server and of whole arrays.

use api::{
    ArrayPatch, ArrayView, Changed, Confirmed, CreateRequest, Created, Done, FindRequest, Forced, FoundArrays,
    ImportRequest, Imported, PlanView, Problem, VERSION,
};
use axum::extract::State;

use super::answer::{Body, IfMatch, Path, Query};
use super::drives::on;
use super::{Answer, Context};
use crate::daemon::arrays::{import_and_serve, log_open};
use crate::ops::{create as make, destroy as end, export as handed_over, find as look_for, forget as forgotten};
use crate::problem::name_taken;

/// Stop the server.
#[utoipa::path(post, path = "/v1/server/stop", tag = "server", params(Forced), responses((status = 200, description = "It is stopping", body = Done)))]
pub async fn stop_server(State(c): State<Context>, Query(how): Query<Forced>) -> Answer<Done> {
    let ask = c.data.ask(move |data| async move {
        data.refuse_if_used("this Ashlar", (None, None), how.force).await?;
        data.end_devices(&data.served_uuids(), how.force).await
    });
    if let Err(problem) = ask.await {
        return Err(problem).into();
    }
    c.stop_now.send("requested over the control socket");
    Ok(Done::new("the server is stopping")).into()
}

/// Make an array, and serve it. One that is there already, of the same drives, is the answer, too.
#[utoipa::path(post, path = "/v1/arrays", tag = "arrays", request_body = CreateRequest,
    responses((status = 201, description = "It was made", body = Created), (status = 200, description = "It was there", body = Created)))]
pub async fn create(State(c): State<Context>, Body(request): Body<CreateRequest>) -> Answer<Created> {
    let ask = c.data.ask(move |data| async move {
        let there = data.served.borrow().get(&request.name).cloned();
        if let Some(there) = there {
            return Ok((as_it_is(there.view().await, &request)?, false));
        }
        let (opened, plan) = make::run(&data.world, &request, make::Host::Server).await?;
        let view = opened.view().await;
        log_open(&opened).await;
        data.serve(opened).await?;
        Ok((Created { version: VERSION, name: view.name, uuid: Some(view.uuid), served: true, plan }, true))
    });
    Answer::made(ask.await)
}

/// An array that is there already, when it is what is asked for.
fn as_it_is(view: ArrayView, request: &CreateRequest) -> Result<Created, Problem> {
    let mut here: Vec<&str> = view.members.iter().map(|m| m.drive.as_str()).collect();
    let mut wanted: Vec<&str> = request.drives.iter().map(String::as_str).collect();
    here.sort_unstable();
    wanted.sort_unstable();
    if here != wanted || view.level != format!("RAID {}", request.raid) || view.parts != request.parts {
        return Err(name_taken(&request.name));
    }
    let plan = PlanView {
        level: view.level,
        scheme: view.scheme,
        drives: view.members.len(),
        zone_bytes: view.zone_bytes,
        segments: view.segments_total,
        raw_bytes: view.raw_bytes,
        usable_bytes: view.usable_bytes,
        tolerates: view.exposure.tolerates,
        rebuild_place: view.exposure.rebuild_place,
        notes: vec!["it was there already".to_owned()],
        ..PlanView::default()
    };
    Ok(Created { version: VERSION, name: view.name, uuid: Some(view.uuid), served: true, plan })
}

/// What an array would be like, and what would be lost; writes nothing.
#[utoipa::path(post, path = "/v1/plan", tag = "arrays", request_body = CreateRequest, responses((status = 200, description = "The plan", body = PlanView)))]
pub async fn plan(State(c): State<Context>, Body(request): Body<CreateRequest>) -> Answer<PlanView> {
    c.data.ask(move |data| async move { make::plan(&data.world, &request).await }).await.into()
}

/// Look for arrays; opens nothing.
#[utoipa::path(post, path = "/v1/find", tag = "arrays", request_body = FindRequest, responses((status = 200, description = "What was found", body = FoundArrays)))]
pub async fn find(State(c): State<Context>, Body(request): Body<FindRequest>) -> Answer<FoundArrays> {
    let ask = c.data.ask(move |data| async move { look_for::run(&data.world, &request, &data.served_uuids()).await });
    ask.await.into()
}

/// Find arrays, and serve them.
#[utoipa::path(post, path = "/v1/import", tag = "arrays", request_body = ImportRequest, responses((status = 200, description = "What was opened", body = Imported)))]
pub async fn import(State(c): State<Context>, Body(request): Body<ImportRequest>) -> Answer<Imported> {
    c.data.ask(move |data| async move { import_and_serve(&data, request).await }).await.into()
}

/// Close an array, and serve it no more.
#[utoipa::path(post, path = "/v1/arrays/{array}/stop", tag = "arrays", params(("array" = String, Path, description = "Its name or identity"), Forced),
    responses((status = 200, description = "It is closed", body = Done)))]
pub async fn stop(State(c): State<Context>, Path(array): Path<String>, Query(how): Query<Forced>) -> Answer<Done> {
    let ask = c.data.ask(move |data| async move {
        let opened = data.array(&array)?;
        let name = opened.array.first().name();
        data.refuse_if_used(&format!("array {name}"), (Some(&name), None), how.force).await?;
        let mut done = Done::new(format!("array {name} is closed and its drives are released"));
        data.end_devices(&[opened.array.first().uuid()], how.force).await?;
        let opened = data.take_out(&opened).await?;
        if opened.volatile {
            done.notes.push("it was in memory: its data is gone".to_owned());
            data.forget_devices(opened.array.first().uuid());
        }
        opened.close(&data.world).await?;
        Ok(done)
    });
    ask.await.into()
}

/// Forget an array that is not served.
#[utoipa::path(delete, path = "/v1/known/{array}", tag = "arrays", params(("array" = String, Path, description = "Its name or identity"), Forced),
    responses((status = 200, description = "It is not known any more", body = Done)))]
pub async fn forget(State(c): State<Context>, Path(array): Path<String>, Query(how): Query<Forced>) -> Answer<Done> {
    let ask = c.data.ask(move |data| async move {
        let known = data.world.registry.find(&array)?;
        if data.served_uuids().contains(&known.uuid) {
            let (what, why) = (format!("array {}", known.name), "it is being served here");
            return Err(Problem::refused("array_served", what, why, "`ashlar export` hands it over to another host"));
        }
        let (done, known) = forgotten::run(&data.world, &array, how.force).await?;
        data.absent.borrow_mut().remove(&known.name);
        Ok(done)
    });
    ask.await.into()
}

/// Close an array and forget it here: for another host.
#[utoipa::path(post, path = "/v1/arrays/{array}/export", tag = "arrays", params(("array" = String, Path, description = "Its name or identity"), Forced),
    responses((status = 200, description = "It is closed, and not known here any more", body = Done)))]
pub async fn export(State(c): State<Context>, Path(array): Path<String>, Query(how): Query<Forced>) -> Answer<Done> {
    let ask = c.data.ask(move |data| async move {
        let opened = data.array(&array)?;
        if opened.volatile || opened.read_only {
            return handed_over::opened(&data.world, opened).await;
        }
        let name = opened.array.first().name();
        data.refuse_if_used(&format!("array {name}"), (Some(&name), None), how.force).await?;
        data.refuse_if_exported(&opened, how.force)?;
        data.end_devices(&[opened.array.first().uuid()], how.force).await?;
        let opened = data.take_out(&opened).await?;
        data.forget_devices(opened.array.first().uuid());
        let done = handed_over::opened(&data.world, opened).await?;
        Ok(done)
    });
    ask.await.into()
}

/// Destroy an array, and all that it holds.
#[utoipa::path(delete, path = "/v1/arrays/{array}", tag = "arrays", params(("array" = String, Path, description = "Its name or identity"), Confirmed),
    responses((status = 200, description = "It is gone", body = Done)))]
pub async fn destroy(
    State(c): State<Context>,
    Path(array): Path<String>,
    Query(how): Query<Confirmed>,
    version: IfMatch,
) -> Answer<Done> {
    let ask = c.data.ask(move |data| async move {
        let opened = data.array(&array)?;
        let name = opened.array.first().name();
        how.confirms(&format!("array {name}"), opened.array.first().uuid())?;
        if version.asks() {
            version.agrees(&format!("array {name}"), &opened.view().await.etag())?;
        }
        end::may_be_destroyed(&opened)?;
        data.refuse_if_used(&format!("array {name}"), (Some(&name), None), how.force).await?;
        data.refuse_if_exported(&opened, how.force)?;
        data.end_devices(&[opened.array.first().uuid()], how.force).await?;
        // Out of the list first: no new connection finds its volumes.
        let opened = data.take_out(&opened).await?;
        data.forget_devices(opened.array.first().uuid());
        let done = end::opened(&data.world, opened).await?;
        Ok(done)
    });
    ask.await.into()
}

/// Change an array: its name.
#[utoipa::path(patch, path = "/v1/arrays/{array}", tag = "arrays", params(("array" = String, Path, description = "Its name or identity")),
    request_body = ArrayPatch, responses((status = 200, description = "It was changed", body = Changed<ArrayView>)))]
pub async fn change(
    State(c): State<Context>,
    Path(array): Path<String>,
    version: IfMatch,
    Body(r): Body<ArrayPatch>,
) -> Answer<Changed<ArrayView>> {
    on(&c, array, version, async move |data, opened| match &r.name {
        Some(to) => data.rename(&opened, to).await,
        None => Ok(Done::new(format!("array {}: nothing to change", opened.array.first().name()))),
    })
    .await
}

/// Switch on every feature of the format that this server knows: there is no way back.
#[utoipa::path(post, path = "/v1/arrays/{array}/upgrade", tag = "arrays", params(("array" = String, Path, description = "Its name or identity")),
    responses((status = 200, description = "The array", body = Changed<ArrayView>)))]
pub async fn upgrade(
    State(c): State<Context>,
    Path(array): Path<String>,
    version: IfMatch,
) -> Answer<Changed<ArrayView>> {
    on(&c, array, version, async move |data, opened| data.upgrade(&opened).await).await
}
