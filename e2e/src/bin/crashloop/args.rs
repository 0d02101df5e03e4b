//! The command line.

use std::path::PathBuf;

/// Kill a served array again and again; account for every sector.
#[derive(Clone, Debug, clap::Parser)]
#[command(
    name = "crashloop",
    after_help = "Exit codes: 0 nothing lost, 1 a violation (the directory is kept), 2 it could not begin."
)]
pub struct Args {
    /// Decides requests, moments and faults
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Kills and readbacks
    #[arg(long, default_value_t = 1000)]
    pub cycles: u32,
    /// Where the drives lie: an empty or new directory [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Drives of the first array
    #[arg(long, default_value_t = 8)]
    pub drives: usize,
    /// Size of each of its drives
    #[arg(long, default_value = "1G")]
    pub size: String,
    /// Level of both arrays: 0, 10, 5 or 6
    #[arg(long, default_value = "6", value_parser = ["0", "10", "5", "6"])]
    pub raid: String,
    /// Size of the first array's volume: all of it is read back in each cycle
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    pub volume_size: String,
    /// Cores that serve the first array; the second has one
    #[arg(long, default_value_t = 2)]
    pub cores: usize,
    /// Parts of the first array; the second is in one piece
    #[arg(long, default_value_t = 1)]
    pub parts: u8,
    /// Leaves out the second array, the one that is 80 % full
    #[arg(long)]
    pub no_full: bool,
    /// Fails unless so many members were set back, came back, and had copies put beside them
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub swaps_at_least: u32,
    /// Leaves out failing and replacing members, and swapping them for older copies
    #[arg(long)]
    pub no_drive_faults: bool,
    /// `ashlar check` about every so many cycles
    #[arg(long, default_value_t = 8)]
    pub check_every: u32,
    /// A line of figures every so many cycles
    #[arg(long, default_value_t = 25)]
    pub report_every: u32,
    /// The `ashlar` program [default: the one beside this one]
    #[arg(long, value_name = "PROGRAM")]
    pub ashlar: Option<PathBuf>,
}

impl Args {
    /// The command that does the same again.
    #[must_use]
    pub fn replay(&self) -> String {
        let mut command = format!(
            "cargo run --release -p e2e --bin crashloop -- --seed {} --cycles {} --drives {} --size {} --raid {} \
             --volume-size {} --cores {} --parts {} --check-every {}",
            self.seed,
            self.cycles,
            self.drives,
            self.size,
            self.raid,
            self.volume_size,
            self.cores,
            self.parts,
            self.check_every
        );
        if self.no_full {
            command.push_str(" --no-full");
        }
        if self.no_drive_faults {
            command.push_str(" --no-drive-faults");
        }
        command
    }

    /// Drives that may fail, whichever they are.
    #[must_use]
    pub fn tolerates(&self) -> usize {
        match self.raid.as_str() {
            "6" => 2,
            "5" | "10" => 1,
            _ => 0,
        }
    }
}
