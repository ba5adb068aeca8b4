//! Whether who waits for a write of the log looks for its end a while before it sleeps.
//!
//! To sleep and be woken costs some microseconds. Where a durable write takes hardly longer (10 us on a device made for it) that is a good part of
//! a sync; where it takes a hundred, a thread that looks holds a processor for nothing that anybody would notice. So [`Loggers::spin_us_max`] says how long a write
//! may take for its end to be looked for, and what writes take is learnt as they come. By default nobody looks.
//!
//! * **One thread at a time**: where processors are few a second one would take that of the first, or of somebody who has work.
//! * **Twice the time of a write**, no longer, since whoever comes in its middle meets its end sooner. Time is counted in looks, a few for a microsecond.
//! * **In vain is rare**: after a look that ended in sleep the next write is not looked for, then the next two, four, up to [`SKIPS_MAX`]. That is what happens where others
//!   need the processors: who looks is not run, and the looks pass.
//!
//! Who looks is not among those who wait, so nobody wakes it: it takes the lock again and finds out as if it had just come.
//!
//! [`Loggers::spin_us_max`]: super::Loggers::spin_us_max

/// Looks in a microsecond, about.
const LOOKS_PER_US: u64 = 4;
/// Pauses of the processor between two looks.
const PAUSES: usize = 8;
/// Writes that are not looked for, at most, after it was in vain again.
const SKIPS_MAX: u32 = 64;

/// See the module. The lock of the commit guards it.
#[derive(Debug, Default)]
pub(super) struct Spin {
    /// A write that takes longer is not looked for, microseconds.
    us_max: u64,
    /// What a write takes, nanoseconds, a moving average; 0: not known.
    took_ns: u64,
    is_somebody_at_it: bool,
    skips: u32,
    last_skips: u32,
    /// How often somebody looked, and how often that was enough.
    told: SpinTold,
}

/// What statistics tell of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpinTold {
    /// Waits that began with looks.
    pub tried: u64,
    /// Those of them that needed no sleep.
    pub enough: u64,
}

impl Spin {
    pub fn new(us_max: u32) -> Spin {
        Spin { us_max: us_max.into(), ..Spin::default() }
    }

    pub fn told(&self) -> SpinTold {
        self.told
    }

    /// A write took so long.
    pub fn took(&mut self, ns: u64) {
        self.took_ns = if self.took_ns == 0 { ns } else { (self.took_ns * 7 + ns) / 8 };
    }

    /// Somebody is to wait for a write: how often it looks before. Then [`Spin::ends`].
    pub fn begins(&mut self) -> Option<u64> {
        let us = self.took_ns.div_ceil(1000);
        if us == 0 || us > self.us_max || self.is_somebody_at_it {
            return None;
        }
        if self.skips > 0 {
            self.skips -= 1;
            return None;
        }
        self.is_somebody_at_it = true;
        Some(2 * us * LOOKS_PER_US)
    }

    /// It has looked; `enough`: the write was over by then.
    pub fn ends(&mut self, enough: bool) {
        self.is_somebody_at_it = false;
        self.told.tried += 1;
        self.told.enough += u64::from(enough);
        self.last_skips = if enough { 0 } else { (2 * self.last_skips).clamp(1, SKIPS_MAX) };
        self.skips = self.last_skips;
    }
}

/// Looks so often whether something is so.
pub(super) fn look(looks: u64, is_so: impl Fn() -> bool) {
    // A model tries all that others may do between two looks, and has no time.
    let looks = if cfg!(loom) { 1 } else { looks };
    for _ in 0..looks {
        if is_so() {
            return;
        }
        (0..PAUSES).for_each(|_| std::hint::spin_loop());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_writes_that_are_short_are_looked_for_and_by_one() {
        let mut spin = Spin::new(20);
        assert_eq!(spin.begins(), None, "nothing is known");
        spin.took(10_000);
        assert_eq!(spin.begins(), Some(2 * 10 * LOOKS_PER_US));
        assert_eq!(spin.begins(), None, "somebody does");
        spin.ends(true);
        assert!(spin.begins().is_some());
        spin.ends(true);
        (0..40).for_each(|_| spin.took(150_000));
        assert_eq!(spin.begins(), None, "the device has become slow");
        assert_eq!(spin.told(), SpinTold { tried: 2, enough: 2 });
        let mut never = Spin::new(0);
        never.took(1);
        assert_eq!(never.begins(), None);
    }

    #[test]
    fn what_is_in_vain_becomes_rare() {
        let mut spin = Spin::new(20);
        spin.took(10_000);
        let mut tried = 0;
        for _ in 0..1000 {
            if spin.begins().is_some() {
                spin.ends(false);
                tried += 1;
            }
        }
        assert!((10..30).contains(&tried), "{tried} of 1000");
    }
}
