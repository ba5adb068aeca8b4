//! Mechanisms that can be switched off one by one, so that the worth of each can be measured alone.
//!
//! These are no options: nothing is stored, nothing is promised about a switch from release to release, and a store with
//! a mechanism off is as correct as with it, only slower or larger. After the ablations of Scavenger+ (figures 19 to 21),
//! whose row "TDB" is everything off.

use base::{Error, Result};

/// Which mechanisms are on. All are, by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ablation {
    /// Garbage collection asks the reference streams of tables by merge join where that is cheaper; off: key by key.
    pub joined_lookups: bool,
    /// Garbage collection reads live records that lie close together in one request; off: one by one.
    pub readahead: bool,
    /// Values are put into the order of their keys again where scans would gain; off: never.
    pub correlated: bool,
    /// The shape of the tree follows compensated bytes; off: physical bytes.
    pub compensated_size: bool,
    /// A quiet store goes on compacting while that frees more than it writes; off: it only collects garbage.
    pub quiet_compaction: bool,
    /// The threads of garbage collection follow the amount of garbage and the shape of the trees; off: as many as are free.
    pub gc_threads: bool,
    /// Garbage collection reads live records only; off: all records of a file.
    pub lazy_read: bool,
    /// Values of keys that were overwritten lately go to vSSTs of their own; off: all of a flush go together.
    pub hot_cold: bool,
    /// Background work comes in pieces, and fewer of them at once where reads in the foreground become slow; off: as large and as many
    /// as it likes.
    pub io_pacing: bool,
    /// While the log is written much, one job of compaction and collection less runs than there are threads; off: as many as ever.
    pub log_first: bool,
    /// Wide compactions are merged in pieces by several threads; off: each by one.
    pub subcompactions: bool,
    /// Which gaps reads go over, and how far scans read ahead, follows what reads of the disk were measured to cost; off: what suits most.
    pub measured_reads: bool,
    /// Garbage collection reads records while it copies others and judges the next keys; off: by turns.
    pub pipelined_collection: bool,
    /// Of a level that is too large that file goes first whose merge writes least for what it moves; off: the one that stands for most.
    pub least_overlap: bool,
    /// Where writers pay for garbage of which most is hidden, a compaction exposes it before collections go on; off: none is made for that.
    pub exposing_first: bool,
    /// Below a space limit that is far away garbage is collected later; off: from as much on as near it, in percent of a file.
    pub lazy_with_room: bool,
    /// Where garbage is far above its bound, what frees space goes before the compaction of level 0 for as long as that is not near its stop; off: never.
    pub space_first: bool,
    /// What survives the collection of hot files is collected apart from hot and from cold values; off: it is cold.
    pub warm_survivors: bool,
    /// The threshold of garbage collection follows garbage and room; off: the family's `gc_ratio_percent`.
    pub gc_threshold: bool,
    /// The bytes that garbage collection reads and writes per second follow the latency of flushes; off: no bound but `io_budget`.
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
    /// The names by which mechanisms are switched off, and their switches.
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
            // What comes later is at the end: campaigns draw in this order.
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

    /// The names of all mechanisms.
    pub fn names() -> Vec<&'static str> {
        Self::default().switches().iter().map(|(name, _)| *name).collect()
    }

    /// Everything but the mechanisms named.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is not in [`Ablation::names`].
    pub fn without<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let mut ablation = Self::default();
        for name in names {
            let mut switches = ablation.switches();
            let Some((_, on)) = switches.iter_mut().find(|(known, _)| *known == name) else {
                let known = Self::names().join(", ");
                return Err(Error::invalid(format!("there is no mechanism \"{name}\"; there are {known}")));
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
