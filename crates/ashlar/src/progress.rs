//! Progress of long work, on a terminal only.

use std::sync::Mutex;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The bar that is on the screen just now, if one is.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// A bar on standard error; nothing when that is no terminal.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar that counts bytes or a bar that counts things.
    pub fn new(bytes: bool) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10));
        let figures = if bytes { "{bytes} of {total_bytes}, {bytes_per_sec}" } else { "{pos} of {len}" };
        let template = format!("   {{msg}}  [{{bar:30}}] {{percent:>3}} %  {figures}, {{eta}} left");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style.progress_chars("=> "));
        }
        if let Ok(mut shown) = SHOWN.lock() {
            *shown = Some(bar.clone());
        }
        Progress { bar }
    }

    /// Shows where the work is.
    pub fn at(&self, step: &str, done: u64, total: u64) {
        if self.bar.message() != step {
            self.bar.set_message(step.to_owned());
            self.bar.reset_eta();
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        if let Ok(mut shown) = SHOWN.lock() {
            *shown = None;
        }
    }
}

/// Prints without tearing the bar.
pub fn around(print: impl FnOnce()) {
    let shown = SHOWN.lock().ok().and_then(|s| s.clone());
    match shown {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}
