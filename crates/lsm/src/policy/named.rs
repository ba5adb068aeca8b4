//! Policies by the name under which a family stores the one that it has.
//!
//! A family says name, version and parameters of its policy. The version is that of the parameters and of what the policy
//! expects to find in a tree; a policy that cannot serve a version says so by `Unsupported`, and so does the list for a name
//! that it does not have. What a tree looks like from outside is the same for all policies, so whoever has no policy for a
//! family can still read it.

use super::contract::CompactionPolicy;
use super::leveled::parameters::{FileChoice, Leveled};
use super::vlsm::parameters::{Vlsm, VlsmOptions};
use base::{Error, ErrorKind, Result};
use std::sync::Arc;

/// The policy of families that do not say another.
const LEVELED: &str = "leveled";
/// Short chains of compactions.
const VLSM: &str = "vlsm";

/// The policy of a family, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyChoice {
    /// Its name, at most 255 bytes.
    pub name: String,
    /// The version of its parameters.
    pub version: u32,
    /// Its parameters, as it encodes them; at most 4 KiB.
    pub parameters: Vec<u8>,
}

impl Default for PolicyChoice {
    fn default() -> Self {
        PolicyChoice { name: LEVELED.into(), version: 1, parameters: Vec::new() }
    }
}

/// What a family says of its tree, whatever the policy.
#[derive(Clone, Copy, Debug)]
pub struct TreeOptions {
    /// Files in level 0 that start a compaction.
    pub l0_compaction_files: usize,
    /// Files in level 0 from which writers are slowed down.
    pub l0_slowdown_files: usize,
    /// The target of the first level below level 0, bytes.
    pub level_base_bytes: u64,
    /// How much larger each level is than the one above.
    pub level_multiplier: u64,
    /// Levels in use, level 0 included.
    pub levels: usize,
    /// The size of output files, bytes.
    pub file_bytes: u64,
    /// Sizes are compensated bytes.
    pub compensated: bool,
    /// Which file of a level goes first.
    pub choice: FileChoice,
}

/// Makes a policy of what is stored of it. `Unsupported` if this is no version that it knows, `InvalidArgument` if the
/// parameters are none of its.
pub type Make = fn(&PolicyChoice, &TreeOptions) -> Result<Arc<dyn CompactionPolicy>>;

/// The policies that can be chosen: those that are built in, which are listed here, and those that were added.
#[derive(Clone, Debug)]
pub struct Policies(Vec<(&'static str, Make)>);

impl Default for Policies {
    fn default() -> Self {
        Policies(vec![(LEVELED, leveled), (VLSM, vlsm)])
    }
}

impl Policies {
    /// One more.
    pub fn with(mut self, name: &'static str, make: Make) -> Self {
        self.0.push((name, make));
        self
    }

    /// The policy that was chosen; `Unsupported` if it is not known, or not in this version.
    pub fn make(&self, choice: &PolicyChoice, tree: &TreeOptions) -> Result<Arc<dyn CompactionPolicy>> {
        match self.0.iter().find(|(name, _)| *name == choice.name) {
            Some((_, make)) => make(choice, tree),
            None => Err(choice.unsupported()),
        }
    }
}

impl PolicyChoice {
    /// A built-in policy with its defaults; `None` if there is none of this name.
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

    /// vLSM: compactions are narrow and their chains short, so that nobody waits long for one.
    ///
    /// ```
    /// use lavastore_lsm::policy::{PolicyChoice, VlsmOptions};
    /// let policy = PolicyChoice::vlsm(&VlsmOptions::default());
    /// assert_eq!((policy.name.as_str(), policy.version), ("vlsm", 1));
    /// ```
    pub fn vlsm(options: &VlsmOptions) -> Self {
        PolicyChoice { name: VLSM.into(), version: 1, parameters: options.encode() }
    }

    /// The error of a policy that does not serve this choice.
    pub fn unsupported(&self) -> Error {
        let text = format!("compaction policy {:?} version {} is not known here", self.name, self.version);
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
        return Err(Error::invalid("compaction policy \"leveled\" version 1 has no parameters"));
    }
    Ok(Arc::new(of_tree(tree)))
}

fn vlsm(choice: &PolicyChoice, tree: &TreeOptions) -> Result<Arc<dyn CompactionPolicy>> {
    if choice.version != 1 {
        return Err(choice.unsupported());
    }
    let own = VlsmOptions::decode(&choice.parameters)?;
    // Nobody is slowed down for what is not to go down yet.
    let queue_max = u32::try_from(tree.l0_slowdown_files / 2).unwrap_or(u32::MAX);
    let own = VlsmOptions { queue_tables: own.queue_tables.min(queue_max), ..own };
    Ok(Arc::new(Vlsm::new(own, of_tree(tree))))
}
