//! A process of its own that makes the kernel's tree equal to a plan: what waits in the kernel, waits there and nowhere else.
//!
//! ```text
//!   server                                  ashlar nvmet-apply
//!   Writer::write -- plan, JSON, stdin -->  lock, modules, Tree::apply
//!                 <-- Told, JSON, stdout --
//! ```
//!
//! Invariants:
//! - one at a time: while one lives that did not end in time, no other is begun; nor is one by another server, for the process holds
//!   a lock in the state directory;
//! - it has nothing of the server's: no drive, no lock, no socket, no log.
//!
//! Not here: what it does ([`super::tree`]).

use std::cell::RefCell;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use futures::future::{Either, select};
use rt::{MailReceiver, Rt};
use serde::{Deserialize, Serialize};

use super::plan::Plan;
use super::tree::{Applied, Tree};

/// The verb by which the program is this process.
pub const VERB: &str = "nvmet-apply";
/// How long it may take: modules are loaded, and a namespace that is disabled waits for what it was asked.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Where the kernel's configuration is.
const CONFIGFS: &str = "/sys/kernel/config";

#[derive(Serialize, Deserialize)]
struct Task {
    /// Held as long as the process lives.
    lock: PathBuf,
    plan: Plan,
}

/// What the process says.
#[derive(Debug, Serialize, Deserialize)]
enum Told {
    Applied(Applied),
    /// Another one lives.
    Busy,
    /// It could not begin.
    Broken(String),
}

/// Why nothing is known of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The process before has not ended.
    Busy,
    /// This one has not ended in time.
    Late,
    /// It could not begin, or died.
    Broken(String),
}

/// Starts the process.
#[derive(Default)]
pub struct Writer {
    /// Of the one that was late.
    late: RefCell<Option<MailReceiver<Told>>>,
}

impl Writer {
    /// Makes the kernel's tree equal to the plan. The caller takes its turn.
    ///
    /// # Errors
    /// When it is not known what became of it.
    pub async fn write(&self, rt: &Rt, state_dir: &Path, plan: &Plan) -> Result<Applied, Silence> {
        if let Some(mut late) = self.late.take()
            && late.try_recv().is_none()
        {
            self.late.replace(Some(late));
            return Err(Silence::Busy);
        }
        let task = Task { lock: state_dir.join("nvmet-apply.lock"), plan: plan.clone() };
        let task = serde_json::to_vec(&task).map_err(|e| Silence::Broken(e.to_string()))?;
        let (sender, mut mail) = rt.mailbox::<Told>();
        let work = move || sender.send(run(&task).unwrap_or_else(|e| Told::Broken(e.to_string())));
        let thread = thread::Builder::new().name("nvmet".into()).spawn(work);
        thread.map_err(|e| Silence::Broken(e.to_string()))?;
        let told = match select(pin!(mail.recv()), pin!(rt.sleep(PATIENCE))).await {
            Either::Left((told, _)) => told,
            Either::Right(_) => None,
        };
        match told {
            Some(Told::Applied(applied)) => Ok(applied),
            Some(Told::Busy) => Err(Silence::Busy),
            Some(Told::Broken(why)) => Err(Silence::Broken(why)),
            None => {
                self.late.replace(Some(mail));
                Err(Silence::Late)
            }
        }
    }
}

/// Runs the process to its end. Where that does not come, this thread alone waits for it.
fn run(task: &[u8]) -> io::Result<Told> {
    let mut process = Command::new("/proc/self/exe")
        .arg(VERB)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let wrote = process.stdin.take().map_or(Ok(()), |mut input| input.write_all(task));
    let output = process.wait_with_output()?;
    wrote?;
    serde_json::from_slice(&output.stdout)
        .map_err(|e| io::Error::other(format!("it ended with {}: {e}", output.status)))
}

/// This process: a plan from `input`, and what became of it to `output`.
pub fn serve(mut input: impl Read, mut output: impl Write) {
    let mut text = vec![];
    let told = input.read_to_end(&mut text).and_then(|_| Ok(apply(serde_json::from_slice(&text)?)));
    let told = told.unwrap_or_else(|e| Told::Broken(e.to_string()));
    let text = serde_json::to_vec(&told).unwrap_or_default();
    // A server that is gone reads nothing.
    let _gone = output.write_all(&text).and_then(|()| output.flush());
}

fn apply(task: Task) -> Told {
    let lock = File::options().create(true).append(true).open(&task.lock);
    let lock = match lock.map_err(TryLockError::Error).and_then(|file| file.try_lock().map(|()| file)) {
        Ok(lock) => lock,
        Err(TryLockError::WouldBlock) => return Told::Busy,
        Err(TryLockError::Error(e)) => return Told::Broken(format!("{}: {e}", task.lock.display())),
    };
    let tree = Tree::of_kernel();
    if !task.plan.subsystems.is_empty() {
        prepare(&tree, &task.plan);
    }
    let applied = tree.apply(&task.plan);
    drop(lock);
    Told::Applied(applied)
}

/// Loads the target, and the transports that are needed. Whether it worked shows when the tree is written.
fn prepare(tree: &Tree, plan: &Plan) {
    let run = |program: &str, args: &[&str]| {
        let quiet =
            Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        drop(quiet);
    };
    if !tree.root.is_dir() {
        run("modprobe", &["-q", "nvmet"]);
        if fs::read_dir(CONFIGFS).is_ok_and(|mut entries| entries.next().is_none()) {
            run("mount", &["-t", "configfs", "configfs", CONFIGFS]);
        }
    }
    let mut modules: Vec<&str> = plan.ports.iter().map(|port| port.at.transport.module()).collect();
    modules.sort_unstable();
    modules.dedup();
    for module in modules {
        if !Path::new("/sys/module").join(module.replace('-', "_")).exists() {
            run("modprobe", &["-q", module]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lock: &Path) -> Told {
        let task = Task { lock: lock.to_owned(), plan: Plan::default() };
        let mut output = vec![];
        serve(&serde_json::to_vec(&task).unwrap()[..], &mut output);
        serde_json::from_slice(&output).unwrap()
    }

    #[test]
    fn while_one_lives_no_other_begins() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("lock");
        let held = File::create(&lock).unwrap();
        held.lock().unwrap();
        assert!(matches!(told(&lock), Told::Busy));
        drop(held);
        assert!(matches!(told(&lock), Told::Applied(applied) if applied.troubles.is_empty()));
        assert!(matches!(told(&dir.path().join("none/lock")), Told::Broken(_)));
        let mut output = vec![];
        serve(&b"{"[..], &mut output);
        assert!(matches!(serde_json::from_slice(&output).unwrap(), Told::Broken(_)));
    }
}
