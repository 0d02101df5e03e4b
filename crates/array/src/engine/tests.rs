//! Tests that look into the rooms of an array.

mod rebuild;
mod refused;
mod small;
