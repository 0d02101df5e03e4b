//! The small table at the end: direct drives beside RAID 0, 10, 5 and 6, the same load in the same run.

use api::Problem;
use bench::Subject;
use bench::table::{Quick, quick};
use rt::Rt;
use server::size::human;

use super::say;
use crate::progress::Progress;

/// Rounds that the table takes, for the progress bar only.
const ROUNDS: u64 = 3;

/// Measures and prints.
///
/// # Errors
/// When an array cannot be made or fails a request.
pub async fn print(rt: &Rt) -> Result<(), Problem> {
    let how = Quick::default();
    let wanted = how.drives as u64 * how.drive_bytes;
    if let Some(available) = server::memory::available().filter(|a| *a < wanted / 2 * 3) {
        let (wanted, available) = (human(wanted), human(available));
        say::line(&format!("omitted: the drives need {wanted} of memory, {available} are available"));
        return Ok(());
    }
    let progress = Progress::new(false);
    let (mut step, total) = (0, ROUNDS * Subject::all_levels(how.drives).len() as u64);
    let report = quick(rt, how, |round, _, subject| {
        progress.at(&format!("round {round}, {subject}"), step, total.max(step));
        step += 1;
    });
    let report = report.await.map_err(crate::bench::problem)?;
    drop(progress);
    report.to_string().lines().for_each(say::line);
    Ok(())
}
