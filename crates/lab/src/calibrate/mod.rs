//! Published figures beside the model's: which rows it covers, how far off it is, and what that says of a prediction.
//!
//! Each row of `published.csv` that is a measurement becomes a case, or has a reason why it is none. A case is *fitted*
//! when a figure of a drive or system file comes from it, *held out* otherwise, and *not scored* when its condition is
//! unknown and matters. `data/model.csv` keeps what the model says; a test finds which figure moved.

mod cases;
mod flagship;
mod page;
mod table;

pub use cases::{Case, LeftOut, Role, cases};
pub use flagship::{Entry, entry, flagship, layouts};
pub use page::page;
pub use table::{Line, Summary, class_of, compare, first_sight, ratios, read, summary, write};
