//! The control socket's language: HTTP/1.1 and JSON below /v1.
//!
//! | method and path | does | body -> answer |
//! |---|---|---|
//! | GET /v1 | who is this | `ServerView` |
//! | GET /v1/arrays, /v1/arrays/A | status | `Arrays` |
//! | GET /v1/iostat | counters | `Iostats` |
//! | GET /v1/clients[?array=A[&volume=V]] | hosts that are connected | `Clients` |
//! | GET /v1/placement | where the first core and the drives are | `Placement` |
//! | POST /v1/arrays | create and serve | `CreateRequest` -> `Created` |
//! | POST /v1/find | look for arrays; opens nothing | `FindRequest` -> `FoundArrays` |
//! | POST /v1/import | find and serve | `ImportRequest` -> `Imported` |
//! | POST /v1/arrays/A/stop | close, serve no more | `Done` |
//! | POST /v1/arrays/A/export | close, forget: for another host | `Done` |
//! | DELETE /v1/arrays/A | destroy | `Done` |
//! | DELETE /v1/known/A | forget one that is not served; ?force=true: though drives of it are here | `Done` |
//! | GET /v1/arrays/A/volumes | list | `Volumes` |
//! | POST /v1/arrays/A/volumes | create | `VolumeCreate` -> `Done` |
//! | POST /v1/arrays/A/volumes/V/grow, .../rename, .../limit | | `VolumeGrow`, `VolumeRename`, `VolumeLimit` -> `Done` |
//! | DELETE /v1/arrays/A/volumes/V | delete | `Done` |
//! | POST /v1/arrays/A/drives/fail, .../replace, .../add, .../retire, .../locate | | `DriveFail`, ... -> `Done` |
//! | POST /v1/arrays/A/rebuild | pace, pause, resume | `RebuildSet` -> `Done` |
//! | POST /v1/arrays/A/scrub/start, .../stop, .../schedule | | `ScrubStart`, none, `ScrubSchedule` -> `Done` |
//! | POST /v1/stop | stop the server | `Done` |
//!
//! What would cut hosts off (stop, export, destroy, the deletion of a volume) is refused while some are connected, unless
//! ?force=true is said.
//!
//! A problem comes as `{"version": 2, "error": {kind, code, what, why, todo}}` with the status of its kind: 400
//! usage, 404 not found, 409 refused, 500 failed.

mod answer;
mod arrays;
mod parts;

use axum::Router;
use axum::routing::{delete, get, post};
use rt::MailSender;

use crate::daemon::DataHandle;
use answer::Answer;

/// What every route knows.
#[derive(Clone)]
pub struct Context {
    data: DataHandle,
    stop_now: MailSender<&'static str>,
    program: String,
}

/// All routes.
pub fn router(data: DataHandle, stop_now: MailSender<&'static str>, program: String) -> Router {
    Router::new()
        .route("/v1", get(arrays::server))
        .route("/v1/stop", post(arrays::stop_server))
        .route("/v1/iostat", get(arrays::iostat))
        .route("/v1/placement", get(arrays::placement))
        .route("/v1/clients", get(arrays::clients))
        .route("/v1/find", post(arrays::find))
        .route("/v1/import", post(arrays::import))
        .route("/v1/arrays", get(arrays::status).post(arrays::create))
        .route("/v1/arrays/{array}", get(arrays::status_of).delete(arrays::destroy))
        .route("/v1/known/{array}", delete(arrays::forget))
        .route("/v1/arrays/{array}/stop", post(arrays::stop))
        .route("/v1/arrays/{array}/export", post(arrays::export))
        .route("/v1/arrays/{array}/volumes", get(parts::volumes).post(parts::volume_create))
        .route("/v1/arrays/{array}/volumes/{volume}", delete(parts::volume_delete))
        .route("/v1/arrays/{array}/volumes/{volume}/grow", post(parts::volume_grow))
        .route("/v1/arrays/{array}/volumes/{volume}/rename", post(parts::volume_rename))
        .route("/v1/arrays/{array}/volumes/{volume}/limit", post(parts::volume_limit))
        .route("/v1/arrays/{array}/drives/fail", post(parts::drive_fail))
        .route("/v1/arrays/{array}/drives/replace", post(parts::drive_replace))
        .route("/v1/arrays/{array}/drives/add", post(parts::drive_add))
        .route("/v1/arrays/{array}/drives/retire", post(parts::drive_retire))
        .route("/v1/arrays/{array}/drives/locate", post(parts::drive_locate))
        .route("/v1/arrays/{array}/rebuild", post(parts::rebuild))
        .route("/v1/arrays/{array}/scrub/start", post(parts::scrub_start))
        .route("/v1/arrays/{array}/scrub/stop", post(parts::scrub_stop))
        .route("/v1/arrays/{array}/scrub/schedule", post(parts::scrub_schedule))
        .fallback(answer::no_such_path)
        .method_not_allowed_fallback(answer::no_such_path)
        .with_state(Context { data, stop_now, program })
}
