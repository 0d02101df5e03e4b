//! `ashlar export`: an array to another host for good, or a volume to other hosts by the kernel's NVMe target.

use api::{Done, Kind, Problem, TargetView};
use server::nvmet::Address;
use server::ops::export;

use crate::attach::local::{load_driver, refuse_left_of};
use crate::client::Client;
use crate::context::{Context, encode, split_volume};
use crate::exit::{Finding, Outcome};
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar export fast             then, on the other host: ashlar import fast
  ashlar export --nvmet rdma:10.0.0.5:4420 fast/db
                                 over RDMA (RoCE); also tcp:..., fc:nn-0x...:pn-0x...
  ashlar export --nvmet rdma:10.0.0.5:4420 --remove fast/db

Closes the array, so that nothing is left to recover, and forgets it here. It is refused while hosts use its volumes: \
unmount and disconnect first. The drives may have other names on the other host.

With --nvmet the array stays, and the kernel's NVMe target brings the volume to other hosts: the server runs as root on Linux 6.6 or \
newer with ublk_drv and nvmet. Hosts must be allowed by name (`ashlar serve --allow-host NQN`). All volumes of an array that are \
exported so are at each of its addresses. Exports come back after a restart, a crash and a boot, until they are removed.";

/// Hand an array over to another host, or bring a volume to hosts over RDMA
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// ARRAY; with --nvmet ARRAY/VOLUME
    name: String,
    /// The kernel's NVMe target brings the volume to this address
    #[arg(long, value_name = "TRANSPORT:ADDRESS:PORT")]
    nvmet: Option<String>,
    /// Takes the volume from that address; hosts that use it there are cut off
    #[arg(long, requires = "nvmet")]
    remove: bool,
    /// Proceeds even while hosts are connected; they are disconnected
    #[arg(long, conflicts_with = "nvmet")]
    force: bool,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// Exports.
pub fn run(context: &Context, args: &Args) -> Outcome {
    match &args.nvmet {
        Some(at) => by_target(context, args, at.parse()?),
        None => hand_over(context, args),
    }
}

/// Hands an array over.
fn hand_over(context: &Context, args: &Args) -> Outcome {
    let done: Done = match context.server_of(&args.name)? {
        Some(client) => {
            client.post(&Client::forced(&format!("/v1/arrays/{}/export", encode(&args.name)), args.force), &())?
        }
        None => {
            refuse_left_of(context, &args.name)?;
            context.offline(|world| async move { export::offline(&world, &args.name).await })?
        }
    };
    text::print_done(args.json, &done);
    Ok(Finding::Good)
}

/// Brings a volume to an address, or takes it from there.
fn by_target(context: &Context, args: &Args, at: Address) -> Outcome {
    let (array, volume) = split_volume(&args.name)?;
    let client = context.server_of(array)?.ok_or_else(|| {
        let why = format!("the Ashlar at {} does not serve its array", context.place());
        let todo = "serve it first (`ashlar serve`): exports are a running server's";
        Problem::new(Kind::Refused, "array_not_served", format!("volume {}", args.name), why, todo)
    })?;
    let path = format!("/v1/arrays/{}/volumes/{}/nvmet/{}", encode(array), encode(volume), encode(&at.to_string()));
    if args.remove {
        let done: Done = client.delete(&path)?;
        text::print_done(args.json, &done);
        return Ok(Finding::Good);
    }
    if context.only_here("export").is_ok() {
        load_driver();
    }
    let made: TargetView = client.put(&path)?;
    if args.json {
        text::print_json(&made);
        return Ok(Finding::Good);
    }
    text::print(&format!("{}/{} is exported at {}", made.array, made.volume, made.at));
    made.notes.iter().for_each(|note| tracing::warn!("{note}"));
    text::print(&format!("  on an allowed host: {}", connect(&at, &made.subsystem)));
    Ok(Finding::Good)
}

/// What a host says to connect. Of Fibre Channel it also needs the address of a port of its own.
fn connect(at: &Address, subsystem: &str) -> String {
    let transport = at.transport.word();
    let service = match at.family() {
        "fc" => String::new(),
        _ => format!(" -s {}", at.service()),
    };
    format!("nvme connect -t {transport} -a {}{service} -n {subsystem} --ctrl-loss-tmo=-1", at.host())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_how_to_connect() {
        let of = |at: &str| connect(&at.parse().unwrap(), "nqn.s");
        assert_eq!(of("rdma:10.0.0.5:4420"), "nvme connect -t rdma -a 10.0.0.5 -s 4420 -n nqn.s --ctrl-loss-tmo=-1");
        assert!(!of("fc:nn-0x20000090fa000001:pn-0x10000090fa000001").contains("-s "));
    }
}
