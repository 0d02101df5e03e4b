//! Asking before something is lost for ever.

use std::io::{self, IsTerminal};

use api::Problem;

use crate::output;

/// The same where there is a terminal to ask on. Elsewhere the request, which says what it takes, is enough.
///
/// # Errors
/// When the answer is another.
pub fn by_name_if_asked(yes: bool, loss: &str, name: &str) -> Result<(), Problem> {
    by_name(yes || !io::stdin().is_terminal(), loss, name)
}

/// Asks the user to type `name`, unless `yes` was said already.
///
/// # Errors
/// When nobody can be asked, or the answer is another.
pub fn by_name(yes: bool, loss: &str, name: &str) -> Result<(), Problem> {
    if yes {
        return Ok(());
    }
    let refused = |why: &str| Err(Problem::refused("not_confirmed", name, why, "type the name, or use --yes"));
    if !io::stdin().is_terminal() {
        return refused("a confirmation is needed, and standard input is not a terminal");
    }
    output::hint(&format!("{loss}\nType \"{name}\" to continue:  "));
    let mut answer = String::new();
    match io::stdin().read_line(&mut answer) {
        Ok(_) if answer.trim() == name => Ok(()),
        Ok(_) => refused("the name did not match; nothing was changed"),
        Err(e) => refused(&format!("the answer cannot be read: {e}")),
    }
}
