//! `ashlar completion`, and what the scripts that it prints ask for: the program itself completes its words, with the names of
//! the arrays, volumes and drives that are here now.

mod names;

use api::Problem;
use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use clap_complete::engine::ArgValueCompleter;
use clap_complete::env::{CompleteEnv, Shells};

use crate::cli::Cli;
use crate::exit::{Finding, Outcome};
use crate::output;

/// The variable by which a script asks.
const ASKED: &str = "COMPLETE";

const EXAMPLES: &str = "\
Examples:
  ashlar completion bash > /etc/bash_completion.d/ashlar
  ashlar completion zsh > ~/.zfunc/_ashlar
  ashlar completion fish > ~/.config/fish/completions/ashlar.fish

The package has these. They complete the names of arrays, volumes and drives, too, which they ask of the running Ashlar.";

/// Print the completion script of a shell
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Prints it.
pub fn run(args: &Args) -> Outcome {
    let name = args.shell.to_string();
    let mut script = Vec::new();
    let written = Shells::builtins()
        .completer(&name)
        .map(|shell| shell.write_registration(ASKED, "ashlar", "ashlar", "ashlar", &mut script));
    match written {
        Some(Ok(())) => output::bytes(&script),
        Some(Err(e)) => return Err(Problem::failed(format!("the script for {name}"), e, "try again")),
        None => return Err(Problem::usage(name, "there is no script for this shell", "name another (--help)")),
    }
    Ok(Finding::Good)
}

/// Ends the program with what a shell can complete here, if one asks.
pub fn answer() {
    CompleteEnv::with_factory(|| with_names(Cli::command())).var(ASKED).complete();
}

/// The command, with what its arguments may be.
fn with_names(command: Command) -> Command {
    let subcommands: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let attaches = matches!(command.get_name(), "attach" | "detach");
    let command = command.mut_args(|arg| with_name(arg, attaches));
    subcommands.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_names))
}

fn with_name(arg: Arg, attaches: bool) -> Arg {
    match arg.get_id().as_str() {
        "array" => arg.add(ArgValueCompleter::new(names::arrays)),
        "volume" => arg.add(ArgValueCompleter::new(names::volumes)),
        "name" if attaches => arg.add(ArgValueCompleter::new(names::arrays_and_volumes)),
        "what" if arg.get_num_args().is_none_or(|n| n.max_values() == 1) => {
            arg.add(ArgValueCompleter::new(names::arrays_and_jobs))
        }
        "drive" if arg.get_value_parser().type_id() == std::any::TypeId::of::<String>() => {
            arg.add(ArgValueCompleter::new(names::drives))
        }
        _ => arg,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arguments of a command and all below it that complete names, as "verb: argument".
    fn completed(command: &Command, found: &mut Vec<String>) {
        let args = command.get_arguments().filter(|arg| arg.get::<ArgValueCompleter>().is_some());
        found.extend(args.map(|arg| format!("{}: {}", command.get_name(), arg.get_id())));
        command.get_subcommands().for_each(|sub| completed(sub, found));
    }

    #[test]
    fn arguments_that_are_names_complete_them() {
        let command = with_names(Cli::command());
        command.clone().debug_assert();
        let mut found = vec![];
        completed(&command, &mut found);
        for wanted in ["status: array", "grow: volume", "attach: name", "wait: what", "fail: drive", "rename: array"] {
            assert!(found.iter().any(|arg| arg == wanted), "{wanted}: {found:?}");
        }
        for path in ["inspect: drive", "wipe: drive", "create: name", "import: what"] {
            assert!(found.iter().all(|arg| arg != path), "{path}");
        }
    }

    #[test]
    fn every_shell_has_a_script() {
        use clap::ValueEnum;
        for shell in Shell::value_variants() {
            assert!(Shells::builtins().completer(&shell.to_string()).is_some(), "{shell}");
        }
    }
}
