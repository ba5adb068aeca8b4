//! Which input a reference leads to.
//!
//! The names that lead to the inputs are known before the job looks at a table: most names it meets are not among them,
//! and most of those that are lead to one input alone, so that a reference is resolved by one probe of a small table.
//!
//! Invariant: of the version only the inputs are held. The other files may go while the job runs.

use base::{HashMap, SeqNo};
use std::sync::Arc;
use version::{BlobId, FileMeta, Version, VsstMeta};

/// Where a name leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lead {
    /// To one input, all of it.
    Input(u32),
    /// To several files, all of them inputs.
    Inputs,
    /// To inputs and to other files.
    Parted,
}

/// The names of the inputs.
pub(crate) struct Names {
    /// The aliases of the version, and no file but the inputs.
    version: Version,
    inputs: Vec<u64>,
    /// The names, ascending.
    all: Vec<BlobId>,
    leads: HashMap<BlobId, Lead>,
    /// References under names that lead to inputs only.
    expected: u64,
    /// True if some name leads elsewhere too.
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

    /// The names, ascending: what the outputs take over.
    ///
    /// Every output takes all of them, also those that lead only to keys of another output. While the job runs, another
    /// job may replace other files that such a name leads to, and that may move its borders; a file that is not listed
    /// where the name then leads would be refused.
    pub(crate) fn took_over(&self) -> &[BlobId] {
        &self.all
    }

    /// The input that a reference leads to, and whether its name leads to inputs only.
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

    /// False if the table is known to use none of the names.
    pub(crate) fn may_be_used_by(&self, table: &FileMeta) -> bool {
        // A job has few names.
        self.all.iter().any(|&name| table.uses.may_have(name))
    }

    /// References under names that lead to inputs only: exactly so many records are found live under these.
    pub(crate) fn expected(&self) -> u64 {
        self.expected
    }

    /// True if references under some name lead to inputs and to other files: how much of the inputs is garbage was then
    /// an estimate.
    pub(crate) fn are_parted(&self) -> bool {
        self.parted
    }

    /// True if no table references any record of the inputs.
    pub(crate) fn are_dead(&self) -> bool {
        self.expected == 0 && !self.parted
    }
}
