//! Which errors were made: a record that test runs leave behind, for the test that asks whether each error of docs/errors.md
//! was ever produced.
//!
//! With debug assertions, and where the environment variable [`VARIABLE`] names a file, every constructor of [`Error`](super::Error)
//! appends a line to that file: kind, place in the sources, message. A thread tells the same once, whatever numbers are in it, so
//! that a property test leaves a few lines and no book. Other builds have nothing of this.
//!
//! It writes around `io` on purpose: errors are made below `io`, and a record must not appear in the simulation that it watches.
//! It takes no lock: what was told is known to a thread for itself, and the system appends lines whole.

/// The environment variable that names the file.
pub const VARIABLE: &str = "LAVASTORE_ERRORS_MADE";

/// An error was made by the caller: a kind and a message.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn note(_kind: &dyn std::fmt::Debug, _message: &str) {}

/// An error was made by the caller: a kind and a message.
#[cfg(debug_assertions)]
#[track_caller]
pub fn note(kind: &dyn std::fmt::Debug, message: &str) {
    let place = std::panic::Location::caller();
    // A thread that ends has nothing to tell any more.
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

    /// So many messages of one place does a thread tell: what differs in more than numbers (names, keys) has no end.
    const OF_A_PLACE_MAX: usize = 32;

    thread_local! {
        pub static MADE: RefCell<Made> =
            RefCell::new(Made { file: std::env::var_os(super::VARIABLE).map(PathBuf::from), told: HashMap::default() });
    }

    /// What a thread has told.
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
                // Whoever reads the record sees what is missing.
                let _ = opened.and_then(|mut file| file.write_all(line.as_bytes()));
            }
        }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests;
