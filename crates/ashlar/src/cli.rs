//! The command line: verbs, and the flags that all of them know.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::context::Context;
use crate::exit::{self, Outcome};
use crate::{
    alarms, attach, bench, bundle, check, clients, completion, config, create, demo, destroy, drive, events, export,
    forget, import, inspect, iostat, jobs, lab, list, man, quickstart, rebuild, rescue, scrub, serve, status, stop,
    upgrade, version, volume, wipe,
};

const EXAMPLES: &str = "\
Examples:
  ashlar demo                                    a demonstration, in two minutes
  ashlar create lab --raid 5 --size 4G d/0 d/1 d/2 d/3
  ashlar volume create lab/db 2G
  ashlar serve --nbd unix:/run/lab.sock          (then: nbd-client -unix /run/lab.sock -N lab/db)
  ashlar status lab

Without root, the defaults lie in $XDG_RUNTIME_DIR and $XDG_STATE_HOME.";

/// A user-space array of NVMe drives: RAID 0, 10, 5 and 6 without a write hole.
#[derive(Parser)]
#[command(name = "ashlar", version, max_term_width = 100, after_help = format!("{EXAMPLES}\n\n{}", exit::CODES_HELP))]
pub struct Cli {
    /// Control socket of the running Ashlar; also ASHLAR_CONTROL [default: /run/ashlar/ashlar.sock]
    #[arg(long, global = true, value_name = "SOCKET", help_heading = "Global options")]
    control: Option<PathBuf>,
    /// Directory of the list of known arrays; also ASHLAR_STATE_DIR [default: /var/lib/ashlar]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Global options")]
    state_dir: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Quickstart(quickstart::Args),
    Create(create::Args),
    Volume(volume::Args),
    Serve(serve::Args),
    Stop(stop::Args),
    Attach(attach::AttachArgs),
    Detach(attach::DetachArgs),
    Status(status::Args),
    List(list::Args),
    Events(events::Args),
    Alarms(alarms::Args),
    Jobs(jobs::Args),
    Wait(jobs::WaitArgs),
    Iostat(iostat::Args),
    Clients(clients::Args),
    Import(import::Args),
    Export(export::Args),
    Forget(forget::Args),
    Inspect(inspect::Args),
    Check(check::Args),
    Rescue(rescue::Args),
    Drive(drive::Args),
    Rebuild(rebuild::Args),
    Scrub(scrub::Args),
    Upgrade(upgrade::Args),
    Destroy(destroy::Args),
    Wipe(wipe::Args),
    Bundle(bundle::Args),
    Bench(Box<bench::Args>),
    Lab(lab::Args),
    Demo(demo::Args),
    Config(config::Args),
    Version(version::Args),
    Completion(completion::Args),
    #[command(hide = true)]
    Man(man::Args),
}

impl Cli {
    /// Does what the command line says.
    pub fn run(self) -> ExitCode {
        let context = Context::new(self.control, self.state_dir);
        match self.verb {
            Verb::Quickstart(a) => report(false, quickstart::run(&context, &a)),
            Verb::Create(a) => report(a.json, create::run(&context, &a)),
            Verb::Volume(a) => report(a.json(), volume::run(&context, a)),
            Verb::Serve(a) => report(false, serve::run(&context, a)),
            Verb::Stop(a) => report(a.json, stop::run(&context, &a)),
            Verb::Attach(a) => report(a.json, attach::attach(&context, &a)),
            Verb::Detach(a) => report(a.json, attach::detach(&context, &a)),
            Verb::Status(a) => report(a.json, status::run(&context, &a)),
            Verb::List(a) => report(a.json, list::run(&context, &a)),
            Verb::Events(a) => report(a.json, events::run(&context, &a)),
            Verb::Alarms(a) => report(a.json, alarms::run(&context, &a)),
            Verb::Jobs(a) => report(a.json, jobs::run(&context, &a)),
            Verb::Wait(a) => report(a.json, jobs::wait(&context, &a)),
            Verb::Iostat(a) => report(a.json, iostat::run(&context, &a)),
            Verb::Clients(a) => report(a.json, clients::run(&context, &a)),
            Verb::Import(a) => report(a.json, import::run(&context, &a)),
            Verb::Export(a) => report(a.json, export::run(&context, &a)),
            Verb::Forget(a) => report(a.json, forget::run(&context, &a)),
            Verb::Rescue(a) => report(a.json, rescue::run(&context, &a)),
            Verb::Inspect(a) => report(a.json, inspect::run(&context, &a)),
            Verb::Check(a) => report(a.json, check::run(&context, &a)),
            Verb::Drive(a) => report(a.json(), drive::run(&context, a)),
            Verb::Rebuild(a) => report(a.json, rebuild::run(&context, &a)),
            Verb::Scrub(a) => report(a.json(), scrub::run(&context, a)),
            Verb::Upgrade(a) => report(a.json, upgrade::run(&context, &a)),
            Verb::Destroy(a) => report(a.json, destroy::run(&context, &a)),
            Verb::Wipe(a) => report(a.json, wipe::run(&context, &a)),
            Verb::Bundle(a) => report(a.json, bundle::run(&context, &a)),
            Verb::Bench(a) => report(a.json, bench::run(&context, &a)),
            Verb::Lab(a) => report(a.json(), lab::run(&context, a)),
            Verb::Demo(a) => report(false, demo::run(a)),
            Verb::Config(a) => report(a.json(), config::run(&context, &a)),
            Verb::Version(a) => report(a.json, version::run(&a)),
            Verb::Completion(a) => report(false, completion::run(&a)),
            Verb::Man(a) => report(false, man::run(&a)),
        }
    }
}

fn report(json: bool, outcome: Outcome) -> ExitCode {
    exit::report(json, outcome)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    fn refusal(line: &str) -> String {
        let parsed = <Cli as clap::Parser>::try_parse_from(line.split(' '));
        parsed.map(drop).expect_err(line).to_string()
    }

    #[test]
    fn a_limit_without_limits_is_asked_for_any() {
        let said = refusal("ashlar volume limit fast/vm");
        assert!(["--iops", "--bandwidth", "--burst", "--none"].iter().all(|flag| said.contains(flag)), "{said}");
        assert!(<Cli as clap::Parser>::try_parse_from("ashlar volume limit a/v --iops 5 --burst 2".split(' ')).is_ok());
        refusal("ashlar volume limit fast/vm --none --iops 5");
    }

    #[test]
    fn repeating_takes_time() {
        for line in ["ashlar status --watch 0", "ashlar iostat --every 0", "ashlar iostat --count 0"] {
            assert!(refusal(line).contains("0"), "{line}");
        }
        assert!(<Cli as clap::Parser>::try_parse_from(["ashlar", "iostat", "--count", "1"]).is_ok());
    }

    #[test]
    fn every_verb_has_an_example() {
        for verb in Cli::command().get_subcommands_mut() {
            let help = verb.render_long_help().to_string();
            assert!(help.contains("Example"), "{}", verb.get_name());
        }
    }
}
