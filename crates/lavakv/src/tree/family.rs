//! A column family at run time: its name, its options, and the read state that readers pin.

use crate::context::drain::level_0::Level0Drain;
use crate::context::family_options::FamilyOptions;
use crate::context::fit::SizeReduction;
use crate::context::options::Options;
use crate::context::write_throttle::WriteThrottle;
use crate::tree::compaction_debt::{self, CompactionDebt};
use crate::tree::empty_ranges::EmptyRanges;
use crate::tree::family_work::{FamilyWork, SettledTree};
use crate::tree::scan_cost::ScanCost;
use crate::tree::settings::Settings;
use crate::tree::snapshot::Snapshots;
use crate::tree::space_sums::{SpaceDemand, SpaceSums};
use crate::tree::summary::{self, VersionSummary};
use crate::tree::unexposed_garbage::UnexposedGarbage;
use base::process::Owned;
use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::model::{RwLock, read, write};
use base::sync::{OnceLock, rank};
use base::{Error, HashSet, Result, SeqNo};
use lsm::policy::{CompactionPolicy, OverlapStats, SetAside};
use lsm::visible::empty::KeyRange;
use memtable::MemTable;
use std::sync::Arc;
use values::{DropCache, Ledger};
use version::{FamilyId, Version};

/// Memtables, newest first, and a version, pinned by one reference count. A read needs nothing
/// else.
#[derive(Debug)]
pub(crate) struct ReadState {
    /// The active memtable.
    pub active: Arc<MemTable>,
    /// Frozen, newest first, not yet flushed.
    pub frozen: Vec<Arc<MemTable>>,
    pub version: Arc<Version>,
    /// Compaction debt. Every write reads it, so it is derived once for each version.
    pub chain: CompactionDebt,
    /// Garbage in the value files of the version.
    pub ledger: Arc<Ledger>,
    /// Unexposed garbage below its tables. `None`: no values are separated.
    hiding: Option<UnexposedGarbage>,
    /// Other figures of the version that are read often.
    pub summary: VersionSummary,
    /// Space demand of the family.
    pub space: SpaceDemand,
    /// Options from which the fields were derived. A write that has pinned the state takes them
    /// from here.
    pub options: Arc<FamilyOptions>,
    /// True if no table references some name or value file of the version. Such files may go once
    /// no job pins it.
    pub may_prune: bool,
    /// True if some files are set aside. Garbage in them cannot be collected.
    pub is_damaged: bool,
    /// True if this release does not know the compaction policy of the family: it does not compact
    /// and refuses writes.
    pub is_unserved: bool,
}

impl ReadState {
    fn new(
        active: Arc<MemTable>,
        frozen: Vec<Arc<MemTable>>,
        version: Arc<Version>,
        (ledger, hiding): (Arc<Ledger>, Option<UnexposedGarbage>),
        chain: CompactionDebt,
        options: &Arc<FamilyOptions>,
        (policy, set_aside): (Option<&dyn CompactionPolicy>, &SetAside),
    ) -> ReadState {
        let summary = VersionSummary::of(&version, &ledger, hiding.as_ref(), options);
        let space = SpaceDemand::of((&version, &ledger, &summary), options, policy, set_aside);
        let may_prune = ledger.has_unused();
        let summary = VersionSummary {
            is_settled: !may_prune
                && hiding.is_none()
                && summary::is_settled((&version, &chain), options, policy, set_aside),
            ..summary
        };
        ReadState {
            active,
            frozen,
            version,
            chain,
            ledger,
            hiding,
            summary,
            space,
            options: options.clone(),
            may_prune,
            is_damaged: false,
            is_unserved: false,
        }
    }
}

impl ReadState {
    /// Returns the lowest sequence that is only in memtables.
    pub fn oldest_unflushed_seq(&self) -> Option<SeqNo> {
        let all = self.frozen.iter().chain([&self.active]);
        all.filter_map(|memtable| memtable.seq_range()).map(|(low, _)| low).min()
    }

    fn with_memtables(&self, active: Arc<MemTable>, frozen: Vec<Arc<MemTable>>) -> ReadState {
        ReadState {
            active,
            frozen,
            version: self.version.clone(),
            chain: self.chain,
            ledger: self.ledger.clone(),
            hiding: self.hiding.clone(),
            summary: self.summary,
            space: self.space,
            options: self.options.clone(),
            may_prune: self.may_prune,
            is_damaged: self.is_damaged,
            is_unserved: self.is_unserved,
        }
    }

    /// Returns the overlap statistics of its tables. `None`: no values are separated.
    pub fn met(&self) -> Option<&OverlapStats> {
        self.hiding.as_ref().map(UnexposedGarbage::met)
    }

    /// Returns the tree of a settled family: without tables that a compaction, collection or survey
    /// could take in a store that is busy and has space. `None`: decisions visit the family.
    pub fn settled(&self) -> Option<SettledTree> {
        self.summary.is_settled.then(|| self.summary.pressure.settled())
    }

    /// True if the unexposed garbage below some table is not estimated.
    pub fn has_unknown_tables(&self) -> bool {
        self.hiding.as_ref().is_some_and(UnexposedGarbage::has_unknown)
    }
}

/// A read state that is derived from a version ahead of its installation: see [`Family::derive`].
#[derive(Debug)]
pub(crate) struct Derived {
    read_state: ReadState,
    options: Arc<FamilyOptions>,
    set_aside: Arc<SetAside>,
    /// False if another edit has changed the version since.
    is_whole: bool,
}

impl Derived {
    /// Returns the version from which the state was derived.
    pub fn version(&self) -> &Arc<Version> {
        &self.read_state.version
    }

    /// Marks the derived state as stale: another edit was installed meanwhile.
    pub fn is_overtaken(&mut self) {
        self.is_whole = false;
    }
}

/// Families from this id on get sparing memtables, so that many idle families take little of the
/// memtable budget. (A regular memtable allocates 48 kB with its first record.)
const MANY_FAMILIES: FamilyId = 8;

fn memtable(family: FamilyId, id: u64, bytes: usize) -> Arc<MemTable> {
    Arc::new(if family < MANY_FAMILIES {
        MemTable::for_bytes(id, bytes)
    } else {
        MemTable::sparing(id, bytes)
    })
}

/// A column family.
#[derive(Debug)]
pub(crate) struct Family {
    pub id: FamilyId,
    pub name: String,
    pub settings: Settings,
    /// Read state, replaced as a whole: under the manifest's lock for a new version, under the
    /// writer's lock for new memtables.
    read_state: RwLock<Arc<ReadState>, rank::ReadState>,
    /// Set under the manifest's lock, never reset.
    dropped: AtomicBool,
    /// Rate limit of writes that are slowed down for this family.
    pub gate: Arc<WriteThrottle>,
    /// Drain rate of its level 0.
    pub level_0: Level0Drain,
    /// Cost of its scans caused by scattered values.
    pub demand: Arc<ScanCost>,
    /// Key ranges in which iterators found no visible key.
    pub empty_ranges: EmptyRanges,
    drop_cache: OnceLock<Arc<DropCache>>,
    /// Receives its space demand once it belongs to the store.
    sums: OnceLock<Arc<SpaceSums>>,
    /// Receives whether it has frozen memtables.
    work: OnceLock<Arc<FamilyWork>>,
}

#[cold]
fn dropped(name: &str) -> Error {
    Error::not_found(format!("column family {name} does not exist: it was dropped; create a new one"))
}

impl Family {
    pub fn new(
        id: FamilyId,
        name: String,
        options: FamilyOptions,
        version: Arc<Version>,
        memtable_id: u64,
        store: &Options,
        fit: SizeReduction,
    ) -> Self {
        let settings = Settings::new(options, store, fit);
        let memtable_bytes = settings.memtable_bytes();
        let active = memtable(id, memtable_id, memtable_bytes);
        let (options, policy) = settings.chosen();
        let policy = policy.as_deref();
        let ledger = Arc::new(Ledger::of(&version));
        let hiding = (ledger.referenced_bytes() > 0).then(|| UnexposedGarbage::of(&version));
        let set_aside = SetAside::default();
        let chain = CompactionDebt::of(&version, &ledger, policy, &set_aside, &options, memtable_bytes);
        let read_state = ReadState::new(
            active,
            Vec::new(),
            version,
            (ledger, hiding),
            chain,
            &options,
            (policy, &set_aside),
        );
        let read_state = ReadState { is_unserved: policy.is_none(), ..read_state };
        Family {
            id,
            name,
            settings,
            read_state: RwLock::new(Arc::new(read_state)),
            dropped: AtomicBool::new(false),
            gate: Arc::default(),
            level_0: Level0Drain::default(),
            demand: Arc::default(),
            empty_ranges: EmptyRanges::default(),
            drop_cache: OnceLock::new(),
            sums: OnceLock::default(),
            work: OnceLock::default(),
        }
    }

    /// Joins the store's families: from now on every change of the space demand goes to `sums`.
    pub fn tells(&self, sums: &Arc<SpaceSums>) {
        // Under the lock, so that no change comes in between.
        let read_state = write(&self.read_state);
        let sums = self.sums.get_or_init(|| sums.clone());
        sums.join(self.id, read_state.space);
    }

    /// Registers the set of families with frozen memtables, which every rotation and flush updates.
    pub fn tells_work(&self, work: &Arc<FamilyWork>) {
        let read_state = write(&self.read_state);
        self.demand.tells_work(work, self.id);
        let work = self.work.get_or_init(|| work.clone());
        work.set_frozen(self.id, !read_state.frozen.is_empty());
        work.join_tree(self.id, read_state.settled());
    }

    /// Returns the cache of recently overwritten keys. `None`: the family does not separate values,
    /// or not by heat.
    pub fn drop_cache(&self) -> Option<Arc<DropCache>> {
        let bytes = self.settings.drop_cache_bytes().filter(|_| self.options().min_blob_size > 0)?;
        Some(self.drop_cache.get_or_init(|| Arc::new(DropCache::new(bytes))).clone())
    }

    /// Returns the options in effect: the user's, with sizes that fit the volume.
    pub fn options(&self) -> Arc<FamilyOptions> {
        self.settings.options()
    }

    /// Returns the compaction policy. `None`: this release does not know it, and the family is not
    /// compacted.
    pub fn policy(&self) -> Option<Arc<dyn CompactionPolicy>> {
        self.settings.policy()
    }

    /// Fails if this release does not know the compaction policy: the family then refuses writes.
    pub fn check_served(&self) -> Result<()> {
        match self.read_state().is_unserved {
            true => Err(self.unserved()),
            false => Ok(()),
        }
    }

    /// Fails if the family was dropped. Call it after pinning a read state: a drop marks the family
    /// before it empties the state. So a pinned state of an unmarked family is complete.
    pub fn check_there(&self) -> Result<()> {
        if self.is_dropped() { Err(dropped(&self.name)) } else { Ok(()) }
    }

    /// Returns the error of a write to a family with an unknown compaction policy.
    pub fn unserved(&self) -> Error {
        let name = &self.name;
        self.settings.given().policy.unsupported().context(format!(
            "column family {name} can only be read: open the store with a release that knows the \
             policy, or set another policy"
        ))
    }

    pub fn set_options(&self, options: FamilyOptions) {
        self.settings.change(options);
        self.derive_again(|v| v.is_damaged);
    }

    /// Sets the family's unreadable tables.
    pub fn set_aside(&self, tables: SetAside) {
        self.settings.set_aside(tables);
        self.derive_again(|_| true);
    }

    /// Derives the read state again from the same version. Level 0 depth and summary also depend on
    /// options and damage. The version is taken under the lock, since a job may install another one
    /// at the same time.
    fn derive_again(&self, is_damaged: impl Fn(&ReadState) -> bool) {
        let ((options, policy), set_aside) = (self.settings.chosen(), self.settings.tables_set_aside());
        let memtable_bytes = self.settings.memtable_bytes();
        self.update(|v| {
            let (version, ledger, policy) = (v.version.clone(), v.ledger.clone(), policy.as_deref());
            let chain = CompactionDebt::of(&version, &ledger, policy, &set_aside, &options, memtable_bytes)
                .with_what_is_known(&v.chain);
            let (active, frozen) = (v.active.clone(), v.frozen.clone());
            ReadState {
                may_prune: v.may_prune,
                is_damaged: is_damaged(v),
                is_unserved: policy.is_none(),
                ..ReadState::new(
                    active,
                    frozen,
                    version,
                    (ledger, v.hiding.clone()),
                    chain,
                    &options,
                    (policy, &set_aside),
                )
            }
        });
    }

    /// Pins the current read state.
    pub fn read_state(&self) -> Arc<ReadState> {
        #[cfg(all(test, not(loom)))]
        tests::count_step();
        read(&self.read_state).clone()
    }

    /// Calls `ask` with the current read state under its lock, without pinning it. `ask` must take
    /// no lock.
    pub fn look<T>(&self, ask: impl FnOnce(&ReadState) -> T) -> T {
        #[cfg(all(test, not(loom)))]
        tests::count_step();
        ask(&read(&self.read_state))
    }

    fn update(&self, change: impl FnOnce(&ReadState) -> ReadState) {
        let mut read_state = write(&self.read_state);
        let (before, was_frozen) = (read_state.space, !read_state.frozen.is_empty());
        let was_settled = read_state.settled();
        *read_state = Arc::new(change(&read_state));
        let is_frozen = !read_state.frozen.is_empty();
        if let Some(work) = self.work.get() {
            if is_frozen != was_frozen {
                work.set_frozen(self.id, is_frozen);
            }
            if read_state.settled() != was_settled {
                work.change_tree(self.id, read_state.settled());
            }
        }
        if read_state.space != before
            && let Some(sums) = self.sums.get()
        {
            sums.change(self.id, read_state.space);
        }
    }

    /// Takes over the frozen memtables of an earlier state, newest first: in a read-only store,
    /// before its first read.
    pub fn take_frozen(&self, frozen: Vec<Arc<MemTable>>) {
        self.update(|v| v.with_memtables(v.active.clone(), frozen));
    }

    /// Rotates the active memtable. The caller holds the writer's lock.
    pub fn rotate(&self, next_memtable_id: u64) {
        self.update(|v| {
            let active = memtable(self.id, next_memtable_id, self.settings.memtable_bytes());
            v.with_memtables(active, [&v.active].into_iter().chain(&v.frozen).cloned().collect())
        });
    }

    /// Returns the depth that level 0 would have without `tables`.
    pub fn l0_depth_without(&self, tables: &HashSet<u64>) -> usize {
        let ((options, policy), set_aside) = (self.settings.chosen(), self.settings.tables_set_aside());
        let version = self.read_state().version.clone();
        let mut levels = version.levels.clone();
        let left = version.files(0).iter().filter(|f| !tables.contains(&f.number)).cloned();
        levels[0] = left.collect::<Vec<_>>().into();
        let version = Version { levels, ..Version::new(self.id) };
        let depth = |policy: Arc<dyn CompactionPolicy>| {
            compaction_debt::l0_depth(
                &version,
                policy.as_ref(),
                &set_aside,
                &options,
                self.settings.memtable_bytes(),
            )
        };
        policy.map_or(0, depth)
    }

    /// Derives the read state of a version before it is installed, and before the manifest is
    /// locked.
    pub fn derive(&self, version: Arc<Version>) -> Derived {
        self.derive_after(&self.read_state(), version)
    }

    /// Derives the read state from that of another version. The cost is proportional to the
    /// difference between the two.
    fn derive_after(&self, known: &ReadState, version: Arc<Version>) -> Derived {
        let ((options, policy), set_aside) = (self.settings.chosen(), self.settings.tables_set_aside());
        let ledger = Arc::new(known.ledger.after(&known.version, &version));
        let hiding = (ledger.referenced_bytes() > 0).then(|| match &known.hiding {
            Some(hiding) => hiding.after(&known.version, &version),
            None => UnexposedGarbage::of(&version),
        });
        let memtable_bytes = self.settings.memtable_bytes();
        let chain =
            CompactionDebt::of(&version, &ledger, policy.as_deref(), &set_aside, &options, memtable_bytes);
        let active = known.active.clone();
        let policy = policy.as_deref();
        Derived {
            read_state: ReadState::new(
                active,
                Vec::new(),
                version,
                (ledger, hiding),
                chain,
                &options,
                (policy, &set_aside),
            ),
            options,
            set_aside,
            is_whole: true,
        }
    }

    /// True if the state was derived from the current version, options and damage.
    fn is_fresh(&self, derived: &Derived) -> bool {
        derived.is_whole
            && Arc::ptr_eq(&derived.options, &self.options())
            && Arc::ptr_eq(&derived.set_aside, &self.settings.tables_set_aside())
    }

    /// Installs a version and removes the memtables with ids in `flushed` in one step. So no reader
    /// misses their entries or finds them twice. `derived`: a state derived from the same version,
    /// or from one that differs little.
    pub fn install(&self, version: Arc<Version>, derived: Option<Derived>, flushed: &[u64], now_ns: u64) {
        let derived = match derived {
            Some(derived) if self.is_fresh(&derived) => derived,
            Some(nearly) => self.derive_after(&nearly.read_state, version.clone()),
            None => self.derive(version.clone()),
        };
        self.update(|v| ReadState {
            active: v.active.clone(),
            frozen: v.frozen.iter().filter(|m| !flushed.contains(&m.id())).cloned().collect(),
            is_damaged: v.is_damaged,
            is_unserved: v.is_unserved,
            chain: derived.read_state.chain.after(&v.chain, came_into_level_0(&v.version, &version), now_ns),
            version,
            ..derived.read_state
        });
    }

    /// Replaces memtables and version by empty ones after a drop. Pinned read states and iterators
    /// may still hold the old ones.
    pub fn discard_read_state(&self) {
        let options = self.options();
        self.update(|v| {
            let active = Arc::new(MemTable::new(v.active.id()));
            let version = Arc::new(Version::new(self.id));
            let set_aside = SetAside::default();
            let by = (None, &set_aside);
            let of_values = (Arc::default(), None);
            ReadState::new(active, Vec::new(), version, of_values, CompactionDebt::default(), &options, by)
        });
    }

    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    pub fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }
}

impl lsm::visible::empty::EmptyRanges for Family {
    fn around(&self, user_key: &[u8], snapshot: SeqNo) -> Option<KeyRange> {
        self.empty_ranges.around(user_key, snapshot)
    }

    fn found(&self, range: KeyRange, snapshot: SeqNo, keys: u64) {
        // Taking the lock waits for the end of earlier pins, since each holds it.
        self.empty_ranges.found(&range, (snapshot, keys), || drop(write(&self.read_state)));
    }
}

/// Returns the growth of level 0 in bytes. Files removed by a compaction would count against it,
/// but an edit is either a flush or a compaction.
fn came_into_level_0(before: &Version, after: &Version) -> u64 {
    after.level_bytes(0).saturating_sub(before.level_bytes(0))
}

/// A handle of a column family. Cheap to clone. It may outlive the store; then every use of it
/// fails.
#[derive(Clone, Debug)]
pub struct ColumnFamily(pub(crate) Owned<Arc<Family>>);

impl ColumnFamily {
    /// Returns its id, which the store never reuses.
    pub fn id(&self) -> FamilyId {
        self.0.id
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the options given at its creation or since. Sizes are those given, even where
    /// smaller ones are in effect.
    pub fn options(&self) -> FamilyOptions {
        match Owned::process(&self.0).is_here() {
            true => (*self.0.settings.given()).clone(),
            // Reading them would take a lock, which a child process must not.
            false => FamilyOptions::default(),
        }
    }
}

/// Pins a read state and the visible frontier. The read state holds everything up to the frontier.
pub(crate) fn pin_at(snapshots: &Snapshots, family: &Family) -> (Arc<ReadState>, SeqNo) {
    let mut read_state = family.read_state();
    loop {
        let seq = snapshots.visible();
        let now = family.read_state();
        if Arc::ptr_eq(&read_state, &now) {
            return (read_state, seq);
        }
        read_state = now;
    }
}

#[cfg(all(test, not(loom)))]
pub(crate) mod tests;
