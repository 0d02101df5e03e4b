//! `ashlar drive`: fail, replace, add, retire, locate.

use api::{Done, DriveAdd, DriveFail, DriveLocate, DriveReplace, DriveRetire, MemberView, Problem, SeatState};
use clap::Subcommand;
use server::ops::open::{self, How};
use server::ops::{create, drive};
use server::size::Size;

use crate::confirm;
use crate::context::{Context, absolute_drive, encode};
use crate::exit::{Finding, Outcome};
use crate::progress::Progress;
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar drive fail fast nvme3n1                       take a drive out
  ashlar drive replace fast nvme3n1 /dev/nvme9n1       put another drive in its place, and rebuild
  ashlar drive add fast /dev/nvme8n1                   add a spare
  ashlar drive add --grow fast /dev/nvme8n1            add a drive that is used immediately
  ashlar drive retire fast nvme3n1                     remove a drive; the array gets smaller
  ashlar drive locate fast nvme3n1                     light its locate LED

A member is named by its seat, path, serial number, or the end of one of these (`ashlar status` lists them).";

/// Take drives out, replace them, add and retire them
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
    /// Take a drive out; the array goes on without it
    #[command(after_help = "Example:\n  ashlar drive fail fast nvme3n1")]
    Fail {
        /// The array
        array: String,
        /// The member: seat, path or serial number
        drive: String,
        /// Proceeds even when hosts are connected and no further drive may fail then
        #[arg(long)]
        force: bool,
    },
    /// Put a new drive in the place of another; the rebuild starts by itself
    ///
    /// The data of a drive that is in is copied to the new one; the old one stays in, with its redundancy, until it holds
    /// no data. The data of a drive that is out is rebuilt from the others.
    #[command(after_help = "Example:\n  ashlar drive replace fast nvme3n1 /dev/nvme9n1")]
    Replace {
        /// The array
        array: String,
        /// The member to replace: seat, path or serial number
        drive: String,
        /// The new drive
        with: String,
        #[command(flatten)]
        new: New,
    },
    /// Add a spare, or a drive that is used immediately
    #[command(
        after_help = "Examples:\n  ashlar drive add fast /dev/nvme8n1\n  ashlar drive add --grow fast /dev/nvme8n1"
    )]
    Add {
        /// Uses it immediately: new segments are put on it, too
        #[arg(long)]
        grow: bool,
        /// The array
        array: String,
        /// The new drive
        with: String,
        #[command(flatten)]
        new: New,
    },
    /// Remove a drive for good: its data is moved to the others, then its label is wiped
    #[command(after_help = "Example:\n  ashlar drive retire fast nvme3n1")]
    Retire {
        /// The array
        array: String,
        /// The member: seat, path or serial number
        drive: String,
    },
    /// Light the locate LED of a drive's bay
    #[command(after_help = "Examples:\n  ashlar drive locate fast nvme3n1\n  ashlar drive locate --off fast nvme3n1")]
    Locate {
        /// Turns it off
        #[arg(long)]
        off: bool,
        /// The array
        array: String,
        /// The member: seat, path or serial number
        drive: String,
    },
}

#[derive(clap::Args)]
struct New {
    /// Creates the new drive as a sparse file of this size, if it does not exist
    #[arg(long)]
    size: Option<Size>,
    /// Accepts a drive that holds other data, which will be lost. Asks first on a terminal
    #[arg(long)]
    force: bool,
    /// Accepts a drive that this array, known on this machine, still uses; its data on it will be lost
    #[arg(long, value_name = "ARRAY")]
    take_from: Vec<String>,
    /// Does not ask before data is lost
    #[arg(long)]
    yes: bool,
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
        Verb::Fail { array, drive, force } => fail(context, &array, DriveFail { drive: member(&drive), force })?,
        Verb::Replace { array, drive, with, new } => {
            let with = absolute_drive(&with);
            confirm_loss(context, &new, &with)?;
            let drive = member(&drive);
            let request = DriveReplace {
                drive,
                with,
                size_bytes: new.size.map(|s| s.0),
                force: new.force,
                take_from: new.take_from,
            };
            replace(context, &array, request)?
        }
        Verb::Add { grow, array, with, new } => {
            let with = absolute_drive(&with);
            confirm_loss(context, &new, &with)?;
            let request =
                DriveAdd { with, grow, size_bytes: new.size.map(|s| s.0), force: new.force, take_from: new.take_from };
            add(context, &array, request)?
        }
        Verb::Retire { array, drive } => retire(context, &array, DriveRetire { drive: member(&drive) })?,
        Verb::Locate { off, array, drive } => locate(context, &array, DriveLocate { drive: member(&drive), off })?,
    };
    text::print_done(args.json, &done);
    Ok(Finding::Good)
}

/// Asks before what the new drive holds is lost.
fn confirm_loss(context: &Context, new: &New, with: &str) -> Result<(), Problem> {
    if new.yes || (!new.force && new.take_from.is_empty()) {
        return Ok(());
    }
    let names = [with.to_owned()];
    let held = context.offline(|world| async move { create::losses(&world, &names).await })?;
    if held.is_empty() { Ok(()) } else { confirm::by_name_if_asked(false, &text::losses(&held).join("\n"), with) }
}

/// A member as a server understands it: a path from here is one from the root on.
fn member(name: &str) -> String {
    let from_here = name.starts_with("./") || name.starts_with("../");
    if from_here { absolute_drive(name) } else { name.to_owned() }
}

fn path(array: &str, verb: &str) -> String {
    format!("/v1/arrays/{}/drives/{verb}", encode(array))
}

fn fail(context: &Context, array: &str, request: DriveFail) -> Result<Done, Problem> {
    match context.server_of(array)? {
        Some(client) => client.post(&path(array, "fail"), &request),
        None => crate::volume::offline(context, array, |o| async move { drive::fail(&o, &request, (&[], 0)).await }),
    }
}

fn replace(context: &Context, array: &str, request: DriveReplace) -> Result<Done, Problem> {
    if let Some(client) = context.server_of(array)? {
        return client.post(&path(array, "replace"), &request);
    }
    context.offline(|world| async move {
        let opened = open::by_name(&world, array, How::default()).await?;
        let old = drive::member_of(&opened, &request.drive).await?;
        let result = drive::replace(&world, &opened, &request).await;
        if result.is_ok() {
            watch_rebuild(&world.rt, &opened).await;
            see_off(&world, &opened, &old).await?;
        }
        let state = opened.view().await.state;
        opened.close(&world).await?;
        let mut done = result?;
        // The first note says how to watch what is over now; what follows is about the drive's size.
        done.notes.splice(..1, [format!("the array is {}", text::state_word(state))]);
        Ok(done)
    })
}

fn retire(context: &Context, array: &str, request: DriveRetire) -> Result<Done, Problem> {
    if let Some(client) = context.server_of(array)? {
        return client.post(&path(array, "retire"), &request);
    }
    context.offline(|world| async move {
        let opened = open::by_name(&world, array, How::default()).await?;
        let old = drive::member_of(&opened, &request.drive).await?;
        let result = drive::retire(&opened, &request).await;
        let mut left = false;
        if result.is_ok() {
            watch_rebuild(&world.rt, &opened).await;
            left = see_off(&world, &opened, &old).await?;
        }
        opened.close(&world).await?;
        let mut done = result?;
        done.notes = vec![match left {
            true => "it has left: it holds no data of the array, and its label is wiped".to_owned(),
            false => "it has not left yet: the next start of the array continues".to_owned(),
        }];
        Ok(done)
    })
}

/// Offline, a drive that leaves is seen off as part of the verb, unless rebuilds wait.
async fn see_off(world: &server::ops::World, opened: &open::Opened, old: &MemberView) -> Result<bool, Problem> {
    let view = opened.view().await;
    let still = view.members.iter().any(|m| m.member == old.member && m.state == SeatState::Leaving);
    if still && view.rebuild_paused {
        return Ok(false);
    }
    let out = view.members.iter().any(|m| m.member == old.member && m.state.is_out());
    if out { Ok(false) } else { drive::see_off(world, opened, old).await }
}

fn locate(context: &Context, array: &str, request: DriveLocate) -> Result<Done, Problem> {
    match context.server_of(array)? {
        Some(client) => client.post(&path(array, "locate"), &request),
        None => context.offline(|world| async move {
            let opened = open::by_name(&world, array, How::READ_ONLY).await?;
            let result = drive::locate(&opened.view().await.members, &request);
            opened.close(&world).await?;
            result
        }),
    }
}

/// Offline, the rebuild is part of the verb: when it returns, redundancy is back.
async fn watch_rebuild(rt: &rt::Rt, opened: &open::Opened) {
    let progress = Progress::new(false);
    let done = std::pin::pin!(opened.array.rebuild_done());
    let show = std::pin::pin!(async {
        loop {
            if let Some(r) = opened.view().await.rebuild {
                progress.at("rebuild", r.bytes_moved, r.bytes_total);
            }
            rt.sleep(std::time::Duration::from_millis(200)).await;
        }
    });
    futures::future::select(done, show).await;
}

fn add(context: &Context, array: &str, request: DriveAdd) -> Result<Done, Problem> {
    if let Some(client) = context.server_of(array)? {
        return client.post(&path(array, "add"), &request);
    }
    context.offline(|world| async move {
        let opened = open::by_name(&world, array, How::default()).await?;
        let result = drive::add(&world, &opened, &request).await;
        opened.close(&world).await?;
        result
    })
}
