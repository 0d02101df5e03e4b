//! Space: segments and the zones they take, free room, and who may take the last of it.

pub mod choose;
pub mod ladder;
pub mod pace;
pub mod pins;
pub mod plan;
pub mod promise;
pub mod segment;
pub mod segments;
