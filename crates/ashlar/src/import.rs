//! `ashlar import`.

use api::{FindRequest, FoundArrayView, FoundArrays, ImportRequest, Imported, Problem, Prospect, VERSION};
use server::ops::open::Patience;
use server::ops::{find, import};

use crate::confirm;
use crate::context::{Context, absolute_drive};
use crate::exit::{Finding, Outcome};
use crate::{output, text};

const EXAMPLES: &str = "\
Examples:
  ashlar import                      list all arrays found; open nothing
  ashlar import d/                   list those on the files in a directory
  ashlar import fast                 open the array fast
  ashlar import fast d/              open it, from the files in a directory
  ashlar import 6f1c0f0e-5a0b-4d0c-9a2b-0c5d1e2f3a4b      one of two arrays of the same name
  ashlar import --all d/             open all that is found there
  ashlar import --read-only fast     recover in memory, write nothing
  ashlar import --degraded fast      open it with half or fewer of its drives
  ashlar import --previous-generation --read-only fast

An argument with a / is a drive or a directory; the first one without is an array. An array that is opened is \
recovered, if its \
server died, and remembered, so that other verbs find it by its name. A running Ashlar then serves it.";

/// Find arrays by the labels on their drives: list them, or open one
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The array to open, by name or identity; directories and drives to look at [default: all block devices and known
    /// drives]
    #[arg(value_name = "NAME|UUID|DIR|DRIVE")]
    what: Vec<String>,
    /// Opens all arrays found
    #[arg(long)]
    all: bool,
    /// Writes nothing
    #[arg(long)]
    read_only: bool,
    /// Opens an array with half or fewer of its drives
    #[arg(long)]
    degraded: bool,
    /// Ignores drives with a diverged history; data that only they hold is given up
    #[arg(long)]
    force_diverged: bool,
    /// Opens an array although some writes are lost beyond repair
    #[arg(long)]
    accept_loss: bool,
    /// Goes back to the generation before the newest: later writes are lost; with --read-only only looks
    #[arg(long)]
    previous_generation: bool,
    /// Takes the array of this name over from another server. Where its drives can be reserved, the other server is stopped
    /// immediately. Otherwise it stops by itself within 10 s, unless it is suspended: writes of it then destroy data
    #[arg(long, value_name = "NAME", conflicts_with = "read_only")]
    take_over: Option<String>,
    /// Does not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// Lists, or opens.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let (array, places) = named(&args.what, args.all)?;
    let array = array.or_else(|| args.take_over.clone());
    let places = places.iter().map(|p| absolute_drive(p)).collect();
    if array.is_none() && !args.all {
        return list(context, args, FindRequest { places });
    }
    if let (true, None) = (args.previous_generation, &array) {
        let todo = "name the array: `ashlar import NAME --previous-generation`";
        return Err(Problem::usage("--previous-generation", "it is valid for one array only", todo));
    }
    let request = ImportRequest {
        places,
        array,
        all: args.all,
        read_only: args.read_only,
        degraded: args.degraded,
        force_diverged: args.force_diverged,
        accept_loss: args.accept_loss,
        previous_generation: args.previous_generation,
        take_over: args.take_over.clone(),
    };
    if args.previous_generation && !args.read_only {
        let name = request.array.as_deref().unwrap_or_default();
        let loss = format!("Data written to array {name} since the generation before the newest may be lost.");
        confirm::by_name(args.yes, &loss, name)?;
    }
    open(context, args, &request)
}

/// The array that is named, and the places. What has a slash is a place; with --all everything is.
fn named(what: &[String], all: bool) -> Result<(Option<String>, Vec<String>), Problem> {
    let is_place = |word: &String| all || word.contains('/');
    let arrays: Vec<&String> = what.iter().filter(|word| !is_place(word)).collect();
    let places = what.iter().filter(|word| is_place(word)).cloned().collect();
    match arrays[..] {
        [] => Ok((None, places)),
        [one] => Ok((Some(one.clone()), places)),
        [_, second, ..] => Err(Problem::usage(
            format!("\"{second}\""),
            "one array is opened at a time",
            format!("write a directory or a drive with a slash (./{second}), or open all arrays with --all"),
        )),
    }
}

/// Says what is there, and opens nothing.
fn list(context: &Context, args: &Args, request: FindRequest) -> Outcome {
    let how = [
        ("--read-only", args.read_only),
        ("--degraded", args.degraded),
        ("--force-diverged", args.force_diverged),
        ("--accept-loss", args.accept_loss),
        ("--previous-generation", args.previous_generation),
    ];
    if let Some((flag, _)) = how.iter().find(|(_, said)| *said) {
        let why = "it needs the name of an array to open";
        return Err(Problem::usage(*flag, why, "name the array, or give --all"));
    }
    let found: FoundArrays = match context.server() {
        Some(client) => client.post("/v1/find", &request)?,
        None => context.offline(|world| async move { find::run(&world, &request, &[]).await })?,
    };
    if args.json {
        text::print_json(&found);
        return Ok(Finding::Good);
    }
    for array in &found.arrays {
        let same_name = found.arrays.iter().filter(|other| other.name == array.name).count() > 1;
        found_array(array, same_name).iter().for_each(|line| text::print(line));
    }
    for problem in &found.problems {
        output::complain(&format!("ashlar: {problem}"));
    }
    let n = found.looked_at;
    text::print(&match found.arrays.len() {
        0 => format!("No array found ({n} drives looked at). `ashlar import DIR` looks at the files in a directory."),
        _ => "Nothing was opened. `ashlar import NAME` opens an array, `ashlar import --all` all of them.".to_owned(),
    });
    Ok(Finding::Good)
}

fn found_array(array: &FoundArrayView, same_name: bool) -> Vec<String> {
    let level = array.level.as_deref().unwrap_or("unknown level");
    let mut lines = vec![format!("{}  {level}  {}", array.name, array.uuid)];
    let why = array.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    lines.push(match array.prospect {
        Prospect::Unknown => format!("  drives  {}{why}", find::prospect_words(array.prospect)),
        _ => format!(
            "  drives  {} of {} here: {}",
            array.drives_found,
            array.drives_of,
            find::prospect_words(array.prospect)
        ),
    });
    lines.extend(array.members.iter().map(|m| {
        let here = m.drive.clone().unwrap_or_else(|| format!("{} (not here)", m.drive_name));
        format!("    seat {}  {}  {here}", m.seat, text::member_word(m.state))
    }));
    lines.push(match (&array.used_by, array.served, array.known) {
        (_, true, _) => "  use     the running Ashlar serves it".to_owned(),
        (Some(by), ..) => format!("  use     in use: {by}"),
        (None, false, true) => "  use     known on this machine, not open".to_owned(),
        (None, false, false) => "  use     not known on this machine, and apparently not open".to_owned(),
    });
    if same_name {
        lines.push(format!(
            "  note: another array has this name; open this one by its identity: `ashlar import {}`",
            array.uuid
        ));
    }
    lines
}

/// Finds and opens.
fn open(context: &Context, args: &Args, request: &ImportRequest) -> Outcome {
    let imported: Imported = match context.server() {
        Some(client) => client.post("/v1/import", request)?,
        None => offline(context, request)?,
    };
    if imported.arrays.is_empty()
        && let Some(problem) = Problem::all(imported.problems.clone())
    {
        return Err(problem);
    }
    if args.json {
        text::print_json(&imported);
        return Ok(Finding::Good);
    }
    for one in &imported.arrays {
        for line in text::array_details(&one.array) {
            text::print(&line);
        }
        text::print("\n  Opening it:");
        for line in text::recovery(&one.recovery) {
            text::print(&line);
        }
        text::print_notes(&one.notes);
        text::print("");
    }
    for problem in &imported.problems {
        output::complain(&format!("ashlar: {problem}"));
    }
    let names: Vec<_> = imported.arrays.iter().map(|a| a.array.name.as_str()).collect();
    text::print(&if imported.served {
        format!("Imported {}; the running Ashlar serves it.", names.join(", "))
    } else {
        format!("Imported {}. `ashlar serve` serves it.", names.join(", "))
    });
    Ok(Finding::Good)
}

fn offline(context: &Context, request: &ImportRequest) -> Result<Imported, Problem> {
    context.offline(|world| async move {
        import::says_which(request)?;
        let (found, problems) = import::search(&world, request).await?;
        let mut answer = Imported { version: VERSION, problems, ..Imported::default() };
        for array in found {
            match import::open(&world, &array, request, Patience::Short).await {
                Ok(opened) => {
                    answer.arrays.push(import::answer(&opened).await);
                    opened.close(&world).await?;
                }
                Err(problem) => answer.problems.push(problem),
            }
        }
        Ok(answer)
    })
}
