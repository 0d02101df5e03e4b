//! Alarms that are raised, and their acknowledgements.

use std::time::{SystemTime, UNIX_EPOCH};

use api::{Acknowledge, Acknowledgement, AlarmView, Alarms, ArrayView, Done, Problem, RaisedAlarm, VERSION};
use axum::Extension;
use axum::extract::State;

use super::answer::{Body, Path};
use super::reads::read;
use super::{Answer, Caller, Context};
use crate::snapshot::Snapshot;

/// The longest note.
const NOTE_MAX: usize = 200;

/// Alarms that are raised now, of the server and of all arrays.
#[utoipa::path(get, path = "/v1/alarms", tag = "server", responses((status = 200, description = "The alarms", body = Alarms)))]
pub async fn list(State(c): State<Context>) -> Answer<Alarms> {
    let raised = |array: Option<&str>, alarm: &AlarmView| RaisedAlarm {
        id: alarm.id(array),
        array: array.map(str::to_owned),
        alarm: alarm.clone(),
    };
    let of = |s: &Snapshot| {
        let of_server = s.status.alarms.iter().map(|alarm| raised(None, alarm));
        let of_array = |a: &ArrayView| a.alarms.iter().map(|alarm| raised(Some(&a.name), alarm)).collect::<Vec<_>>();
        let mut alarms: Vec<RaisedAlarm> = of_server.chain(s.status.arrays.iter().flat_map(of_array)).collect();
        alarms.sort_by_key(|raised| std::cmp::Reverse(raised.alarm.severity));
        Ok(Alarms { version: VERSION, alarms })
    };
    read(&c, of).await.into()
}

/// Acknowledge an alarm, as long as it is raised and becomes no worse; or take that back.
#[utoipa::path(post, path = "/v1/alarms/{alarm}/acknowledge", tag = "server", params(("alarm" = String, Path, description = "Its id")),
    request_body = Acknowledge, responses((status = 200, description = "It is said", body = Done)))]
pub async fn acknowledge(
    State(c): State<Context>,
    Path(id): Path<String>,
    Extension(caller): Extension<Caller>,
    Body(wish): Body<Acknowledge>,
) -> Answer<Done> {
    let done = async {
        if wish.note.chars().count() > NOTE_MAX || wish.note.chars().any(char::is_control) {
            let why = format!("it has more than {NOTE_MAX} characters, or is not one line");
            return Err(Problem::usage("the note", why, "give a shorter one, on one line"));
        }
        let raised = read(&c, |s| Ok(s.status.clone())).await?;
        let unix_seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let by = Acknowledgement { who: caller.to_string(), unix_seconds, note: wish.note };
        let (by, sentence) = match wish.withdraw {
            true => (None, format!("Alarm {id} is not acknowledged any more")),
            false => (Some(by), format!("Alarm {id} is acknowledged")),
        };
        let acknowledged = c.acknowledged.clone();
        let written = tokio::task::spawn_blocking(move || acknowledged.set(&raised, &id, by));
        written.await.map_err(|e| Problem::failed("the alarm", e, "try again"))??;
        Ok(Done::new(sentence))
    };
    done.await.into()
}
