//! The verdict: the last evaluation of the limits on writes, and how long it holds.
//!
//! The limits follow from memory, level 0, levels, garbage and space
//! ([`crate::write::admission::price`]). To evaluate them takes longer than the rest of the
//! admission of a short put, and between two puts hardly anything changes. So an evaluation is kept
//! for the next writes. Three bounds end it:
//!
//! * **Credit**: [`CREDIT_BYTES_MAX`] bytes of writes, or fewer where little room is left
//!   ([`Evaluation::credit_bytes`]). Every write takes its bytes from the credit. So a stuck flush,
//!   which raises no event, shows before the room is gone.
//! * **Epoch**: a step of a flush, compaction or collection, a rotation, a pause of collections and
//!   a changed limit raise the epoch of the store ([`store::context::Signals::state_changed`]). A
//!   verdict of an earlier epoch is void.
//! * **Time**: [`HOLDS_NS_MAX`], for a verdict that limits the rate. Credit and epoch alone bound
//!   one that does not, which spares the clock: only writes and jobs bring a limit near.
//!
//! **Order.** One thread at a time evaluates and publishes, under a lock that it takes without
//! waiting. A write that does not get the lock uses the current verdict. So an earlier evaluation
//! never replaces a later one. The caller reads the epoch before the evaluation, and the epoch is
//! published last. So a change during the evaluation leaves a verdict that is void already.

use crate::context::event::StallCause;
use crate::context::write_rate_limiter::WriteRateLimiter;
use base::sync::model::atomic::{AtomicU64, Ordering};
use base::sync::model::{Mutex, try_lock};
use base::sync::rank;

/// The most bytes of writes for which one evaluation holds.
pub(crate) const CREDIT_BYTES_MAX: u64 = 64 << 10;
/// An evaluation holds for one part in so many of the room that it found.
pub(crate) const CREDIT_PARTS: u64 = 32;
/// How long a verdict holds that limits the rate.
const HOLDS_NS_MAX: u64 = 1_000_000;

/// An allowed rate in bytes per second, and the cause of the limit. `None`: there is no limit.
pub(crate) type Allowed = Option<(u64, StallCause)>;

/// The result of evaluating the limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evaluation {
    pub allowed: Allowed,
    /// Bytes of writes for which the result holds.
    pub credit_bytes: u64,
}

/// The kind of a charged write; each kind has its own limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChargedKind {
    /// A write.
    Write,
    /// A write of deletes only. Space does not limit it, because it frees some.
    Deletes,
    /// A large value in a file of its own, which bypasses memtables and level 0.
    Segment,
}

/// The write throttle of one family, or of all.
#[derive(Debug, Default)]
pub(crate) struct WriteThrottle {
    /// The debt of its writers.
    pub pacer: WriteRateLimiter,
    verdicts: [CachedLimit; 3],
}

impl WriteThrottle {
    /// Returns the verdict for a kind of write.
    pub fn verdict(&self, payer: ChargedKind) -> &CachedLimit {
        &self.verdicts[payer as usize]
    }
}

/// A cached evaluation. See the module.
#[derive(Debug, Default)]
pub(crate) struct CachedLimit {
    /// Epoch of the evaluated state, plus one; 0: none.
    epoch: AtomicU64,
    /// See [`pack`].
    allowed: AtomicU64,
    /// An `i64`: writes subtract their bytes before they check the remainder.
    credit_bytes: AtomicU64,
    /// In clock nanoseconds.
    until_ns: AtomicU64,
    /// Guards an evaluation and its publication.
    evaluating: Mutex<(), rank::CachedLimit>,
}

impl CachedLimit {
    /// Returns true if the last verdict holds for a write of `bytes` and sets no limit: the usual
    /// case. The write takes its bytes from the credit.
    #[inline]
    pub fn admits(&self, bytes: u64, epoch: u64) -> bool {
        let holds = self.epoch.load(Ordering::Acquire) == epoch + 1;
        holds && self.allowed.load(Ordering::Relaxed) == NO_LIMIT && self.take_credit(bytes)
    }

    /// Returns the rate that is allowed to a write of `bytes`. Calls `evaluate` where the last
    /// verdict does not hold.
    pub fn allowed(
        &self,
        bytes: u64,
        epoch: u64,
        now_ns: impl Fn() -> u64,
        evaluate: impl FnOnce() -> Evaluation,
    ) -> Allowed {
        let is_of_now = self.epoch.load(Ordering::Acquire) == epoch + 1;
        let allowed = unpack(self.allowed.load(Ordering::Relaxed));
        let is_good = is_of_now && self.take_credit(bytes);
        if is_good && (allowed.is_none() || now_ns() < self.until_ns.load(Ordering::Relaxed)) {
            return allowed;
        }
        let Some(_evaluating) = try_lock(&self.evaluating) else { return allowed };
        let Evaluation { allowed, credit_bytes } = evaluate();
        self.allowed.store(pack(allowed), Ordering::Relaxed);
        self.credit_bytes.store(credit_bytes.saturating_sub(bytes), Ordering::Relaxed);
        if allowed.is_some() {
            self.until_ns.store(now_ns().saturating_add(HOLDS_NS_MAX), Ordering::Relaxed);
        }
        self.epoch.store(epoch + 1, Ordering::Release);
        allowed
    }

    fn take_credit(&self, bytes: u64) -> bool {
        let credit = self.credit_bytes.fetch_sub(bytes, Ordering::Relaxed) as i64;
        i64::try_from(bytes).is_ok_and(|bytes| credit >= bytes)
    }
}

/// [`pack`] of no limit.
const NO_LIMIT: u64 = 0;
const _: () = assert!(StallCause::ALL.len() < 8, "a cause has three bits");

/// A rate above its cause in the lowest three bits.
fn pack(allowed: Allowed) -> u64 {
    allowed.map_or(NO_LIMIT, |(rate, cause)| rate.min(u64::MAX >> 3) << 3 | (cause as u64 + 1))
}

fn unpack(packed: u64) -> Allowed {
    let cause = StallCause::ALL.get((packed & 7).checked_sub(1)? as usize)?;
    Some((packed >> 3, *cause))
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use base::sync::model::check;
    use base::sync::model::loom::thread;
    use std::sync::Arc;

    /// Limits change during concurrent evaluations: the last valid verdict is of the last state.
    #[test]
    fn loom_an_earlier_evaluation_never_wins() {
        check(3, || {
            let shared = Arc::new((CachedLimit::default(), AtomicU64::new(1), AtomicU64::new(0)));
            let write = |shared: &(CachedLimit, AtomicU64, AtomicU64)| {
                let (verdict, rate, epoch) = shared;
                let evaluate = || Evaluation {
                    allowed: Some((rate.load(Ordering::Acquire), StallCause::L0)),
                    credit_bytes: 1000,
                };
                verdict.allowed(1, epoch.load(Ordering::Acquire), || 0, evaluate)
            };
            let others = [0, 1].map(|other| {
                let shared = shared.clone();
                thread::spawn(move || {
                    if other == 0 {
                        shared.1.store(2, Ordering::Release);
                        shared.2.fetch_add(1, Ordering::AcqRel);
                    }
                    write(&shared);
                })
            });
            write(&shared);
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(write(&shared), Some((2, StallCause::L0)));
        });
    }
}
