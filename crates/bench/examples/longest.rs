//! How long others wait beside the longest requests: each verb of NVMe/TCP and NBD at its largest, alone and 127 in flight, on a
//! thin volume of 4 TiB that nobody has written to, and on one with a thousand blocks here and there. Beside it one reader
//! of 4 KiB of another array, and one who asks for the status, each on a thread of its own.
//!
//!     cargo build --release -p ashlar && cargo run --release -p bench --example longest -- target/release/ashlar [VERB]
//!
//! Times are in milliseconds: the longest and the 99th of a hundred, before the requests and from their beginning until a
//! second after the last answer, when the checkpoint that they cause is under way.

// It runs a server, and threads beside it: processes, threads, files and sockets are its subject.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::error::Error;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use export::nbd::client::{Client, Wishes as NbdWishes, Zeroes};
use export::nvme::client::{Disk, Host, Wishes};
use futures::future::join_all;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rt::{Addr, Bytes, Rt};

type Outcome<T> = Result<T, Box<dyn Error>>;

const TIB: u64 = 1 << 40;
const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
const SCATTERED: u64 = 1000;
/// The largest range that a Dataset Management command can name.
const RANGE: u64 = 0xffff_ffff * 512;
/// The largest length of NBD that is whole blocks.
const NBD_LENGTH: u32 = u32::MAX - 4095;

/// Requests, each by its number.
#[derive(Clone, Copy, Debug)]
enum Verb {
    NvmeRead,
    NvmeWrite,
    NvmeCompare,
    NvmeFlush,
    NvmeZeroes,
    NvmeZeroesHole,
    NvmeDeallocate,
    NvmeDeallocateSmall,
    NvmeIdentify,
    NbdRead,
    NbdWrite,
    NbdTrim,
    NbdZeroes,
    NbdZeroesHole,
    NbdStatus,
    NbdFlush,
    NbdList,
    VolumeDelete,
}

const VERBS: [Verb; 18] = [
    Verb::NvmeRead,
    Verb::NvmeWrite,
    Verb::NvmeCompare,
    Verb::NvmeFlush,
    Verb::NvmeZeroes,
    Verb::NvmeZeroesHole,
    Verb::NvmeDeallocate,
    Verb::NvmeDeallocateSmall,
    Verb::NvmeIdentify,
    Verb::NbdRead,
    Verb::NbdWrite,
    Verb::NbdTrim,
    Verb::NbdZeroes,
    Verb::NbdZeroesHole,
    Verb::NbdStatus,
    Verb::NbdFlush,
    Verb::NbdList,
    Verb::VolumeDelete,
];

/// A server of two arrays over memory, "a" with the large volume and "b" with that of the reader.
struct Server {
    child: Child,
    nvme: Addr,
    nbd: Addr,
    dir: tempfile::TempDir,
}

impl Server {
    fn start(program: &Path) -> Outcome<Server> {
        let dir = tempfile::tempdir()?;
        let port = || -> Outcome<Addr> { Ok(Addr::Tcp(TcpListener::bind("127.0.0.1:0")?.local_addr()?)) };
        let (nvme, nbd) = (port()?, port()?);
        let array = |name: &str, volume: &str, size: &str| {
            let drives = ["\"mem:512M\""; 4].join(", ");
            let volume = format!("[[array.volume]]\nname = \"{volume}\"\nsize = \"{size}\"\n");
            format!("[[array]]\nname = \"{name}\"\ncreate = true\nraid = \"5\"\ndrives = [{drives}]\n{volume}")
        };
        let config = dir.path().join("config.toml");
        fs::write(&config, array("a", "thin", "4T") + &array("b", "ok", "64M"))?;
        let child = Command::new(program)
            .args(["serve", "--stop-at-eof", "--allow-any", "--nvme", &nvme.to_string(), "--nbd", &nbd.to_string()])
            .arg("--config")
            .arg(&config)
            .env("ASHLAR_CONTROL", dir.path().join("control"))
            .env("ASHLAR_STATE_DIR", dir.path().join("state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.path().join("log"))?)
            .spawn()?;
        Ok(Server { child, nvme, nbd, dir })
    }

    fn control(&self) -> PathBuf {
        self.dir.path().join("control")
    }

    async fn client(&self, rt: &Rt, name: &str) -> Outcome<Client> {
        let begun = Instant::now();
        loop {
            let wishes = NbdWishes::default();
            match Client::connect_with(rt, &self.nbd, name, wishes).await {
                Ok(client) => return Ok(client),
                Err(error) if begun.elapsed() > Duration::from_secs(20) => return Err(error.into()),
                Err(_) => rt.sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// The namespace of the large volume.
    async fn disk(&self, rt: &Rt) -> Outcome<(Rc<Host>, Disk)> {
        let (_, found) = Host::discover(rt, &self.nvme, &Wishes::default()).await?;
        for entry in found {
            let host = Host::connect(rt, &self.nvme, &entry.subsystem, 1, &Wishes::default()).await?;
            let nsid = host.namespaces().await?.first().copied().ok_or("no namespace")?;
            let disk = host.disk(nsid).await?;
            if disk.bytes == 4 * TIB {
                return Ok((Rc::new(host), disk));
            }
        }
        Err("no volume of 4 TiB".into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// What somebody does again and again beside the requests: how long it took, before them and with them.
struct Beside {
    phase: Arc<AtomicU8>,
    thread: JoinHandle<Outcome2>,
}

type Outcome2 = Result<[Vec<Duration>; 2], String>;

const BEFORE: u8 = 0;
const WITH: u8 = 1;
const OVER: u8 = 2;

impl Beside {
    fn begin(
        phase: &Arc<AtomicU8>,
        pause: Duration,
        make: impl FnOnce() -> Result<Box<dyn FnMut() -> Result<(), String>>, String> + Send + 'static,
    ) -> Beside {
        let of_thread = phase.clone();
        let thread = thread::spawn(move || {
            let mut work = make()?;
            let mut took = [vec![], vec![]];
            loop {
                thread::sleep(pause);
                let begun = Instant::now();
                work()?;
                match of_thread.load(Ordering::Relaxed) {
                    BEFORE => took[0].push(begun.elapsed()),
                    WITH => took[1].push(begun.elapsed()),
                    _ => return Ok(took),
                }
            }
        });
        Beside { phase: phase.clone(), thread }
    }

    fn end(self) -> Outcome<[String; 2]> {
        self.phase.store(OVER, Ordering::Relaxed);
        let took = self.thread.join().map_err(|_| "a thread panicked")??;
        Ok(took.map(|mut times| {
            times.sort();
            let at =
                |part: usize| times.get(times.len() * part / 1000).or(times.last()).map_or(0.0, Duration::as_secs_f64);
            format!("{:>7.2} {:>8.2}", at(990) * 1e3, at(1000) * 1e3)
        }))
    }
}

/// Reads 4 KiB of the other array, one after the other.
fn reader(phase: &Arc<AtomicU8>, nbd: Addr) -> Beside {
    Beside::begin(phase, Duration::ZERO, move || {
        let rt = Rc::new(Rt::real().map_err(|e| e.to_string())?);
        let client = rt.block_on(Client::connect(&rt, &nbd, "b/ok")).map_err(|e| e.to_string())?;
        rt.block_on(client.write(0, Bytes::zeroed(4096), false)).map_err(|e| e.to_string())?;
        Ok(Box::new(move || rt.block_on(client.read(0, 4096)).map(drop).map_err(|e| e.to_string())))
    })
}

/// Asks for the status, some fifty times a second.
fn status(phase: &Arc<AtomicU8>, control: PathBuf) -> Beside {
    Beside::begin(phase, Duration::from_millis(20), move || {
        let mut socket = UnixStream::connect(control).map_err(|e| e.to_string())?;
        let mut page = vec![0; 1 << 20];
        Ok(Box::new(move || {
            let failed = |e: std::io::Error| e.to_string();
            socket.write_all(b"GET /v1/arrays HTTP/1.1\r\nHost: x\r\n\r\n").map_err(failed)?;
            let mut filled = 0;
            loop {
                filled += socket.read(&mut page[filled..]).map_err(failed)?;
                let text = String::from_utf8_lossy(&page[..filled]);
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")?.parse::<usize>().ok());
                if body.len() >= length.unwrap_or(0) {
                    return Ok(());
                }
            }
        }))
    })
}

async fn ask(verb: Verb, n: u64, disk: &Disk, host: &Host, nbd: &Client, server: &Server, rt: &Rt) -> Outcome<()> {
    let at = n * 31 * GIB % (4 * TIB - 64 * GIB);
    let hole = Zeroes { no_hole: false, fast: false, fua: false };
    match verb {
        Verb::NvmeRead => drop(disk.read(at, 1 << 20).await?),
        Verb::NvmeWrite => disk.write(at, Bytes::zeroed(MIB as usize), false).await?,
        // It differs, or not.
        Verb::NvmeCompare => drop(disk.compare(at, Bytes::zeroed(MIB as usize)).await),
        Verb::NvmeFlush => disk.flush().await?,
        Verb::NvmeZeroes => disk.write_zeroes(at, 65_536 * 512, false, false).await?,
        Verb::NvmeZeroesHole => disk.write_zeroes(at, 65_536 * 512, true, false).await?,
        Verb::NvmeDeallocate => disk.deallocate(&[(0, RANGE); 256]).await?,
        Verb::NvmeDeallocateSmall => {
            let range = |i: u64| ((n * 256 + i) * 7919 % (TIB / 4096) * 4 * 4096, 4096);
            disk.deallocate(&(0..256).map(range).collect::<Vec<_>>()).await?;
        }
        Verb::NvmeIdentify => drop(host.namespaces().await?),
        Verb::NbdRead => drop(nbd.read(at, 32 << 20).await?),
        Verb::NbdWrite => nbd.write(n % 8 * 32 * MIB, Bytes::zeroed(32 << 20), false).await?,
        Verb::NbdTrim => nbd.trim(at, NBD_LENGTH, false).await?,
        Verb::NbdZeroes => nbd.write_zeroes(at, NBD_LENGTH, Zeroes { no_hole: true, ..hole }).await?,
        Verb::NbdZeroesHole => nbd.write_zeroes(at, NBD_LENGTH, hole).await?,
        Verb::NbdStatus => drop(nbd.block_status(at, NBD_LENGTH, false).await?),
        Verb::NbdFlush => nbd.flush().await?,
        Verb::NbdList => drop(Client::list(rt, &server.nbd).await?),
        Verb::VolumeDelete => {
            let mut socket = UnixStream::connect(server.control())?;
            socket.write_all(b"DELETE /v1/arrays/a/volumes/thin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
            socket.read_to_end(&mut vec![])?;
        }
    }
    Ok(())
}

fn measure(program: &Path, verb: Verb, scattered: u64, in_flight: u64) -> Outcome<()> {
    let server = Server::start(program)?;
    let rt = Rt::real()?;
    let (disk, nbd) = rt.block_on(async {
        let nbd = server.client(&rt, "a/thin").await?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for _ in 0..scattered {
            nbd.write(random.random_range(0..4 * TIB / 4096) * 4096, Bytes::zeroed(4096), false).await?;
        }
        nbd.flush().await?;
        Ok::<_, Box<dyn Error>>((server.disk(&rt).await?, nbd))
    })?;
    let phase = Arc::new(AtomicU8::new(BEFORE));
    let beside = [reader(&phase, server.nbd.clone()), status(&phase, server.control())];
    thread::sleep(Duration::from_millis(1500));
    phase.store(WITH, Ordering::Relaxed);
    let begun = Instant::now();
    let (host, disk) = &disk;
    let asked = (0..in_flight).map(|n| ask(verb, n, disk, host, &nbd, &server, &rt));
    let failed = rt.block_on(join_all(asked)).into_iter().filter_map(Result::err).collect::<Vec<_>>();
    let took = begun.elapsed();
    thread::sleep(Duration::from_secs(1));
    let [reader, status] = beside.map(Beside::end);
    let (reader, status) = (reader?, status?);
    print!("{:<20} {scattered:>5} {in_flight:>4} {:>9.1}", format!("{verb:?}"), took.as_secs_f64() * 1e3);
    print!("  {} {}  {} {}", reader[0], reader[1], status[0], status[1]);
    let why = failed.first().map(|why| format!("  {} failed: {why}", failed.len()));
    println!("{}", why.unwrap_or_default());
    Ok(())
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let program = args.first().ok_or("name the ashlar program")?;
    println!("                                          another array's read (ms)         status (ms)");
    println!("                                          before           with             before           with");
    println!(
        "verb               blocks   at   took ms      p99      max     p99      max      p99      max     p99      max"
    );
    for verb in VERBS {
        if args.get(1).is_some_and(|only| !format!("{verb:?}").starts_with(only)) {
            continue;
        }
        for scattered in [0, SCATTERED] {
            for in_flight in if matches!(verb, Verb::VolumeDelete) { vec![1] } else { vec![1, 127] } {
                measure(Path::new(program), verb, scattered, in_flight)?;
            }
        }
    }
    Ok(())
}
