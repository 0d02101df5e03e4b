//! `ashlar completion`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::{Finding, Outcome};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  ashlar completion bash > /etc/bash_completion.d/ashlar
  ashlar completion zsh > ~/.zfunc/_ashlar
  ashlar completion fish > ~/.config/fish/completions/ashlar.fish";

/// Print the completion script of a shell
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Prints it.
pub fn run(args: &Args) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ashlar", &mut script);
    output::bytes(&script);
    Ok(Finding::Good)
}
