//! What `/metrics` says: the figures of one snapshot, for Prometheus.
//!
//! Invariants:
//! - base units (bytes, seconds, shares of 1), no unit in a label, an identity only in `..._info`;
//! - a figure that is not known now is absent, never a constant;
//! - everything comes from the snapshot: a scrape asks nobody.

mod arrays;
mod drives;
mod page;
mod server;
mod volumes;

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::snapshot::Snapshot;
use page::Page;

/// The media type of [`text`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The page.
#[must_use]
pub fn text(snapshot: Arc<Snapshot>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Figures(snapshot)));
    let mut page = String::new();
    // A string takes everything.
    let _ = encode(&mut page, &registry);
    page
}

#[derive(Debug)]
struct Figures(Arc<Snapshot>);

impl Collector for Figures {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Figures(snapshot) = self;
        let mut page = Page::new(encoder);
        server::add(&mut page, snapshot)?;
        arrays::add(&mut page, snapshot)?;
        volumes::add(&mut page, snapshot)?;
        drives::add(&mut page, snapshot)
    }
}

/// Labels, from names and what they are.
macro_rules! labels {
    ($($name:ident = $value:expr),*) => { vec![$((stringify!($name), $value.to_string())),*] };
}
use labels;
