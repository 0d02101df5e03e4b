//! Two drives are taken away while files go in, and replaced afterwards.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use api::{ArrayState, Arrays, Problem};
use rt::Rt;

use super::copy::{self, Copied};
use super::files::Collection;
use super::process::Server;
use super::say;
use crate::progress::Progress;
use crate::text::{duration, human, per_second};

/// The drives that are lost first, and the share of the data that is written by then.
const LOST: [(&str, f64); 2] = [("2", 0.35), ("5", 0.70)];

/// Those that are lost when the first ones have been replaced: now the new ones must carry the data.
const LOST_LATER: [&str; 2] = ["0", "7"];

/// A rebuild of a few hundred MB that takes longer hangs.
const REBUILD_MAX: Duration = Duration::from_secs(300);

/// Writes all files. On the way both drives are taken out, and their files deleted.
pub async fn copy_and_lose(rt: &Rt, server: &Server, collection: &Collection) -> Result<Copied, Problem> {
    say::line(&format!(
        "{} files, {} from {}",
        collection.count(),
        human(collection.stream_bytes()),
        collection.root().display()
    ));
    let client = server.connect(rt, "demo/files").await?;
    let written = Rc::new(Cell::new(0.0));
    let accident = async {
        for (seat, share) in LOST {
            while written.get() < share {
                rt.sleep(Duration::from_millis(2)).await;
            }
            let share = written.get() * 100.0;
            lose(rt, server, seat, &format!("at {share:.0} % of the data; ")).await?;
        }
        Ok::<_, Problem>(())
    };
    let copy = copy::write(&client, collection, |share| written.set(share));
    let ((moved, copied), ()) = futures::future::try_join(copy, accident).await?;
    moved.say("written, without interruption by the losses");
    Ok(copied)
}

/// Compares everything while two drives are missing.
pub async fn read_without(rt: &Rt, server: &Server, collection: &Collection, copied: &Copied) -> Result<(), Problem> {
    let client = server.connect(rt, "demo/files").await?;
    copy::compare(&client, collection, copied).await?.say("read with two drives missing, compared byte for byte");
    Ok(())
}

/// Takes a drive out and deletes its file.
async fn lose(rt: &Rt, server: &Server, name: &str, when: &str) -> Result<(), Problem> {
    server.verb(rt, &["drive", "fail", "--force", "demo", &format!("d/{name}")]).await?;
    server.delete_drive(name)?;
    say::line(&format!("  {when}its file is deleted"));
    Ok(())
}

/// Replaces the lost drives, then loses two others, so that the rebuilt ones must carry the data, and replaces these
/// too.
pub async fn replace_and_prove(
    rt: &Rt,
    server: &Server,
    collection: &Collection,
    copied: &Copied,
) -> Result<(), Problem> {
    replace(rt, server, LOST.map(|(name, _)| name)).await?;
    for name in LOST_LATER {
        lose(rt, server, name, "").await?;
    }
    let client = server.connect(rt, "demo/files").await?;
    copy::compare(&client, collection, copied).await?.say("read without them, compared byte for byte");
    replace(rt, server, LOST_LATER).await
}

/// Puts new drives in the places of the lost ones, and waits until redundancy is back.
async fn replace(rt: &Rt, server: &Server, lost: [&str; 2]) -> Result<(), Problem> {
    let begun = Instant::now();
    for name in lost {
        let (old, new) = (format!("d/{name}"), format!("new/{name}"));
        server.verb(rt, &["drive", "replace", "demo", &old, &new, "--size", server.drive_size()]).await?;
    }
    let moved = wait_until_optimal(rt, server).await?;
    let time = begun.elapsed();
    let figures = if moved == 0 { String::new() } else { format!(", {} at {}", human(moved), per_second(moved, time)) };
    say::line(&format!("rebuilt after {}{figures}: the array is optimal again", duration(time)));
    Ok(())
}

/// Returns the bytes that the rebuild moved, as far as it was seen.
async fn wait_until_optimal(rt: &Rt, server: &Server) -> Result<u64, Problem> {
    let progress = Progress::new(false);
    let begun = Instant::now();
    let mut moved = 0;
    loop {
        let arrays: Arrays = server.ask("/v1/arrays?name=demo")?;
        let state = arrays.arrays.first().map(|a| (a.state, a.rebuild.clone()));
        match state {
            Some((ArrayState::Optimal, _)) => return Ok(moved),
            Some((_, Some(r))) => {
                progress.at("rebuilding", r.segments_done, r.segments_total);
                moved = moved.max(r.bytes_moved);
            }
            Some((_, None)) | None => {}
        }
        if begun.elapsed() > REBUILD_MAX {
            return Err(Problem::failed("the rebuild", "it does not end", "please report this"));
        }
        rt.sleep(Duration::from_millis(20)).await;
    }
}
