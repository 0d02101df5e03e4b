//! The command line: verbs, and the flags that all of them know.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::client::remote::Flags;
use crate::context::Context;
use crate::exit::{self, Outcome};
use crate::{
    alarms, attach, bench, bundle, check, clients, completion, config, create, demo, destroy, drive, events, export,
    forget, import, inspect, iostat, jobs, lab, list, man, nvmet, quickstart, rebuild, rename, rescue, scrub, serve,
    status, stop, token, ublk, upgrade, version, volume, wipe,
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
    /// Control socket of the running Ashlar, or https://HOST:PORT of one on another machine; also ASHLAR_CONTROL
    /// [default: /run/ashlar/ashlar.sock]
    #[arg(long, global = true, value_name = "SOCKET|URL", help_heading = "Global options")]
    control: Option<PathBuf>,
    /// Directory of the list of known arrays; also ASHLAR_STATE_DIR [default: /var/lib/ashlar]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Global options")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    remote: Flags,
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
    Rename(rename::Args),
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
    Token(token::Args),
    Config(config::Args),
    Version(version::Args),
    Completion(completion::Args),
    #[command(hide = true)]
    Man(man::Args),
    #[command(hide = true, name = server::nvmet::process::VERB)]
    NvmetApply(nvmet::Args),
    #[command(hide = true, name = rt::ublk::process::VERB)]
    UblkControl(ublk::Args),
}

impl Verb {
    /// What it is, if it works on the machine that it runs on, whatever server is named.
    fn only_here(&self) -> Option<&'static str> {
        match self {
            Verb::Quickstart(_) => Some("quickstart"),
            Verb::Serve(_) => Some("serve"),
            Verb::Attach(_) => Some("attach"),
            Verb::Detach(_) => Some("detach"),
            Verb::Inspect(_) => Some("inspect"),
            Verb::Check(_) => Some("check"),
            Verb::Rescue(_) => Some("rescue"),
            Verb::Wipe(_) => Some("wipe"),
            Verb::Bundle(_) => Some("bundle"),
            Verb::Lab(args) => args.measures().then_some("lab"),
            Verb::Bench(_)
            | Verb::Demo(_)
            | Verb::Config(_)
            | Verb::Version(_)
            | Verb::Completion(_)
            | Verb::Man(_)
            | Verb::NvmetApply(_)
            | Verb::UblkControl(_)
            | Verb::Create(_)
            | Verb::Volume(_)
            | Verb::Stop(_)
            | Verb::Status(_)
            | Verb::List(_)
            | Verb::Rename(_)
            | Verb::Events(_)
            | Verb::Jobs(_)
            | Verb::Wait(_)
            | Verb::Iostat(_)
            | Verb::Clients(_)
            | Verb::Import(_)
            | Verb::Export(_)
            | Verb::Forget(_)
            | Verb::Drive(_)
            | Verb::Rebuild(_)
            | Verb::Scrub(_)
            | Verb::Destroy(_)
            | Verb::Alarms(_)
            | Verb::Upgrade(_)
            | Verb::Token(_) => None,
        }
    }
}

impl Cli {
    /// Does what the command line says.
    pub fn run(self) -> ExitCode {
        let context = match Context::new(self.control, self.state_dir, &self.remote) {
            Ok(context) => context,
            Err(problem) => return report(exit::wants_json(std::env::args()), Err(problem)),
        };
        if let Some(what) = self.verb.only_here()
            && let Err(problem) = context.only_here(what)
        {
            return report(exit::wants_json(std::env::args()), Err(problem));
        }
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
            Verb::Rename(a) => report(a.json, rename::run(&context, &a)),
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
            Verb::Token(a) => report(a.json(), token::run(&context, a)),
            Verb::Config(a) => report(a.json(), config::run(&context, &a)),
            Verb::Version(a) => report(a.json, version::run(&context, &a)),
            Verb::Completion(a) => report(false, completion::run(&a)),
            Verb::Man(a) => report(false, man::run(&a)),
            Verb::NvmetApply(a) => report(false, nvmet::apply(&a)),
            Verb::UblkControl(a) => report(false, ublk::control(&a)),
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

    /// A token on the command line would be seen by everybody: no flag takes one.
    #[test]
    fn no_flag_takes_a_secret() {
        let mut verbs = vec![Cli::command()];
        while let Some(verb) = verbs.pop() {
            for flag in verb.get_arguments().filter_map(|arg| arg.get_long()) {
                assert!(!["token", "secret", "password", "api-token"].contains(&flag), "{} --{flag}", verb.get_name());
            }
            verbs.extend(verb.get_subcommands().cloned());
        }
    }

    /// A drive of this machine is measured, and an array that a server on this machine serves is failed.
    #[test]
    fn what_is_measured_is_here() {
        let of = |line: &str| <Cli as clap::Parser>::try_parse_from(line.split(' ')).unwrap().verb.only_here();
        assert_eq!((of("ashlar lab plan smoke f"), of("ashlar lab run smoke f")), (Some("lab"), Some("lab")));
        assert_eq!((of("ashlar lab list"), of("ashlar man d"), of("ashlar version")), (None, None, None));
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
