//! The array that is measured, when an Ashlar serves it: failed and replaced over its control socket.
//!
//! Invariant: which of the two drives is in is asked each time, so that a run that goes on finds it as it is.

use api::{ArrayState, ArrayView, Arrays, Done, DriveFail, DriveReplace, MemberView, Problem, SeatState};
use lab::Error;
use lab::array::{Array, Control, Hooked, Served, Standing};
use lab::model::{State, Subject};

use super::problem;
use crate::client::{Client, Place};
use crate::context::encode;

/// What a control leads to.
///
/// # Errors
/// When no Ashlar serves the array, or the hooks do not suffice.
pub fn of(control: &Control) -> Result<Box<dyn Array>, Problem> {
    Ok(match control {
        Control::Hooks(hooks) => Box::new(Hooked::new(hooks.clone()).map_err(problem)?),
        Control::Served(served) => Box::new(ServedArray::find(served)?),
    })
}

/// An array that an Ashlar serves.
pub struct ServedArray {
    client: Client,
    served: Served,
}

impl ServedArray {
    /// Asks for it; both drives are what they should be.
    ///
    /// # Errors
    /// When nobody answers, or the drive is no member.
    pub fn find(served: &Served) -> Result<ServedArray, Problem> {
        let Some(client) = Client::connect(&Place::Here(served.socket.clone().into())) else {
            let why = format!("no Ashlar answers at {}", served.socket);
            return Err(Problem::usage(format!("array {}", served.array), why, "start `ashlar serve`"));
        };
        let this = ServedArray { client, served: served.clone() };
        let view = this.view()?;
        if !view.members.iter().any(|m| m.drive == served.drive || m.drive == served.spare) {
            let names: Vec<&str> = view.members.iter().map(|m| m.drive.as_str()).collect();
            let what = format!("drive {}", served.drive);
            return Err(Problem::usage(what, format!("the members are {}", names.join(", ")), "name one of them"));
        }
        Ok(this)
    }

    /// What its own words say of the subject, where the user said nothing.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn describe(&self, subject: &mut Subject) -> Result<(), Problem> {
        let view = self.view()?;
        let members: Vec<&MemberView> = view.members.iter().filter(|m| m.state == SeatState::In).collect();
        subject.level.get_or_insert_with(|| view.level.replace(' ', ""));
        subject.drive_count.get_or_insert(u32::try_from(members.len()).unwrap_or(u32::MAX));
        if subject.drives.is_empty() {
            let bytes = members.iter().map(|m| m.bytes).min().unwrap_or(0);
            subject.drives = format!("{} x {}, {}", members.len(), lab::units::capacity(bytes), view.scheme);
        }
        if subject.system.is_empty() {
            subject.system = format!("Ashlar, array {}", view.name);
        }
        Ok(())
    }

    fn view(&self) -> Result<ArrayView, Problem> {
        let all: Arrays = self.client.get(&format!("/v1/arrays?name={}", encode(&self.served.array)))?;
        let array = format!("array {}", self.served.array);
        all.arrays.into_iter().next().ok_or_else(|| Problem::failed(array, "the server did not report it", "try again"))
    }

    fn tell(&self, verb: &str, request: &impl serde::Serialize) -> Result<Done, Problem> {
        self.client.post(&format!("/v1/arrays/{}/drives/{verb}", encode(&self.served.array)), request)
    }

    fn wrong(&self, problem: &Problem) -> Error {
        Error::Program { program: format!("array {}", self.served.array), why: problem.line() }
    }
}

impl Array for ServedArray {
    fn fail(&mut self) -> Result<(), Error> {
        let view = self.view().map_err(|p| self.wrong(&p))?;
        let both = [&self.served.drive, &self.served.spare];
        let is_in = |name: &str| view.members.iter().any(|m| m.drive == name && m.state == SeatState::In);
        let drive = both.into_iter().find(|name| is_in(name));
        let why = "neither drive is in it";
        let drive = drive.ok_or_else(|| Error::usage(format!("array {}", view.name), why))?;
        self.tell("fail", &DriveFail { drive: drive.clone(), force: true }).map(drop).map_err(|p| self.wrong(&p))
    }

    fn replace(&mut self) -> Result<(), Error> {
        let view = self.view().map_err(|p| self.wrong(&p))?;
        let why = "no member of it is out";
        let mut out = view.members.iter().filter(|m| m.state.is_out());
        let out = out.next().ok_or_else(|| Error::usage(format!("array {}", view.name), why))?;
        let with = if out.drive == self.served.spare { &self.served.drive } else { &self.served.spare };
        // What it holds is its past as a member, which is given up here.
        let request = DriveReplace {
            drive: out.seat.to_string(),
            with: with.clone(),
            size_bytes: None,
            force: true,
            take_from: vec![],
        };
        self.tell("replace", &request).map(drop).map_err(|p| self.wrong(&p))
    }

    fn standing(&mut self) -> Result<Standing, Error> {
        let view = self.view().map_err(|p| self.wrong(&p))?;
        let state = match view.state {
            ArrayState::Optimal | ArrayState::Rebuilt => State::Optimal,
            ArrayState::Degraded => State::Degraded,
            ArrayState::Rebuilding => State::Rebuilding,
            ArrayState::Frozen | ArrayState::ReadOnly | ArrayState::Closed => {
                let why = format!("it is {}: nothing can be measured on it", crate::text::state_word(view.state));
                return Err(Error::usage(format!("array {}", view.name), why));
            }
        };
        let part = view.rebuild.filter(|r| r.bytes_total > 0);
        let percent = part.map(|r| r.bytes_moved as f64 / r.bytes_total as f64 * 100.0);
        Ok(Standing { state, rebuilt_percent: percent.map(|p| p.clamp(0.0, 100.0)) })
    }

    fn tells(&self) -> bool {
        true
    }
}
