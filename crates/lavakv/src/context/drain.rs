//! How fast what writers fill is drained: measured by jobs, asked by whoever slows writers down.

use base::sync::atomic::{AtomicUsize, Ordering};
use base::sync::statistic;
use store::run::Rate;

/// So much of a flush is what comes after the last byte.
const FLUSH_END_PART: u64 = 8;

/// What all families share. See the module.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    /// Bytes of memtables that become tables.
    pub flush: Rate,
    /// Bytes that collections free.
    pub gc: Rate,
    /// The flush under way: when it began, in clock nanoseconds (0: there is none), bytes of its memtables, and those that it has written
    /// already. Hints for writers, who would else see nothing of a flush before its end.
    flush_begun_ns: statistic::AtomicU64,
    flush_bytes: statistic::AtomicU64,
    flush_progress_bytes: statistic::AtomicU64,
    /// How many hold garbage collection off.
    gc_pauses: AtomicUsize,
}

impl Drain {
    /// A flush of so many bytes begins.
    pub fn flush_begins(&self, now_ns: u64, bytes: u64) {
        self.flush_bytes.store(bytes, Ordering::Relaxed);
        self.flush_begun_ns.store(now_ns.max(1), Ordering::Relaxed);
    }

    /// It has ended.
    pub fn flush_ends(&self) {
        self.flush_begun_ns.store(0, Ordering::Relaxed);
        self.flush_progress_bytes.store(0, Ordering::Relaxed);
    }

    /// How fast memtables are flushed: as was measured, but no faster than the flush under way. One in an idle store is quicker than one
    /// beside compactions; who went by the former would run into the end of memory.
    pub fn flush_bytes_per_s(&self, now_ns: u64) -> u64 {
        let (usual, begun_ns) = (self.flush.get(), self.flush_begun_ns.load(Ordering::Relaxed));
        if begun_ns == 0 {
            return usual;
        }
        let (bytes, written) =
            (self.flush_bytes.load(Ordering::Relaxed), self.flush_progress_bytes.load(Ordering::Relaxed));
        let most = u128::from(written.saturating_add(bytes / FLUSH_END_PART));
        let ns = u128::from(now_ns.saturating_sub(begun_ns).max(1));
        let now = u64::try_from(most * 1_000_000_000 / ns).unwrap_or(u64::MAX);
        if usual == 0 { now } else { usual.min(now) }
    }

    /// The flush under way has written so much of its memtables.
    pub fn flush_has_written(&self, bytes: u64) {
        self.flush_progress_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What of `backlog` bytes of frozen memtables is still to be written. The last part of a flush, its syncs and its edit, is
    /// written with nothing to show for it.
    pub fn left_to_flush(&self, backlog: u64) -> u64 {
        let written = self.flush_progress_bytes.load(Ordering::Relaxed);
        backlog.saturating_sub(written).max(backlog / FLUSH_END_PART)
    }

    /// No collection starts until as many have ended the pause as have begun it.
    pub fn pause_gc(&self) {
        self.gc_pauses.fetch_add(1, Ordering::AcqRel);
    }

    /// One of them ends the pause. True if it was the last.
    pub fn resume_gc(&self) -> bool {
        self.gc_pauses.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// True while no collection may start.
    pub fn gc_is_paused(&self) -> bool {
        self.gc_pauses.load(Ordering::Acquire) > 0
    }
}

/// Thousandths of a table of level 0.
const TABLE: f64 = 1000.0;

/// How fast the level 0 of a family is drained. Of tables, in bytes of the memtables that they were.
#[derive(Debug, Default)]
pub(crate) struct Level0Drain {
    /// Bytes that leave level 0.
    drained: Rate,
    /// Bytes that must leave the next levels before level 0 may send them more, where a policy has it so.
    spilled: Rate,
    /// Thousandths of a byte of a memtable for each byte that it has in a table: with separated values that is much. 0: not known.
    memtable_per_mille: statistic::AtomicU64,
    /// Of the compaction that drains level 0 now: tables that it takes, and those of them that are left to do; in thousandths of a
    /// table. 0: there is none. Hints for writers, who would else see nothing of it before its end.
    taken: statistic::AtomicU64,
    left: statistic::AtomicU64,
    /// The last of them left nothing there (1) or something (2); 0: there was none.
    thorough: statistic::AtomicU64,
}

/// The compaction that drains level 0, as far as it has come, in tables.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Draining {
    /// What it takes; 0: there is none now.
    pub takes: f64,
    /// What of that is left to do.
    pub left: f64,
    /// It takes all that there was when it began, or the last one did.
    pub takes_all: bool,
}

impl Level0Drain {
    /// A memtable of so many bytes has become tables of so many.
    pub fn flushed(&self, memtable_bytes: u64, table_bytes: u64) {
        let now = memtable_bytes.saturating_mul(1000) / table_bytes.max(1);
        let old = self.memtable_per_mille.load(Ordering::Relaxed);
        let new = if old == 0 { now } else { old / 4 * 3 + now / 4 };
        self.memtable_per_mille.store(new, Ordering::Relaxed);
    }

    /// Bytes of memtables for so many of tables.
    pub fn of_memtables(&self, table_bytes: u64) -> u64 {
        match self.memtable_per_mille.load(Ordering::Relaxed) {
            0 => table_bytes,
            per_mille => (u128::from(table_bytes) * u128::from(per_mille) / 1000) as u64,
        }
    }

    /// A compaction took so many bytes of tables out of level 0.
    pub fn record_drained(&self, table_bytes: u64, ns: u64) {
        self.drained.record(self.of_memtables(table_bytes), ns);
    }

    /// A compaction for which level 0 had to wait took so many bytes of tables out of the level that it goes to.
    pub fn record_spilled(&self, table_bytes: u64, ns: u64) {
        self.spilled.record(self.of_memtables(table_bytes), ns);
    }

    /// How fast level 0 is drained, with what has to be done before each time: the two take turns, so their times add up. 0 if
    /// nothing was measured.
    pub fn bytes_per_s(&self) -> u64 {
        match (self.drained.get(), self.spilled.get()) {
            (l0, 0) | (l0 @ 0, _) => l0,
            (l0, spilled) => {
                (u128::from(l0) * u128::from(spilled) / (u128::from(l0) + u128::from(spilled))) as u64
            }
        }
    }

    /// A compaction takes so many of `depth` tables out of level 0.
    pub fn is_drained(&self, tables: f64, depth: f64) {
        self.thorough.store(if tables > 0.75 * depth { 1 } else { 2 }, Ordering::Relaxed);
        self.taken.store((tables * TABLE) as u64, Ordering::Relaxed);
        self.left.store((tables * TABLE) as u64, Ordering::Relaxed);
    }

    /// It has done such a part of its work.
    pub fn has_come(&self, part: f64) {
        let taken = self.taken.load(Ordering::Relaxed) as f64;
        self.left.store((taken * (1.0 - part.clamp(0.0, 1.0))) as u64, Ordering::Relaxed);
    }

    /// It has ended.
    pub fn rests(&self) {
        self.taken.store(0, Ordering::Relaxed);
        self.left.store(0, Ordering::Relaxed);
    }

    /// What drains level 0.
    pub fn draining(&self) -> Draining {
        let of = |tables: &statistic::AtomicU64| tables.load(Ordering::Relaxed) as f64 / TABLE;
        let takes_all = self.thorough.load(Ordering::Relaxed) < 2;
        Draining { takes: of(&self.taken), left: of(&self.left), takes_all }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_flush_takes_from_the_backlog_while_it_writes() {
        let drain = Drain::default();
        assert_eq!(drain.left_to_flush(800), 800);
        drain.flush_has_written(300);
        assert_eq!(drain.left_to_flush(800), 500);
        drain.flush_has_written(799);
        assert_eq!((drain.left_to_flush(800), drain.left_to_flush(80)), (100, 10), "its end takes time, too");
        drain.flush_ends();
        assert_eq!((drain.left_to_flush(800), drain.left_to_flush(0)), (800, 0));
    }

    #[test]
    fn a_flush_that_is_slower_than_usual_is_believed_while_it_goes_on() {
        let (drain, second) = (Drain::default(), 1_000_000_000);
        assert_eq!(drain.flush_bytes_per_s(5 * second), 0);
        drain.flush_begins(second, 800);
        drain.flush_has_written(300);
        assert_eq!(
            drain.flush_bytes_per_s(2 * second),
            400,
            "nothing else is known: 300, and what may be on its way"
        );
        drain.flush.record(8_000, second);
        assert_eq!((drain.flush_bytes_per_s(2 * second), drain.flush_bytes_per_s(5 * second)), (400, 100));
        assert_eq!(drain.flush_bytes_per_s(second + 1000), 8_000, "it has hardly begun");
        drain.flush_ends();
        assert_eq!(drain.flush_bytes_per_s(5 * second), 8_000);
    }

    #[test]
    fn level_0_is_drained_in_bytes_of_memtables_and_spills_take_their_time() {
        let level_0 = Level0Drain::default();
        let nothing = Draining { takes: 0.0, left: 0.0, takes_all: true };
        assert_eq!((level_0.bytes_per_s(), level_0.draining()), (0, nothing));
        level_0.record_drained(100, 1_000_000_000);
        assert_eq!(level_0.bytes_per_s(), 100, "as long as nothing was flushed a byte is a byte");
        let level_0 = Level0Drain::default();
        level_0.flushed(16_000, 1_000);
        level_0.record_drained(100, 1_000_000_000);
        assert_eq!(level_0.bytes_per_s(), 1_600, "values are elsewhere");
        level_0.record_spilled(100, 1_000_000_000);
        assert_eq!(level_0.bytes_per_s(), 800, "both take turns");
        level_0.flushed(8_000, 1_000);
        assert_eq!(level_0.of_memtables(100), 1_400, "a quarter of what is new");
        level_0.is_drained(12.0, 12.0);
        level_0.has_come(0.25);
        assert_eq!(level_0.draining(), Draining { takes: 12.0, left: 9.0, takes_all: true });
        level_0.is_drained(2.0, 12.0);
        level_0.has_come(1.5);
        assert_eq!(level_0.draining(), Draining { takes: 2.0, left: 0.0, takes_all: false });
        level_0.rests();
        assert_eq!(
            level_0.draining(),
            Draining { takes: 0.0, left: 0.0, takes_all: false },
            "as the last one was"
        );
    }
}
