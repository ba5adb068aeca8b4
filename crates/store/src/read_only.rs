//! Opening a store for reading beside the process that writes it.
//!
//! The writer removes files and reuses old log groups while a reader opens the store. So an open is
//! an attempt, and an apparent damage may be the work of the writer. The reader starts again from
//! the beginning, a bounded number of times. The same error `SAME_MAX` times in a row is real
//! damage.

use base::{ErrorKind, Result};
use io::Env;

/// Attempts before the last error is returned.
const ATTEMPTS: u32 = 100;
/// Number of equal errors in a row after which the error is returned at once.
const SAME_MAX: u32 = 5;
const PAUSE_NS: u64 = 2_000_000;

/// Repeats `once` until the writer, if there is one, does not interfere.
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

/// Returns true for errors that a concurrent writer can cause.
fn may_be_the_writer(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::Corruption | ErrorKind::Busy)
}
