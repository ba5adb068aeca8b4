//! Policies by name; each family stores the name of its policy.
//!
//! A family stores the name, version and parameters of its policy. The version covers the
//! parameters and the policy's assumptions about the tree. A policy that does not support a version
//! returns `Unsupported`, and so does the list for an unknown name. All policies produce the same
//! tree format, so a reader that lacks the policy of a family can still read it.
//!
//! The engine serves a family with an unknown policy for reading only. Reads, checkpoints,
//! verification, collection of values and flushes of replayed changes continue; without the flushes
//! the log would hold the space of all families. Writes are refused, because no compaction would
//! take their tables, and no compaction runs. Options given at open do not replace the stored
//! policy.

use super::contract::CompactionPolicy;
use super::leveled::parameters::{FileChoice, Leveled};
use super::vlsm::parameters::{Vlsm, VlsmOptions};
use base::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Default policy of families.
const LEVELED: &str = "leveled";
/// Policy with short chains of compactions.
const VLSM: &str = "vlsm";

/// Selects the compaction policy of a column family: the default, `leveled`, for most loads, or
/// [`PolicyChoice::vlsm`] for shorter waits of writers. The family stores it.
///
/// An unknown name or version is refused with `Unsupported`, and invalid parameters with
/// `InvalidArgument`, when the family is created or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyChoice {
    /// Name of the policy, at most 255 bytes.
    pub name: String,
    /// Version of the parameters; 1 for the built-in policies.
    pub version: u32,
    /// Encoded parameters of the policy, at most 4 KiB; empty for `leveled`. [`PolicyChoice::vlsm`]
    /// encodes its own.
    pub parameters: Vec<u8>,
}

impl Default for PolicyChoice {
    fn default() -> Self {
        PolicyChoice { name: LEVELED.into(), version: 1, parameters: Vec::new() }
    }
}

/// Tree options of a family, for any policy.
#[derive(Clone, Copy, Debug)]
pub struct TreeOptions {
    /// Number of files in level 0 that starts a compaction.
    pub l0_compaction_files: usize,
    /// Number of files in level 0 from which writers are throttled.
    pub l0_slowdown_files: usize,
    /// Target of the first level below level 0, in bytes.
    pub level_base_bytes: u64,
    /// Ratio of the sizes of adjacent levels.
    pub level_multiplier: u64,
    /// Number of levels in use, level 0 included.
    pub levels: usize,
    /// Target size of output files, in bytes.
    pub file_bytes: u64,
    /// Whether sizes are compensated bytes.
    pub compensated: bool,
    /// Order in which the files of a level are compacted.
    pub choice: FileChoice,
}

/// Constructs a policy from its stored form. Returns `Unsupported` for an unknown version, and
/// `InvalidArgument` for invalid parameters.
pub type Make = fn(&PolicyChoice, &TreeOptions) -> Result<Arc<dyn CompactionPolicy>>;

/// The available policies: built-in ones, which are listed here, and added ones.
#[derive(Clone, Debug)]
pub struct Policies(Vec<(&'static str, Make)>);

impl Default for Policies {
    fn default() -> Self {
        Policies(vec![(LEVELED, leveled), (VLSM, vlsm)])
    }
}

impl Policies {
    /// Adds a policy.
    pub fn with(mut self, name: &'static str, make: Make) -> Self {
        self.0.push((name, make));
        self
    }

    /// Constructs the chosen policy; `Unsupported` if its name or version is unknown.
    pub fn make(&self, choice: &PolicyChoice, tree: &TreeOptions) -> Result<Arc<dyn CompactionPolicy>> {
        match self.0.iter().find(|(name, _)| *name == choice.name) {
            Some((_, make)) => make(choice, tree),
            None => Err(choice.unsupported()),
        }
    }
}

impl PolicyChoice {
    /// Returns a built-in policy with its defaults, for a configuration file or a command line:
    /// `leveled` or `vlsm`. `None` if the name is unknown. For `vlsm` with other parameters use
    /// [`PolicyChoice::vlsm`].
    ///
    /// ```
    /// use lavastore_lsm::policy::{PolicyChoice, VlsmOptions};
    /// assert_eq!(PolicyChoice::named("leveled"), Some(PolicyChoice::default()));
    /// assert_eq!(PolicyChoice::named("vlsm"), Some(PolicyChoice::vlsm(&VlsmOptions::default())));
    /// assert_eq!(PolicyChoice::named("tiered"), None);
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        [PolicyChoice::default(), PolicyChoice::vlsm(&VlsmOptions::default())]
            .into_iter()
            .find(|p| p.name == name)
    }

    /// Returns the choice of vLSM, whose compactions are narrow and form short chains, where the
    /// waits of writers must be short. The default policy, `leveled`, suits most loads. The
    /// parameters are checked when the family uses it: `InvalidArgument` for one out of range.
    ///
    /// ```
    /// use lavastore_lsm::policy::{PolicyChoice, VlsmOptions};
    /// let policy = PolicyChoice::vlsm(&VlsmOptions::default());
    /// assert_eq!((policy.name.as_str(), policy.version), ("vlsm", 1));
    /// ```
    pub fn vlsm(options: &VlsmOptions) -> Self {
        PolicyChoice { name: VLSM.into(), version: 1, parameters: options.encode() }
    }

    /// Returns the error of a policy that does not support this choice.
    pub fn unsupported(&self) -> Error {
        let text = format!(
            "compaction policy \"{}\" version {} is not known to this release: choose another one, or use \
             a newer release",
            self.name, self.version
        );
        Error::new(ErrorKind::Unsupported, text)
    }
}

fn of_tree(tree: &TreeOptions) -> Leveled {
    Leveled {
        l0_compaction_files: tree.l0_compaction_files,
        level_base_bytes: tree.level_base_bytes,
        level_multiplier: tree.level_multiplier,
        levels: tree.levels,
        file_bytes: tree.file_bytes,
        compensated: tree.compensated,
        choice: tree.choice,
        ..Leveled::default()
    }
}

fn leveled(choice: &PolicyChoice, tree: &TreeOptions) -> Result<Arc<dyn CompactionPolicy>> {
    if choice.version != 1 {
        return Err(choice.unsupported());
    }
    if !choice.parameters.is_empty() {
        return Err(Error::invalid(format!(
            "compaction policy \"leveled\" version 1 has no parameters, not {} bytes",
            choice.parameters.len()
        )));
    }
    Ok(Arc::new(of_tree(tree)))
}

fn vlsm(choice: &PolicyChoice, tree: &TreeOptions) -> Result<Arc<dyn CompactionPolicy>> {
    if choice.version != 1 {
        return Err(choice.unsupported());
    }
    let own = VlsmOptions::decode(&choice.parameters)?;
    // Half of the throttle threshold: a queue within its target must not throttle writers.
    let queue_max = u32::try_from(tree.l0_slowdown_files / 2).unwrap_or(u32::MAX);
    let own = VlsmOptions { queue_tables: own.queue_tables.min(queue_max), ..own };
    Ok(Arc::new(Vlsm::new(own, of_tree(tree))))
}
