//! `ashlar token`.

use std::time::Duration;

use api::{Done, Role, TokenCreate, TokenCreated, Tokens};
use clap::{Subcommand, ValueEnum};

use crate::context::{Context, encode};
use crate::exit::{Finding, Outcome};
use crate::text::{self, Table};

const EXAMPLES: &str = "\
Examples:
  ashlar token create backup --role operate --expires 90d
  ashlar token list
  ashlar token delete 7hG2kQ9x";

const CREATE_EXAMPLES: &str = "\
Examples:
  ashlar token create backup --role operate --expires 90d
  (umask 077; ashlar token create prometheus --role read > token)      for --token-file

The token is printed once. The server keeps a hash of it.";

const DELETE_EXAMPLES: &str = "\
Example:
  ashlar token delete 7hG2kQ9x   it is refused from now on, and its streams end";

const LIST_EXAMPLES: &str = "\
Examples:
  ashlar token list
  ashlar token list --json";

/// Manage the tokens with which other machines may ask
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Create(CreateArgs),
    List(ListArgs),
    Delete(DeleteArgs),
}

/// Make a token, and print it
#[derive(clap::Args)]
#[command(after_help = CREATE_EXAMPLES)]
struct CreateArgs {
    /// What it is for
    name: String,
    /// What it may do
    #[arg(long)]
    role: RoleArg,
    /// How long it is valid: a number with s, m, h, d or w, for instance 90d [default: without end]
    #[arg(long, value_name = "TIME", value_parser = time)]
    expires: Option<Duration>,
    /// Prints an object for scripts
    #[arg(long)]
    json: bool,
}

/// List the tokens
#[derive(clap::Args)]
#[command(after_help = LIST_EXAMPLES)]
struct ListArgs {
    /// Prints an object for scripts
    #[arg(long)]
    json: bool,
}

/// Delete a token
#[derive(clap::Args)]
#[command(after_help = DELETE_EXAMPLES)]
struct DeleteArgs {
    /// Its id: `ashlar token list` shows it
    id: String,
    /// Prints an object for scripts
    #[arg(long)]
    json: bool,
}

/// A role, as the command line says it.
#[derive(Clone, Copy, ValueEnum)]
enum RoleArg {
    /// Reads everything
    Read,
    /// Also makes and changes volumes, pauses and ends jobs, starts scrubs
    Operate,
    /// Everything
    Admin,
}

impl From<RoleArg> for Role {
    fn from(role: RoleArg) -> Role {
        match role {
            RoleArg::Read => Role::Read,
            RoleArg::Operate => Role::Operate,
            RoleArg::Admin => Role::Admin,
        }
    }
}

impl Args {
    /// Whether an object is wanted.
    pub fn json(&self) -> bool {
        match &self.verb {
            Verb::Create(args) => args.json,
            Verb::List(args) => args.json,
            Verb::Delete(args) => args.json,
        }
    }
}

/// Does it.
pub fn run(context: &Context, args: Args) -> Outcome {
    let client = context.running("tokens")?;
    match args.verb {
        Verb::Create(args) => {
            let expires_in_seconds = args.expires.map(|time| time.as_secs());
            let wish = TokenCreate { name: args.name, role: args.role.into(), expires_in_seconds };
            let made: TokenCreated = client.post("/v1/tokens", &wish)?;
            if args.json {
                text::print_json(&made);
            } else {
                text::print(made.token.reveal());
            }
        }
        Verb::List(args) => {
            let all: Tokens = client.get("/v1/tokens")?;
            if args.json { text::print_json(&all) } else { show(&all) }
        }
        Verb::Delete(args) => {
            let done: Done = client.delete(&format!("/v1/tokens/{}", encode(&args.id)))?;
            text::print_done(args.json, &done);
        }
    }
    Ok(Finding::Good)
}

fn show(all: &Tokens) {
    if all.tokens.is_empty() {
        text::print("No tokens.");
        return;
    }
    let mut table = Table::new(&["NAME", "ID", "ROLE", "CREATED", "EXPIRES", "LAST USE"]).flush_left();
    let when = |seconds: Option<u64>, none: &str| seconds.map_or(none.to_owned(), base::utc);
    for token in &all.tokens {
        let (created, expires) = (base::utc(token.created_unix_seconds), when(token.expires_unix_seconds, "never"));
        let (name, id, role) = (token.name.clone(), token.id.clone(), token.role.word().to_owned());
        table.row(vec![name, id, role, created, expires, when(token.used_unix_seconds, "-")]);
    }
    table.print();
}

/// A time: a number and its unit.
fn time(text: &str) -> Result<Duration, String> {
    let no = || format!("\"{text}\" is not a time: write a number with s, m, h, d or w, for instance 90d");
    let unit = text.chars().last().ok_or_else(no)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        _other => return Err(no()),
    };
    let number: u64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| no())?;
    let seconds = number.checked_mul(seconds).filter(|seconds| *seconds > 0).ok_or_else(no)?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(time("90d").unwrap(), Duration::from_secs(90 * 86_400));
        assert_eq!(time("1w").unwrap(), time("7d").unwrap());
        for wrong in ["", "90", "d", "0d", "-1d", "90x", "1.5h", "99999999999999999999d", "18446744073709551615w", "ü"]
        {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn roles_are_said_in_the_words_of_the_api() {
        for role in RoleArg::value_variants() {
            let word = role.to_possible_value().unwrap();
            assert_eq!(word.get_name(), Role::from(*role).word());
        }
    }
}
