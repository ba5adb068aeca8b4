//! When the store is read again to find what is damaged.

/// From the end of a pass to the beginning of the next, nanoseconds.
const PAUSE_NS: u64 = 60_000_000_000;

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// A pass is under way.
    running: bool,
    /// The next one begins then.
    next_ns: u64,
}

impl Turn {
    /// True if it is time for a pass.
    pub fn is_due(&self, now_ns: u64) -> bool {
        !self.running && now_ns >= self.next_ns
    }

    pub fn begin(&mut self) {
        self.running = true;
    }

    pub fn end(&mut self, now_ns: u64) {
        *self = Turn { running: false, next_ns: now_ns.saturating_add(PAUSE_NS) };
    }
}
