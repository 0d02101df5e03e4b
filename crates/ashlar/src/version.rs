//! `ashlar version`.

use api::ServerView;
use serde::Serialize;

use crate::context::Context;
use crate::exit::{Finding, Outcome};
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar version
  ashlar version --json | jq .format_version";

/// Print the version of the program, of the format on drives, and of the running server
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
    /// What the server says of itself, where one answers.
    server: Option<ServerView>,
}

/// Prints it.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let version = Version {
        version: api::VERSION,
        program: env!("CARGO_PKG_VERSION"),
        format_version: ondisk::FORMAT_VERSION,
        exports: ["nbd", "nvme-tcp"],
        server: context.server().and_then(|client| client.get("/v1/server").ok()),
    };
    if args.json {
        text::print_json(&version);
    } else {
        text::print(&format!("ashlar {}", version.program));
        text::print(&format!("format on drives: version {}, read and written", version.format_version));
        text::print("exports: NBD, NVMe/TCP");
        version.server.iter().for_each(|server| show(context, server));
    }
    Ok(Finding::Good)
}

fn show(context: &Context, server: &ServerView) {
    text::print(&format!("server at {}: {}", context.place(), server.program));
    if let Some(fingerprint) = &server.certificate_sha256 {
        let at: Vec<String> = server.api.iter().map(|at| format!("https://{at}")).collect();
        text::print(&format!("its API at {}, certificate SHA-256:", at.join(", ")));
        text::print(&format!("  {fingerprint}"));
    }
}
