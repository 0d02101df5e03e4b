//! Serves a file as a block device of this machine (ublk), without an array: to try the kernel's side by itself.
//!
//! ```text
//!   ublk serve FILE [--read-only] [--delay-us N]   the whole file; takes over what an earlier one has left
//!                                                  SIGTERM: leaves it to the next one; SIGHUP: removes it
//!                                                  SIGTERM with --stay: leaves it, and goes on a second later
//!   ublk cancel FILE MILLIS                        begins to make a device, and changes its mind
//!   ublk look NUMBER                               what the kernel has under this number
//!   ublk delete NUMBER                             deletes what was left
//! ```
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use export::ublk::{self, BlockDevice, Left};
use export::{Answer, Fault, Namespace, NamespaceInfo, Request};
use futures::FutureExt;
use rt::ublk::process;
use rt::{Buf, Rt};

const MARK: u64 = 0x6173_686c_6172_7478;

/// The bytes of a file.
#[derive(Clone)]
struct Whole {
    rt: Rt,
    file: Rc<File>,
    bytes: u64,
    read_only: bool,
    delay: Duration,
}

impl Whole {
    fn zero(&self, offset: u64, bytes: u64) -> std::io::Result<()> {
        const PART: u64 = 1 << 20;
        let zeroes = vec![0; PART as usize];
        (0..bytes).step_by(PART as usize).try_for_each(|done| {
            let len = PART.min(bytes - done) as usize;
            self.file.write_all_at(&zeroes[..len], offset + done)
        })
    }
}

impl Namespace for Whole {
    fn info(&self) -> NamespaceInfo {
        NamespaceInfo {
            name: "file".to_owned(),
            uuid: NamespaceInfo::uuid_of_name("file"),
            bytes: self.file.metadata().map_or(self.bytes, |m| m.len()),
            min_block: 512,
            preferred_block: 4096,
            max_request: 32 << 20,
            read_only: self.read_only,
            volatile_cache: true,
            description: "a file".to_owned(),
        }
    }

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        if !self.delay.is_zero() {
            self.rt.sleep(self.delay).await;
        }
        let done = match request {
            Request::Read { offset, bytes } => {
                let mut buf = Buf::for_overwrite(bytes as usize);
                self.file.read_exact_at(&mut buf, offset).map_err(|_| Fault::Medium)?;
                return Ok(Answer::Data(vec![buf.freeze()]));
            }
            Request::Write { offset, data, .. } => self.file.write_all_at(&data, offset),
            Request::Flush => self.file.sync_data(),
            Request::WriteZeroes { offset, bytes, .. } | Request::Deallocate { offset, bytes, .. } => {
                self.zero(offset, bytes)
            }
            Request::Extents { .. } => return Err(Fault::Unavailable),
        };
        done.map(|()| Answer::Done).map_err(|_| Fault::Medium)
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ublk: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rt = Rt::real()?;
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        [process::VERB] => process::serve(std::io::stdin(), std::io::stdout()),
        ["look", number] => println!("{:?}", rt.block_on(ublk::look(&rt, number.parse()?))?),
        ["delete", number] => rt.block_on(ublk::delete_left(&rt, number.parse()?, MARK, false))?,
        ["serve", file, ref more @ ..] => {
            let file = File::options().read(true).write(true).open(file)?;
            let delay = more.iter().skip_while(|word| **word != "--delay-us").nth(1).map_or(Ok(0), |n| n.parse())?;
            let whole = Whole {
                rt: rt.clone(),
                bytes: file.metadata()?.len(),
                file: Rc::new(file),
                read_only: more.contains(&"--read-only"),
                delay: Duration::from_micros(delay),
            };
            rt.block_on(serve(&rt, whole, more.contains(&"--stay")))?;
        }
        ["cancel", file, millis] => {
            let file = File::options().read(true).write(true).open(file)?;
            let (bytes, file) = (file.metadata()?.len(), Rc::new(file));
            let whole = Whole { rt: rt.clone(), bytes, file, read_only: false, delay: Duration::ZERO };
            rt.block_on(cancel(&rt, whole, Duration::from_millis(millis.parse()?)))?;
        }
        _ => return Err("serve FILE, look NUMBER or delete NUMBER".into()),
    }
    Ok(())
}

async fn cancel(rt: &Rt, whole: Whole, after: Duration) -> Result<(), Box<dyn std::error::Error>> {
    {
        let create = std::pin::pin!(BlockDevice::create(rt, whole, Some(7), MARK));
        let patience = std::pin::pin!(rt.sleep(after));
        if let futures::future::Either::Left((made, _)) = futures::future::select(create, patience).await {
            let device = made?;
            println!("made before: {}", device.number());
            device.remove(true).await?;
        }
    }
    let begun = rt.now();
    rt.sleep(Duration::from_millis(500)).await;
    while ublk::look(rt, 7).await?.is_some() {
        rt.sleep(Duration::from_millis(20)).await;
    }
    println!("nothing is left after {:?}", rt.now() - begun);
    Ok(())
}

async fn serve(rt: &Rt, whole: Whole, stays: bool) -> Result<(), Box<dyn std::error::Error>> {
    let begun = rt.now();
    let hangups = rt.hangups()?;
    ublk::supported(rt).await?;
    let left = ublk::look(rt, 0).await?.filter(|found| found.mark == MARK);
    let device = match left {
        Some(_) => BlockDevice::recover(rt, whole.clone(), Left { number: 0, mark: MARK, started: false }).await?,
        None => BlockDevice::create(rt, whole.clone(), None, MARK).await?,
    };
    let how = if left.is_some() { "taken over" } else { "made" };
    println!("/dev/ublkb{} {how} in {:?}", device.number(), rt.now() - begun);
    loop {
        futures::select! {
            () = rt.stop_signal().fuse() => {
                device.leave().await;
                println!("left after {} requests", device.requests());
                if !stays {
                    return Ok(());
                }
                rt.sleep(Duration::from_secs(1)).await;
                device.go_on(whole.clone())?;
                println!("/dev/ublkb{} goes on", device.number());
                device.ended().await;
                return Ok(());
            }
            () = hangups.next().fuse() => match device.remove(false).await {
                Ok(()) => {
                    println!("removed after {} requests", device.requests());
                    return Ok(());
                }
                Err(error) => println!("{error}"),
            },
            () = device.ended().fuse() => {
                println!("ended by the kernel");
                return Ok(());
            }
        }
    }
}
