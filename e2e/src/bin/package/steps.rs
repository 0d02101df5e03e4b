//! From the package to a machine without it.

use e2e::ashlar::Ashlar;
use e2e::failure::require;
use e2e::stepwise::Step;
use e2e::{Failure, Result, tools};

use crate::machine::Machine;
use crate::roots;
use crate::world::{World, repository};

/// All, in order.
pub const ALL: &[Step<World>] = &[
    Step { name: "lintian", about: "no error and no warning", run: lintian },
    Step { name: "security", about: "systemd-analyze: the service at most 3.0 of 10", run: security },
    Step { name: "debian-12", about: "a clean root: installed, served, purged; arrays stay", run: debian_12 },
    Step { name: "debian-13", about: "the same with Debian 13", run: debian_13 },
    Step { name: "install", about: "with systemd: enabled, ready, as its user; attached", run: install },
    Step { name: "reload", about: "what can change does; a wrong file is refused", run: reload },
    Step { name: "upgrade", about: "a newer package under the kernel's load: no error", run: upgrade },
    Step { name: "purge", about: "nothing is left but the array, and all of it agrees", run: purge },
];

fn lintian(world: &mut World) -> Result<()> {
    // The other one differs in its version alone.
    let package = world.packages[0].display().to_string();
    let args = ["--allow-root", "--fail-on", "error,warning", package.as_str()];
    let printed = tools::run(&world.dir, "lintian", &args)?;
    require(printed.trim().is_empty(), "lintian", || printed.clone())
}

fn security(world: &mut World) -> Result<()> {
    let unit = repository().join("systemd/ashlar.service").display().to_string();
    let args = ["security", "--offline=true", "--threshold=30", unit.as_str()];
    tools::run(&world.dir, "systemd-analyze", &args).map(drop)
}

fn debian_12(world: &mut World) -> Result<()> {
    in_root(world, "bookworm")
}

fn debian_13(world: &mut World) -> Result<()> {
    in_root(world, "trixie")
}

fn in_root(world: &World, suite: &str) -> Result<()> {
    let drives = roots::story(&world.dir, suite, &world.packages[0])?;
    // What the purge left is an array: another program reads it.
    let ashlar = Ashlar::new(&world.program, &world.dir.join(suite));
    ashlar.done(&["import", "lab", &drives.display().to_string()])?;
    let seen = ashlar.done(&["check", "lab"])?;
    require(seen.contains("Everything agrees"), "ashlar check", || seen.clone())
}

fn install(world: &mut World) -> Result<()> {
    let mut machine = Machine::new(&world.program, &world.dir, &world.packages)?;
    machine.install()?;
    world.machine = Some(machine);
    Ok(())
}

fn machine(world: &mut World) -> Result<&mut Machine> {
    world.machine.as_mut().ok_or_else(|| Failure::new("the machine", "the step \"install\" was left out"))
}

fn reload(world: &mut World) -> Result<()> {
    machine(world)?.reload()
}

fn upgrade(world: &mut World) -> Result<()> {
    machine(world)?.upgrade()
}

fn purge(world: &mut World) -> Result<()> {
    machine(world)?.purge()
}
