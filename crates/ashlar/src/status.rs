//! `ashlar status`.

mod check;

use std::io::IsTerminal;
use std::time::Duration;

use api::{Arrays, Kind, Placement, Problem};
use server::ops::status;

use crate::client::Place;
use crate::context::{Context, encode};
use crate::exit::{Finding, Outcome};
use crate::output;
use crate::text::{self, Table, human, percent};

const EXAMPLES: &str = "\
Examples:
  ashlar status                  all arrays, one line each
  ashlar status fast             one array: drives, volumes, rebuild, alarms
  ashlar status --watch          every two seconds
  ashlar status --check          one line and an exit code, for monitoring
  ashlar status --json | jq '.arrays[].state'
  ashlar status --placement      CPUs of the first core, and which drives are near them

A running Ashlar answers for the arrays that it serves. Others are recovered in memory only; nothing is written.";

/// Show the state of arrays
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this array, in detail
    array: Option<String>,
    /// Repeats every SECONDS
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    watch: Option<u64>,
    /// Shows where the first core of the running Ashlar is, and which NUMA node each drive is attached to
    #[arg(long, conflicts_with_all = ["array", "watch", "check"])]
    placement: bool,
    /// Prints one line for monitoring; exit code 0 OK, 1 warning, 2 critical, 3 unknown (no answer within 5 s)
    #[arg(long, conflicts_with = "watch")]
    check: bool,
    /// Prints an object for scripts (one per line with --watch)
    #[arg(long)]
    pub json: bool,
}

/// Shows it.
pub fn run(context: &Context, args: &Args) -> Outcome {
    if args.placement {
        return placement(context, args.json);
    }
    if args.check {
        return Ok(check::run(context, args.array.as_deref(), args.json));
    }
    loop {
        let arrays = fetch(context, args.array.as_deref())?;
        // One array that was asked for and is not there is an error, not a line in a table.
        if let (Some(_), Some(absent), None) = (&args.array, arrays.absent.first(), args.watch) {
            return Err(absent.problem.clone());
        }
        if args.watch.is_some() && !args.json && std::io::stdout().is_terminal() {
            // To the top of a cleared screen.
            output::bytes(b"\x1b[H\x1b[2J");
        }
        if args.json {
            text::print_json(&arrays)
        } else {
            show(&arrays, args.array.is_some(), &context.place())
        }
        let Some(seconds) = args.watch else {
            return Ok(Finding::Good);
        };
        if !output::pause(Duration::from_secs(seconds)) {
            return Ok(Finding::Good);
        }
    }
}

fn placement(context: &Context, json: bool) -> Outcome {
    let Some(client) = context.server() else {
        return Err(Problem::new(
            Kind::NotFound,
            "not_running",
            "the placement",
            "no Ashlar is running here, so there is no first core",
            "`ashlar serve` starts one; --control names another socket",
        ));
    };
    let placement: Placement = client.get("/v1/placement")?;
    if json {
        text::print_json(&placement);
    } else {
        placement_lines(&placement).iter().for_each(|line| text::print(line));
    }
    Ok(Finding::Good)
}

fn placement_lines(p: &Placement) -> Vec<String> {
    let on = p.data_node.map_or_else(|| "any node".to_owned(), |node| format!("node {node}"));
    let mut lines = vec![format!("first core on {on}, CPUs {}: {}", p.data_cpus, p.why)];
    if let [_, others @ ..] = &p.pinned[..] {
        let mut line = "pinned: each core has a CPU of its own".to_owned();
        if !others.is_empty() {
            let cpus: Vec<String> = others.iter().map(ToString::to_string).collect();
            line += &format!(", the others {}", cpus.join(", "));
        }
        lines.push(line);
    }
    for node in &p.nodes {
        let cpus = if node.cpus.is_empty() { "no CPUs".to_owned() } else { format!("CPUs {}", node.cpus) };
        lines.push(format!("  node {}, {cpus}: {}", node.node, drives(&node.drives)));
    }
    if !p.elsewhere.is_empty() {
        lines.push(format!("  node not known: {}", drives(&p.elsewhere)));
    }
    if !p.connections.is_empty() {
        let all: Vec<String> = p.connections.iter().map(ToString::to_string).collect();
        lines.push(format!("other cores: {}, with {} connections now", all.len(), all.join(" + ")));
    }
    if let [here, others @ ..] = &p.parts[..]
        && !others.is_empty()
    {
        let all: Vec<String> = others.iter().map(ToString::to_string).collect();
        lines.push(format!("arrays and parts of arrays: {here} on the first core, {} on the others", all.join(" + ")));
    }
    lines.push(
        "Buffers are on the node of the first core; the kernel gives each CPU its own queues of a drive.".to_owned(),
    );
    if !p.measured {
        lines.push("Not yet tested on a machine with two nodes.".to_owned());
    }
    lines
}

fn drives(paths: &[String]) -> String {
    if paths.is_empty() { "no drives".to_owned() } else { paths.join(" ") }
}

fn fetch(context: &Context, array: Option<&str>) -> Result<Arrays, Problem> {
    match array {
        Some(name) => match context.server_of(name)? {
            Some(client) => client.get(&format!("/v1/arrays?name={}", encode(name))),
            None => context.offline(|world| async move { status::offline(&world, Some(name)).await }),
        },
        None => match context.server() {
            Some(client) => client.get("/v1/arrays"),
            None => context.offline(|world| async move { status::offline(&world, None).await }),
        },
    }
}

fn show(all: &Arrays, details: bool, at: &Place) {
    for alarm in &all.alarms {
        text::print(&format!("{}: {}", text::alarm_word(alarm.severity), alarm.line()));
    }
    if details {
        for array in &all.arrays {
            for line in text::array_details(array) {
                text::print(&line);
            }
        }
        if let Some(b) = all.buffers {
            let hit = percent(b.hits, b.hits + b.misses);
            text::print(&format!(
                "  buffers   {} of {} kept by this Ashlar, {hit} of the requests were served from it",
                human(b.bytes),
                human(b.bytes_max)
            ));
        }
        if let (Some(linger), Some(congestion)) = (all.linger_us, &all.congestion) {
            let linger = if linger == 0 {
                "0 us: idle cores sleep immediately".to_owned()
            } else {
                format!("{linger} us at most")
            };
            text::print(&format!("  linger    {linger}; congestion control {congestion}"));
        }
        if all.served && !all.nbd.is_empty() {
            text::print(&format!("\n  exported over NBD at {}", all.nbd.join(", ")));
        }
        if all.served && !all.nvme.is_empty() {
            text::print(&format!("  exported over NVMe/TCP at {}", all.nvme.join(", ")));
            for array in &all.arrays {
                text::print(&format!("    {} is {}", array.name, server::subsystem::nqn(array.uuid)));
            }
        }
        if let (true, Some(directory)) = (all.served, &all.guests) {
            text::print(&format!("  sockets for virtual machines (vhost-user) in {directory}"));
        }
        return;
    }
    if all.arrays.is_empty() && all.absent.is_empty() && all.not_served.is_empty() {
        text::print(
            "No arrays. `ashlar create` makes one, `ashlar import` lists the arrays on drives, `ashlar demo` \
             demonstrates everything.",
        );
        return;
    }
    let mut table = Table::new(&["ARRAY", "LEVEL", "STATE", ">USED", ">USABLE", "", ">VOLUMES", "DRIVES"]).flush_left();
    for a in &all.arrays {
        table.row(vec![
            a.name.clone(),
            format!("{} {}", a.level, a.scheme),
            text::state_word(a.state).to_owned(),
            human(a.used_bytes),
            human(a.usable_bytes),
            percent(a.used_bytes, a.usable_bytes),
            a.volumes.len().to_string(),
            text::drives_line(&a.members),
        ]);
    }
    if !table.is_empty() {
        table.print();
    }
    for a in &all.arrays {
        for alarm in &a.alarms {
            text::print(&format!("{}: {}: {}", a.name, text::alarm_word(alarm.severity), text::alarm_line(a, alarm)));
        }
    }
    for absent in &all.absent {
        text::print(&format!("{}  ABSENT\n{}", absent.name, absent.problem));
    }
    if !all.not_served.is_empty() {
        text::print(&format!("Known and not served: {} (`ashlar import NAME`)", all.not_served.join(", ")));
    }
    if !all.spares.is_empty() {
        text::print(&format!("Spares for the first array that lacks a drive: {}", all.spares.join(", ")));
    }
    if !all.served {
        text::print(&format!("No Ashlar answers at {at}; `ashlar serve` exports the volumes."));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::PlacementNode;

    #[test]
    fn placement_is_told() {
        let node = |node, cpus: &str, drives: &[&str]| PlacementNode {
            node,
            cpus: cpus.to_owned(),
            drives: drives.iter().map(|d| (*d).to_owned()).collect(),
        };
        let mut placement = Placement {
            data_node: Some(1),
            data_cpus: "8-15".to_owned(),
            why: "2 of 3 drives are attached there".to_owned(),
            nodes: vec![node(0, "0-7", &["/dev/a"]), node(1, "8-15", &["/dev/b", "/dev/c"]), node(2, "", &[])],
            ..Placement::default()
        };
        let lines = placement_lines(&placement);
        assert_eq!(lines[0], "first core on node 1, CPUs 8-15: 2 of 3 drives are attached there");
        assert_eq!(lines[2], "  node 1, CPUs 8-15: /dev/b /dev/c");
        assert_eq!(lines[3], "  node 2, no CPUs: no drives");
        assert!(lines.last().unwrap().starts_with("Not yet tested"));
        placement.connections = vec![2, 1];
        assert!(placement_lines(&placement).contains(&"other cores: 2, with 2 + 1 connections now".into()));
        placement.pinned = vec![8, 9, 10];
        assert_eq!(placement_lines(&placement)[1], "pinned: each core has a CPU of its own, the others 9, 10");
        placement.data_node = None;
        assert!(placement_lines(&placement)[0].starts_with("first core on any node"));
    }
}
