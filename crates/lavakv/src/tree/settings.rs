//! Settings of a family's read state: its options, its compaction policy, and its unreadable
//! tables.

use crate::context::ablation::Ablation;
use crate::context::family_options::FamilyOptions;
use crate::context::fit::SizeReduction;
use crate::context::options::Options;
use base::sync::{Mutex, lock, rank};
use lsm::policy::{CompactionPolicy, Policies, SetAside};
use std::sync::Arc;

/// The caller's options, the options with sizes that fit the volume, and the compaction policy.
#[derive(Debug)]
struct FitOptions {
    given: Arc<FamilyOptions>,
    fitting: Arc<FamilyOptions>,
    /// `None`: this release does not know the policy.
    policy: Option<Arc<dyn CompactionPolicy>>,
}

impl FitOptions {
    fn new(given: FamilyOptions, fit: SizeReduction, ablation: Ablation, policies: &Policies) -> Self {
        let given = given.derived();
        let fitting = fit.family(&given);
        let policy = policies.make(&fitting.policy, &fitting.tree(ablation)).ok();
        FitOptions { given: Arc::new(given), fitting: Arc::new(fitting), policy }
    }
}

/// The options of the store that all families share.
#[derive(Debug)]
struct OfStore {
    fit: SizeReduction,
    memtable_bytes: usize,
    ablation: Ablation,
    policies: Policies,
    /// Bytes of a drop cache; `None`: there is none.
    drop_cache_bytes: Option<usize>,
}

impl OfStore {
    fn fit_options(&self, given: FamilyOptions) -> FitOptions {
        FitOptions::new(given, self.fit, self.ablation, &self.policies)
    }
}

/// Settings of a family: see the module.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The given options, and those that fit the volume.
    options: Mutex<FitOptions, rank::FamilyOptions>,
    of_store: OfStore,
    /// Unreadable tables.
    set_aside: Mutex<Arc<SetAside>, rank::SetAside>,
}

impl Settings {
    pub fn new(options: FamilyOptions, store: &Options, fit: SizeReduction) -> Settings {
        let of_store = OfStore {
            fit,
            memtable_bytes: store.memtable_bytes,
            ablation: store.expert.ablation,
            policies: store.expert.policies.clone(),
            drop_cache_bytes: store.drop_cache_bytes(),
        };
        let options = Mutex::new(of_store.fit_options(options));
        Settings { options, of_store, set_aside: Mutex::default() }
    }

    /// Returns the options in effect: the caller's, with sizes that fit the volume.
    pub fn options(&self) -> Arc<FamilyOptions> {
        lock(&self.options).fitting.clone()
    }

    /// Returns the caller's options, as recorded in the manifest.
    pub fn given(&self) -> Arc<FamilyOptions> {
        lock(&self.options).given.clone()
    }

    /// Returns the compaction policy; `None`: this release does not know it.
    pub fn policy(&self) -> Option<Arc<dyn CompactionPolicy>> {
        lock(&self.options).policy.clone()
    }

    /// Returns the options in effect and their compaction policy.
    pub fn chosen(&self) -> (Arc<FamilyOptions>, Option<Arc<dyn CompactionPolicy>>) {
        let options = lock(&self.options);
        (options.fitting.clone(), options.policy.clone())
    }

    pub fn change(&self, options: FamilyOptions) {
        *lock(&self.options) = self.of_store.fit_options(options);
    }

    /// Returns the unreadable tables.
    pub fn tables_set_aside(&self) -> Arc<SetAside> {
        lock(&self.set_aside).clone()
    }

    pub fn set_aside(&self, tables: SetAside) {
        *lock(&self.set_aside) = Arc::new(tables);
    }

    pub fn memtable_bytes(&self) -> usize {
        self.of_store.memtable_bytes
    }

    /// Returns the budget of the cache of overwritten keys; `None`: there is none.
    pub fn drop_cache_bytes(&self) -> Option<usize> {
        self.of_store.drop_cache_bytes
    }
}
