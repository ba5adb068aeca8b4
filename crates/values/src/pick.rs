//! What to collect next: a pure function of a version, its ledger and the options.
//!
//! Greedy: the files with the highest ratio of garbage first, down to the threshold, until their live records fill one
//! output. Many inputs with one output is what garbage collection is about: the names of all inputs lead to that one
//! file, so aliases keep one target and the ledger stays exact.
//!
//! * A file of which nothing is referenced is taken first, and alone: it costs no writing.
//! * Hot files are collected with hot files only. Hot and cold values are apart since the flush that wrote them, and a job
//!   that mixed them would undo that. All survivors of a job go to one class, so that a name keeps one target. What outlives
//!   most of a hot file is written more rarely than the rest of it was, and more often than what nobody took for hot: it is
//!   *warm* ([`Heat`]), and collected with its like. What survives that is cold, as is what survives of cold files. Files
//!   that nobody has classified go with cold ones.
//! * A segment is one large value: it goes when nothing references it, and is never copied. Nor are ingested files, whose
//!   entries have one sequence for all.
//! * With no file over the threshold there is no job.
//! * Files may also be copied for another reason than their garbage, such as the disk they are on ([`of_files`]): whoever has it says which.
//!
//! The ledger keeps the files in the order of their garbage, so no more of them are looked at than are taken, skipped or
//! do not fit, and of the last `LOOKED_AT_MAX` at most: those that follow have less garbage.

use crate::job::GAP_UNKNOWN;
use crate::ledger::{FileGarbage, Ledger, is_copyable};
use std::sync::Arc;
use version::{FamilyId, Heat, Version, VsstClass, VsstMeta};

/// So many candidates are looked at for one job.
const LOOKED_AT_MAX: usize = 1024;

/// How the tables are asked which records are live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lookups {
    /// Each table in the way that is cheaper for as many keys as it is asked.
    #[default]
    Cheaper,
    /// Always by a merge join over the references.
    Join,
    /// Always key by key.
    Points,
}

/// How garbage is collected.
#[derive(Clone, Debug)]
pub struct GcOptions {
    /// A file is a candidate from this share of garbage on. The scheduler lowers it as the disk fills.
    pub ratio_percent: u32,
    /// About the size of an output; the live records of a job's inputs are to fill one.
    pub file_bytes: u64,
    /// The most files that a job replaces.
    pub inputs_max: usize,
    /// The most bytes of files that a job replaces (the first is taken whatever its size). They stay until the job is
    /// installed, so this and the output are the room it needs.
    pub input_bytes_max: u64,
    /// About how many bytes of records a step reads and copies.
    pub step_bytes: u64,
    /// The most keys that are judged together.
    pub window_keys: usize,
    /// The most bytes of keys that are judged together.
    pub window_key_bytes: usize,
    /// How keys are looked up. All but the default are for measuring.
    pub lookups: Lookups,
    /// Live records are read together across gaps of at most so many bytes; `None`: as
    /// long as costs less than a request does, as far as that is known of the disk ([`io::ReadCosts`]).
    pub gap_bytes: Option<u64>,
    /// Only live records are read. Off, for measuring: all are, and verified, as where values cannot be told from keys
    /// without reading them.
    pub lazy_read: bool,
    /// Records are read while others are copied and the next keys are judged. Off, for measuring: by turns.
    pub pipelined: bool,
    /// What survives of hot files is kept apart. Off, for measuring: it is cold.
    pub warm_survivors: bool,
    /// A job whose inputs were estimated stops early if it finds less garbage than this share of what was expected.
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
    /// True if a job may have so many live bytes of records, and inputs of so many bytes in all.
    fn fits(&self, live_bytes: u64, input_bytes: u64) -> bool {
        live_bytes <= self.file_bytes && input_bytes <= self.input_bytes_max
    }
}

/// A garbage collection to do.
#[derive(Clone, Debug)]
pub struct Gc {
    /// The family.
    pub family: FamilyId,
    /// The files that it replaces, the one with the most garbage first.
    pub inputs: Vec<Arc<VsstMeta>>,
    /// The class of the outputs.
    pub class: VsstClass,
    /// Bytes of records that it is expected to drop.
    pub expected_free: u64,
    /// Bytes of records that it is expected to write.
    pub expected_write: u64,
    /// Bytes of keys and records that it is expected to read, dead records between live ones included.
    pub expected_read: u64,
    /// True if these figures of all inputs are exact (see [`Ledger`]).
    pub exact: bool,
}

impl Gc {
    /// Numbers of the inputs.
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
        // What is not records is keys and index.
        let keys = if garbage.references == 0 { 0 } else { file.len.saturating_sub(file.record_bytes) };
        let gaps = gap_bytes_read(file, garbage, options);
        self.expected_read += garbage.referenced_bytes.saturating_add(keys).saturating_add(gaps);
        self.exact &= garbage.exact;
        // Where the inputs do not agree it is cold.
        let class = survivors_of(file, options);
        let agrees = self.inputs.is_empty() || class == self.class;
        self.class = if agrees { class } else { VsstClass::Cold };
        self.inputs.push(file.clone());
    }
}

/// Bytes of dead records between live ones that a collection reads rather than leaves out, expected.
///
/// Records are taken to die independently of their neighbors: behind a live record lie `k` dead ones with the probability
/// `(1 - d) d^k`, where `d` is the share of dead records. A gap of up to `longest` records is read:
///
/// `sum of k (1 - d) d^k for k to longest = d (1 - (longest + 1) d^longest + longest d^(longest + 1)) / (1 - d)`
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

/// The class of what survives of a file.
fn survivors_of(file: &VsstMeta, options: &GcOptions) -> VsstClass {
    match (file.class, file.heat()) {
        (VsstClass::Mixed, _) => VsstClass::Mixed,
        // An output takes over the names of its inputs, by which it is warm and not hot.
        (_, Heat::Hot) if options.warm_survivors => VsstClass::Hot,
        _ => VsstClass::Cold,
    }
}

/// The garbage collection that is most worth doing in `version`, if there is any. `ledger` is that of the version;
/// `skip` says which files are busy, or were abandoned lately.
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

/// The collection of these files, which are copied for another reason than their garbage: the first, and those that fill one output with it, within the bounds of a
/// job. `None`: there are none.
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

/// True if collecting the file frees enough, and is allowed.
fn is_candidate(garbage: &FileGarbage, file: &VsstMeta, options: &GcOptions) -> bool {
    let dead = garbage.references == 0 && garbage.exact;
    garbage.garbage_bytes > 0 && garbage.is_at_least(options.ratio_percent) && (dead || is_copyable(file))
}

#[cfg(test)]
pub(crate) mod tests;
