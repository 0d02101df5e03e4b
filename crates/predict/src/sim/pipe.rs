//! A server that does one thing at a time.

/// Times in nanoseconds of virtual time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pipe {
    free: f64,
    busy: f64,
}

impl Pipe {
    /// Takes `ns` of it, for what begins `now` and is there at `from`; when that is done.
    pub(crate) fn take(&mut self, now: f64, from: f64, ns: f64) -> f64 {
        self.free = self.free.max(now) + ns;
        self.busy += ns;
        self.free.max(from + ns)
    }

    /// How long it had something to do, so far.
    pub(crate) fn busy(&self) -> f64 {
        self.busy
    }

    /// How much is waiting for it.
    pub(crate) fn waiting(&self, now: f64) -> f64 {
        (self.free - now).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_at_a_time_and_no_gap_is_lost() {
        let mut pipe = Pipe::default();
        assert_eq!(pipe.take(0.0, 0.0, 10.0), 10.0);
        assert_eq!(pipe.take(0.0, 0.0, 10.0), 20.0);
        // It is there at 100 only; what comes after it need not wait for that.
        assert_eq!(pipe.take(0.0, 100.0, 10.0), 110.0);
        assert_eq!(pipe.take(0.0, 0.0, 10.0), 40.0);
        assert_eq!(pipe.busy(), 40.0);
    }
}
