//! Mechanisms that can be disabled individually, to measure the benefit of each.
//!
//! These are not options: switches are not stored, and their names and meaning may change in any
//! release. A store without a mechanism is just as correct, only slower or larger. After the
//! ablations of Scavenger+ (figures 19 to 21), whose row "TDB" is everything off.

use base::{Error, Result};

/// Switches mechanisms of the engine off one by one, to measure the benefit of each in an
/// experiment; no program needs it. By default all are on.
///
/// A store without a mechanism is just as correct, only slower or larger. Names may change in any
/// release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ablation {
    /// Garbage collection looks keys up by a merge join with the reference streams of tables where
    /// that is cheaper; off: key by key.
    pub joined_lookups: bool,
    /// Garbage collection reads nearby live records in one request; off: one by one.
    pub readahead: bool,
    /// Values are relocated into key order where scans would gain; off: never.
    pub correlated: bool,
    /// The shape of the tree is computed from compensated bytes; off: from physical bytes.
    pub compensated_size: bool,
    /// An idle store compacts while that frees more than it writes; off: an idle store only
    /// collects garbage.
    pub quiet_compaction: bool,
    /// The threads of garbage collection are derived from the amount of garbage and the shape of
    /// the trees; off: as many as are free.
    pub gc_threads: bool,
    /// Garbage collection reads live records only; off: all records of a file.
    pub lazy_read: bool,
    /// Flushes write values of recently overwritten keys to separate vSSTs; off: all values of a
    /// flush go together.
    pub hot_cold: bool,
    /// Background I/O is split into small requests, with fewer at once if foreground reads become
    /// slow; off: unlimited size and number.
    pub io_pacing: bool,
    /// Beside a busy log, at most one job less than threads runs; off: no such limit.
    pub log_first: bool,
    /// Wide compactions are split into subcompactions on several threads; off: each runs on one
    /// thread.
    pub subcompactions: bool,
    /// Read gaps and scan read-ahead are derived from measured read costs of the device; off: from
    /// constants.
    pub measured_reads: bool,
    /// Garbage collection overlaps reads of records with copies and liveness checks; off:
    /// sequential steps.
    pub pipelined_collection: bool,
    /// A level over its target compacts the file with the least overlap per byte moved; off: the
    /// file with the most compensated bytes.
    pub least_overlap: bool,
    /// If writers are throttled for mostly unexposed garbage, a compaction exposes it before
    /// collections continue; off: no such compaction.
    pub exposing_first: bool,
    /// Far below a space limit, garbage is collected later; off: with the same threshold of garbage
    /// per file as near the limit.
    pub lazy_with_room: bool,
    /// With garbage far above its bound, work that frees space precedes compactions of level 0
    /// unless level 0 is near its stop; off: never.
    pub space_first: bool,
    /// Values that survive the collection of hot files are collected separately from hot and from
    /// cold values; off: as cold values.
    pub warm_survivors: bool,
    /// The threshold of garbage collection depends on garbage and free space; off: the family's
    /// `gc_ratio_percent`.
    pub gc_threshold: bool,
    /// The read and write rate of garbage collection is limited by the latency of flushes; off:
    /// only by `io_budget`.
    pub gc_pace: bool,
}

impl Default for Ablation {
    fn default() -> Self {
        Ablation {
            joined_lookups: true,
            readahead: true,
            correlated: true,
            compensated_size: true,
            quiet_compaction: true,
            gc_threads: true,
            lazy_read: true,
            hot_cold: true,
            io_pacing: true,
            log_first: true,
            subcompactions: true,
            measured_reads: true,
            pipelined_collection: true,
            least_overlap: true,
            exposing_first: true,
            lazy_with_room: true,
            space_first: true,
            warm_survivors: true,
            gc_threshold: true,
            gc_pace: true,
        }
    }
}

impl Ablation {
    /// The switches by name.
    fn switches(&mut self) -> [(&'static str, &mut bool); 20] {
        [
            ("joined_lookups", &mut self.joined_lookups),
            ("readahead", &mut self.readahead),
            ("correlated", &mut self.correlated),
            ("compensated_size", &mut self.compensated_size),
            ("quiet_compaction", &mut self.quiet_compaction),
            ("gc_threads", &mut self.gc_threads),
            ("lazy_read", &mut self.lazy_read),
            ("hot_cold", &mut self.hot_cold),
            ("io_pacing", &mut self.io_pacing),
            ("subcompactions", &mut self.subcompactions),
            // New switches go to the end, because campaigns draw them in this order.
            ("log_first", &mut self.log_first),
            ("measured_reads", &mut self.measured_reads),
            ("pipelined_collection", &mut self.pipelined_collection),
            ("least_overlap", &mut self.least_overlap),
            ("exposing_first", &mut self.exposing_first),
            ("lazy_with_room", &mut self.lazy_with_room),
            ("space_first", &mut self.space_first),
            ("warm_survivors", &mut self.warm_survivors),
            ("gc_threshold", &mut self.gc_threshold),
            ("gc_pace", &mut self.gc_pace),
        ]
    }

    /// Returns the names of all mechanisms, for a list of choices and for [`Ablation::without`]:
    /// the names of the fields.
    pub fn names() -> Vec<&'static str> {
        Self::default().switches().iter().map(|(name, _)| *name).collect()
    }

    /// Returns all mechanisms except the named ones, to read a choice from a command line; no names
    /// give the default, all of them. Set the fields where the choice is fixed.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is not in [`Ablation::names`].
    pub fn without<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let mut ablation = Self::default();
        for name in names {
            let mut switches = ablation.switches();
            let Some((_, on)) = switches.iter_mut().find(|(known, _)| *known == name) else {
                let known = Self::names().join(", ");
                return Err(Error::invalid(format!("there is no mechanism \"{name}\": name one of {known}")));
            };
            **on = false;
        }
        Ok(ablation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mechanisms_are_switched_off_by_name() {
        for name in Ablation::names() {
            let mut without = Ablation::without([name]).unwrap();
            let off: Vec<_> =
                without.switches().into_iter().filter(|(_, on)| !**on).map(|(n, _)| n).collect();
            assert_eq!(off, [name]);
        }
        assert_eq!(Ablation::without(["magic"]).unwrap_err().kind(), base::ErrorKind::InvalidArgument);
        assert_eq!(Ablation::without([]).unwrap(), Ablation::default());
    }
}
