//! Members: their drives, how they behave, and what becomes of one that fails.

pub mod fail;
pub mod flush;
pub mod health;
pub mod no_room;
pub mod seat;
pub mod standing;
