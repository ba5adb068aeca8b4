//! Schedule of periodic work: scrub passes and the metrics file.

/// Nanoseconds from the end of a scrub pass to the start of the next.
pub(crate) const SCRUB_PAUSE_NS: u64 = 60_000_000_000;

/// Schedule of one kind of periodic work.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// The work is running.
    running: bool,
    /// Earliest start of the next run.
    next_ns: u64,
}

impl Turn {
    /// Returns whether the next run is due.
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
