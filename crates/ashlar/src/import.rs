//! `ashlar import`.

use server::Problem;
use server::ops::import;
use server::ops::open::Patience;
use server::view::{ImportRequest, Imported, VERSION};

use crate::confirm;
use crate::context::{Context, absolute_drive};
use crate::exit::{Finding, Outcome};
use crate::{output, text};

const EXAMPLES: &str = "\
Examples:
  ashlar import                      look at all block devices, and where known arrays were
  ashlar import d/                   look at the files in a directory
  ashlar import /dev/nvme2n1 /dev/nvme3n1
  ashlar import --read-only d/       recover in memory, write nothing
  ashlar import --degraded d/        accept half or fewer of the drives
  ashlar import --array fast --previous-generation --read-only d/

Each array that is found is opened (and recovered, if its server died) and remembered, so that other verbs find it by \
its name. A running Ashlar goes on to serve it.";

/// Find arrays by the labels on their drives
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Directories and drives; all block devices and known drives when none is named
    #[arg(value_name = "DIR|DRIVE")]
    places: Vec<String>,
    /// Only the array of this name or identity
    #[arg(long)]
    array: Option<String>,
    /// Writes nothing
    #[arg(long)]
    read_only: bool,
    /// Accepts half or fewer of an array's drives
    #[arg(long)]
    degraded: bool,
    /// Leaves out drives with a history of their own; what they alone hold is given up
    #[arg(long)]
    force_diverged: bool,
    /// Goes on over writes that are lost beyond repair
    #[arg(long)]
    accept_loss: bool,
    /// Gives up the newest generation, and what was written since the one before; with --read-only only looks
    #[arg(long, requires = "array")]
    previous_generation: bool,
    /// Takes the array of this name from another server that has it. Where its drives can be reserved, the other is stopped
    /// at once. Else it stops by itself within 10 s, unless it stands still: what it goes on to write then destroys data
    #[arg(long, value_name = "NAME", conflicts_with = "read_only")]
    take_over: Option<String>,
    /// Does not ask
    #[arg(long)]
    yes: bool,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// Finds and opens.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let request = ImportRequest {
        places: args.places.iter().map(|p| absolute_drive(p)).collect(),
        array: args.array.clone(),
        read_only: args.read_only,
        degraded: args.degraded,
        force_diverged: args.force_diverged,
        accept_loss: args.accept_loss,
        previous_generation: args.previous_generation,
        take_over: args.take_over.clone(),
    };
    if args.previous_generation && !args.read_only {
        let name = args.array.as_deref().unwrap_or_default();
        let loss = format!("What was written to array {name} since its last generation but one may be lost.");
        confirm::by_name(args.yes, &loss, name)?;
    }
    let imported: Imported = match context.server() {
        Some(client) => client.post("/v1/import", &request)?,
        None => offline(context, &request)?,
    };
    if imported.arrays.is_empty()
        && let Some(problem) = Problem::all(imported.problems.clone())
    {
        return Err(problem);
    }
    if args.json {
        text::print_json(&imported);
        return Ok(Finding::Good);
    }
    for one in &imported.arrays {
        for line in text::array_details(&one.array) {
            text::print(&line);
        }
        text::print("\n  Opening it:");
        for line in text::recovery(&one.recovery) {
            text::print(&line);
        }
        text::print_notes(&one.notes);
        text::print("");
    }
    for problem in &imported.problems {
        output::complain(&format!("ashlar: {problem}"));
    }
    let names: Vec<_> = imported.arrays.iter().map(|a| a.array.name.as_str()).collect();
    text::print(&if imported.served {
        format!("Imported {}; the running Ashlar serves it.", names.join(", "))
    } else {
        format!("Imported {}. `ashlar serve` serves it.", names.join(", "))
    });
    Ok(Finding::Good)
}

fn offline(context: &Context, request: &ImportRequest) -> Result<Imported, Problem> {
    context.offline(|world| async move {
        let (found, problems) = import::search(&world, request).await?;
        let mut answer = Imported { version: VERSION, problems, ..Imported::default() };
        for array in found {
            match import::open(&world, &array, request, Patience::Short).await {
                Ok(opened) => {
                    answer.arrays.push(import::answer(&opened).await);
                    opened.close(&world).await?;
                }
                Err(problem) => answer.problems.push(problem),
            }
        }
        Ok(answer)
    })
}
