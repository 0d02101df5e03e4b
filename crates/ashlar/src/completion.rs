//! `ashlar completion`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::{Finding, Outcome};

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
    clap_complete::generate(args.shell, &mut Cli::command(), "ashlar", &mut std::io::stdout());
    Ok(Finding::Good)
}
