//! Past the redundancy: the array freezes, says so, destroys nothing, and is whole when the drives return.

use std::time::Duration;

use e2e::failure::require;
use e2e::model::SECTOR;
use e2e::{Failure, Result};
use export::nbd::client::Error;
use rt::Buf;

use super::Case;
use crate::fixture::{ARRAY, Lab, Served, Traffic};

/// The cases.
pub const CASES: &[Case] = &[
    Case {
        name: "frozen-raid0",
        about: "one of 6 gone: frozen, then whole again",
        run: |l| frozen(l, "0", &[&[2], &[5]]),
    },
    Case { name: "frozen-raid5", about: "two of 6 gone", run: |l| frozen(l, "5", &[&[0, 1], &[2, 5]]) },
    Case { name: "frozen-raid6", about: "three of 6 gone", run: |l| frozen(l, "6", &[&[0, 1, 2], &[1, 3, 5]]) },
    Case { name: "frozen-raid10", about: "a pair of 6 gone", run: |l| frozen(l, "10", &[&[0, 1], &[4, 5]]) },
];

const DRIVES: usize = 6;
const BYTES: u64 = 24 << 20;

fn frozen(lab: &Lab, raid: &str, losses: &[&[usize]]) -> Result<()> {
    let mut served = lab.served("a", raid, DRIVES, "24M")?;
    let mut traffic = Traffic::new(lab, BYTES)?;
    for (nth, lost) in losses.iter().enumerate() {
        let end = if nth % 2 == 0 { End::Kill } else { End::Stop };
        let outer = format!("RAID {raid} without drives {lost:?}, after {end:?}");
        one(&mut served, &mut traffic, lost, end).map_err(|f| f.within(&outer))?;
    }
    served.server.stop()?;
    served.ashlar.done(&["check", ARRAY]).map(drop)
}

/// How the server ends before the drives go. After a kill the newest records may be lost with them: no read may answer
/// as if they had never been. After a stop in order only the blocks on these drives are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Kill,
    Stop,
}

fn one(served: &mut Served, traffic: &mut Traffic, lost: &[usize], end: End) -> Result<()> {
    traffic.run(served, Duration::from_millis(80))?;
    traffic.verify(served)?;
    match end {
        End::Kill => served.server.kill()?,
        End::Stop => served.server.stop()?,
    }
    served.remove(lost)?;
    // With half of the drives or fewer the flag is needed; it does no harm otherwise.
    *served = restarted(served, &["--degraded"])?;
    let state = served.state()?;
    require(state == "frozen", "status", || format!("the array is {state}, not frozen"))?;
    let ended = served.ashlar.run(&["status", ARRAY, "--check"])?.expect(2)?;
    require(ended.out.contains("frozen"), "status", || format!("it does not say so:\n{}", ended.out))?;
    let readable = look(served, traffic)?;
    require(end == End::Kill || readable > 0, "reads of the frozen array", || "nothing can be read at all".into())?;
    let refused = served.ashlar.run(&["volume", "create", "lab/more", "1M"])?;
    require(matches!(refused.code, Some(1 | 3)), "volume create on a frozen array", || format!("{refused:?}"))?;
    served.server.kill()?;
    served.put_back(lost)?;
    *served = restarted(served, &[])?;
    let state = served.state()?;
    require(state == "optimal", "status", || {
        format!("the drives are back and the array is {state} ({readable} of {} MiB were readable)", BYTES >> 20)
    })?;
    traffic.verify(served)
}

fn restarted(served: &Served, flags: &[&str]) -> Result<Served> {
    let mut all = vec!["--nbd", "tcp:127.0.0.1:0"];
    all.extend(flags);
    let mut server = e2e::server::Server::new(&served.ashlar).with_flags(&all);
    server.start()?;
    Ok(Served { ashlar: served.ashlar.clone(), server, drives: served.drives.clone() })
}

/// Reads in small pieces: what comes is right, what cannot come is an error. Writes are errors. Returns the MiB read.
fn look(served: &Served, traffic: &Traffic) -> Result<u64> {
    const PIECE: u32 = 4096;
    traffic.rt.block_on(async {
        let clients = served.clients(&traffic.rt).await?;
        let mut readable = 0;
        for at in (0..BYTES).step_by(PIECE as usize) {
            match clients[0].read(at, PIECE).await {
                Ok(data) => {
                    let odd = traffic.model.borrow().check(at / SECTOR as u64, &data, u64::MAX, |_, _| {});
                    if let Some(odd) = odd {
                        return Err(Failure::new("a read of the frozen array", odd));
                    }
                    readable += u64::from(PIECE);
                }
                Err(Error::Failed { .. }) => {}
                Err(e) => return Err(Failure::new("a read of the frozen array", e)),
            }
        }
        for (what, answer) in [
            ("a write", clients[1].write(0, Buf::zeroed(4096).freeze(), false).await),
            ("a deallocation", clients[1].trim(0, 4096, false).await),
            ("a flush", clients[1].flush().await),
        ] {
            let refused = matches!(answer, Err(Error::Failed { .. }));
            require(refused, what, || format!("of a frozen array was answered with {answer:?}"))?;
        }
        Ok(readable >> 20)
    })
}
