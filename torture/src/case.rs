//! What a case is given and what it gives back: a function of a [`Context`] and a seed to an [`Outcome`].
//!
//! A panic is a failure of its case like any other: [`guarded`] catches it, and keeps its message and place from being
//! printed in the middle of the progress.

use crate::check::Check;
use crate::wide::Image;
use io::Rng;
use lavastore::testing::SimEnv;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

/// What a case found.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Checks that held.
    pub passed: u64,
    /// What is wrong.
    pub failures: Vec<String>,
    /// The images that were tried, for rows that count distinct ones.
    pub images: Vec<Image>,
    /// Other counts worth printing.
    pub notes: Vec<(&'static str, u64)>,
    /// What this machine could not try: why, and how much of the row's unit.
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

    /// Counts what was not tried, because this machine lacks something.
    pub fn skip(&mut self, why: String, count: u64) {
        self.skipped = Some((why, count));
    }

    pub fn note(&mut self, what: &'static str, count: u64) {
        self.notes.push((what, count));
    }

    /// What a case begins with, or `None` and a failure.
    pub fn made<T>(&mut self, make: impl FnOnce() -> Check<T>) -> Option<T> {
        let failed = |why| self.failures.push(format!("while making the store: {why}"));
        guarded(make).and_then(|made| made).map_err(failed).ok()
    }

    /// Does `damage` to copies of a machine, so many times over, and has each looked at. `None`: nothing was there to damage.
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

/// What cases are told besides their seed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    /// Where stores on the real disk are made.
    pub dir: PathBuf,
    /// How many cases are to be run, where a case wants to divide its time.
    pub count: u64,
    /// Failures after which a row gives up; 0: the usual.
    pub failures_max: usize,
    /// When to stop, by the clock of the machine, however many were run by then.
    pub until_ns: Option<u64>,
}

thread_local! {
    /// Calls of [`guarded`] that this thread is in.
    static GUARDS: Cell<usize> = const { Cell::new(0) };
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the messages of panics inside [`guarded`] instead of printing them.
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

/// Runs something that must not panic.
pub(crate) fn guarded<T>(body: impl FnOnce() -> T) -> Check<T> {
    quiet_panics();
    GUARDS.set(GUARDS.get() + 1);
    let result = catch_unwind(AssertUnwindSafe(body));
    GUARDS.set(GUARDS.get() - 1);
    result.map_err(|_| PANIC.with(|p| p.borrow_mut().take()).unwrap_or_else(|| "panic".to_owned()))
}
