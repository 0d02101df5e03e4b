//! A program that is told of an event: on its standard input, without a shell.

use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::PATIENCE;

/// Runs it; it has taken the event when it ends with 0.
pub async fn run(words: &[String], event: &[u8]) -> Result<(), String> {
    let (program, args) = words.split_first().ok_or("no program")?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|e| format!("{program}: {e}"))?;
    let told = timeout(PATIENCE, async {
        if let Some(mut input) = child.stdin.take() {
            // One that does not read may still end well.
            let _ = input.write_all(event).await;
        }
        child.wait().await
    });
    match told.await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("{program} ended with {status}")),
        Ok(Err(e)) => Err(format!("{program}: {e}")),
        Err(_) => Err(format!("{program} did not end within {} s", PATIENCE.as_secs())),
    }
}
