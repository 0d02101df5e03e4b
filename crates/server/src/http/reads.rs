//! Routes that read: all from a snapshot.

use std::sync::Arc;

use api::{
    ArrayView, Arrays, Clients, Drives, Iostats, Kind, Placement, Problem, Resource, ServerView, VERSION, VolumeState,
    VolumeView, Volumes, WhichArrays, WhoseClients,
};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::answer::{Path, Query, told};
use super::{Answer, Context};
use crate::metrics;
use crate::problem::array_not_served;
use crate::snapshot::Snapshot;
use crate::subsystem::DIRECT;

/// What `of` makes of a snapshot.
pub async fn read<T>(c: &Context, of: impl FnOnce(&Snapshot) -> Result<T, Problem>) -> Result<T, Problem> {
    c.snapshots.fresh().await.and_then(|snapshot: Arc<Snapshot>| of(&snapshot))
}

/// The array of this name or identity.
pub fn array<'a>(s: &'a Snapshot, name: &str) -> Result<&'a ArrayView, Problem> {
    let is_it = |a: &&ArrayView| a.name == name || a.uuid.to_string() == name;
    let names = || s.status.arrays.iter().map(|a| a.name.as_str()).collect::<Vec<_>>();
    s.status.arrays.iter().find(is_it).ok_or_else(|| array_not_served(name, &names()))
}

/// The volume of this name or identity.
fn volume<'a>(array: &'a ArrayView, name: &str) -> Result<&'a VolumeView, Problem> {
    let is_it = |v: &&VolumeView| v.state == VolumeState::Live && (*v.name == *name || v.uuid.to_string() == name);
    array.volumes.iter().find(is_it).ok_or_else(|| volume_unknown(&array.name, name))
}

/// An array has no volume of this name.
pub fn volume_unknown(array: &str, volume: &str) -> Problem {
    let (what, why) = (format!("volume {array}/{volume}"), "there is no volume of this name");
    let todo = format!("`ashlar volume list {array}` lists its volumes");
    Problem::new(Kind::NotFound, "volume_unknown", what, why, todo)
}

/// The certificate that is shown over TLS: who knows its fingerprint compares it.
pub async fn certificate(State(c): State<Context>) -> Response {
    match c.front.and_then(|front| front.chain()) {
        Some(chain) => ([(header::CONTENT_TYPE, "application/x-pem-file")], chain).into_response(),
        None => {
            let (what, why) = ("the certificate", "the API is not served over TLS");
            told(&Problem::new(
                Kind::NotFound,
                "no_certificate",
                what,
                why,
                "set `listen` of [api] in the configuration",
            ))
        }
    }
}

/// Who is this?
#[utoipa::path(get, path = "/v1/server", tag = "server", responses((status = 200, description = "The server", body = ServerView)))]
pub async fn server(State(c): State<Context>) -> Answer<ServerView> {
    let of = |s: &Snapshot| {
        Ok(ServerView {
            version: VERSION,
            program: s.program.clone(),
            pid: std::process::id(),
            arrays: s.status.arrays.iter().map(|a| a.name.clone()).collect(),
            nbd: s.status.nbd.clone(),
            guests: s.status.guests.clone(),
            nvme: s.status.nvme.clone(),
            api: c.front.iter().flat_map(|front| front.addresses()).map(|at| at.to_string()).collect(),
            certificate_sha256: c.front.as_ref().and_then(|front| front.fingerprint()).map(|shown| shown.to_string()),
        })
    };
    read(&c, of).await.into()
}

/// The server and its arrays, or one of them.
#[utoipa::path(get, path = "/v1/arrays", tag = "arrays", params(WhichArrays), responses((status = 200, description = "The arrays", body = Arrays)))]
pub async fn arrays(State(c): State<Context>, Query(which): Query<WhichArrays>) -> Answer<Arrays> {
    let of = |s: &Snapshot| {
        let Some(name) = &which.name else { return Ok(s.status.clone()) };
        let arrays = vec![array(s, name)?.clone()];
        Ok(Arrays { arrays, absent: vec![], not_served: vec![], ..s.status.clone() })
    };
    read(&c, of).await.into()
}

/// An array.
#[utoipa::path(get, path = "/v1/arrays/{array}", tag = "arrays", params(("array" = String, Path, description = "Its name or identity")),
    responses((status = 200, description = "The array", body = Resource<ArrayView>)))]
pub async fn array_view(State(c): State<Context>, Path(name): Path<String>) -> Answer<Resource<ArrayView>> {
    Answer::of(read(&c, |s| Ok(Resource::from(array(s, &name)?.clone()))).await)
}

/// The volumes of an array.
#[utoipa::path(get, path = "/v1/arrays/{array}/volumes", tag = "volumes", params(("array" = String, Path, description = "Its name or identity")),
    responses((status = 200, description = "The volumes", body = Volumes)))]
pub async fn volumes(State(c): State<Context>, Path(name): Path<String>) -> Answer<Volumes> {
    let of = |s: &Snapshot| {
        let found = array(s, &name)?;
        let mut volumes = found.volumes.clone();
        volumes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Volumes { version: VERSION, array: found.name.clone(), volumes })
    };
    read(&c, of).await.into()
}

/// A volume.
#[utoipa::path(get, path = "/v1/arrays/{array}/volumes/{volume}", tag = "volumes",
    params(("array" = String, Path, description = "Name or identity"), ("volume" = String, Path, description = "Name or identity")),
    responses((status = 200, description = "The volume", body = Resource<VolumeView>)))]
pub async fn volume_view(
    State(c): State<Context>,
    Path((name, wanted)): Path<(String, String)>,
) -> Answer<Resource<VolumeView>> {
    let of = |s: &Snapshot| {
        let found = array(s, &name)?;
        Ok(Resource::of(found.uuid, volume(found, &wanted)?.clone()))
    };
    Answer::of(read(&c, of).await)
}

/// The drives of an array, by seat.
#[utoipa::path(get, path = "/v1/arrays/{array}/drives", tag = "drives", params(("array" = String, Path, description = "Its name or identity")),
    responses((status = 200, description = "The drives", body = Drives)))]
pub async fn drives(State(c): State<Context>, Path(name): Path<String>) -> Answer<Drives> {
    let of = |s: &Snapshot| {
        let found = array(s, &name)?;
        Ok(Drives { version: VERSION, array: found.name.clone(), drives: found.members.clone() })
    };
    read(&c, of).await.into()
}

/// Counters of all arrays.
#[utoipa::path(get, path = "/v1/iostat", tag = "server", responses((status = 200, description = "Counters", body = Iostats)))]
pub async fn iostat(State(c): State<Context>) -> Answer<Iostats> {
    read(&c, |s| Ok(s.iostat.clone())).await.into()
}

/// Where cores and drives are.
#[utoipa::path(get, path = "/v1/placement", tag = "server", responses((status = 200, description = "Where they are", body = Placement)))]
pub async fn placement(State(c): State<Context>) -> Answer<Placement> {
    read(&c, |s| Ok(s.placement.clone())).await.into()
}

/// Hosts that are connected.
#[utoipa::path(get, path = "/v1/clients", tag = "server", params(WhoseClients), responses((status = 200, description = "The hosts", body = Clients)))]
pub async fn clients(State(c): State<Context>, Query(whose): Query<WhoseClients>) -> Answer<Clients> {
    let of = |s: &Snapshot| {
        let name = match &whose.array {
            Some(name) if name == DIRECT => Some(DIRECT.to_owned()),
            Some(name) => Some(array(s, name)?.name.clone()),
            None => None,
        };
        let found = name.as_ref().and_then(|name| s.status.arrays.iter().find(|a| a.name == *name));
        if let (Some(found), Some(wanted)) = (found, &whose.volume) {
            volume(found, wanted)?;
        }
        let is_meant = |client: &&api::ClientView| {
            let used = |used: &str| whose.volume.as_deref().is_none_or(|volume| used == volume);
            name.as_ref().is_none_or(|name| client.array == *name) && client.volume.as_deref().is_none_or(used)
        };
        Ok(Clients { version: VERSION, clients: s.clients.iter().filter(is_meant).cloned().collect() })
    };
    read(&c, of).await.into()
}

/// Figures for Prometheus: the newest there are, with their age, also when the first core does not answer.
#[utoipa::path(get, path = "/metrics", tag = "server", responses((status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text")))]
pub async fn metrics(State(c): State<Context>) -> Response {
    match c.snapshots.latest().await {
        Some(snapshot) => ([(header::CONTENT_TYPE, metrics::MEDIA_TYPE)], metrics::text(snapshot)).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "there are no figures yet\n").into_response(),
    }
}

/// Whether the first core answers; who asks learns nothing else.
pub async fn healthz(State(c): State<Context>) -> Response {
    match c.snapshots.fresh().await {
        Ok(_) => "ok\n".into_response(),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the first core does not answer\n").into_response(),
    }
}
