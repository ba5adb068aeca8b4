//! A tiered policy for tests only: runs of similar size are merged within level 0. When they reach
//! half of the deepest level, all of them are merged into it. No level in between is used.
//!
//! Its parameter is the number of runs per merge.

use lavastore_lavakv::Result;
use lavastore_lavakv::policy::{
    Compaction, CompactionPolicy, FileMeta, L0Load, OutputCutter, PickInputs, PolicyChoice, Reason, SetAside,
    SingleFileCompactions, SizeCutter, TreeOptions, Version,
};
use std::sync::Arc;

pub const NAME: &str = "tiered";

pub fn chosen(runs: u8) -> PolicyChoice {
    PolicyChoice { name: NAME.into(), version: 1, parameters: vec![runs] }
}

pub fn make(choice: &PolicyChoice, tree: &TreeOptions) -> Result<Arc<dyn CompactionPolicy>> {
    match (choice.version, choice.parameters.as_slice()) {
        (1, &[runs]) => {
            Ok(Arc::new(Tiered { runs: runs.into(), last: tree.levels - 1, file_bytes: tree.file_bytes }))
        }
        _ => Err(choice.unsupported()),
    }
}

#[derive(Clone, Copy, Debug)]
struct Tiered {
    runs: usize,
    last: usize,
    file_bytes: u64,
}

impl Tiered {
    /// True if all of level 0 must be merged into the deepest level.
    fn is_full(&self, version: &Version) -> bool {
        version.files(0).len() >= self.runs && version.level_bytes(0) * 2 >= version.level_bytes(self.last)
    }

    /// Merges adjacent runs of similar size within level 0.
    fn merge(&self, facts: &PickInputs<'_>) -> Option<Compaction> {
        let fits = |run: &&[Arc<FileMeta>]| {
            let (least, most) = (run.iter().map(|f| f.len).min(), run.iter().map(|f| f.len).max());
            run.iter().all(|f| facts.is_free(f)) && most <= least.map(|len| 2 * len)
        };
        let run = facts.version.files(0).windows(self.runs).rfind(fits)?;
        self.build(facts, 0, 0, run.to_vec(), Reason::L0Intra)
    }

    fn build(
        &self,
        facts: &PickInputs<'_>,
        level: usize,
        output_level: usize,
        upper: Vec<Arc<FileMeta>>,
        reason: Reason,
    ) -> Option<Compaction> {
        let low = upper.iter().map(|f| f.smallest_user_key()).min();
        let high = upper.iter().map(|f| f.largest_user_key()).max();
        let lower = match output_level == level {
            true => Vec::new(),
            false => facts.version.overlapping(output_level, low, high).to_vec(),
        };
        let inputs = [(level, upper), (output_level, lower)].into_iter().filter(|(_, f)| !f.is_empty());
        let compaction = Compaction {
            family: facts.version.family,
            level,
            output_level,
            inputs: inputs.collect(),
            reason,
            trivial_move: false,
            file_bytes: self.file_bytes,
            overlap_max: u64::MAX,
            compensated: false,
            relocate_vssts: Vec::new(),
            volume: 0,
        };
        let free = compaction.input_files().all(|(_, f)| facts.is_free(f));
        (free && facts.busy.allows(&compaction)).then_some(compaction)
    }
}

impl CompactionPolicy for Tiered {
    fn l0(&self, facts: &PickInputs<'_>) -> Option<Compaction> {
        self.levels(facts)
    }

    fn levels(&self, facts: &PickInputs<'_>) -> Option<Compaction> {
        let all = || self.build(facts, 0, self.last, facts.version.files(0).to_vec(), Reason::L0Files);
        let down = self.is_full(facts.version).then(all).flatten();
        down.or_else(|| self.merge(facts))
    }

    fn moves<'a>(&'a self, facts: &PickInputs<'a>) -> Box<dyn SingleFileCompactions + 'a> {
        Box::new(TieredMoves { policy: self, facts: *facts })
    }

    fn cutter(&self, compaction: &Compaction, _version: &Version) -> Box<dyn OutputCutter + Send> {
        let raw_bytes = if compaction.output_level == 0 { u64::MAX } else { self.file_bytes };
        Box::new(SizeCutter { raw_bytes })
    }

    fn width_bytes(&self, version: &Version, _set_aside: &SetAside) -> u64 {
        version.levels.iter().map(|level| level.bytes()).sum()
    }

    fn l0_load(&self, version: &Version, _set_aside: &SetAside) -> L0Load {
        L0Load { files: version.files(0).len(), bytes: version.level_bytes(0) }
    }

    fn l0_wants_compaction(&self, version: &Version, _set_aside: &SetAside) -> bool {
        self.is_full(version)
    }
}

struct TieredMoves<'a> {
    policy: &'a Tiered,
    facts: PickInputs<'a>,
}

impl SingleFileCompactions for TieredMoves<'_> {
    fn level_0(&self, seed: &Arc<FileMeta>, reason: Reason, seq_max: u64) -> Option<Compaction> {
        let files = self.facts.version.files(0);
        let at = files.iter().position(|f| f.number == seed.number)?;
        let from = files.iter().position(|f| f.seq_range().1 <= seq_max).unwrap_or(at).min(at);
        self.policy.build(&self.facts, 0, self.policy.last, files[from..].to_vec(), reason)
    }

    fn down(&self, level: usize, i: usize, reason: Reason) -> Option<Compaction> {
        let file = self.facts.version.files(level).get(i)?.clone();
        self.policy.build(&self.facts, level, level + 1, vec![file], reason)
    }

    fn in_place(
        &self,
        level: usize,
        files: Vec<Arc<FileMeta>>,
        reason: Reason,
        relocate_vssts: Vec<u64>,
    ) -> Option<Compaction> {
        let compaction = self.policy.build(&self.facts, level, level, files, reason)?;
        let compaction = Compaction { relocate_vssts, ..compaction };
        self.facts.busy.allows(&compaction).then_some(compaction)
    }

    fn stays(&self, _file: &FileMeta) -> bool {
        !self.facts.set_aside.is_empty()
    }

    fn widest_bytes(&self) -> u64 {
        u64::MAX
    }
}
