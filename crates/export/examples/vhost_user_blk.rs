//! Serves a file to guests of this machine (vhost-user-blk), without an array: to try QEMU's side by itself.
//!
//! ```text
//!   vhost_user_blk FILE SOCKET [--read-only] [--delay-us N]   SIGTERM: finishes what it has taken; SIGHUP: the file is longer now
//! ```
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use export::vhost_user_blk::{GuestSocket, Guests};
use export::{Answer, Fault, Namespace, NamespaceInfo, Request};
use futures::FutureExt;
use rt::{Buf, Rt};

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
            eprintln!("vhost_user_blk: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let [file, socket, ref more @ ..] = words[..] else { return Err("FILE and SOCKET".into()) };
    tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).init();
    let rt = Rt::real()?;
    let file = File::options().read(true).write(true).open(file)?;
    let delay = more.iter().skip_while(|word| **word != "--delay-us").nth(1).map_or(Ok(0), |n| n.parse())?;
    let whole = Whole {
        rt: rt.clone(),
        bytes: file.metadata()?.len(),
        file: Rc::new(file),
        read_only: more.contains(&"--read-only"),
        delay: Duration::from_micros(delay),
    };
    rt.block_on(serve(&rt, whole, Path::new(socket)))
}

async fn serve(rt: &Rt, whole: Whole, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let hangups = rt.hangups()?;
    let socket = GuestSocket::open(rt, &Guests::default(), whole, path)?;
    println!("{} waits for guests", path.display());
    loop {
        futures::select! {
            () = rt.stop_signal().fuse() => {
                socket.close().await;
                println!("closed: {:?}", socket.counters());
                return Ok(());
            }
            () = hangups.next().fuse() => socket.resized(),
        }
    }
}
