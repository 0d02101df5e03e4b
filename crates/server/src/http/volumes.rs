//! Requests that change volumes.

use api::{Changed, Confirmed, Done, EventCode, Problem, Resource, VolumeCreate, VolumePatch, VolumeState, VolumeView};
use axum::Extension;
use axum::extract::State;
use uuid::Uuid;

use super::answer::{Body, IfMatch, Path, Query, on_data};
use super::reads::volume_unknown;
use super::{Answer, Caller, Context};
use crate::daemon::Data;
use crate::ops::open::Opened;
use crate::ops::volume;
use crate::parts::tell_limits;

/// What an array says of its volume of this name or identity.
pub async fn view_of(opened: &Opened, name: &str) -> Option<VolumeView> {
    let volumes = opened.view().await.volumes;
    // One that is being deleted has its name still, which another may have by now.
    let is_it = |v: &VolumeView| v.state == VolumeState::Live && (*v.name == *name || v.uuid.to_string() == name);
    volumes.into_iter().find(is_it)
}

/// The name of a volume now: what was looked at before may be gone, and its name another's.
fn name_now(opened: &Opened, uuid: Uuid) -> Result<String, Problem> {
    let array = opened.array.first();
    let there = array.volumes().into_iter().find(|v| v.uuid == uuid && v.state == VolumeState::Live);
    there.map(|v| v.name.to_string()).ok_or_else(|| volume_unknown(&array.name(), &uuid.to_string()))
}

/// The same as the answer to a change.
async fn changed(data: &Data, opened: &Opened, name: &str, done: Done) -> Result<Changed<VolumeView>, Problem> {
    let view = view_of(opened, name).await;
    let mut view = view.ok_or_else(|| volume_unknown(&opened.array.first().name(), name))?;
    data.name_local_ways(std::slice::from_mut(&mut view));
    Ok(Changed { done, resource: Resource::of(opened.array.first().uuid(), view) })
}

/// Make a volume. One that is there already, and as large, is the answer, too.
#[utoipa::path(post, path = "/v1/arrays/{array}/volumes", tag = "volumes", params(("array" = String, Path, description = "Its name or identity")),
    request_body = VolumeCreate,
    responses((status = 201, description = "It was made", body = Changed<VolumeView>), (status = 200, description = "It was there", body = Changed<VolumeView>)))]
pub async fn create(
    State(c): State<Context>,
    Path(array): Path<String>,
    Body(r): Body<VolumeCreate>,
) -> Answer<Changed<VolumeView>> {
    let made = on_data(&c, move |data| async move {
        let opened = data.array(&array)?;
        let (done, is_new) = volume::state(&opened.array, &r.name, r.bytes).await?;
        data.offer_to_guests(&opened);
        Ok((changed(&data, &opened, &r.name, done).await?, is_new))
    });
    Answer::made(made.await)
}

/// Change a volume: its limits, its size, its name, in this order.
#[utoipa::path(patch, path = "/v1/arrays/{array}/volumes/{volume}", tag = "volumes",
    params(("array" = String, Path, description = "Name or identity"), ("volume" = String, Path, description = "Name or identity")),
    request_body = VolumePatch, responses((status = 200, description = "It was changed", body = Changed<VolumeView>)))]
pub async fn change(
    State(c): State<Context>,
    Path((array, name)): Path<(String, String)>,
    Extension(caller): Extension<Caller>,
    version: IfMatch,
    Body(r): Body<VolumePatch>,
) -> Answer<Changed<VolumeView>> {
    let who = caller.to_string();
    let changed = on_data(&c, move |data| async move {
        let opened = data.array(&array)?;
        let view = view_of(&opened, &name).await;
        let view = view.ok_or_else(|| volume_unknown(&opened.array.first().name(), &name))?;
        version.agrees(&format!("volume {}/{}", opened.array.first().name(), view.name), &view.etag())?;
        let mut done = Done::new(format!("volume {}/{}: nothing to change", opened.array.first().name(), view.name));
        let steps = change_all(&data, &opened, &view, &r).await;
        let mut sentences = steps.done.iter().map(|step| step.done.clone()).collect::<Vec<_>>();
        // What was done before is done, and the answer does not tell; of what was done in all it tells the last.
        let last = if steps.failed.is_none() { sentences.pop() } else { None };
        let array = opened.array.first().name();
        let note = |text: &String| data.journal.note(EventCode::RequestDone, Some(&array), Some(&who), text);
        sentences.iter().for_each(note);
        if let Some(problem) = steps.failed {
            return Err(problem);
        }
        done.done = last.unwrap_or(done.done);
        done.notes = sentences.into_iter().chain(steps.done.into_iter().flat_map(|step| step.notes)).collect();
        changed(&data, &opened, &view.uuid.to_string(), done).await
    });
    changed.await.into()
}

/// What was done of a change, and what stopped it.
#[derive(Default)]
struct Steps {
    done: Vec<Done>,
    failed: Option<Problem>,
}

/// Changes all that is to be changed of a volume, one thing after the other.
async fn change_all(data: &Data, opened: &Opened, view: &VolumeView, r: &VolumePatch) -> Steps {
    let mut steps = Steps::default();
    let array = &opened.array;
    let result = async {
        if let Some(limits) = r.limits {
            steps.done.push(volume::limit(array, &name_now(opened, view.uuid)?, limits).await?);
            tell_limits(&data.world.cores, array);
        }
        if let Some(bytes) = r.bytes {
            let mut done = volume::grow(array, &name_now(opened, view.uuid)?, bytes).await?;
            done.notes.extend(data.grow_device(opened, view.uuid).await);
            done.notes.extend(data.tell_guests_of_size(view.uuid));
            steps.done.push(done);
        }
        if let Some(to) = &r.name {
            steps.done.push(volume::rename(array, &name_now(opened, view.uuid)?, to).await?);
            data.rename_device(opened, view.uuid).await;
        }
        Ok(())
    };
    steps.failed = result.await.err();
    steps
}

/// Delete a volume and all that it holds.
#[utoipa::path(delete, path = "/v1/arrays/{array}/volumes/{volume}", tag = "volumes",
    params(("array" = String, Path, description = "Name or identity"), ("volume" = String, Path, description = "Name or identity"), Confirmed),
    responses((status = 200, description = "It is gone", body = Done)))]
pub async fn delete(
    State(c): State<Context>,
    Path((array, name)): Path<(String, String)>,
    Query(how): Query<Confirmed>,
    version: IfMatch,
) -> Answer<Done> {
    let deleted = on_data(&c, move |data| async move {
        let opened = data.array(&array)?;
        let array = opened.array.first().name();
        let view = view_of(&opened, &name).await.ok_or_else(|| volume_unknown(&array, &name))?;
        let what = format!("volume {array}/{}", view.name);
        how.confirms(&what, view.uuid)?;
        version.agrees(&what, &view.etag())?;
        data.refuse_if_used(&what, (Some(&array), Some(&view.name)), how.force).await?;
        data.detach(&opened, &view, how.force).await?;
        data.end_guests_of(view.uuid).await;
        let done = volume::delete(&opened.array, &name_now(&opened, view.uuid)?).await?;
        Ok(done)
    });
    deleted.await.into()
}
