//! A column family at run time: its name, options, and the read state readers pin.

use crate::context::drain::level_0::Level0Drain;
use crate::context::family_options::FamilyOptions;
use crate::context::fit::Fit;
use crate::context::options::Options;
use crate::context::verdict::Gate;
use crate::tree::chain::{self, Chain};
use crate::tree::demand::Demand;
use crate::tree::empty_ranges::EmptyRanges;
use crate::tree::family_work::FamilyWork;
use crate::tree::hiding::Hiding;
use crate::tree::settings::Settings;
use crate::tree::space_sums::{FamilySpace, SpaceSums};
use crate::tree::summary::VersionSummary;
use base::process::Owned;
use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::model::{RwLock, read, write};
use base::sync::{OnceLock, rank};
use base::{Error, HashSet, Result, SeqNo};
use lsm::policy::{CompactionPolicy, Met, SetAside};
use lsm::visible::empty::KeyRange;
use memtable::MemTable;
use std::sync::Arc;
use values::{DropCache, Ledger};
use version::{FamilyId, Version};

/// Everything a read needs, pinned by one reference count: memtables, newest first, and the tables below.
#[derive(Debug)]
pub(crate) struct ReadState {
    /// Takes the writes.
    pub active: Arc<MemTable>,
    /// Frozen, newest first, not yet flushed.
    pub frozen: Vec<Arc<MemTable>>,
    /// The tables.
    pub version: Arc<Version>,
    /// How far compaction is behind: asked by every write, so it is worked out once a version.
    pub chain: Chain,
    /// What is garbage in the vSSTs.
    pub ledger: Arc<Ledger>,
    /// What its tables may hide of separated values; `None`: there are none.
    hiding: Option<Hiding>,
    /// What else is asked of a version again and again.
    pub summary: VersionSummary,
    /// What it asks of the space.
    pub space: FamilySpace,
    /// What this was worked out with: so a write that has pinned it need not ask for them.
    pub options: Arc<FamilyOptions>,
    /// True if no table references some name or vSST of the version: it may go once no job has it pinned.
    pub may_prune: bool,
    /// Files are set aside: garbage in them stays, and nobody can do anything about it.
    pub is_damaged: bool,
    /// The policy of the family is not known here: the tables stay as they are, and nobody may write.
    pub is_unserved: bool,
}

impl ReadState {
    fn new(
        active: Arc<MemTable>,
        frozen: Vec<Arc<MemTable>>,
        version: Arc<Version>,
        (ledger, hiding): (Arc<Ledger>, Option<Hiding>),
        chain: Chain,
        options: &Arc<FamilyOptions>,
        (policy, set_aside): (Option<&dyn CompactionPolicy>, &SetAside),
    ) -> ReadState {
        let summary = VersionSummary::of(&version, &ledger, hiding.as_ref(), options);
        let space = FamilySpace::of((&version, &ledger, &summary), options, policy, set_aside);
        let may_prune = ledger.has_unused();
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
    /// The lowest sequence that is only in memtables.
    pub fn oldest_unflushed_seq(&self) -> Option<SeqNo> {
        let all = self.frozen.iter().chain([&self.active]);
        all.filter_map(|memtable| memtable.seq_range()).map(|(low, _)| low).min()
    }

    /// The same with other memtables.
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

    /// What its tables meet below them. `None`: no values are separated.
    pub fn met(&self) -> Option<&Met> {
        self.hiding.as_ref().map(Hiding::met)
    }

    /// True if there is no estimate of what some table hides.
    pub fn has_unknown_tables(&self) -> bool {
        self.hiding.as_ref().is_some_and(Hiding::has_unknown)
    }
}

/// What is worked out of a version: see [`Family::derive`].
#[derive(Debug)]
pub(crate) struct Derived {
    read_state: ReadState,
    options: Arc<FamilyOptions>,
    set_aside: Arc<SetAside>,
    /// False: of a version that has become another one since.
    is_whole: bool,
}

impl Derived {
    /// The version that it was worked out of.
    pub fn version(&self) -> &Arc<Version> {
        &self.read_state.version
    }

    /// Others have installed what is not in it.
    pub fn is_overtaken(&mut self) {
        self.is_whole = false;
    }
}

/// Families from this number on are among many: what all memtables take before they hold anything is missing in their budget. (A memtable that is
/// not sparing has 48 kB with its first record.)
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
    /// What reads see. Exchanged as a whole: under the lock of the manifest for its version, under the writer's for its memtables.
    read_state: RwLock<Arc<ReadState>, rank::ReadState>,
    /// Changed under the lock of the manifest, and never back.
    dropped: AtomicBool,
    /// The rate of its writers where they are slowed down for this family.
    pub gate: Arc<Gate>,
    /// How fast its level 0 is drained.
    pub level_0: Level0Drain,
    /// What scans lose by the order of its values.
    pub demand: Arc<Demand>,
    /// Where iterators found no visible key.
    pub empty_ranges: EmptyRanges,
    drop_cache: OnceLock<Arc<DropCache>>,
    /// Who is told what it asks of the space, once it is one of the store's families.
    sums: OnceLock<Arc<SpaceSums>>,
    /// Who is told whether it has frozen memtables.
    work: OnceLock<Arc<FamilyWork>>,
}

impl Family {
    pub fn new(
        id: FamilyId,
        name: String,
        options: FamilyOptions,
        version: Arc<Version>,
        memtable_id: u64,
        store: &Options,
        fit: Fit,
    ) -> Self {
        let settings = Settings::new(options, store, fit);
        let memtable_bytes = settings.memtable_bytes();
        let active = memtable(id, memtable_id, memtable_bytes);
        let (options, policy) = settings.chosen();
        let policy = policy.as_deref();
        let ledger = Arc::new(Ledger::of(&version));
        let hiding = (ledger.referenced_bytes() > 0).then(|| Hiding::of(&version));
        let set_aside = SetAside::default();
        let chain = Chain::of(&version, &ledger, policy, &set_aside, &options, memtable_bytes);
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

    /// It is one of the store's families: from now on these sums are told what it asks of the space.
    pub fn tells(&self, sums: &Arc<SpaceSums>) {
        // Under the lock, so that no change comes in between.
        let read_state = write(&self.read_state);
        let sums = self.sums.get_or_init(|| sums.clone());
        sums.join(self.id, read_state.space);
    }

    /// The same of who is told whether it has frozen memtables.
    pub fn tells_work(&self, work: &Arc<FamilyWork>) {
        let read_state = write(&self.read_state);
        let work = self.work.get_or_init(|| work.clone());
        work.set_frozen(self.id, !read_state.frozen.is_empty());
    }

    /// Which keys were overwritten lately; `None` where values are not separated, or not by that.
    pub fn drop_cache(&self) -> Option<Arc<DropCache>> {
        let bytes = self.settings.drop_cache_bytes().filter(|_| self.options().min_blob_size > 0)?;
        Some(self.drop_cache.get_or_init(|| Arc::new(DropCache::new(bytes))).clone())
    }

    /// The options in use: what the user gave, with sizes that fit the volume.
    pub fn options(&self) -> Arc<FamilyOptions> {
        self.settings.options()
    }

    /// What decides about compactions; `None` if it is not known here, and then there are none.
    pub fn policy(&self) -> Option<Arc<dyn CompactionPolicy>> {
        self.settings.policy()
    }

    /// Why nobody may write, if its policy is not known here.
    pub fn check_served(&self) -> Result<()> {
        match self.read_state().is_unserved {
            true => Err(self.unserved()),
            false => Ok(()),
        }
    }

    /// To be asked when a read state is pinned: a family that is dropped is marked first and emptied then, so what is pinned of one that is not
    /// marked has all that was in it.
    pub fn check_there(&self) -> Result<()> {
        match self.is_dropped() {
            true => {
                Err(Error::not_found(format!("column family {} does not exist: it was dropped", self.name)))
            }
            false => Ok(()),
        }
    }

    /// The error of a write to a family whose policy is not known here.
    pub fn unserved(&self) -> Error {
        let name = &self.name;
        self.settings.given().policy.unsupported().context(format!(
            "column family {name} can only be read: open the store with a release that knows the policy, or give it another one"
        ))
    }

    pub fn set_options(&self, options: FamilyOptions) {
        self.settings.change(options);
        self.derive_again(|v| v.is_damaged);
    }

    /// Some of its files cannot be read: these are the tables among them.
    pub fn set_aside(&self, tables: SetAside) {
        self.settings.set_aside(tables);
        self.derive_again(|_| true);
    }

    /// How deep L0 is, and the summary, are a matter of options and of what is damaged, too. The version stays: a job may
    /// install another at the same time.
    fn derive_again(&self, is_damaged: impl Fn(&ReadState) -> bool) {
        let ((options, policy), set_aside) = (self.settings.chosen(), self.settings.tables_set_aside());
        let memtable_bytes = self.settings.memtable_bytes();
        self.update(|v| {
            let (version, ledger, policy) = (v.version.clone(), v.ledger.clone(), policy.as_deref());
            let chain = Chain::of(&version, &ledger, policy, &set_aside, &options, memtable_bytes)
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

    /// Looks at the current read state for a moment, under its lock and without pinning it: `ask` takes no lock.
    pub fn look<T>(&self, ask: impl FnOnce(&ReadState) -> T) -> T {
        #[cfg(all(test, not(loom)))]
        tests::count_step();
        ask(&read(&self.read_state))
    }

    /// Replaces the read state by what `change` makes of it.
    fn update(&self, change: impl FnOnce(&ReadState) -> ReadState) {
        let mut read_state = write(&self.read_state);
        let (before, was_frozen) = (read_state.space, !read_state.frozen.is_empty());
        *read_state = Arc::new(change(&read_state));
        let is_frozen = !read_state.frozen.is_empty();
        if is_frozen != was_frozen
            && let Some(work) = self.work.get()
        {
            work.set_frozen(self.id, is_frozen);
        }
        if read_state.space != before
            && let Some(sums) = self.sums.get()
        {
            sums.change(self.id, read_state.space);
        }
    }

    /// Takes the memtables of an earlier state, newest first: in a reader, before its first read.
    pub fn take_frozen(&self, frozen: Vec<Arc<MemTable>>) {
        self.update(|v| v.with_memtables(v.active.clone(), frozen));
    }

    /// Freezes the active memtable and starts a new one. Called under the writer's lock.
    pub fn freeze(&self, next_memtable_id: u64) {
        self.update(|v| {
            let active = memtable(self.id, next_memtable_id, self.settings.memtable_bytes());
            v.with_memtables(active, [&v.active].into_iter().chain(&v.frozen).cloned().collect())
        });
    }

    /// How deep level 0 would be without these tables of it.
    pub fn l0_depth_without(&self, tables: &HashSet<u64>) -> usize {
        let ((options, policy), set_aside) = (self.settings.chosen(), self.settings.tables_set_aside());
        let version = self.read_state().version.clone();
        let mut levels = version.levels.clone();
        let left = version.files(0).iter().filter(|f| !tables.contains(&f.number)).cloned();
        levels[0] = left.collect::<Vec<_>>().into();
        let version = Version { levels, ..Version::new(self.id) };
        let depth = |policy: Arc<dyn CompactionPolicy>| {
            chain::l0_depth(&version, policy.as_ref(), &set_aside, &options, self.settings.memtable_bytes())
        };
        policy.map_or(0, depth)
    }

    /// What readers will see of a version once it is installed: worked out before anybody is held up.
    pub fn derive(&self, version: Arc<Version>) -> Derived {
        self.derive_after(&self.read_state(), version)
    }

    /// The same by what is known of some other version: it costs what is different between the two.
    fn derive_after(&self, known: &ReadState, version: Arc<Version>) -> Derived {
        let ((options, policy), set_aside) = (self.settings.chosen(), self.settings.tables_set_aside());
        let ledger = Arc::new(known.ledger.after(&known.version, &version));
        let hiding = (ledger.referenced_bytes() > 0).then(|| match &known.hiding {
            Some(hiding) => hiding.after(&known.version, &version),
            None => Hiding::of(&version),
        });
        let memtable_bytes = self.settings.memtable_bytes();
        let chain = Chain::of(&version, &ledger, policy.as_deref(), &set_aside, &options, memtable_bytes);
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

    /// True if it was derived of what is there now, with the options and the damage of now.
    fn is_fresh(&self, derived: &Derived) -> bool {
        derived.is_whole
            && Arc::ptr_eq(&derived.options, &self.options())
            && Arc::ptr_eq(&derived.set_aside, &self.settings.tables_set_aside())
    }

    /// Installs a version, and drops the memtables whose ids are in `flushed` in the same step, so that no reader ever
    /// misses their entries or meets them twice. `derived` is what was worked out of a version with the same content, or with nearly the same,
    /// if anything was.
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

    /// After a drop: lets go of memtables and tables, which pinned read states and iterators may still hold.
    pub fn discard_read_state(&self) {
        let options = self.options();
        self.update(|v| {
            let active = Arc::new(MemTable::new(v.active.id()));
            let version = Arc::new(Version::new(self.id));
            let set_aside = SetAside::default();
            let by = (None, &set_aside);
            let of_values = (Arc::default(), None);
            ReadState::new(active, Vec::new(), version, of_values, Chain::default(), &options, by)
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
        // Earlier pins of the read state are over, since each holds its lock.
        self.empty_ranges.found(&range, (snapshot, keys), || drop(write(&self.read_state)));
    }
}

/// Bytes that a version has in level 0 more than the one before it. (What a compaction takes away at the same time counts against them: edits
/// have one or the other.)
fn came_into_level_0(before: &Version, after: &Version) -> u64 {
    after.level_bytes(0).saturating_sub(before.level_bytes(0))
}

/// A handle of a column family. Cheap to clone; it may outlive the store, and then every use of it fails.
#[derive(Clone, Debug)]
pub struct ColumnFamily(pub(crate) Owned<Arc<Family>>);

impl ColumnFamily {
    /// Its number, never reused in the store.
    pub fn id(&self) -> FamilyId {
        self.0.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its options: those it was created with, or was given since. (Sizes that did not fit the volume are told as given.)
    pub fn options(&self) -> FamilyOptions {
        match Owned::process(&self.0).is_here() {
            true => (*self.0.settings.given()).clone(),
            // Asking would take a lock.
            false => FamilyOptions::default(),
        }
    }
}

#[cfg(all(test, not(loom)))]
pub(crate) mod tests;
