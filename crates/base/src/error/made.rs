//! Record of the errors that test runs produce, for the test that checks that each error of
//! docs/errors.md was produced.
//!
//! With debug assertions, and if the environment variable [`VARIABLE`] names a file, every
//! constructor of [`Error`](super::Error) appends a line to that file: kind, place in the sources,
//! message. A thread records each message once, ignoring the numbers in it, so that a property test
//! leaves only a few lines. Other builds have none of this.
//!
//! The record bypasses `io` on purpose: errors are made below `io`, and the record must not appear
//! in the simulation that it watches. It takes no lock: each thread keeps its own set of recorded
//! messages, and the system appends lines atomically.

/// Environment variable with the path of the file.
pub const VARIABLE: &str = "LAVASTORE_ERRORS_MADE";

/// Records an error of the caller: a kind and a message.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn note(_kind: &dyn std::fmt::Debug, _message: &str) {}

/// Records an error of the caller: a kind and a message.
#[cfg(debug_assertions)]
#[track_caller]
pub fn note(kind: &dyn std::fmt::Debug, message: &str) {
    let place = std::panic::Location::caller();
    // A thread that is ending records nothing.
    let _ = record::MADE.try_with(|made| made.borrow_mut().tell(kind, place, message));
}

#[cfg(debug_assertions)]
mod record {
    use crate::{HashMap, HashSet};
    use std::cell::RefCell;
    use std::fmt::Debug;
    use std::io::Write;
    use std::panic::Location;
    use std::path::PathBuf;

    /// Most messages of one place per thread: messages with names or keys have no end.
    const OF_A_PLACE_MAX: usize = 32;

    thread_local! {
        pub static MADE: RefCell<Made> =
            RefCell::new(Made { file: std::env::var_os(super::VARIABLE).map(PathBuf::from), told: HashMap::default() });
    }

    /// Messages that a thread has recorded.
    pub struct Made {
        file: Option<PathBuf>,
        told: HashMap<(&'static str, u32), HashSet<String>>,
    }

    impl Made {
        pub fn tell(&mut self, kind: &dyn Debug, place: &'static Location<'static>, message: &str) {
            let Some(file) = &self.file else { return };
            let told = self.told.entry((place.file(), place.line())).or_default();
            let digits = |c: char| c.is_ascii_digit();
            if told.len() < OF_A_PLACE_MAX && told.insert(message.replace(digits, "")) {
                let message = message.escape_debug();
                let line = format!("{kind:?}\t{}:{}\t{message}\n", place.file(), place.line());
                #[allow(clippy::disallowed_types, reason = "a record of test runs, beside what they test")]
                let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
                // A missing line shows in the record.
                let _ = opened.and_then(|mut file| file.write_all(line.as_bytes()));
            }
        }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests;
