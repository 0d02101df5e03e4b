//! `ashlar alarms`.

use api::{Acknowledge, Alarms, Done};
use clap::Subcommand;

use crate::context::{Context, encode};
use crate::exit::{Finding, Outcome};
use crate::text::{self, alarm_word};

const EXAMPLES: &str = "\
Examples:
  ashlar alarms                  those that are raised now
  ashlar alarms acknowledge fast:drive_failed:3 --note \"a new drive comes on Monday\"
  ashlar alarms withdraw fast:drive_failed:3

An acknowledged alarm is shown with who acknowledged it, until its cause is gone or it becomes worse. Monitoring counts it \
as before.";

/// Show alarms, and acknowledge them
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Prints an object for scripts
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Subcommand)]
enum Verb {
    /// Acknowledge an alarm
    #[command(after_help = "Example:\n  ashlar alarms acknowledge fast:degraded --note \"ticket 4711\"")]
    Acknowledge {
        /// The alarm's id, as `ashlar alarms` shows it
        alarm: String,
        /// A note for others
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
    },
    /// Take an acknowledgement back
    #[command(after_help = "Example:\n  ashlar alarms withdraw fast:degraded")]
    Withdraw {
        /// The alarm's id
        alarm: String,
    },
}

/// Shows them, or acknowledges one.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let client = context.running("alarms")?;
    let (alarm, wish) = match &args.verb {
        None => {
            let alarms: Alarms = client.get("/v1/alarms")?;
            show(&alarms, args.json);
            return Ok(Finding::Good);
        }
        Some(Verb::Acknowledge { alarm, note }) => {
            (alarm, Acknowledge { note: note.clone().unwrap_or_default(), withdraw: false })
        }
        Some(Verb::Withdraw { alarm }) => (alarm, Acknowledge { withdraw: true, ..Acknowledge::default() }),
    };
    let done: Done = client.post(&format!("/v1/alarms/{}/acknowledge", encode(alarm)), &wish)?;
    text::print_done(args.json, &done);
    Ok(Finding::Good)
}

fn show(alarms: &Alarms, json: bool) {
    if json {
        return text::print_json(alarms);
    }
    if alarms.alarms.is_empty() {
        text::print("No alarm is raised.");
    }
    for raised in &alarms.alarms {
        let alarm = &raised.alarm;
        text::print(&format!("{:<8}  {}  {}. {}.", alarm_word(alarm.severity), raised.id, alarm.what, alarm.todo));
        if let Some(by) = &alarm.acknowledged {
            text::print(&format!("          {}", text::acknowledged(by)));
        }
    }
}
