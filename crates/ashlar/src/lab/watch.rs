//! Where a run stands: one line that is written over on a terminal, a line for each cell that ended everywhere.

use std::io::{self, IsTerminal};

use lab::model::{Cell, Verdict};
use lab::run::Live;
use lab::units;

use crate::{output, text};

/// What is shown.
pub struct Watch {
    terminal: bool,
    quiet: bool,
}

impl Watch {
    /// Nothing is shown beside an object for scripts.
    pub fn new(json: bool) -> Watch {
        Watch { terminal: io::stderr().is_terminal() && !json, quiet: json }
    }

    /// Shows it.
    pub fn at(&mut self, live: &Live<'_>) {
        if self.quiet {
            return;
        }
        if let Some(cell) = live.ended {
            self.clear();
            text::print(&format!("{:>3}/{} {}", live.step, live.steps, line(cell)));
            let bad = cell.gates.iter().filter(|g| g.verdict == Verdict::Fail);
            bad.for_each(|g| text::print(&format!("        {g}")));
        } else if self.terminal {
            let rate = live.iops.map_or(String::new(), |n| format!("  {} IOPS", units::si(n)));
            let left = units::time(live.seconds_left);
            output::hint(&format!("\r\x1b[K{:>3}/{} {}{rate}  {left} left", live.step, live.steps, live.id));
        }
    }

    /// Takes the line away.
    pub fn done(&mut self) {
        self.clear();
    }

    fn clear(&self) {
        if self.terminal {
            output::hint("\r\x1b[K");
        }
    }
}

fn line(cell: &Cell) -> String {
    let told = |what: &str, us: Option<f64>| us.map_or(String::new(), |us| format!("  {what} {}", units::latency(us)));
    let rate = match cell.headline() {
        Some((true, iops)) => format!("{} IOPS", units::si(iops)),
        Some((false, bytes)) => units::rate(bytes),
        None => "nothing".to_owned(),
    };
    let latency = cell.figures.latency;
    let tail = format!("{}{}", told("mean", latency.mean_us), told("p99", latency.p99_us));
    format!("{:<40} {rate:>14}{tail}  {}", cell.id, cell.verdict())
}
