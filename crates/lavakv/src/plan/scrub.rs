//! When what is done again and again is due: to read the store in search of damage, to write its metrics.

/// From the end of a pass of the scrub to the beginning of the next, nanoseconds.
pub(crate) const SCRUB_PAUSE_NS: u64 = 60_000_000_000;

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// It is under way.
    running: bool,
    /// The next time begins then.
    next_ns: u64,
}

impl Turn {
    /// True if it is time.
    pub fn is_due(&self, now_ns: u64) -> bool {
        !self.running && now_ns >= self.next_ns
    }

    pub fn begin(&mut self) {
        self.running = true;
    }

    pub fn end(&mut self, now_ns: u64, pause_ns: u64) {
        *self = Turn { running: false, next_ns: now_ns.saturating_add(pause_ns) };
    }
}
