//! `ashlar clients`.

use std::time::{SystemTime, UNIX_EPOCH};

use api::{ClientView, Clients, Problem};
use server::ops::clients;

use crate::client::Client;
use crate::confirm;
use crate::context::{Context, encode};
use crate::exit::{Finding, Outcome};
use crate::text::{self, Table};

const EXAMPLES: &str = "\
Examples:
  ashlar clients                 all hosts that are connected
  ashlar clients fast            those of an array
  ashlar clients fast/db         those of a volume

An NBD client uses one volume. An NVMe/TCP host sees all volumes of its array; the protocol does not say which it \
uses.";

/// List the hosts that are connected
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// An array or a volume; all when none is named
    #[arg(value_name = "ARRAY[/VOLUME]")]
    whose: Option<String>,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// Lists them.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let Some(client) = context.server() else {
        return Err(Problem::refused(
            "not_running",
            "clients",
            format!("no Ashlar answers at {}, so no host is connected", context.place()),
            "name another socket with --control",
        ));
    };
    let whose = args.whose.as_deref();
    let (array, volume) = match whose.and_then(|name| name.split_once('/')) {
        Some((array, volume)) => (Some(array), Some(volume)),
        None => (whose, None),
    };
    let found = of(&client, array, volume)?;
    if args.json {
        text::print_json(&found);
        return Ok(Finding::Good);
    }
    if found.clients.is_empty() {
        text::print("No host is connected.");
        return Ok(Finding::Good);
    }
    let now = now();
    let mut table = Table::new(&["USES", "PROTOCOL", "FROM", ">SINCE", ">CONNECTIONS", "HOST"]).flush_left();
    for c in &found.clients {
        let uses = format!("{}/{}", c.array, c.volume.as_deref().unwrap_or("*"));
        let since = clients::age(now.saturating_sub(c.since_unix_seconds));
        let host = c.host.clone().unwrap_or_else(|| "-".to_owned());
        let protocol = clients::protocol(c).to_owned();
        table.row(vec![uses, protocol, c.peer.clone(), since, c.connections.to_string(), host]);
    }
    table.print();
    Ok(Finding::Good)
}

/// The clients of everything, of an array, or of a volume.
fn of(client: &Client, array: Option<&str>, volume: Option<&str>) -> Result<Clients, Problem> {
    let mut path = "/v1/clients".to_owned();
    for (name, value) in [("?array=", array), ("&volume=", volume)] {
        if let Some(value) = value {
            path.push_str(name);
            path.push_str(&encode(value));
        }
    }
    client.get(&path)
}

/// Asks the user to type `name`, unless `yes` was said already: something is lost, and who is connected is cut off. That is
/// refused before anybody is asked, unless `force` was said.
///
/// # Errors
/// When hosts are connected, nobody can be asked, or the answer is another.
pub fn confirm_loss(
    server: Option<&Client>,
    (what, array, volume): (&str, &str, Option<&str>),
    (loss, name): (&str, &str),
    (yes, force): (bool, bool),
) -> Result<(), Problem> {
    if yes {
        return Ok(());
    }
    let connected: Vec<ClientView> = match server {
        Some(client) => of(client, Some(array), volume)?.clients,
        None => vec![],
    };
    if connected.is_empty() {
        return confirm::by_name(false, loss, name);
    }
    if !force {
        return Err(clients::connected(what, &connected, now()));
    }
    let lines = clients::lines(&connected, now()).join("\n  ");
    confirm::by_name(
        false,
        &format!("{loss}\n{} and will be disconnected:\n  {lines}", clients::counted(&connected)),
        name,
    )
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
