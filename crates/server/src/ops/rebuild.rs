//! `rebuild`: how fast rebuilds go, and whether they wait.

use api::{ArrayView, Done, Problem, RebuildSet};
use array::Rate;

use super::clients::age;
use super::open::{Opened, named};
use crate::size::Size;

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
    rate.parse().map_or_else(|_| format!("{rate} priority"), |bytes| format!("limit {}/s", Size(bytes)))
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

/// A rate below this is most likely a slip: "1" where "1G" was meant.
const RATE_MIN: u64 = 1 << 20;

/// What to say of a rate at which a rebuild takes for ever.
fn about_slow(rate: &str, raw_bytes: u64) -> Option<String> {
    let rate: u64 = rate.parse().ok()?;
    (rate < RATE_MIN).then(|| {
        let time = age(raw_bytes / rate.max(1));
        format!("{}/s is very slow: to rebuild {} takes {time}", Size(rate), Size(raw_bytes))
    })
}

/// How rebuilds of an array go.
#[must_use]
pub fn told(view: &ArrayView) -> Done {
    let how = rate_words(&view.rebuild_rate);
    let mut done = Done::new(match view.rebuild_paused {
        true => format!("rebuilds of {} are paused ({how})", view.name),
        false => format!("rebuilds of {} are enabled ({how})", view.name),
    });
    done.notes.extend(about_slow(&view.rebuild_rate, view.raw_bytes));
    match &view.rebuild {
        Some(r) => done.notes.push(format!(
            "{} of {} written, {} of {} segments",
            Size(r.bytes_moved),
            Size(r.bytes_total),
            r.segments_done,
            r.segments_total
        )),
        None => done.notes.push("no rebuild is running".to_owned()),
    }
    let waits = view.rebuild.as_ref().and_then(|rebuild| rebuild.waits.as_ref());
    done.notes.extend(waits.map(|why| format!("it waits: {why}")));
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_takes_for_ever_is_noted() {
        assert!(about_slow("high", 1 << 40).is_none() && about_slow("1048576", 1 << 40).is_none());
        let note = about_slow("1", 1 << 30).unwrap();
        assert!(note.contains("1 B/s") && note.contains("12427 days"), "{note}");
        let note = about_slow("65536", 3 << 29).unwrap();
        assert!(note.contains("takes 6 h"), "{note}");
    }

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
