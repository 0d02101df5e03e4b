//! `ashlar quickstart`: from drives to a mounted file system in one command, and back.
//!
//! Each step is a command that it shows and runs, so that whoever has seen it can type it next time. What was done is written
//! down before the next step, and taken back by --undo, however far it came.

use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use api::{ArrayView, Arrays, CreateRequest, Done, Problem, Resource};
use serde::{Deserialize, Serialize};
use server::ops::create;
use server::registry::Registry;
use server::size::Size;
use uuid::Uuid;

use crate::attach;
use crate::confirm;
use crate::context::{Context, absolute, absolute_drive, encode};
use crate::exit::{Finding, Outcome};
use crate::text::{self, human};

const EXAMPLES: &str = "\
Examples:
  ashlar quickstart fast --mount /srv/fast /dev/nvme{0..7}n1
  ashlar quickstart lab --mount /tmp/lab --size 1G /tmp/d/{0..7}   files, to try it
  ashlar quickstart lab --undo                                     takes all of it back

It uses the Ashlar that runs, or starts one until the next boot. docs/guide/serve.md says how to serve at boot.";

/// Where a server that is started here listens.
const LISTEN: &str = "tcp:127.0.0.1:4420";

/// A server that was started answers within so long.
const START_MAX: Duration = Duration::from_secs(60);

const LOOK: Duration = Duration::from_millis(50);

/// Create an array, serve it, and mount a file system on it, in one command
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the array
    name: String,
    /// Drives: block devices, or files
    #[arg(required_unless_present = "undo")]
    drives: Vec<PathBuf>,
    /// Directory to mount the file system at
    #[arg(long, value_name = "DIR", required_unless_present = "undo")]
    mount: Option<PathBuf>,
    /// Level: 0, 10, 5 or 6 [default: 6 for six drives or more, else 5]
    #[arg(long, value_name = "LEVEL")]
    raid: Option<String>,
    /// Creates missing files of this size, sparse
    #[arg(long)]
    size: Option<Size>,
    /// Unmounts the file system, destroys the array and all its data, and removes the files that were created
    #[arg(long, conflicts_with_all = ["drives", "mount", "raid", "size"])]
    undo: bool,
    /// Does not ask for confirmation
    #[arg(long)]
    yes: bool,
}

/// What was done, for --undo.
#[derive(Default, Serialize, Deserialize)]
struct Notes {
    mount: PathBuf,
    /// The directory was not there before.
    made_directory: bool,
    /// Files that were not there before.
    made_files: Vec<PathBuf>,
    /// A server was started for it.
    started_server: bool,
    /// The array, once it was made.
    array: Option<Uuid>,
}

/// Does it, or takes it back.
pub fn run(context: &Context, args: &Args) -> Outcome {
    if args.undo { undo(context, args) } else { set_up(context, args) }
}

fn set_up(context: &Context, args: &Args) -> Outcome {
    let mount = absolute(args.mount.as_deref().unwrap_or(Path::new("/")));
    let raid = args.raid.clone().unwrap_or_else(|| if args.drives.len() >= 6 { "6".into() } else { "5".into() });
    let notes_path = notes_path(context, &args.name);
    if notes_path.exists() {
        let (what, why) = (format!("array {}", args.name), "a quickstart of this name was begun before");
        let todo = format!("`ashlar quickstart {} --undo` takes it back", args.name);
        return Err(Problem::refused("quickstart_begun", what, why, todo));
    }
    if fs::read_dir(&mount).is_ok_and(|mut entries| entries.next().is_some()) {
        let (what, todo) =
            (format!("directory {}", mount.display()), "name an empty directory, or one that is not there");
        return Err(Problem::refused("directory_not_empty", what, "it is not empty", todo));
    }
    for tool in ["mkfs.ext4", "mount"] {
        has_tool(tool)?;
    }
    let plan = plan(context, args, &raid)?;
    text::plan(&args.name, &plan).iter().for_each(|line| text::print(line));
    text::print(&format!(
        "A file system (ext4) of {} will be mounted at {}.",
        human(plan.usable_bytes),
        mount.display()
    ));
    agreed(args, &plan)?;
    let drives: Vec<PathBuf> = args.drives.iter().map(|d| absolute(d)).collect();
    let mut notes = Notes {
        made_directory: !mount.exists(),
        made_files: drives.iter().filter(|d| !d.exists()).cloned().collect(),
        started_server: context.server().is_none(),
        mount: mount.clone(),
        array: None,
    };
    notes.write(&notes_path)?;
    let steps = Steps { total: 6, number: 0.into() };
    let this = |words: &[&str]| own(context, words);
    if notes.started_server {
        let (host, _) = attach::host()?;
        steps.say(&format!("ashlar serve --nvme {LISTEN} --allow-host {host} &"));
        serve(context, &host)?;
    } else {
        steps.say("an Ashlar runs already: it is used");
        notes.started_server = false;
    }
    let mut words = vec!["create", &args.name, "--raid", &raid];
    let size = args.size.map(|size| size.0.to_string());
    size.iter().for_each(|size| words.extend(["--size", size]));
    if !plan.losses.is_empty() {
        words.extend(["--force", "--yes"]);
    }
    let names: Vec<String> = drives.iter().map(|d| d.display().to_string()).collect();
    words.extend(names.iter().map(String::as_str));
    steps.run(&mut this(&words), &words)?;
    let volume = format!("{}/data", args.name);
    let view = view(context, &args.name)?;
    notes.array = Some(view.uuid);
    notes.write(&notes_path)?;
    // Whole MiB, of which a volume of an array in parts is a multiple, too.
    let bytes = (view.usable_bytes >> 20 << 20).to_string();
    steps.run(&mut this(&["volume", "create", &volume, &bytes]), &["volume", "create", &volume, &bytes])?;
    steps.run(&mut this(&["attach", &volume]), &["attach", &volume])?;
    let device = device(context, &volume)?;
    steps.run_other("mkfs.ext4", &["-q", &device])?;
    fs::create_dir_all(&mount)
        .map_err(|e| Problem::failed(format!("directory {}", mount.display()), e, "name another"))?;
    steps.run_other("mount", &[&device, &mount.display().to_string()])?;
    let done = Done {
        notes: vec![
            format!(
                "`ashlar status {}` shows the array; `ashlar quickstart {} --undo` takes all of it back",
                args.name, args.name
            ),
            "at boot it is not mounted by itself: docs/guide/serve.md, \"At boot\"".to_owned(),
        ],
        ..Done::new(format!("{} is mounted at {}", device, mount.display()))
    };
    text::print_done(false, &done);
    Ok(Finding::Good)
}

/// What the array would be like; nothing is written.
fn plan(context: &Context, args: &Args, raid: &str) -> Result<api::PlanView, Problem> {
    let request = CreateRequest {
        name: args.name.clone(),
        raid: raid.to_owned(),
        size_bytes: args.size.map(|s| s.0),
        drives: args.drives.iter().map(|d| absolute_drive(&d.display().to_string())).collect(),
        force: true,
        ..CreateRequest::default()
    };
    match context.server() {
        Some(client) => client.post("/v1/plan", &request),
        None => context.offline(|world| async move { create::plan(&world, &request).await }),
    }
}

/// Asks, before anything is written.
fn agreed(args: &Args, plan: &api::PlanView) -> Result<(), Problem> {
    if args.yes {
        return Ok(());
    }
    if !plan.losses.is_empty() {
        return confirm::by_name(false, &text::losses(&plan.losses).join("\n"), &args.name);
    }
    if !io::stdin().is_terminal() {
        let why = "it writes to drives, and standard input is not a terminal that could be asked";
        return Err(Problem::refused("not_confirmed", format!("array {}", args.name), why, "add --yes"));
    }
    confirm::by_name(false, "Nothing has been written yet.", &args.name)
}

fn undo(context: &Context, args: &Args) -> Outcome {
    let path = notes_path(context, &args.name);
    let notes = Notes::read(&path, &args.name)?;
    if !args.yes {
        let loss = format!("All data of array {} will be lost.", args.name);
        confirm::by_name(false, &loss, &args.name)?;
    }
    let steps = Steps { total: 4, number: 0.into() };
    // What did not come so far, or was undone by hand, has nothing to be taken back.
    if is_mounted(&notes.mount) {
        steps.run_other("umount", &[&notes.mount.display().to_string()])?;
    }
    match notes.array {
        Some(uuid) => destroy_it(context, (&args.name, uuid), &steps)?,
        // It was cut off before it had noted which array it made, or another array has the name.
        None if context.server_of(&args.name)?.is_some() => {
            let (what, why) = (format!("array {}", args.name), "whether quickstart made it is not known");
            let todo = format!("`ashlar destroy {}` if it is not needed; then undo again", args.name);
            return Err(Problem::refused("quickstart_unsure", what, why, todo));
        }
        None => {}
    }
    if notes.started_server && context.server().is_some_and(|client| has_no_array(&client)) {
        steps.run(&mut own(context, &["stop"]), &["stop"])?;
    }
    for file in &notes.made_files {
        match fs::remove_file(file) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(Problem::failed(format!("file {}", file.display()), e, "remove it by hand"));
            }
            Ok(()) | Err(_) => {}
        }
    }
    if notes.made_directory {
        // One that is in use by now stays.
        let _left = fs::remove_dir(&notes.mount);
    }
    fs::remove_file(&path).map_err(|e| Problem::failed(path.display().to_string(), e, "remove it by hand"))?;
    text::print_done(false, &Done::new(format!("the quickstart of {} is taken back", args.name)));
    Ok(Finding::Good)
}

/// Destroys the array of this identity, served or not; another one that has its name by now stays.
fn destroy_it(context: &Context, (name, uuid): (&str, Uuid), steps: &Steps) -> Result<(), Problem> {
    let identity = uuid.to_string();
    if context.server_of(&identity)?.is_some() {
        let detach = ["detach", name];
        steps.say(&format!("ashlar {}", detach.join(" ")));
        // Not attached is as good.
        let _ended = own(context, &detach).stderr(Stdio::null()).stdout(Stdio::null()).status();
    } else if Registry::at(context.state_dir.clone()).find(&identity).is_err() {
        text::print(&format!("      array {name} is not here any more: it was destroyed or handed over"));
        return Ok(());
    }
    let destroy = ["destroy", &identity, "--yes", "--force"];
    steps.run(&mut own(context, &destroy), &destroy)
}

fn has_no_array(client: &crate::client::Client) -> bool {
    client.get::<Arrays>("/v1/arrays").is_ok_and(|all| all.arrays.is_empty())
}

fn is_mounted(place: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1).is_some_and(|at| Path::new(at) == place))
}

fn has_tool(name: &str) -> Result<(), Problem> {
    let places = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    if std::env::split_paths(&places).chain(sbin).any(|dir| dir.join(name).is_file()) {
        return Ok(());
    }
    Err(Problem::refused(
        "tool_missing",
        name,
        "this program is needed, and not installed",
        "install e2fsprogs and mount",
    ))
}

/// This program, for the server and the state that this command has.
fn own(context: &Context, words: &[&str]) -> Command {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("ashlar"));
    let mut command = Command::new(program);
    command.args(words).env("ASHLAR_CONTROL", &context.control).env("ASHLAR_STATE_DIR", &context.state_dir);
    command.stdin(Stdio::null());
    command
}

/// Starts a server that goes on when this command has ended.
fn serve(context: &Context, host: &str) -> Result<(), Problem> {
    let failed = |e: io::Error| Problem::failed("ashlar serve", e, "start it by hand, and try again");
    fs::create_dir_all(&context.state_dir).map_err(failed)?;
    let path = context.state_dir.join("quickstart.log");
    let log = fs::File::create(&path).map_err(failed)?;
    let mut server = own(context, &["serve", "--nvme", LISTEN, "--allow-host", host]);
    server.stdout(Stdio::null()).stderr(log).process_group(0).current_dir("/");
    let mut child = server.spawn().map_err(failed)?;
    let begun = Instant::now();
    while context.server().is_none() {
        let ended = child.try_wait().map_err(failed)?;
        if ended.is_some() || begun.elapsed() > START_MAX {
            let why = format!("it does not answer; its log is {}", path.display());
            return Err(Problem::failed("ashlar serve", why, "see the log"));
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// The array as it is served.
fn view(context: &Context, array: &str) -> Result<ArrayView, Problem> {
    let gone = || Problem::failed(format!("array {array}"), "it is gone", "see `ashlar status`");
    let client = context.server_of(array)?.ok_or_else(gone)?;
    client.get::<Resource<ArrayView>>(&format!("/v1/arrays/{}", encode(array))).map(|there| there.view)
}

/// The block device of a volume that is attached.
fn device(context: &Context, volume: &str) -> Result<String, Problem> {
    let failed = |why: String| Problem::failed(format!("volume {volume}"), why, "see `ashlar attach`");
    let output = own(context, &["attach", volume, "--json"]).output().map_err(|e| failed(e.to_string()))?;
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|e| failed(e.to_string()))?;
    said[0]["device"].as_str().map(str::to_owned).ok_or_else(|| failed("it has no device".to_owned()))
}

/// Numbers the steps, and shows each command.
struct Steps {
    total: u32,
    number: std::cell::Cell<u32>,
}

impl Steps {
    fn say(&self, command: &str) {
        self.number.set(self.number.get() + 1);
        text::print(&format!("{}/{}  {command}", self.number.get(), self.total));
    }

    /// Runs a command of this program.
    fn run(&self, command: &mut Command, words: &[&str]) -> Result<(), Problem> {
        self.finish(command, &format!("ashlar {}", words.join(" ")))
    }

    /// Runs another program.
    fn run_other(&self, program: &str, words: &[&str]) -> Result<(), Problem> {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command.args(words).env("PATH", format!("{path}:/usr/sbin:/sbin")).stdin(Stdio::null());
        self.finish(&mut command, &format!("{program} {}", words.join(" ")))
    }

    fn finish(&self, command: &mut Command, shown: &str) -> Result<(), Problem> {
        self.say(shown);
        let todo = "`ashlar quickstart NAME --undo` takes back what was done";
        let output = command.output().map_err(|e| Problem::failed(shown, e, todo))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Problem::failed(shown, format!("it ended with {}: {said}", output.status), todo))
    }
}

fn notes_path(context: &Context, name: &str) -> PathBuf {
    context.state_dir.join(format!("quickstart-{name}.json"))
}

impl Notes {
    fn write(&self, path: &Path) -> Result<(), Problem> {
        let failed = |e: io::Error| Problem::failed(path.display().to_string(), e, "run as root, or with --state-dir");
        path.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
        fs::write(path, serde_json::to_vec(self).unwrap_or_default()).map_err(failed)
    }

    fn read(path: &Path, name: &str) -> Result<Notes, Problem> {
        let what = format!("the quickstart of {name}");
        let text = fs::read(path).map_err(|e| {
            Problem::refused(
                "quickstart_unknown",
                what.clone(),
                format!("{}: {e}", path.display()),
                "there is nothing to undo",
            )
        })?;
        serde_json::from_slice(&text).map_err(|e| Problem::failed(what, e, "undo it by hand"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/quickstart-a.json");
        let notes = Notes { mount: "/srv/a".into(), made_directory: true, started_server: true, ..Notes::default() };
        notes.write(&path).unwrap();
        let read = Notes::read(&path, "a").unwrap();
        assert!(
            read.mount == Path::new("/srv/a")
                && read.made_directory
                && read.started_server
                && read.made_files.is_empty()
        );
        assert_eq!(Notes::read(&dir.path().join("none"), "b").err().unwrap().code, "quickstart_unknown");
    }

    #[test]
    fn mounts_are_seen() {
        assert!(is_mounted(Path::new("/proc")) && !is_mounted(Path::new("/proc/self")));
    }
}
