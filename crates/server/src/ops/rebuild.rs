//! `rebuild`: how fast rebuilds go, and whether they wait.

use array::Rate;

use super::open::{Opened, named};
use crate::Problem;
use crate::size::Size;
use crate::view::{ArrayView, Done, RebuildSet};

/// A priority as people write it.
///
/// # Errors
/// When it is none.
pub fn rate_of(text: &str) -> Result<Rate, Problem> {
    match text {
        "low" => Ok(Rate::Low),
        "medium" => Ok(Rate::Medium),
        "high" => Ok(Rate::High),
        other => {
            let size: Result<Size, _> = other.trim_end_matches("/s").parse();
            let todo = "give low, medium, high, or bytes per second such as 200M";
            size.map(|s| Rate::Bytes(s.0)).map_err(|why| Problem::usage(format!("priority \"{other}\""), why, todo))
        }
    }
}

/// A rate as people read it.
#[must_use]
pub fn rate_words(rate: &str) -> String {
    rate.parse().map_or_else(|_| format!("{rate} priority"), |bytes| format!("{} a second", Size(bytes)))
}

/// Sets what `request` asks for; nothing: says how it is.
///
/// # Errors
/// When the rate cannot be, or the array is not writable.
pub async fn set(opened: &Opened, request: &RebuildSet) -> Result<Done, Problem> {
    if let Some(priority) = &request.priority {
        let rate = rate_of(priority)?;
        opened.array.rebuild_rate(rate).await.map_err(|r| named(&opened.array, r))?;
    }
    if let Some(paused) = request.paused {
        opened.array.rebuild_pause(paused).await.map_err(|r| named(&opened.array, r))?;
    }
    Ok(told(&opened.view().await))
}

/// How rebuilds of an array go.
#[must_use]
pub fn told(view: &ArrayView) -> Done {
    let how = rate_words(&view.rebuild_rate);
    let mut done = Done::new(match view.rebuild_paused {
        true => format!("rebuilds of {} wait; with {how} once they go on", view.name),
        false => format!("rebuilds of {} go on with {how}", view.name),
    });
    match &view.rebuild {
        Some(r) => done.notes.push(format!(
            "{} of {} written, {} of {} segments",
            Size(r.bytes_moved),
            Size(r.bytes_total),
            r.segments_done,
            r.segments_total
        )),
        None => done.notes.push("none is under way".to_owned()),
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_words_or_sizes() {
        for (text, rate) in [("low", Rate::Low), ("high", Rate::High), ("200M", Rate::Bytes(200 << 20))] {
            assert_eq!(rate_of(text).ok(), Some(rate));
        }
        assert_eq!(rate_of("1G/s").ok(), Some(Rate::Bytes(1 << 30)));
        for text in ["", "fast", "0"] {
            assert!(rate_of(text).is_err(), "{text}");
        }
    }
}
