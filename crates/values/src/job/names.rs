//! Resolves references to inputs.
//!
//! The blob ids that resolve to the inputs are known before the job reads a table. Most blob ids in
//! tables are not among them. Most of the others resolve to one input alone, so one probe of a
//! small table resolves a reference.
//!
//! Invariant: of the version's files only the inputs are held. Other files may be deleted while the
//! job runs.

use base::{HashMap, SeqNo};
use std::sync::Arc;
use version::{BlobId, FileMeta, Version, VsstMeta};

/// Targets of a blob id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lead {
    /// One input.
    Input(u32),
    /// Several files, all of them inputs.
    Inputs,
    /// Inputs and other files.
    Parted,
}

/// Blob ids of the inputs.
pub(crate) struct Names {
    /// Aliases of the version, and of its files only the inputs.
    version: Version,
    inputs: Vec<u64>,
    /// Blob ids, ascending.
    all: Vec<BlobId>,
    leads: HashMap<BlobId, Lead>,
    /// Number of references under blob ids that resolve to inputs only.
    expected: u64,
    /// True if references under some blob id resolve to other files too.
    parted: bool,
}

impl Names {
    pub(crate) fn new(version: &Version, inputs: &[Arc<VsstMeta>]) -> Names {
        let mut names = Names {
            version: Version {
                vssts: inputs.iter().map(|v| (v.number, v.clone())).collect(),
                aliases: version.aliases.clone(),
                ..Version::new(version.family)
            },
            inputs: inputs.iter().map(|v| v.number).collect(),
            all: Vec::new(),
            leads: HashMap::default(),
            expected: 0,
            parted: false,
        };
        for input in inputs {
            for name in version.names_of(input.number) {
                let Some(lead) = names.lead_of(version, name) else { continue };
                if names.leads.insert(name, lead).is_some() {
                    continue;
                }
                let references = version.references.get(&name).map_or(0, |totals| totals.count);
                if lead == Lead::Parted {
                    names.parted |= references > 0;
                } else {
                    names.expected += references;
                }
            }
        }
        names.all = names.leads.keys().copied().collect();
        names.all.sort_unstable();
        names
    }

    fn lead_of(&self, version: &Version, name: BlobId) -> Option<Lead> {
        let mut files = version.resolve_all(name).map(|file| file.number);
        let first = files.next()?;
        let input = |n: u64| self.inputs.iter().position(|&i| i == n);
        let rest: Vec<u64> = files.collect();
        Some(match input(first) {
            Some(i) if rest.iter().all(|&n| n == first) => Lead::Input(i as u32),
            Some(_) if rest.iter().all(|&n| input(n).is_some()) => Lead::Inputs,
            _ => Lead::Parted,
        })
    }

    /// Returns the blob ids that the outputs take over, ascending.
    ///
    /// Every output takes all of them, including those that resolve only to keys of another output.
    /// While the job runs, another job may replace other files of such a blob id, and that may move
    /// its key bounds. A file that the blob id then resolves to, but that does not list it, would
    /// be rejected.
    pub(crate) fn took_over(&self) -> &[BlobId] {
        &self.all
    }

    /// Returns the input to which a reference resolves, and whether its blob id resolves to inputs
    /// only.
    #[inline]
    pub(crate) fn input_of(&self, name: BlobId, user_key: &[u8], seq: SeqNo) -> Option<(u32, bool)> {
        match self.leads.get(&name)? {
            Lead::Input(i) => Some((*i, true)),
            lead => {
                let file = self.version.resolve(name, user_key, seq)?.number;
                let i = self.inputs.iter().position(|&n| n == file)?;
                Some((i as u32, *lead == Lead::Inputs))
            }
        }
    }

    /// Returns false if the table is known to use none of the blob ids.
    pub(crate) fn may_be_used_by(&self, table: &FileMeta) -> bool {
        // A job has few blob ids.
        self.all.iter().any(|&name| table.uses.may_have(name))
    }

    /// Returns the number of references under blob ids that resolve to inputs only, which equals
    /// the number of live records under them.
    pub(crate) fn expected(&self) -> u64 {
        self.expected
    }

    /// Returns true if references under some blob id resolve to inputs and to other files: then the
    /// garbage of the inputs was an estimate.
    pub(crate) fn are_parted(&self) -> bool {
        self.parted
    }

    /// Returns true if no table references any record of the inputs.
    pub(crate) fn are_dead(&self) -> bool {
        self.expected == 0 && !self.parted
    }
}
