//! Drives as people name them: reading a name, opening, finding what carries our labels, and the checks before
//! anything is written.

pub mod checks;
pub mod files;
pub mod find;
pub mod holds;
pub mod locate;
pub mod names;
pub mod source;

pub use source::Source;
