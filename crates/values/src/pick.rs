//! Chooses the next files to collect: a pure function of a version, its ledger and the options.
//!
//! The choice is greedy: the files with the highest ratio of garbage first, down to the threshold,
//! until their live records fill one output. A job should have many inputs and one output: the blob
//! ids of all inputs resolve to that one file, so aliases keep one target and the ledger stays
//! exact.
//!
//! * An unreferenced file is taken first, and alone: it costs no writing.
//! * Hot files are collected with hot files only. The flush that wrote them separated hot from cold
//!   values, and a job that mixed them would undo that. All survivors of a job go to one class, so
//!   that a blob id keeps one target. Survivors of a hot file are overwritten more rarely than the
//!   rest of it, but more often than values never classified as hot. They are *warm* ([`Heat`]),
//!   and collected together. Survivors of warm and of cold files are cold. Unclassified files go
//!   with cold ones.
//! * A segment is one large value: it is deleted when it is unreferenced, and never copied.
//!   Ingested files, whose entries have one sequence for all, are not copied either.
//! * With no file over the threshold there is no job.
//! * Files may also be copied for another reason than their garbage, such as their tier
//!   ([`of_files`]); the caller chooses them.
//!
//! The ledger keeps the files in the order of their garbage. So only files that are taken, skipped
//! or do not fit are visited, and at most `LOOKED_AT_MAX`: those that follow have less garbage.

use crate::job::GAP_UNKNOWN;
use crate::ledger::{FileGarbage, Ledger, is_copyable};
use std::sync::Arc;
use version::{FamilyId, Heat, Version, VsstClass, VsstMeta};

/// Maximum number of candidates for one job.
const LOOKED_AT_MAX: usize = 1024;

/// Method of looking up which records are live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lookups {
    /// Search each table in the way that is cheapest for the number of keys.
    #[default]
    Cheaper,
    /// Always use a merge join over the references.
    Join,
    /// Always look up key by key.
    Points,
}

/// Options of garbage collection.
#[derive(Clone, Debug)]
pub struct GcOptions {
    /// Share of garbage from which a file is a candidate. The scheduler lowers it as the disk
    /// fills.
    pub ratio_percent: u32,
    /// Approximate size of an output, which the live records of a job's inputs should fill.
    pub file_bytes: u64,
    /// Maximum number of files that a job replaces.
    pub inputs_max: usize,
    /// Maximum bytes of files that a job replaces (the first is taken whatever its size). They stay
    /// until the job is installed, so the job needs space for them and the output.
    pub input_bytes_max: u64,
    /// Approximate bytes of records that a step reads and copies.
    pub step_bytes: u64,
    /// Maximum number of keys that are judged together.
    pub window_keys: usize,
    /// Maximum bytes of keys that are judged together.
    pub window_key_bytes: usize,
    /// Method of lookups. All but the default are for measuring.
    pub lookups: Lookups,
    /// Maximum gap between live records that are read together, in bytes; `None`: while the gap
    /// costs less than a request, by measured read costs of the disk ([`io::ReadCosts`]).
    pub gap_bytes: Option<u64>,
    /// Whether only live records are read. Off, for measuring: all are read and verified, as if
    /// keys could not be read without values.
    pub lazy_read: bool,
    /// Whether records are read while others are copied and the next keys are judged. Off, for
    /// measuring: these alternate.
    pub pipelined: bool,
    /// Whether survivors of hot files are kept separate as warm. Off, for measuring: they are cold.
    pub warm_survivors: bool,
    /// Share of the expected garbage below which a job with estimated inputs stops early.
    pub abandon_percent: u32,
}

impl Default for GcOptions {
    fn default() -> Self {
        GcOptions {
            ratio_percent: 20,
            file_bytes: 64 << 20,
            inputs_max: 16,
            input_bytes_max: 512 << 20,
            step_bytes: 1 << 20,
            window_keys: 128 << 10,
            window_key_bytes: 8 << 20,
            lookups: Lookups::Cheaper,
            gap_bytes: None,
            lazy_read: true,
            pipelined: true,
            warm_survivors: true,
            abandon_percent: 50,
        }
    }
}

impl GcOptions {
    /// Returns true if a job may have this many live bytes of records, and this many input bytes.
    fn fits(&self, live_bytes: u64, input_bytes: u64) -> bool {
        live_bytes <= self.file_bytes && input_bytes <= self.input_bytes_max
    }
}

/// A planned garbage collection.
#[derive(Clone, Debug)]
pub struct Gc {
    /// Id of the family.
    pub family: FamilyId,
    /// Files to replace, the one with the most garbage first.
    pub inputs: Vec<Arc<VsstMeta>>,
    /// Class of the outputs.
    pub class: VsstClass,
    /// Bytes of records that it is expected to drop.
    pub expected_free: u64,
    /// Bytes of records that it is expected to write.
    pub expected_write: u64,
    /// Bytes of keys and records that it is expected to read, dead records between live ones
    /// included.
    pub expected_read: u64,
    /// True if these figures are exact for all inputs (see [`Ledger`]).
    pub exact: bool,
}

impl Gc {
    /// Returns the numbers of the inputs.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.inputs.iter().map(|v| v.number)
    }

    fn new(version: &Version) -> Gc {
        Gc {
            family: version.family,
            inputs: Vec::new(),
            class: VsstClass::Mixed,
            expected_free: 0,
            expected_write: 0,
            expected_read: 0,
            exact: true,
        }
    }

    fn take(&mut self, file: &Arc<VsstMeta>, garbage: &FileGarbage, options: &GcOptions) {
        self.expected_free += garbage.garbage_bytes;
        self.expected_write += garbage.referenced_bytes;
        // The rest of the file is keys and index.
        let keys = if garbage.references == 0 { 0 } else { file.len.saturating_sub(file.record_bytes) };
        let gaps = gap_bytes_read(file, garbage, options);
        self.expected_read += garbage.referenced_bytes.saturating_add(keys).saturating_add(gaps);
        self.exact &= garbage.exact;
        // If the inputs disagree, the class is cold.
        let class = survivors_of(file, options);
        let agrees = self.inputs.is_empty() || class == self.class;
        self.class = if agrees { class } else { VsstClass::Cold };
        self.inputs.push(file.clone());
    }
}

/// Returns the expected bytes of dead records between live ones that a collection reads instead of
/// skipping.
///
/// Records are assumed to die independently of their neighbors: after a live record are `k` dead
/// ones with the probability `(1 - d) d^k`, where `d` is the share of dead records. A gap of up to
/// `longest` records is read:
///
/// `sum of k (1 - d) d^k for k to longest = d (1 - (longest + 1) d^longest + longest d^(longest +
/// 1)) / (1 - d)`
fn gap_bytes_read(file: &VsstMeta, garbage: &FileGarbage, options: &GcOptions) -> u64 {
    if garbage.references == 0 {
        return 0;
    }
    if !options.lazy_read {
        return garbage.garbage_bytes;
    }
    let mean = file.record_bytes as f64 / file.entries.max(1) as f64;
    let longest = (options.gap_bytes.unwrap_or(GAP_UNKNOWN) as f64 / mean.max(1.0)).floor();
    let dead = garbage.garbage_bytes as f64 / file.record_bytes.max(1) as f64;
    let live = (1.0 - dead).max(f64::EPSILON);
    let power = dead.powf(longest);
    let records = dead * (1.0 - (longest + 1.0) * power + longest * power * dead) / live;
    ((garbage.references as f64 * records * mean) as u64).min(garbage.garbage_bytes)
}

/// Returns the class of the survivors of a file.
fn survivors_of(file: &VsstMeta, options: &GcOptions) -> VsstClass {
    match (file.class, file.heat()) {
        (VsstClass::Mixed, _) => VsstClass::Mixed,
        // An output takes over the blob ids of its inputs, which makes it warm and not hot.
        (_, Heat::Hot) if options.warm_survivors => VsstClass::Hot,
        _ => VsstClass::Cold,
    }
}

/// Returns the most worthwhile garbage collection in `version`, if there is any. `ledger` is that
/// of the version; `skip` is true for files that are busy, or were abandoned recently.
pub fn pick(
    version: &Version,
    ledger: &Ledger,
    options: &GcOptions,
    skip: &dyn Fn(&VsstMeta) -> bool,
) -> Option<Gc> {
    let mut candidates = ledger
        .from_most_garbage(options.ratio_percent)
        .filter_map(|(number, garbage)| Some((garbage, version.vssts.get(&number)?)))
        .filter(|(garbage, file)| is_candidate(garbage, file, options) && !skip(file))
        .take(LOOKED_AT_MAX)
        .peekable();
    let dead = |garbage: &FileGarbage| garbage.references == 0 && garbage.exact;
    let first = candidates.peek()?.1;
    let mut gc = Gc::new(version);
    let mut bytes = 0u64;
    for (garbage, file) in candidates {
        if let [taken] = gc.inputs.as_slice()
            && dead(&ledger.garbage_of(taken.number))
        {
            break;
        }
        let total = bytes.saturating_add(file.len);
        let live = gc.expected_write.saturating_add(garbage.referenced_bytes);
        if !gc.inputs.is_empty() {
            if gc.inputs.len() >= options.inputs_max.max(1) {
                break;
            }
            if file.heat() != first.heat() || !options.fits(live, total) {
                continue;
            }
        }
        gc.take(file, &garbage, options);
        bytes = total;
    }
    Some(gc)
}

/// Returns a collection of these files, which are copied for another reason than their garbage: the
/// first, and those that fill one output with it, within the limits of a job. `None`: there are no
/// files.
pub fn of_files<'a>(
    version: &Version,
    ledger: &Ledger,
    options: &GcOptions,
    files: impl Iterator<Item = &'a Arc<VsstMeta>>,
) -> Option<Gc> {
    let (mut gc, mut bytes) = (Gc::new(version), 0u64);
    for file in files.take(options.inputs_max.max(1)) {
        let garbage = ledger.garbage_of(file.number);
        let live = gc.expected_write.saturating_add(garbage.referenced_bytes);
        let total = bytes.saturating_add(file.len);
        if !gc.inputs.is_empty() && !options.fits(live, total) {
            break;
        }
        gc.take(file, &garbage, options);
        bytes = total;
    }
    (!gc.inputs.is_empty()).then_some(gc)
}

/// Returns true if collecting the file is allowed and frees enough.
fn is_candidate(garbage: &FileGarbage, file: &VsstMeta, options: &GcOptions) -> bool {
    let dead = garbage.references == 0 && garbage.exact;
    garbage.garbage_bytes > 0 && garbage.is_at_least(options.ratio_percent) && (dead || is_copyable(file))
}

#[cfg(test)]
pub(crate) mod tests;
