//! `ashlar list`.

use api::Arrays;
use server::ops::status;

use crate::context::Context;
use crate::exit::{Finding, Outcome};
use crate::text::{self, Table, human, state_word, volume_word};

const EXAMPLES: &str = "\
Examples:
  ashlar list                    arrays and their volumes, also without a server
  ashlar list --json             as `ashlar status --json`";

/// List arrays and volumes
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// Lists them.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let all: Arrays = match context.server() {
        Some(client) => client.get("/v1/arrays")?,
        None => context.offline(|world| async move { status::offline(&world, None).await })?,
    };
    if args.json {
        text::print_json(&all);
        return Ok(Finding::Good);
    }
    let mut table = Table::new(&["NAME", ">SIZE", ">USED", "STATE", "IDENTITY"]).flush_left();
    for array in &all.arrays {
        let (size, used) = (human(array.usable_bytes), human(array.used_bytes));
        table.row(vec![array.name.clone(), size, used, state_word(array.state).to_owned(), array.uuid.to_string()]);
        for volume in &array.volumes {
            let name = format!("{}/{}", array.name, volume.name);
            let (size, used) = (human(volume.bytes), human(volume.mapped_bytes));
            table.row(vec![name, size, used, volume_word(volume.state).to_owned(), volume.uuid.to_string()]);
        }
    }
    let other = |name: &String, state: &str| vec![name.clone(), "-".into(), "-".into(), state.into(), "-".into()];
    all.absent.iter().for_each(|absent| table.row(other(&absent.name, "absent")));
    all.not_served.iter().for_each(|name| table.row(other(name, "not served")));
    if table.is_empty() {
        text::print("No array is known here; `ashlar create` makes one, `ashlar import` looks for some.");
    } else {
        table.print();
    }
    Ok(Finding::Good)
}
