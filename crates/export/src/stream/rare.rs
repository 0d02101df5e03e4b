//! Lines of the log that strangers can cause: a few at a time, and then how many were left out.
//!
//! Invariant: of one kind at most [`LINES`] and one with a number are written in each [`WINDOW`].

use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::{Rc, Weak},
    time::Duration,
};

use rt::{Nanos, Rt};

/// Lines of one kind in a window.
const LINES: u64 = 3;

/// How long they are counted together.
const WINDOW: Duration = Duration::from_secs(60);

/// Which lines were written lately.
pub struct Rare {
    rt: Rt,
    me: Weak<Rare>,
    windows: RefCell<BTreeMap<&'static str, Window>>,
}

struct Window {
    begun: Nanos,
    lines: u64,
}

impl Rare {
    pub fn new(rt: &Rt) -> Rc<Rare> {
        Rc::new_cyclic(|me| Rare { rt: rt.clone(), me: me.clone(), windows: RefCell::default() })
    }

    /// The runtime whose clock it goes by.
    pub fn rt(&self) -> &Rt {
        &self.rt
    }

    /// Writes a line of this kind by `line`, or counts it.
    pub fn say(&self, kind: &'static str, line: impl FnOnce()) {
        if self.may(kind) {
            line();
        }
    }

    fn may(&self, kind: &'static str) -> bool {
        let now = self.rt.now();
        let mut windows = self.windows.borrow_mut();
        let window = windows.entry(kind).or_insert(Window { begun: now, lines: 0 });
        if now - window.begun >= WINDOW {
            *window = Window { begun: now, lines: 0 };
        }
        window.lines += 1;
        if window.lines == LINES + 1 {
            let (me, ends) = (self.me.clone(), window.begun + WINDOW);
            let rt = self.rt.clone();
            self.rt
                .spawn(async move {
                    rt.sleep_until(ends).await;
                    if let Some(rare) = me.upgrade() {
                        rare.count(kind);
                    }
                })
                .detach();
        }
        window.lines <= LINES
    }

    /// Says how many were left out.
    fn count(&self, kind: &'static str) {
        let window = self.windows.borrow_mut().remove(kind);
        let left_out = window.map_or(0, |w| w.lines.saturating_sub(LINES));
        if left_out > 0 {
            tracing::warn!(left_out, "{kind}: more lines like these within {} s", WINDOW.as_secs());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_few_lines() {
        let rt = Rt::modelled(1);
        rt.block_on(async {
            let rare = Rare::new(&rt);
            let mut written = 0;
            for i in 0..10_000 {
                rare.say(if i % 2 == 0 { "even" } else { "odd" }, || written += 1);
            }
            assert_eq!(written, 2 * LINES);
            assert_eq!(rare.windows.borrow()["even"].lines, 5000);
            rt.sleep(2 * WINDOW).await;
            assert!(rare.windows.borrow().is_empty(), "what was left out is told");
            rare.say("even", || written += 1);
            assert_eq!(written, 2 * LINES + 1);
        });
    }
}
