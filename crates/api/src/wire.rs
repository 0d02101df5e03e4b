//! What answers over HTTP look like beyond the objects themselves.

use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::problem::{Details, Problem};
use crate::{ArrayView, Done, VolumeLimit, VolumeView};

/// An object, where it is, and a word that changes when what was configured of it changes: for `If-Match`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Resource<T> {
    /// Its path.
    #[serde(rename = "self")]
    pub path: String,
    /// Its version: not changed by I/O.
    pub etag: String,
    /// The object.
    #[serde(flatten)]
    pub view: T,
}

/// An object that was changed, or was so already.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Changed<T> {
    /// What was done.
    #[serde(flatten)]
    pub done: Done,
    /// The object now.
    #[serde(flatten)]
    pub resource: Resource<T>,
}

impl From<ArrayView> for Resource<ArrayView> {
    fn from(view: ArrayView) -> Resource<ArrayView> {
        Resource { path: format!("/v1/arrays/{}", view.uuid), etag: view.etag(), view }
    }
}

impl Resource<VolumeView> {
    /// A volume of the array of this identity.
    #[must_use]
    pub fn of(array: Uuid, view: VolumeView) -> Resource<VolumeView> {
        Resource { path: format!("/v1/arrays/{array}/volumes/{}", view.uuid), etag: view.etag(), view }
    }
}

impl ArrayView {
    /// A word that changes when its name, its members or its volumes do, and not by I/O.
    #[must_use]
    pub fn etag(&self) -> String {
        etag(|h| {
            (self.uuid, &self.name, &self.rebuild_rate, self.rebuild_paused).hash(h);
            self.members.iter().for_each(|m| (m.member, m.seat, m.state as u8, &m.drive_name).hash(h));
            self.volumes.iter().for_each(|v| v.etag().hash(h));
        })
    }
}

impl VolumeView {
    /// A word that changes when its name, its size, its state or its limits do.
    #[must_use]
    pub fn etag(&self) -> String {
        let limits = (self.limits.iops, self.limits.bytes_per_second, self.limits.burst_ms);
        etag(|h| (self.uuid, &self.name, self.bytes, self.state as u8, limits).hash(h))
    }
}

fn etag(of: impl FnOnce(&mut Fnv)) -> String {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    of(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// FNV-1a, 64 bits: the same in every version of the program.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A problem as HTTP tells it (RFC 9457), with what Ashlar says of it beside.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProblemBody {
    /// "/problems/CODE".
    #[serde(rename = "type")]
    pub kind_of_problem: String,
    /// The code in words.
    pub title: String,
    /// The status of the answer.
    pub status: u16,
    /// What could not be done, and why.
    pub detail: String,
    /// What Ashlar says.
    #[serde(flatten)]
    pub problem: Details,
}

impl From<&Problem> for ProblemBody {
    fn from(problem: &Problem) -> ProblemBody {
        ProblemBody {
            kind_of_problem: format!("/problems/{}", problem.code),
            title: problem.code.replace('_', " "),
            status: problem.http_status(),
            detail: format!("{}: {}", problem.what, problem.why),
            problem: (**problem).clone(),
        }
    }
}

/// What a change says of an array; what is absent stays as it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArrayPatch {
    /// Its new name.
    pub name: Option<String>,
}

/// What a change says of a volume; what is absent stays as it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VolumePatch {
    /// Its new name.
    pub name: Option<String>,
    /// Its new size; a volume can only grow.
    pub bytes: Option<u64>,
    /// Its limits.
    pub limits: Option<VolumeLimit>,
}

/// Which arrays are asked for: the part of a URL behind the question mark.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct WhichArrays {
    /// The one of this name or identity.
    pub name: Option<String>,
}

/// What a verb that destroys wants: the part of a URL behind the question mark.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct Confirmed {
    /// The identity of what is lost.
    pub confirm: Option<Uuid>,
    /// Also while hosts are connected; they are disconnected.
    pub force: bool,
}

impl Confirmed {
    /// Refuses what was not confirmed.
    ///
    /// # Errors
    /// When the identity that was given is not that of `what`.
    pub fn confirms(self, what: &str, uuid: Uuid) -> Result<(), Problem> {
        match self.confirm {
            Some(confirm) if confirm == uuid => Ok(()),
            given => {
                let why = given.map_or("this loses data, and was not confirmed".to_owned(), |given| {
                    format!("confirm={given} is not its identity")
                });
                Err(Problem::refused("not_confirmed", what, why, format!("add confirm={uuid} if it is meant")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_does_not_change_the_version_and_configuration_does() {
        let volume = VolumeView { name: "db".into(), bytes: 1 << 30, ..VolumeView::default() };
        let array = ArrayView { name: "fast".into(), volumes: vec![volume.clone()], ..ArrayView::default() };
        let mut busy = array.clone();
        busy.generation += 1;
        busy.volumes[0].reads += 7;
        assert_eq!(array.etag(), busy.etag());
        busy.volumes[0].bytes *= 2;
        assert_ne!(array.etag(), busy.etag());
    }

    #[test]
    fn a_problem_keeps_what_it_says() {
        let problem = Problem::refused("array_served", "array fast", "it is being served", "stop it");
        let body = serde_json::to_string(&ProblemBody::from(&problem)).unwrap();
        assert!(body.contains(r#""type":"/problems/array_served","title":"array served","status":409"#), "{body}");
        assert_eq!(serde_json::from_str::<Problem>(&body).unwrap(), problem);
    }

    #[test]
    fn what_destroys_wants_the_identity() {
        let uuid = Uuid::from_u128(7);
        let of = |confirm| Confirmed { confirm, force: false }.confirms("array fast", uuid);
        assert!(of(Some(uuid)).is_ok());
        for wrong in [None, Some(Uuid::nil())] {
            assert_eq!(of(wrong).unwrap_err().http_status(), 428);
        }
    }
}
