//! Asking before something is lost for ever.

use std::io::{self, IsTerminal};

use server::Problem;

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
    let refused = |why: &str| Err(Problem::refused("not_confirmed", name, why, "type the name, or say --yes"));
    if !io::stdin().is_terminal() {
        return refused("this wants a confirmation, and there is no terminal to ask on");
    }
    output::hint(&format!("{loss}\nType \"{name}\" to go on: "));
    let mut answer = String::new();
    match io::stdin().read_line(&mut answer) {
        Ok(_) if answer.trim() == name => Ok(()),
        Ok(_) => refused("the answer was another; nothing was done"),
        Err(e) => refused(&format!("the answer cannot be read: {e}")),
    }
}
