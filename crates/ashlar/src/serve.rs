//! `ashlar serve`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use api::Problem;
use rt::Congestion;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use server::config::{Config, Deal, Discards, Io, Linger, Reservations};
use server::daemon::{self, Notify, NvmeSettings, Reread, Settings, What};
use server::front::ApiConfig;
use server::memory::Memory;
use server::paths;
use server::size::Size;

use crate::context::{Context, absolute, absolute_drive};
use crate::exit::{Finding, Outcome};
use crate::log;

const EXAMPLES: &str = "\
Examples:
  ashlar serve                                   all arrays this machine knows
  ashlar serve --nbd tcp:127.0.0.1:10809 d/      the arrays on the files of a directory
  ashlar serve --nvme tcp:127.0.0.1:4420 --allow-any     for `nvme connect-all`
  ashlar serve --config /etc/ashlar/ashlar.toml
  nbdinfo 'nbd+unix:///fast/db?socket=/run/ashlar/ashlar-nbd.sock'

Recovers the arrays, exports their volumes as ARRAY/VOLUME, and takes commands on the control socket until SIGINT, \
SIGTERM or `ashlar stop`. With --config, SIGHUP uses changes of allow_hosts, allow_any, spares, and of the API's names and certificate in the file; \
without it, SIGHUP ends the server. ASHLAR_LOG=debug logs more.";

/// Serve arrays: export their volumes and take commands
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Drives, or directories with drives [default: all known arrays]
    #[arg(value_name = "DRIVE|DIR", conflicts_with = "config")]
    places: Vec<PathBuf>,
    /// Exports a raw drive as direct/NAME, to measure arrays against. Hosts write to it
    #[arg(long, value_name = "DRIVE")]
    direct: Vec<String>,
    /// A spare drive for the first array that lacks a drive and has no spare of its own
    #[arg(long, value_name = "DRIVE")]
    spare: Vec<String>,
    /// A configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// An address of the NBD export, unix:PATH or tcp:ADDRESS:PORT [default: beside the control socket: NAME-nbd.sock for NAME.sock]
    #[arg(long, value_name = "ADDRESS")]
    nbd: Vec<String>,
    /// Allows the NBD export to listen where other machines reach it. NBD has no authentication: all of them may read and write
    #[arg(long)]
    nbd_insecure: bool,
    /// An address of the NVMe/TCP export, tcp:ADDRESS:PORT [default: none, so no NVMe/TCP]
    #[arg(long, value_name = "ADDRESS")]
    nvme: Vec<String>,
    /// A directory for sockets, one for each volume, at which virtual machines (guests) on this machine find it by vhost-user
    /// (`ashlar attach --by vhost-user` prints how) [default: none, so no guests]
    #[arg(long, value_name = "DIR")]
    guests: Option<PathBuf>,
    /// ADDRESS:PORT that the discovery log gives to hosts instead
    #[arg(long, value_name = "ADDRESS")]
    nvme_advertise: Vec<String>,
    /// A host that may use every array over NVMe/TCP, by its qualified name [default: no host]
    #[arg(long, value_name = "NQN")]
    allow_host: Vec<String>,
    /// Lets every host use every array over NVMe/TCP
    #[arg(long)]
    allow_any: bool,
    /// Address of `/metrics` for Prometheus, on loopback, for instance 127.0.0.1:9450; it is on the control socket, too
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// An address of the API for other machines, over TLS and with a token (`ashlar token`) [default: none: the control socket
    /// only]
    #[arg(long, value_name = "ADDRESS:PORT")]
    api: Vec<SocketAddr>,
    /// A name or an address by which other machines call the API, beside those of --api
    #[arg(long, value_name = "NAME")]
    api_name: Vec<String>,
    /// A file with the API's certificate, and those above it [default: a self-made one]
    #[arg(long, value_name = "FILE", requires = "api_key")]
    api_certificate: Option<PathBuf>,
    /// A file with its private key, which others may not read
    #[arg(long, value_name = "FILE", requires = "api_certificate")]
    api_key: Option<PathBuf>,
    /// Memory for the map of each array: 1M holds the map of 0.7 GiB that was written in pieces of 128 KiB
    /// [default: 256M]
    #[arg(long, value_name = "SIZE")]
    map_memory: Option<Size>,
    /// Memory for new map entries of an array before they are merged into its map: more means fewer checkpoints, and a longer
    /// start after a crash [default: 60M]
    #[arg(long, value_name = "SIZE")]
    memtable_memory: Option<Size>,
    /// Memory of freed buffers that each core keeps for reuse [default: 64M]
    #[arg(long, value_name = "SIZE")]
    buffer_memory: Option<Size>,
    /// Number of cores to use, up to 5: one for arrays, the others for connections and further parts of arrays; with 1, one
    /// core does everything [default: 1]
    #[arg(long, value_name = "NUMBER")]
    cores: Option<usize>,
    /// Pins each core to a CPU of its own, of those that the process may use (taskset, CPUAffinity=)
    #[arg(long)]
    pin: bool,
    /// Which core serves an NVMe/TCP I/O queue, from its start to its end; NBD connections go to other cores than that of the
    /// arrays [default: load]
    #[arg(long, value_name = "HOW")]
    deal: Option<Deal>,
    /// Microseconds that an idle core polls before it sleeps, at most; a server without work does not poll. 0: sleeps
    /// immediately [default: 60]
    #[arg(long, value_name = "TIME")]
    linger: Option<Linger>,
    /// Congestion control of TCP connections: auto (that of the system; if that is BBR, cubic for clients on this machine or
    /// on its networks), system, or a name [default: auto]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// How drives are accessed, where they support it [default: plain]
    #[arg(long, value_name = "HOW")]
    io: Option<Io>,
    /// Writes nothing: recovers in memory, exports read-only
    #[arg(long)]
    read_only: bool,
    /// Opens arrays with half or fewer of their drives
    #[arg(long)]
    degraded: bool,
    /// Ignores drives with a diverged history; data that only they hold is given up
    #[arg(long)]
    force_diverged: bool,
    /// Opens arrays although some writes are lost beyond repair
    #[arg(long)]
    accept_loss: bool,
    /// Takes the array of this name over from another server. Where its drives can be reserved, the other server is stopped
    /// immediately. Otherwise it stops by itself within 10 s, unless it is suspended: writes of it then destroy data
    #[arg(long, value_name = "NAME")]
    take_over: Vec<String>,
    /// Whether drives that other hosts may reach are reserved [default: auto]
    #[arg(long, value_name = "WHEN")]
    reservations: Option<Reservations>,
    /// Which freed zones are deallocated on their drives (TRIM, DISCARD) [default: auto]
    #[arg(long, value_name = "WHICH")]
    discard: Option<Discards>,
    /// Stops when standard input ends
    #[arg(long, hide = true)]
    stop_at_eof: bool,
}

/// Serves.
pub fn run(context: &Context, args: Args) -> Outcome {
    // Before there is a second thread.
    let notify = Notify::from_environment();
    forbid_core_dump();
    log::begin();
    let reread = args.config.is_some().then(|| {
        let (context, args) = (context.clone(), args.clone());
        Reread::new(move || settings(&context, args.clone()))
    });
    daemon::run(Settings { notify, reread, ..settings(context, args)? })?;
    Ok(Finding::Good)
}

/// A core dump would hold what no file may: keys of the API and of hooks, tokens, data of hosts. The files of this process in /proc
/// belong to root then, and no other process of the same user traces it or reads its memory.
fn forbid_core_dump() {
    // It refuses nothing but unknown values.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// What `serve --config FILE` would do.
///
/// # Errors
/// When the file cannot be read, or is not valid.
pub fn of_file(context: &Context, file: &Path) -> Result<Settings, Problem> {
    settings(context, Args { config: Some(file.to_owned()), ..Args::default() })
}

fn settings(context: &Context, args: Args) -> Result<Settings, Problem> {
    let config = args.config.as_deref().map(|path| Config::read(paths::configuration(path))).transpose()?;
    let what = match &config {
        Some(config) if !config.arrays.is_empty() => What::Configured(config.arrays.clone()),
        _ if !args.places.is_empty() => What::Places(args.places.iter().map(|p| absolute(p)).collect()),
        None if !args.direct.is_empty() => What::Places(vec![]),
        Some(_) | None => What::Known,
    };
    let config = config.unwrap_or_default();
    let ways = args.io.or(config.io).unwrap_or(Io::Plain).into();
    let nvme = nvme_settings(&config, &args);
    let api = api_settings(&config, &args);
    // A flag or the environment wins over the file.
    let control = config.control.filter(|_| !context.control_named).unwrap_or_else(|| context.control.clone());
    let state_dir = config.state_dir.filter(|_| !context.state_dir_named).unwrap_or_else(|| context.state_dir.clone());
    let nbd = match (args.nbd.is_empty(), config.nbd.is_empty()) {
        (false, _) => args.nbd,
        (true, false) => config.nbd,
        (true, true) => vec![format!("unix:{}", paths::nbd(&control).display())],
    };
    Ok(Settings {
        what,
        spares: args.spare.iter().map(|name| absolute_drive(name)).chain(config.spares).collect(),
        direct: args.direct.iter().map(|name| absolute_drive(name)).collect(),
        control,
        state_dir,
        nbd,
        nbd_insecure: args.nbd_insecure || config.nbd_insecure,
        nvme,
        guests: args.guests.map(|dir| absolute(&dir)).or(config.guests),
        metrics: args.metrics.or(config.metrics),
        api,
        hooks: config.hooks,
        read_only: args.read_only || config.read_only,
        degraded: args.degraded,
        force_diverged: args.force_diverged,
        accept_loss: args.accept_loss,
        memory: Memory { map: args.map_memory, memtable: args.memtable_memory, buffers: args.buffer_memory }
            .or(Memory { map: config.map_memory, memtable: config.memtable_memory, buffers: config.buffer_memory }),
        take_over: args.take_over,
        reserve: args.reservations.or(config.reservations).unwrap_or_default() == Reservations::Auto,
        discard: args.discard.or(config.discard).unwrap_or_default().into(),
        ways,
        cores: args.cores.or(config.cores).unwrap_or(1),
        pin: args.pin || config.pin,
        linger: args.linger.or(config.linger).unwrap_or_default(),
        congestion: args.congestion.or(config.congestion).map_or(Congestion::Auto, Congestion::from),
        stop_at_eof: args.stop_at_eof,
        notify: Notify::default(),
        reread: None,
        program: format!("ashlar {}", env!("CARGO_PKG_VERSION")),
    })
}

/// Addresses of the command line win over the file's, and so do certificate and key; names are by both.
fn api_settings(config: &Config, args: &Args) -> ApiConfig {
    let mut api = config.api.clone();
    if !args.api.is_empty() {
        api.listen.clone_from(&args.api);
    }
    api.names.extend(args.api_name.iter().cloned());
    if let (Some(certificate), Some(key)) = (&args.api_certificate, &args.api_key) {
        (api.certificate, api.key) = (Some(absolute(certificate)), Some(absolute(key)));
    }
    api
}

/// Addresses of the command line win over the file's; hosts are allowed by both.
fn nvme_settings(config: &Config, args: &Args) -> NvmeSettings {
    let or = |flags: &Vec<String>, file: &Vec<String>| if flags.is_empty() { file.clone() } else { flags.clone() };
    let mut access = config.access();
    access.all.hosts.extend(args.allow_host.iter().cloned());
    access.all.any |= args.allow_any;
    NvmeSettings {
        addresses: or(&args.nvme, &config.nvme),
        advertise: or(&args.nvme_advertise, &config.nvme_advertise),
        access,
        deal: args.deal.or(config.deal).unwrap_or_default(),
    }
}
