//! What an answer says was done, for the journal. A token that is made or deleted has events of its own.

use api::{
    Alarms, ArrayView, Arrays, BlockDeviceView, Changed, Clients, Created, Done, Drives, Events, FoundArrays, Imported,
    Iostats, JobView, Jobs, Placement, PlanView, Resource, ServerView, TargetView, TokenCreated, Tokens, Volumes,
};

/// An answer, as the journal tells it.
pub trait Sentence {
    /// What was done; none when nothing was.
    fn sentence(&self) -> Option<String>;
}

impl Sentence for Done {
    fn sentence(&self) -> Option<String> {
        Some(self.done.clone())
    }
}

impl<T> Sentence for Changed<T> {
    fn sentence(&self) -> Option<String> {
        self.done.sentence()
    }
}

impl Sentence for BlockDeviceView {
    fn sentence(&self) -> Option<String> {
        Some(format!("volume {}/{} is {}", self.array, self.volume, self.device))
    }
}

impl Sentence for TargetView {
    fn sentence(&self) -> Option<String> {
        Some(format!("volume {}/{} is exported at {}", self.array, self.volume, self.at))
    }
}

impl Sentence for Created {
    fn sentence(&self) -> Option<String> {
        Some(format!("array {} is created: {} {}", self.name, self.plan.level, self.plan.scheme))
    }
}

impl Sentence for Imported {
    fn sentence(&self) -> Option<String> {
        let names: Vec<&str> = self.arrays.iter().map(|opened| opened.array.name.as_str()).collect();
        (!names.is_empty()).then(|| format!("imported {}", names.join(", ")))
    }
}

macro_rules! nothing_was_done {
    ($($type:ty),*) => { $(impl Sentence for $type { fn sentence(&self) -> Option<String> { None } })* };
}

nothing_was_done!(
    (),
    Alarms,
    Arrays,
    Clients,
    Drives,
    Events,
    FoundArrays,
    Iostats,
    JobView,
    Jobs,
    Placement,
    PlanView,
    Resource<ArrayView>,
    Resource<api::VolumeView>,
    ServerView,
    TokenCreated,
    Tokens,
    Volumes
);
