//! `ashlar volume`: create, grow, rename, limit, delete, list.

use std::future::Future;

use api::{Done, Problem, VolumeCreate, VolumeLimit, VolumePatch, Volumes};
use clap::Subcommand;
use server::ops::World;
use server::ops::open::{self, How, Opened};
use server::ops::volume;
use server::size::Size;

use crate::client::Client;
use crate::clients::confirm_loss;
use crate::context::{Context, encode, split_volume};
use crate::exit::{Finding, Outcome};
use crate::text::{self, Table, human};

const EXAMPLES: &str = "\
Examples:
  ashlar volume create fast/db 2T
  ashlar volume grow fast/db 3T
  ashlar volume rename fast/db ledger
  ashlar volume limit fast/ledger --iops 5000 --burst 2
  ashlar volume list fast
  ashlar volume delete fast/ledger

Volumes are thin: they take space as they are written, and together may be larger than the array.";

/// Create, grow, rename, limit, delete and list volumes
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
    /// Prints an object for scripts
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Verb {
    /// Create a volume
    #[command(after_help = "Example:\n  ashlar volume create fast/db 2T")]
    Create {
        /// ARRAY/VOLUME
        volume: String,
        /// Size, for instance 512M, 4G or 2T
        size: Size,
    },
    /// Enlarge a volume
    #[command(after_help = "Example:\n  ashlar volume grow fast/db 3T")]
    Grow {
        /// ARRAY/VOLUME
        volume: String,
        /// New size
        size: Size,
    },
    /// Rename a volume
    #[command(after_help = "Example:\n  ashlar volume rename fast/db ledger")]
    Rename {
        /// ARRAY/VOLUME
        volume: String,
        /// The new name, without the array
        to: String,
    },
    /// Limit the load that hosts put on a volume
    #[command(after_help = "\
Examples:
  ashlar volume limit fast/db --iops 5000 --bandwidth 200M --burst 2
  ashlar volume limit fast/db --bandwidth 0
  ashlar volume limit fast/db --none

Limits that are not given stay as they are.")]
    #[command(group = limits())]
    Limit {
        /// ARRAY/VOLUME
        volume: String,
        /// Reads, writes and deallocations per second, together; 0: no limit
        #[arg(long)]
        iops: Option<u32>,
        /// Bytes read and written per second, together, for instance 200M; 0: no limit
        #[arg(long, value_parser = bandwidth)]
        bandwidth: Option<u64>,
        /// Seconds of unused load that may be saved up for a burst
        #[arg(long, value_name = "SECONDS", value_parser = burst)]
        burst: Option<u32>,
        /// Removes all limits
        #[arg(long, conflicts_with_all = ["iops", "bandwidth", "burst"])]
        none: bool,
    },
    /// Delete a volume and all its data
    #[command(after_help = "Example:\n  ashlar volume delete fast/db")]
    Delete {
        /// ARRAY/VOLUME
        volume: String,
        /// Proceeds even while hosts are connected; they are disconnected
        #[arg(long)]
        force: bool,
        /// Does not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// List the volumes of an array
    #[command(after_help = "Example:\n  ashlar volume list fast")]
    List {
        /// The array
        array: String,
    },
}

impl Args {
    /// Whether scripts read the answer.
    pub fn json(&self) -> bool {
        self.json
    }
}

/// Does what is asked.
pub fn run(context: &Context, args: Args) -> Outcome {
    let done = match args.verb {
        Verb::List { array } => return list(context, &array, args.json),
        Verb::Create { volume: name, size } => {
            let (array, name) = split_volume(&name)?;
            match context.server_of(array)? {
                Some(client) => {
                    let request = VolumeCreate { name: name.to_owned(), bytes: size.0 };
                    client.post(&format!("/v1/arrays/{}/volumes", encode(array)), &request)?
                }
                None => offline(context, array, |o| async move { Ok(volume::state(&o.array, name, size.0).await?.0) })?,
            }
        }
        Verb::Grow { volume: name, size } => {
            let (array, name) = split_volume(&name)?;
            match context.server_of(array)? {
                Some(client) => {
                    client.patch(&path(array, name), &VolumePatch { bytes: Some(size.0), ..VolumePatch::default() })?
                }
                None => offline(context, array, |o| async move { volume::grow(&o.array, name, size.0).await })?,
            }
        }
        Verb::Rename { volume: name, to } => {
            let (array, name) = split_volume(&name)?;
            let to = to.strip_prefix(&format!("{array}/")).unwrap_or(&to).to_owned();
            match context.server_of(array)? {
                Some(client) => {
                    client.patch(&path(array, name), &VolumePatch { name: Some(to), ..VolumePatch::default() })?
                }
                None => offline(context, array, |o| async move { volume::rename(&o.array, name, &to).await })?,
            }
        }
        Verb::Limit { volume: name, iops, bandwidth, burst, none } => {
            let (array, name) = split_volume(&name)?;
            let unless = |value| if none { Some(0) } else { value };
            let request = VolumeLimit {
                iops: unless(iops),
                bytes_per_second: if none { Some(0) } else { bandwidth },
                burst_ms: unless(burst),
            };
            match context.server_of(array)? {
                Some(client) => client
                    .patch(&path(array, name), &VolumePatch { limits: Some(request), ..VolumePatch::default() })?,
                None => offline(context, array, |o| async move { volume::limit(&o.array, name, request).await })?,
            }
        }
        Verb::Delete { volume: full, force, yes } => {
            let (array, name) = split_volume(&full)?;
            let server = context.server_of(array)?;
            confirm_loss(
                server.as_ref(),
                (&format!("volume {full}"), array, Some(name)),
                (&format!("All data of volume {full} will be lost."), &full),
                (yes, force),
            )?;
            match server {
                Some(client) => {
                    let path = path(array, name);
                    let there: api::Resource<api::VolumeView> = client.get(&path)?;
                    client.delete(&Client::confirmed(&path, there.view.uuid, force))?
                }
                None => offline(context, array, |o| async move { volume::delete(&o.array, name).await })?,
            }
        }
    };
    text::print_done(args.json, &done);
    Ok(Finding::Good)
}

fn list(context: &Context, array: &str, json: bool) -> Outcome {
    let volumes: Volumes = match context.server_of(array)? {
        Some(client) => client.get(&format!("/v1/arrays/{}/volumes", encode(array)))?,
        None => context.offline(|world| async move {
            let opened = open::by_name(&world, array, How::READ_ONLY).await?;
            let volumes = volume::list(&opened.array).await;
            opened.close(&world).await?;
            volumes
        })?,
    };
    if json {
        text::print_json(&volumes);
        return Ok(Finding::Good);
    }
    if volumes.volumes.is_empty() {
        text::print(&format!("array {array} has no volumes; `ashlar volume create {array}/NAME SIZE` makes one"));
        return Ok(Finding::Good);
    }
    let mut table = Table::new(&["VOLUME", ">SIZE", ">WRITTEN", "STATE", "LIMITS"]).flush_left();
    for v in &volumes.volumes {
        let state = text::volume_word(v.state);
        let limits = volume::limits_sentence(v.limits);
        let name = format!("{}/{}", volumes.array, v.name);
        table.row(vec![name, human(v.bytes), human(v.mapped_bytes), state.to_owned(), limits]);
    }
    table.print();
    Ok(Finding::Good)
}

/// At least one of these is given.
fn limits() -> clap::ArgGroup {
    clap::ArgGroup::new("limits").args(["iops", "bandwidth", "burst", "none"]).required(true).multiple(true)
}

/// Bytes a second; 0 is no limit.
fn bandwidth(text: &str) -> Result<u64, String> {
    if text.trim() == "0" { Ok(0) } else { text.parse::<Size>().map(|size| size.0) }
}

/// Seconds as milliseconds.
fn burst(text: &str) -> Result<u32, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("\"{text}\" is not a number of seconds"))?;
    if (0.0..=3600.0).contains(&seconds) {
        Ok((seconds * 1000.0) as u32)
    } else {
        Err("a burst is at most an hour (3600)".to_owned())
    }
}

fn path(array: &str, volume: &str) -> String {
    format!("/v1/arrays/{}/volumes/{}", encode(array), encode(volume))
}

/// Opens the array, does `verb`, closes it.
pub fn offline<F>(context: &Context, array: &str, verb: impl FnOnce(Opened) -> F) -> Result<Done, Problem>
where
    F: Future<Output = Result<Done, Problem>>,
{
    offline_in(context, array, |_, opened| verb(opened))
}

/// The same, of a verb that does something to this machine's list, too.
pub fn offline_in<F>(context: &Context, array: &str, verb: impl FnOnce(World, Opened) -> F) -> Result<Done, Problem>
where
    F: Future<Output = Result<Done, Problem>>,
{
    context.offline(|world| async move {
        let opened = open::by_name(&world, array, How::default()).await?;
        let result = verb(world.clone(), opened.clone()).await;
        let notes = opened.notes.clone();
        let closed = opened.close(&world).await;
        let mut done = result?;
        closed?;
        done.notes.extend(notes);
        Ok(done)
    })
}
