//! A page of metrics in the text format of OpenMetrics 1.0, which Prometheus reads.

use std::fmt;

use api::HistogramView;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Labels of one sample.
pub type Labels = Vec<(&'static str, String)>;

/// Families of samples, one after the other. Each is given all at once: the format wants it in one piece.
pub struct Page<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl<'a> Page<'a> {
    /// An empty one.
    pub fn new(encoder: DescriptorEncoder<'a>) -> Page<'a> {
        Page { encoder }
    }

    /// What only rises; "_total" comes behind `name`.
    ///
    /// # Errors
    /// Never, as a string takes everything.
    pub fn counter(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (Labels, f64)>) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in samples {
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, f64, f64>(&value, None)?;
        }
        Ok(())
    }

    /// What rises and falls.
    ///
    /// # Errors
    /// Never, as a string takes everything.
    pub fn gauge(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (Labels, f64)>) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in samples {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// Times.
    ///
    /// # Errors
    /// Never, as a string takes everything.
    pub fn histogram<'h>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, &'h HistogramView)>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, times) in samples {
            let sum = times.nanos as f64 / 1e9;
            let bounds = (0..HistogramView::BUCKETS)
                .map(|b| HistogramView::bound(b).map_or(f64::INFINITY, |nanos| nanos as f64 / 1e9));
            let count = |bucket: usize| times.counts.get(bucket).copied().unwrap_or(0);
            let buckets: Vec<(f64, u64)> = bounds.enumerate().map(|(at, bound)| (bound, count(at))).collect();
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, times.count(), &buckets, None)?;
        }
        Ok(())
    }
}
