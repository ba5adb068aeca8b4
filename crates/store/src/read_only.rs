//! Reading a store beside the process that writes it: what is read there moves.
//!
//! The writer removes files and uses those of old log groups again while somebody opens the store for reading. So opening is an attempt, and
//! what looks like damage may be the writer at work: it is tried again from the start, a bounded number of times. What is found
//! `SAME_MAX` times in a row, the same, is no writer at work.

use base::{ErrorKind, Result};
use io::Env;

/// Attempts before the last error is believed.
const ATTEMPTS: u32 = 100;
/// A failure that comes so often in a row, without any difference, is believed at once.
const SAME_MAX: u32 = 5;
/// Pause between two attempts, nanoseconds.
const PAUSE_NS: u64 = 2_000_000;

/// Tries until the writer, if there is one, stands still for long enough.
///
/// # Errors
/// The last of `once`.
pub fn attempt<T>(env: &Env, mut once: impl FnMut() -> Result<T>) -> Result<T> {
    let (mut attempt, mut same, mut last) = (1, 0, String::new());
    loop {
        match once() {
            Err(e) if attempt < ATTEMPTS && same < SAME_MAX && may_be_the_writer(e.kind()) => {
                env.clock.sleep_ns(PAUSE_NS);
                attempt += 1;
                let text = e.to_string();
                same = if text == last && e.is_corruption() { same + 1 } else { 0 };
                last = text;
            }
            other => return other,
        }
    }
}

/// True for what a writer at work can look like.
fn may_be_the_writer(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::Corruption | ErrorKind::Busy)
}
