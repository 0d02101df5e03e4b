//! `ashlar create`.

use api::{CreateRequest, Created, Problem, VERSION};
use server::ops::create;
use server::size::Size;

use crate::confirm;
use crate::context::{Context, absolute_drive};
use crate::exit::{Finding, Outcome};
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar create fast --raid 6 --dry-run /dev/nvme*n1       show the plan only
  ashlar create fast --raid 6 /dev/nvme*n1
  ashlar create lab --raid 5 --size 4G d/0 d/1 d/2 d/3     sparse files, for trying out
  ashlar create ram --raid 10 mem:1G mem:1G mem:1G mem:1G  in a running `ashlar serve`

A running Ashlar creates the array and serves it. A drive that is mounted, in use by an Ashlar or too \
small is refused; one that holds data is refused unless --force is given (--dry-run says what it holds), and one \
that an array known on this machine uses is refused unless --take-from names that array.";

/// Create an array
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the array
    name: String,
    /// Block devices, files, or memory (mem:4G)
    #[arg(required = true)]
    drives: Vec<String>,
    /// Level: 0, 10 (two copies), 10x3 (three copies), 5 or 6
    #[arg(long, value_name = "LEVEL")]
    raid: String,
    /// Drives in one row [default: all; from 8 drives on all but one, so that a rebuild has space]
    #[arg(long)]
    width: Option<usize>,
    /// Number of parts, up to 16, each on a core of its own with `ashlar serve --cores` [default: 1]
    ///
    /// A part is an engine on a slice of every drive. One part does some hundred thousand requests per second; each
    /// further part costs memory, and some latency of single writes.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, hide_default_value = true)]
    parts: u8,
    /// Creates drives that do not exist as sparse files of this size
    #[arg(long)]
    size: Option<Size>,
    /// Zone size, a power of two [default: about 1/1024 of the smallest drive]
    #[arg(long)]
    zone: Option<Size>,
    /// Accepts drives that hold other data, which will be lost. Asks first on a terminal
    #[arg(long)]
    force: bool,
    /// Accepts drives that this array, known on this machine, still uses; its data on them will be lost
    #[arg(long, value_name = "ARRAY")]
    take_from: Vec<String>,
    /// Does not ask before data is lost
    #[arg(long)]
    yes: bool,
    /// Shows the plan; writes nothing
    #[arg(long)]
    dry_run: bool,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// Makes it, or says what it would be.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let request = CreateRequest {
        name: args.name.clone(),
        raid: args.raid.clone(),
        width: args.width,
        zone_bytes: args.zone.map(|z| z.0),
        size_bytes: args.size.map(|s| s.0),
        drives: args.drives.iter().map(|d| absolute_drive(d)).collect(),
        parts: args.parts,
        force: args.force,
        take_from: args.take_from.clone(),
    };
    if !args.dry_run && !args.yes && (args.force || !args.take_from.is_empty()) {
        confirm_losses(context, &request)?;
    }
    let created = if args.dry_run {
        let plan = context.offline(|world| async move { create::plan(&world, &request).await })?;
        Created { version: VERSION, name: args.name.clone(), uuid: None, served: false, plan }
    } else if let Some(client) = context.server() {
        client.post("/v1/arrays", &request)?
    } else {
        make(context, request)?
    };
    if args.json {
        text::print_json(&created);
        return Ok(Finding::Good);
    }
    for line in text::plan(&created.name, &created.plan) {
        text::print(&line);
    }
    let name = &created.name;
    text::print(&match (args.dry_run, created.served) {
        (true, _) => "Dry run: nothing was written.".to_owned(),
        (false, true) => format!(
            "Array {name} created; the running Ashlar serves it. Next: `ashlar volume create {name}/NAME SIZE`."
        ),
        (false, false) => {
            format!("Array {name} created. Next: `ashlar volume create {name}/NAME SIZE` and `ashlar serve`.")
        }
    });
    Ok(Finding::Good)
}

/// Asks before what the drives hold is lost: where the array would be made at all.
fn confirm_losses(context: &Context, request: &CreateRequest) -> Result<(), Problem> {
    let plan = context.offline(|world| async move { create::plan(&world, request).await })?;
    if plan.losses.is_empty() {
        return Ok(());
    }
    confirm::by_name_if_asked(false, &text::losses(&plan.losses).join("\n"), &request.name)
}

fn make(context: &Context, request: CreateRequest) -> Result<Created, Problem> {
    context.offline(|world| async move {
        let (opened, plan) = create::run(&world, &request, create::Host::Command).await?;
        let view = opened.view().await;
        opened.close(&world).await?;
        Ok(Created { version: VERSION, name: view.name, uuid: Some(view.uuid), served: false, plan })
    })
}
