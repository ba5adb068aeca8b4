//! The calls inside the store, and the close that waits for them.
//!
//! A call that may change the directory, or reads it at length, is inside from its beginning to its
//! end ([`Gate::enter`]). A close shuts the gate, so that later calls are refused, and waits until
//! the last call has left. Only then does the store release the lock of the directory, so no call
//! can change the directory of the next process.
//!
//! One word holds both the number of calls and the mark of the close. A call adds itself and reads
//! the mark in the same step: either the call sees the mark, or the close sees the call.

use base::sync::model::atomic::{AtomicU64, Ordering};

/// The gate is shut. Calls are counted above this bit.
const SHUT: u64 = 1;
/// One call.
const CALL: u64 = 2;

/// The gate: see the module.
#[derive(Debug, Default)]
pub struct Gate(AtomicU64);

impl Gate {
    /// Lets a call enter. Returns false if the gate is shut; the call is not inside then.
    #[inline]
    pub fn enter(&self) -> bool {
        self.0.fetch_add(CALL, Ordering::AcqRel) & SHUT == 0 || self.refuse()
    }

    /// Takes back an entry. Returns false.
    #[cold]
    fn refuse(&self) -> bool {
        self.leave();
        false
    }

    /// Lets a call leave. Returns true if the gate is shut and this was the last call.
    #[inline]
    pub fn leave(&self) -> bool {
        self.0.fetch_sub(CALL, Ordering::AcqRel) == SHUT + CALL
    }

    /// Refuses calls from now on. Once.
    pub fn shut(&self) {
        self.0.fetch_add(SHUT, Ordering::AcqRel);
    }

    /// Returns true once the gate is shut.
    #[inline]
    pub fn is_shut(&self) -> bool {
        self.0.load(Ordering::Acquire) & SHUT != 0
    }

    /// Returns true if no call is inside.
    pub fn is_empty(&self) -> bool {
        self.0.load(Ordering::Acquire) < CALL
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use base::sync::model::check;
    use base::sync::model::loom::thread;
    use std::sync::Arc;

    /// Under every schedule, a call that entered ends before the close continues, or is refused.
    #[test]
    fn loom_no_call_is_inside_after_close() {
        check(3, || {
            let (gate, changes) = (Arc::new(Gate::default()), Arc::new(AtomicU64::new(0)));
            let calls: Vec<_> = (0..2)
                .map(|_| {
                    let (gate, changes) = (gate.clone(), changes.clone());
                    thread::spawn(move || {
                        if gate.enter() {
                            changes.fetch_add(1, Ordering::Relaxed);
                            gate.leave();
                        }
                    })
                })
                .collect();
            gate.shut();
            while !gate.is_empty() {
                thread::yield_now();
            }
            let seen = changes.load(Ordering::Relaxed);
            calls.into_iter().for_each(|call| call.join().unwrap());
            assert_eq!(changes.load(Ordering::Relaxed), seen, "a call changed the store after the close");
            assert!(!gate.enter() && gate.is_empty());
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_shut_gate_refuses_calls_and_reports_the_last_exit() {
        let gate = Gate::default();
        assert!(gate.enter() && gate.enter() && !gate.is_empty() && !gate.is_shut());
        gate.shut();
        assert!(gate.is_shut() && !gate.enter());
        assert!(!gate.leave() && !gate.is_empty());
        assert!(gate.leave() && gate.is_empty());
        assert!(!gate.enter() && gate.is_empty());
    }
}
