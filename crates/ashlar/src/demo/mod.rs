//! `ashlar demo`: the whole thing in two minutes, with real files, real processes and real figures.
//!
//! The demo is a user: it runs `ashlar` verbs as processes of their own, talks to the server over NBD like any client,
//! and kills it like an accident would. Nothing in it knows what is inside.
//!
//! Invariant: whatever ends it (success, failure, ^C, a panic), the server is ended and the directory removed.

mod copy;
mod crash;
mod files;
mod loss;
mod place;
mod process;
mod say;
mod table;

use std::path::PathBuf;
use std::pin::pin;
use std::time::Instant;

use api::Problem;
use futures::future::{Either, select};
use rt::Rt;
use server::size::Size;

use crate::exit::{Finding, Outcome};
use crate::text::{duration, human};
use copy::Copied;
use files::Collection;
use place::Place;
use process::Server;
use say::Chapters;

const EXAMPLES: &str = "\
Examples:
  ashlar demo
  ashlar demo --data ~/photos            with files of your own (they are only read)
  TMPDIR=/dev/shm ashlar demo            on drives in memory

Makes a RAID 6 array of eight files in a temporary directory, copies files in through NBD, takes two drives away, \
replaces them, compares every byte; kills the server during writes and shows that nothing is lost; measures. Needs \
about 1.5 GiB of space and leaves nothing behind.";

/// Data taken when no --data names any.
const DATA_BYTES_DEFAULT: u64 = 300 << 20;

/// Demonstrate: files in, drives lost, server killed, no data lost
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Uses the files of this directory [default: some hundred MB of /usr]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Uses at most this much of them [default: 300M of /usr, all of --data]
    #[arg(long, value_name = "SIZE")]
    limit: Option<Size>,
    /// Seed of the writes that the kills interrupt
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Omits the table at the end
    #[arg(long)]
    no_table: bool,
}

/// Shows it.
pub fn run(args: Args) -> Outcome {
    let rt = Rt::real().map_err(|e| server::problem::no_ring(&e))?;
    let begun = Instant::now();
    let result = rt.block_on(Box::pin(async {
        let script = pin!(script(&rt, &args));
        // The signal first: its handler is there before anything is made that must go again.
        match select(pin!(rt.stop_signal()), script).await {
            Either::Left(((), _)) => {
                let why = "interrupted; nothing is left behind";
                Err(Problem::new(api::Kind::Failed, "interrupted", "demo", why, ""))
            }
            Either::Right((result, _)) => result,
        }
    }));
    drop(rt);
    place::clean_up();
    result?;
    crate::text::print(&format!("\nDone in {}. Nothing is left behind.", duration(begun.elapsed())));
    Ok(Finding::Good)
}

async fn script(rt: &Rt, args: &Args) -> Result<(), Problem> {
    let collection = collect(args)?;
    let place = Place::new(collection.stream_bytes())?;
    let chapters = Chapters::default();
    chapters.title(&format!(
        "Ashlar demo in {} ({}, {} free)",
        place.dir().display(),
        place.file_system(),
        human(place.free_bytes())
    ));

    chapters.begin("An array of eight files");
    let mut server = array_and_server(rt, &place).await?;

    chapters.begin("Real files go in over NBD; two drives are taken away meanwhile");
    let copied = loss::copy_and_lose(rt, &server, &collection).await?;
    server.verb_shown(rt, &["status"]).await?;
    loss::read_without(rt, &server, &collection, &copied).await?;

    chapters.begin("New drives replace them and are rebuilt; then two others fail");
    loss::replace_and_prove(rt, &server, &collection, &copied).await?;

    chapters.begin("SIGKILL during writes");
    crash::run(rt, &mut server, args.seed).await?;

    chapters.begin("The whole array is checked");
    check(&mut server, rt, &collection, &copied).await?;

    if !args.no_table {
        chapters.begin("What redundancy costs, on drives in memory");
        drop(server);
        table::print(rt).await?;
    }
    Ok(())
}

fn collect(args: &Args) -> Result<Collection, Problem> {
    match &args.data {
        Some(dir) => Collection::of(dir, args.limit.map_or(u64::MAX, |l| l.0)),
        None => Collection::of("/usr".as_ref(), args.limit.map_or(DATA_BYTES_DEFAULT, |l| l.0)),
    }
}

async fn array_and_server(rt: &Rt, place: &Place) -> Result<Server, Problem> {
    let mut server = Server::new(place);
    let size = place.drive_size();
    let mut create = vec!["create", "demo", "--raid", "6", "--size", &size];
    let drives: Vec<String> = (0..place::DRIVES).map(|n| format!("d/{n}")).collect();
    create.extend(drives.iter().map(String::as_str));
    server.verb_shown(rt, &create).await?;
    server.verb(rt, &["volume", "create", "demo/files", &place.volume_size()]).await?;
    server.verb(rt, &["volume", "create", "demo/crash", crash::VOLUME_SIZE]).await?;
    server.start(rt).await?;
    Ok(server)
}

/// Reads everything once more, stops the server in order and lets `check` prove the rest.
async fn check(server: &mut Server, rt: &Rt, collection: &Collection, copied: &Copied) -> Result<(), Problem> {
    let client = server.connect(rt, "demo/files").await?;
    copy::compare(&client, collection, copied).await?.say("after the kills, compared byte for byte");
    drop(client);
    server.stop(rt).await?;
    server.verb_shown(rt, &["check", "demo"]).await
}
