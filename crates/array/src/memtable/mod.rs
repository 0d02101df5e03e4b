//! Memtables: what was acknowledged and is not in the trees yet.

pub mod memory;
pub mod table;
