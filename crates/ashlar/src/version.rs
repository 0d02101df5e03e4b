//! `ashlar version`.

use serde::Serialize;

use crate::exit::{Finding, Outcome};
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar version
  ashlar version --json | jq .format_version";

/// Print the version of the program and of the format on drives
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Version {
    version: u32,
    program: &'static str,
    /// The one that it writes, and the only one that it reads.
    format_version: u16,
    exports: [&'static str; 2],
}

/// Prints it.
pub fn run(args: &Args) -> Outcome {
    let version = Version {
        version: api::VERSION,
        program: env!("CARGO_PKG_VERSION"),
        format_version: ondisk::FORMAT_VERSION,
        exports: ["nbd", "nvme-tcp"],
    };
    if args.json {
        text::print_json(&version);
    } else {
        text::print(&format!("ashlar {}", version.program));
        text::print(&format!("format on drives: version {}, read and written", version.format_version));
        text::print("exports: NBD, NVMe/TCP");
    }
    Ok(Finding::Good)
}
