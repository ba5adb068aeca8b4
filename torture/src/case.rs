//! The interface of a case: a function of a [`Context`] and a seed to an [`Outcome`].
//!
//! A panic fails its case: [`guarded`] catches it and keeps its message and location out of the
//! progress output.

use crate::check::Check;
use crate::wide::Image;
use io::Rng;
use lavastore::testing::SimEnv;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

/// Result of a case.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Number of checks that held.
    pub passed: u64,
    /// Descriptions of failed checks.
    pub failures: Vec<String>,
    /// Tested images, for rows that count distinct ones.
    pub images: Vec<Image>,
    /// Other counts to print.
    pub notes: Vec<(&'static str, u64)>,
    /// Part that this machine could not test: the reason, and its size in units of the row.
    pub skipped: Option<(String, u64)>,
}

impl Outcome {
    /// Counts one check.
    pub fn take(&mut self, check: Check) {
        match check {
            Ok(()) => self.passed += 1,
            Err(why) => self.failures.push(why),
        }
    }

    /// Counts the part that this machine could not test.
    pub fn skip(&mut self, why: String, count: u64) {
        self.skipped = Some((why, count));
    }

    pub fn note(&mut self, what: &'static str, count: u64) {
        self.notes.push((what, count));
    }

    /// Returns the starting state of a case, or records a failure and returns `None`.
    pub fn made<T>(&mut self, make: impl FnOnce() -> Check<T>) -> Option<T> {
        let failed = |why| self.failures.push(format!("while making the store: {why}"));
        guarded(make).and_then(|made| made).map_err(failed).ok()
    }

    /// Checks `count` damaged copies of a machine. `damage` returns `None` if there was nothing to
    /// damage.
    pub fn damaged<D>(
        &mut self,
        (machine, rng): (&SimEnv, &mut Rng),
        count: u64,
        damage: impl Fn(&SimEnv, &mut Rng) -> Check<Option<D>>,
        mut look: impl FnMut(&mut Outcome, u64, &SimEnv, &D, &mut Rng),
    ) {
        for nth in 0..count {
            let mut rng = rng.fork();
            let sim = machine.fork(rng.next_u64());
            match guarded(|| damage(&sim, &mut rng)).and_then(|done| done) {
                Ok(Some(done)) => look(self, nth, &sim, &done, &mut rng),
                Ok(None) => {}
                Err(why) => self.failures.push(format!("damage {nth} could not be done: {why}")),
            }
        }
    }
}

/// Parameters of cases besides the seed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    /// Directory for stores on the real disk.
    pub dir: PathBuf,
    /// Number of cases to run, for cases that divide their time.
    pub count: u64,
    /// Failures after which a row stops; 0: the default.
    pub failures_max: usize,
    /// Deadline on the machine's clock, whatever the count.
    pub until_ns: Option<u64>,
}

thread_local! {
    /// Nesting depth of [`guarded`] in this thread.
    static GUARDS: Cell<usize> = const { Cell::new(0) };
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Stores the messages of panics inside [`guarded`] instead of printing them.
fn quiet_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if GUARDS.get() == 0 {
                return loud(info);
            }
            let place = info.location().map(|l| format!("{}:{}", l.file(), l.line())).unwrap_or_default();
            let payload = info.payload();
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("?");
            PANIC.with(|p| *p.borrow_mut() = Some(format!("panic at {place}: {text}")));
        }));
    });
}

/// Runs a closure and converts a panic into an error.
pub(crate) fn guarded<T>(body: impl FnOnce() -> T) -> Check<T> {
    quiet_panics();
    GUARDS.set(GUARDS.get() + 1);
    let result = catch_unwind(AssertUnwindSafe(body));
    GUARDS.set(GUARDS.get() - 1);
    result.map_err(|_| PANIC.with(|p| p.borrow_mut().take()).unwrap_or_else(|| "panic".to_owned()))
}
