//! What went through volumes and drives, and how long it took.

use std::collections::BTreeMap;
use std::time::Duration;

use base::classes::{CLASSES, class_end, class_of};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::array::{ArrayView, MemberView, VolumeState, VolumeView};

/// What went through an array since it was opened.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct IostatView {
    /// The array.
    pub array: String,
    /// Per volume.
    pub volumes: Vec<TrafficView>,
    /// Per drive.
    pub drives: Vec<TrafficView>,
}

impl From<&ArrayView> for IostatView {
    fn from(array: &ArrayView) -> IostatView {
        // One that is being deleted has no hosts, and its name may be another's.
        let live = array.volumes.iter().filter(|v| v.state == VolumeState::Live);
        IostatView {
            array: array.name.clone(),
            volumes: live.cloned().map(TrafficView::from).collect(),
            drives: array.members.iter().cloned().map(TrafficView::from).collect(),
        }
    }
}

/// Counters of one volume or drive: they only grow.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct TrafficView {
    /// Whose.
    pub name: String,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Requests that failed.
    pub errors: u64,
    /// How long they took; none from a server that does not tell, and of the volumes of an array that has more than 128.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Box<WorkView>>,
}

/// How requests were done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkView {
    /// How long reads took.
    pub reads: HistogramView,
    /// How long writes took, those of zeros included.
    pub writes: HistogramView,
    /// How long flushes took.
    pub flushes: HistogramView,
    /// How long deallocations took.
    pub deallocates: HistogramView,
    /// Requests in flight now.
    pub in_flight: u64,
    /// Nanoseconds with a request in flight; of an array in parts, those of all parts together.
    pub busy_nanos: u64,
    /// Parts that were added up; 0 or 1: one.
    #[serde(default)]
    pub parts: u64,
    /// Nanoseconds that requests waited for the limits of the volume.
    #[serde(default)]
    pub limited_nanos: u64,
    /// Requests that failed, by why: "medium", "no_space" and others.
    #[serde(default)]
    pub faults: BTreeMap<String, u64>,
}

/// How long something took, in classes that double: 8.192 us or less, 16.384 us or less, ... 68.7 s or less, more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistogramView {
    /// How many there are in each class; none when there was nothing.
    pub counts: Vec<u64>,
    /// Nanoseconds of all of them together.
    pub nanos: u64,
}

impl HistogramView {
    /// Classes.
    pub const BUCKETS: usize = CLASSES;

    /// The class of something that took so long.
    #[must_use]
    #[inline]
    pub const fn bucket(nanos: u64) -> usize {
        class_of(nanos)
    }

    /// The longest time in a class, in nanoseconds; the last class has none.
    #[must_use]
    pub const fn bound(bucket: usize) -> Option<u64> {
        class_end(bucket)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The mean.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        self.nanos.checked_div(self.count()).map(Duration::from_nanos)
    }

    /// The time that `share` of all (0 to 1) do not exceed, as if those of a class were spread evenly: at most twice what it
    /// is, and at least half.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let wanted = self.count() as f64 * share;
        let mut below = 0.0;
        for (bucket, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let from = bucket.checked_sub(1).and_then(Self::bound).unwrap_or(0) as f64;
            let to = Self::bound(bucket).map_or(from, |to| to as f64);
            if below + count as f64 >= wanted {
                let part = (wanted - below) / count as f64;
                return Some(Duration::from_nanos((from + (to - from) * part.clamp(0.0, 1.0)) as u64));
            }
            below += count as f64;
        }
        None
    }

    /// Adds those that were counted elsewhere.
    pub fn add(&mut self, other: &HistogramView) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(all, n)| *all += n);
        self.nanos += other.nanos;
    }

    /// What has come since `before`.
    #[must_use]
    pub fn since(&self, before: &HistogramView) -> HistogramView {
        let was = |at: usize| before.counts.get(at).copied().unwrap_or(0);
        HistogramView {
            counts: self.counts.iter().enumerate().map(|(at, n)| n.saturating_sub(was(at))).collect(),
            nanos: self.nanos.saturating_sub(before.nanos),
        }
    }
}

impl WorkView {
    /// Adds what another part of the same array did.
    pub fn add(&mut self, other: &WorkView) {
        for (all, other) in self.histograms_mut().into_iter().zip(other.histograms()) {
            all.add(other);
        }
        self.in_flight += other.in_flight;
        self.busy_nanos += other.busy_nanos;
        self.parts = self.parts.max(1) + other.parts.max(1);
        self.limited_nanos += other.limited_nanos;
        for (fault, n) in &other.faults {
            *self.faults.entry(fault.clone()).or_default() += n;
        }
    }

    /// What has come since `before`.
    #[must_use]
    pub fn since(&self, before: &WorkView) -> WorkView {
        let mut gone_by = self.clone();
        for (all, before) in gone_by.histograms_mut().into_iter().zip(before.histograms()) {
            *all = all.since(before);
        }
        gone_by.busy_nanos = self.busy_nanos.saturating_sub(before.busy_nanos);
        gone_by.limited_nanos = self.limited_nanos.saturating_sub(before.limited_nanos);
        for (fault, n) in &mut gone_by.faults {
            *n = n.saturating_sub(before.faults.get(fault).copied().unwrap_or(0));
        }
        gone_by
    }

    /// Reads, writes, flushes and deallocations.
    #[must_use]
    pub fn histograms(&self) -> [&HistogramView; 4] {
        [&self.reads, &self.writes, &self.flushes, &self.deallocates]
    }

    fn histograms_mut(&mut self) -> [&mut HistogramView; 4] {
        [&mut self.reads, &mut self.writes, &mut self.flushes, &mut self.deallocates]
    }
}

/// Adds to what may not be known what may not be known.
pub fn add_work(all: &mut Option<Box<WorkView>>, other: Option<Box<WorkView>>) {
    match (all, other) {
        (Some(all), Some(other)) => all.add(&other),
        (all, other) => *all = all.take().or(other),
    }
}

impl From<VolumeView> for TrafficView {
    fn from(v: VolumeView) -> TrafficView {
        TrafficView {
            name: v.name.to_string(),
            reads: v.reads,
            writes: v.writes,
            bytes_read: v.bytes_read,
            bytes_written: v.bytes_written,
            errors: v.errors,
            work: v.work,
        }
    }
}

impl From<MemberView> for TrafficView {
    fn from(m: MemberView) -> TrafficView {
        TrafficView {
            name: if m.drive.is_empty() { m.drive_name } else { m.drive },
            reads: m.reads,
            writes: m.writes,
            bytes_read: m.bytes_read,
            bytes_written: m.bytes_written,
            errors: m.errors,
            work: m.work,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_double() {
        let of = HistogramView::bucket;
        assert_eq!([of(0), of(8192), of(8193), of(16384), of(16385)], [0, 0, 1, 1, 2]);
        assert_eq!([of(1 << 36), of((1 << 36) + 1), of(u64::MAX)], [23, 24, 24]);
        for bucket in 0..HistogramView::BUCKETS - 1 {
            let bound = HistogramView::bound(bucket).unwrap();
            assert_eq!((of(bound), of(bound + 1)), (bucket, bucket + 1));
        }
        assert_eq!(HistogramView::bound(24), None);
    }

    #[test]
    fn a_quantile_is_within_its_class() {
        let mut h = HistogramView { counts: vec![0; HistogramView::BUCKETS], nanos: 0 };
        assert_eq!((h.quantile(0.5), h.mean()), (None, None));
        for us in 1..=1000_u64 {
            h.counts[HistogramView::bucket(us * 1000)] += 1;
            h.nanos += us * 1000;
        }
        for (share, is) in [(0.5, 500.0), (0.9, 900.0), (0.99, 990.0)] {
            let said = h.quantile(share).unwrap().as_secs_f64() * 1e6;
            assert!((is / 2.0..is * 2.0).contains(&said), "{share}: {said}");
        }
        assert_eq!(h.mean(), Some(Duration::from_nanos(500_500)));
        let twice = {
            let mut twice = h.clone();
            twice.add(&h);
            twice
        };
        assert_eq!(twice.since(&h), h);
    }
}
