//! The environment of the process, where it is changed.
//!
//! Not here: reading it, which is safe everywhere.
#![allow(unsafe_code)]

use std::env;
use std::ffi::OsString;

/// Takes variables out of the environment, so that processes begun later do not have them. `None` for one that is not set.
///
/// It is called before the process has a second thread.
#[must_use]
pub fn take<const N: usize>(names: [&str; N]) -> [Option<OsString>; N] {
    let values = names.map(env::var_os);
    for (name, _) in names.iter().zip(&values).filter(|(_, value)| value.is_some()) {
        // SAFETY: there is no other thread yet that could read the environment meanwhile.
        unsafe { env::remove_var(name) };
    }
    values
}
