//! The values that the engine derives from the options that are set, and the reasons.

use super::family_options::FamilyOptions;
use super::fit::SizeReduction;
use super::options::{Options, SpaceLimit};
use std::fmt;

/// Tells whether a value of an [`Explanation`] is the caller's or the engine's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionSource {
    /// The caller set it, and the engine uses it as it is.
    Set,
    /// The engine derived it from other options, or reduced it to fit the space limit; `reason` has
    /// the rule.
    Derived,
}

impl OptionSource {
    /// Returns a stable one-word name for tables and logs: `set` or `derived`. To decide in code
    /// match on the variant.
    pub fn name(self) -> &'static str {
        match self {
            OptionSource::Set => "set",
            OptionSource::Derived => "derived",
        }
    }
}

/// Shows one option of an [`Explanation`] with its value in effect, to find out why it differs from
/// the one that was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedOption {
    /// The option, with the path from [`Options`]: `memory_bytes`, `expert.wal_bytes_max`.
    pub name: &'static str,
    /// The value in effect, in `unit`.
    pub value: u64,
    /// The unit of `value`: `bytes`, `ms`, `jobs`, `memtables`.
    pub unit: &'static str,
    /// Whether the caller or the engine chose the value.
    pub source: OptionSource,
    /// Reason for the value; for a set option `set by the caller`.
    pub reason: String,
}

/// Lists the sizes that a store would use, with the reasons, to check a configuration before an
/// open; `{}` prints it as a table. [`Options::explain`] returns it.
///
/// It has the options that the engine derives unless they are set, and the sizes that a space limit
/// in bytes reduces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The options in the order of their declaration, store options first.
    pub options: Vec<ExplainedOption>,
}

impl Explanation {
    /// Returns an option by its path from [`Options`], such as `memory_bytes` or
    /// `expert.wal_bytes_max`. `None` for an option that is neither derived nor reduced, and for a
    /// misspelled name. To print all of them use `{}`.
    pub fn option(&self, name: &str) -> Option<&ExplainedOption> {
        self.options.iter().find(|option| option.name == name)
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.options.iter().map(|option| option.name.len()).max().unwrap_or(0);
        let values = self.options.iter().map(|option| option.value.to_string().len()).max().unwrap_or(0);
        for ExplainedOption { name, value, unit, reason, .. } in &self.options {
            writeln!(f, "{name:<names$}  {value:>values$} {unit:<9}  {reason}")?;
        }
        Ok(())
    }
}

/// Describes an option: set by the caller, or derived with the reason that `why` returns.
fn explained(
    name: &'static str,
    (value, unit): (u64, &'static str),
    is_set: bool,
    why: impl FnOnce() -> String,
) -> ExplainedOption {
    let (source, reason) = match is_set {
        true => (OptionSource::Set, "set by the caller".to_owned()),
        false => (OptionSource::Derived, why()),
    };
    ExplainedOption { name, value, unit, source, reason }
}

/// Returns the reason for a size below its option.
fn halved(at_most: u64) -> String {
    format!("{at_most} bytes, halved until the store fits its space limit")
}

impl Options {
    /// Returns the options that the engine derives unless they are set, each with its value and the
    /// reason, to check a configuration without opening a store. The call is cheap, reads no disk
    /// and checks no range.
    ///
    /// The result depends on the options alone: on a small volume a store may use smaller sizes
    /// (see [`Options`]). [`read_gap_bytes`](crate::ExpertOptions::read_gap_bytes) is measured
    /// while a store is open ([`crate::Statistics::io_read_gap_bytes`]).
    ///
    /// ```
    /// # use lavastore_lavakv::{OptionSource, Options};
    /// let options = Options { memtable_bytes: 4 << 20, ..Options::default() };
    /// let explanation = options.explain();
    /// let memory = explanation.option("memory_bytes").expect("it is derived");
    /// assert_eq!((memory.value, memory.source), (52 << 20, OptionSource::Derived));
    /// assert!(memory.reason.contains("4 memtables"));
    /// println!("{explanation}");
    /// ```
    pub fn explain(&self) -> Explanation {
        let fit = SizeReduction::to(self, (None, None));
        let fitted = fit.store(self);
        let fitted = Options { family: fit.family(&self.family), ..fitted };
        let mut options = self.explain_fit(&fitted);
        options.extend(self.explain_store(&fitted));
        options.extend(self.family.explain(&fitted.family));
        Explanation { options }
    }

    /// Returns the sizes that are reduced to fit the space limit.
    fn explain_fit(&self, fitted: &Options) -> Vec<ExplainedOption> {
        let sizes = |of: &Options| {
            let (expert, family) = (&of.expert, &of.family.expert);
            [of.memtable_bytes as u64, expert.log_group_bytes, family.file_bytes, family.vsst_bytes]
        };
        let names = [
            "memtable_bytes",
            "expert.log_group_bytes",
            "family.expert.file_bytes",
            "family.expert.vsst_bytes",
        ];
        let rows = names.into_iter().zip(sizes(self)).zip(sizes(fitted));
        let smaller = rows.filter(|((_, at_most), value)| value < at_most);
        let row = |((name, at_most), value)| explained(name, (value, "bytes"), false, || halved(at_most));
        smaller.map(row).collect()
    }

    fn explain_store(&self, fitted: &Options) -> Vec<ExplainedOption> {
        let expert = &self.expert;
        let memory = fitted.memory_bytes() as u64;
        let memtables = (fitted.memtable_bytes as u64).saturating_mul(4);
        let log = memory.saturating_sub(memtables);
        let aging = fitted.aging();
        vec![
            explained("memory_bytes", (memory, "bytes"), self.memory_bytes as u64 == memory, || {
                match self.memory_bytes {
                    0 => format!(
                        "4 memtables of {} bytes, and {log} bytes of log pages that wait for a flush",
                        fitted.memtable_bytes
                    ),
                    at_most => halved(at_most as u64),
                }
            }),
            explained(
                "expert.wal_bytes_max",
                (fitted.expert.wal_bytes_max(), "bytes"),
                expert.wal_bytes_max > 0,
                || {
                    format!(
                        "256 MiB, or 4 log groups of {} bytes if these are longer",
                        fitted.expert.log_group_bytes
                    )
                },
            ),
            explained(
                "expert.compactions_max",
                (self.compaction_slots() as u64, "jobs"),
                expert.compactions_max > 0,
                || format!("one less than the {} background threads, at least one", self.background_threads),
            ),
            explained(
                "expert.buffered_age_ms_max",
                (aging.age_ms_max, "ms"),
                expert.buffered_age_ms_max.is_some(),
                || fitted.explain_age(aging.age_ms_max),
            ),
        ]
    }

    fn explain_age(&self, age_ms_max: u64) -> String {
        let memory = self.memory_bytes();
        match (age_ms_max, self.space_limit) {
            (0, Some(SpaceLimit::Bytes(limit))) => format!(
                "the waiting log pages have no room beside two memtables in {memory} bytes of memory, or take more than \
                 a 32nd of the space limit of {limit} bytes"
            ),
            (0, _) => format!("{memory} bytes of memory have no room for log pages beside two memtables"),
            _ => format!("{memory} bytes of memory have room for log pages that wait, beside two memtables"),
        }
    }
}

impl FamilyOptions {
    fn explain(&self, fitted: &FamilyOptions) -> Vec<ExplainedOption> {
        let (given, derived) = (&self.expert, &fitted.expert);
        vec![
            explained(
                "family.expert.level_base_bytes",
                (derived.level_base_bytes, "bytes"),
                given.level_base_bytes == derived.level_base_bytes,
                || match given.clone().derived().level_base_bytes {
                    at_most if at_most != derived.level_base_bytes => halved(at_most),
                    _ => format!("64 MiB, or 4 files of {} bytes if these are longer", given.file_bytes),
                },
            ),
            explained(
                "family.expert.l0_slowdown_files",
                (derived.l0_slowdown_files as u64, "memtables"),
                given.l0_slowdown_files > 0,
                || format!("4 times l0_compaction_files, {}", given.l0_compaction_files),
            ),
            explained(
                "family.expert.l0_stop_files",
                (derived.l0_stop_files as u64, "memtables"),
                given.l0_stop_files > 0,
                || format!("twice l0_slowdown_files, {}", derived.l0_slowdown_files),
            ),
        ]
    }
}
