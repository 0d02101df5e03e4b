//! What happened.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// How much something that happened matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventSeverity {
    /// As it should be.
    #[default]
    Info,
    /// Somebody should look at it.
    Warning,
    /// Hosts notice it, or something is lost.
    Error,
}

/// Something that happened to an array, as its status has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    /// When.
    pub unix_seconds: u64,
    /// How much it matters.
    #[serde(default)]
    pub severity: EventSeverity,
    /// What, for scripts: the word of an [`EventCode`], or of one that a newer server knows.
    #[serde(default)]
    pub code: String,
    /// What, as a sentence.
    pub text: String,
}

/// Something that happened, as the journal has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its number in the journal, which no other has.
    #[serde(default)]
    pub seq: u64,
    /// What.
    #[serde(flatten)]
    pub what: EventView,
    /// The array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<String>,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

impl Event {
    /// Something that happens now.
    #[must_use]
    pub fn now(code: EventCode, severity: EventSeverity, array: Option<&str>, text: impl Into<String>) -> Event {
        let unix_seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let what = EventView { unix_seconds, severity, code: code.word().to_owned(), text: text.into() };
        Event { seq: 0, what, array: array.map(str::to_owned), who: None }
    }
}

/// Events, oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// Version of this object.
    pub version: u32,
    /// Each of them.
    pub events: Vec<Event>,
    /// What to ask for as `after` to get those that come next.
    pub next: u64,
    /// The oldest that is kept.
    pub oldest: u64,
    /// Where they are kept: each place has numbers of its own.
    #[serde(default)]
    pub kept_in: KeptIn,
}

/// Where events are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeptIn {
    /// In the state directory of the server.
    #[default]
    Server,
    /// In the notebook of the array.
    Array,
}

/// Which events of an array are asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct WhichArrayEvents {
    /// Those behind this number.
    pub after: Option<u64>,
    /// At most so many: the newest without `after`, else the next. 1 to 1000; 100 when nothing is said.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}

/// Which events are asked for: the part of a URL behind the question mark.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct WhichEvents {
    /// Those behind this number.
    pub after: Option<u64>,
    /// At most so many: the newest without `after`, else the next. 1 to 1000; 100 when nothing is said.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
    /// Of this array.
    pub array: Option<String>,
}

macro_rules! codes {
    ($($(#[$about:meta])* $name:ident = $word:literal,)*) => {
        /// What happened, for scripts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum EventCode {
            $($(#[$about])* $name,)*
        }

        impl EventCode {
            /// All of them.
            pub const ALL: &[EventCode] = &[$(EventCode::$name),*];

            /// In one word, as scripts see it.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(EventCode::$name => $word,)*
                }
            }
        }
    };
}

codes! {
    /// The server began.
    ServerBegan = "server.began",
    /// The server stops.
    ServerStops = "server.stops",
    /// An array got new features of the format.
    ArrayUpgraded = "array.upgraded",
    /// An array has another name.
    ArrayRenamed = "array.renamed",
    /// An array was opened.
    ArrayOpened = "array.opened",
    /// An array takes no writes any more.
    ArrayFrozen = "array.frozen",
    /// New blocks are refused.
    ArrayFull = "array.full",
    /// New blocks are taken again.
    ArrayHasRoom = "array.has_room",
    /// Reads are refused, since they could return old data.
    ReadsRefused = "array.reads_refused",
    /// Less can be stored than before.
    UsableShrank = "array.usable_shrank",
    /// The newest generation was given up by command.
    GenerationGivenUp = "array.generation_given_up",
    /// A checkpoint failed; it is tried again.
    CheckpointFailed = "array.checkpoint_failed",
    /// Blocks are lost.
    DataLost = "data.lost",
    /// What a drive returned did not match its checksum.
    Mismatch = "data.mismatch",
    /// A drive was taken out.
    DriveOut = "drive.out",
    /// A drive is not here.
    DriveMissing = "drive.missing",
    /// A drive that was missing is back.
    DriveBack = "drive.back",
    /// A drive holds an older state, and is not used as it is.
    DriveOld = "drive.old",
    /// A drive that was to leave stays.
    DriveStays = "drive.stays",
    /// A drive is late, or errs.
    DriveSuspect = "drive.suspect",
    /// A drive does not answer, and is needed.
    DriveSilent = "drive.silent",
    /// A drive waits for another to fail.
    DriveSpare = "drive.spare",
    /// A drive takes part.
    DriveJoined = "drive.joined",
    /// A drive has another's place.
    DriveReplaced = "drive.replaced",
    /// A drive is being emptied.
    DriveLeaves = "drive.leaves",
    /// A drive has left.
    DriveLeft = "drive.left",
    /// A drive has another size than before.
    DriveSize = "drive.size",
    /// A label was not as it should be.
    LabelHealed = "drive.label",
    /// A reservation was lost, or cannot be had.
    ReservationLost = "drive.reservation",
    /// There is no room where a drive's file lies.
    NoRoomBelow = "below.no_room",
    /// There is room again there.
    RoomBelow = "below.has_room",
    /// A rebuild began.
    RebuildBegan = "rebuild.began",
    /// A rebuild waits until it is told to go on.
    RebuildPaused = "rebuild.paused",
    /// A rebuild waits for room.
    RebuildWaits = "rebuild.waits",
    /// A rebuild ended before its time.
    RebuildStopped = "rebuild.stopped",
    /// A rebuild is done.
    RebuildEnded = "rebuild.ended",
    /// A scrub began.
    ScrubBegan = "scrub.began",
    /// A scrub found something.
    ScrubFound = "scrub.found",
    /// A scrub ended, and found nothing.
    ScrubEnded = "scrub.ended",
    /// An alarm was raised.
    AlarmRaised = "alarm.raised",
    /// The cause of an alarm is gone.
    AlarmCleared = "alarm.cleared",
    /// A request over the API changed something.
    RequestDone = "request.done",
    /// A token was made.
    TokenMade = "token.made",
    /// A token was deleted.
    TokenDeleted = "token.deleted",
    /// Tokens were refused.
    TokenRefused = "token.refused",
    /// Events could not be kept.
    EventsLost = "events.lost",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_is_there_twice() {
        let words: std::collections::BTreeSet<&str> = EventCode::ALL.iter().map(|code| code.word()).collect();
        assert_eq!(words.len(), EventCode::ALL.len());
    }

    #[test]
    fn an_event_is_flat() {
        let what = EventView { unix_seconds: 5, code: "drive.out".into(), text: "x".into(), ..EventView::default() };
        let event = Event { seq: 7, what, array: Some("fast".into()), who: None };
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(
            text,
            r#"{"seq":7,"unix_seconds":5,"severity":"info","code":"drive.out","text":"x","array":"fast"}"#
        );
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
    }
}
