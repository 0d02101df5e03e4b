//! Requests for volumes as block devices of this machine.

use api::{BlockDeviceView, Done, Forced};
use axum::extract::State;

use super::answer::{Path, Query, on_data};
use super::reads::volume_unknown;
use super::volumes::view_of;
use super::{Answer, Context};
use crate::daemon::detached;

/// Make a volume a block device of the server's machine (ublk). One that is there already is the answer, too.
#[utoipa::path(put, path = "/v1/arrays/{array}/volumes/{volume}/block-device", tag = "volumes",
    params(("array" = String, Path, description = "Name or identity"), ("volume" = String, Path, description = "Name or identity")),
    responses((status = 201, description = "It was made", body = BlockDeviceView), (status = 200, description = "It was there", body = BlockDeviceView)))]
pub async fn attach(State(c): State<Context>, Path((array, name)): Path<(String, String)>) -> Answer<BlockDeviceView> {
    let made = on_data(&c, move |data| async move {
        let opened = data.array(&array)?;
        let view = view_of(&opened, &name).await;
        let view = view.ok_or_else(|| volume_unknown(&opened.array.first().name(), &name))?;
        data.attach(&opened, &view).await
    });
    Answer::made(made.await)
}

/// Take a volume's block device away.
#[utoipa::path(delete, path = "/v1/arrays/{array}/volumes/{volume}/block-device", tag = "volumes",
    params(("array" = String, Path, description = "Name or identity"), ("volume" = String, Path, description = "Name or identity"), Forced),
    responses((status = 200, description = "It is gone", body = Done)))]
pub async fn detach(
    State(c): State<Context>,
    Path((array, name)): Path<(String, String)>,
    Query(how): Query<Forced>,
) -> Answer<Done> {
    let gone = on_data(&c, move |data| async move {
        let opened = data.array(&array)?;
        let view = view_of(&opened, &name).await;
        let view = view.ok_or_else(|| volume_unknown(&opened.array.first().name(), &name))?;
        let what = format!("volume {}/{}", opened.array.first().name(), view.name);
        let there = data.detach(&opened, &view, how.force).await?;
        detached(&what, there)
    });
    gone.await.into()
}
