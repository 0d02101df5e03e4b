//! Requests for volumes by the kernel's NVMe target.

use api::{Done, TargetView};
use axum::extract::State;

use super::answer::{Path, on_data};
use super::reads::volume_unknown;
use super::volumes::view_of;
use super::{Answer, Context};
use crate::nvmet::Address;

/// Export a volume at an address of the kernel's NVMe target. An export that is there already is the answer, too.
#[utoipa::path(put, path = "/v1/arrays/{array}/volumes/{volume}/nvmet/{address}", tag = "volumes",
    params(("array" = String, Path, description = "Name or identity"), ("volume" = String, Path, description = "Name or identity"),
        ("address" = String, Path, description = "Where: rdma:10.0.0.5:4420, tcp:..., fc:...")),
    responses((status = 201, description = "It was made", body = TargetView), (status = 200, description = "It was there", body = TargetView)))]
pub async fn export(
    State(c): State<Context>,
    Path((array, name, at)): Path<(String, String, String)>,
) -> Answer<TargetView> {
    let made = on_data(&c, move |data| async move {
        let at: Address = at.parse()?;
        let opened = data.array(&array)?;
        let view = view_of(&opened, &name).await;
        let view = view.ok_or_else(|| volume_unknown(&opened.array.first().name(), &name))?;
        data.export_at(&opened, &view, at).await
    });
    Answer::made(made.await)
}

/// Take a volume from an address of the kernel's NVMe target. Hosts that use it there are cut off.
#[utoipa::path(delete, path = "/v1/arrays/{array}/volumes/{volume}/nvmet/{address}", tag = "volumes",
    params(("array" = String, Path, description = "Name or identity"), ("volume" = String, Path, description = "Name or identity"),
        ("address" = String, Path, description = "Where")),
    responses((status = 200, description = "It is gone", body = Done)))]
pub async fn remove(State(c): State<Context>, Path((array, name, at)): Path<(String, String, String)>) -> Answer<Done> {
    let gone = on_data(&c, move |data| async move {
        let at: Address = at.parse()?;
        let opened = data.array(&array)?;
        let view = view_of(&opened, &name).await;
        let view = view.ok_or_else(|| volume_unknown(&opened.array.first().name(), &name))?;
        data.unexport(&opened, &view, &at).await
    });
    gone.await.into()
}
