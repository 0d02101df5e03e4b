//! What reads an array that is not served: the check of everything, what drives say of themselves, where a block lies.

pub mod check;
pub mod inspect;
