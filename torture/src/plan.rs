//! Random choices: options, keys, values. Sizes are small, so that a hundred operations cross every
//! threshold.

use crate::machine;
use crate::state::{Change, OPERAND_LEN_MAX, OPERATOR_DELIMITER};
use clap::ValueEnum;
use io::Rng;
use lavastore::testing::Ablation;
use lavastore::{
    Access, Compression, Durability, ExpertFamilyOptions, Family, FamilyOptions, KeyPrefix, Loggers,
    MergeChoice, Options, OverlapOf, PolicyChoice, SpaceLimit, SpacePolicy, VlsmOptions,
};
use std::cell::Cell;
use std::sync::OnceLock;
use std::time::Duration;

/// Returns a random element of a list.
pub(crate) fn pick<T: Copy>(rng: &mut Rng, list: &[T]) -> T {
    list[rng.below(list.len() as u64) as usize]
}

/// Draws options of a family, within their ranges.
pub(crate) fn family_options(rng: &mut Rng) -> FamilyOptions {
    let file_bytes = pick(rng, &[4 << 10, 8 << 10, 16 << 10, 64 << 10]);
    let l0_compaction_files = pick(rng, &[1, 2, 3, 4, 8]);
    let l0_slowdown_files = l0_compaction_files + rng.below(4) as usize;
    // Recorded seeds require this order of draws.
    let compression = pick(rng, &[Compression::None, Compression::Lz4, Compression::Zstd]);
    let block_bytes = pick(rng, &[512, 1024, 4096, 8192]);
    let filter_bits_per_key = pick(rng, &[0, 1, 4, 10, 20]);
    let mut expert = ExpertFamilyOptions {
        block_bytes,
        file_bytes,
        level_base_bytes: file_bytes * pick(rng, &[1, 2, 4]),
        level_multiplier: pick(rng, &[2, 3, 10]),
        levels: pick(rng, &[2, 3, 4, 7]),
        l0_compaction_files,
        l0_slowdown_files,
        l0_stop_files: l0_slowdown_files + 1 + rng.below(4) as usize,
        ..ExpertFamilyOptions::default()
    };
    let min_blob_size = pick(rng, &[0, 0, 32, 64, 100, 512, 512, 2048]);
    expert.vsst_bytes = pick(rng, &[4 << 10, 8 << 10, 32 << 10, 256 << 10]);
    expert.gc_ratio_percent = pick(rng, &[1, 5, 20, 60]);
    let (policy, merge_operator) = (policy(rng), merge_operator(rng));
    let prefix = prefix(rng).filter(|_| filter_bits_per_key > 0);
    FamilyOptions { compression, min_blob_size, filter_bits_per_key, prefix, policy, merge_operator, expert }
}

thread_local! {
    /// True while this thread runs cases whose families have no merge operator.
    static WITHOUT_OPERATORS: Cell<bool> = const { Cell::new(false) };
}

/// Half of the families have prefixes of keys in their filters.
fn prefix(rng: &Rng) -> Option<KeyPrefix> {
    let mut own = aside(rng, 0x7072_6566_6978);
    let is_drawn = own.one_in(2) && !WITHOUT_OPERATORS.get();
    let fixed = [1, 2, 3, 5, 6].map(KeyPrefix::Fixed);
    let delimiter = [b'/', b'a', 0, 0xff].map(KeyPrefix::Delimiter);
    is_drawn.then(|| pick(&mut own, &[&fixed[..], &delimiter].concat()))
}

/// Runs cases without merge operators and key prefixes: recorded seeds are older, and so are earlier
/// releases.
pub(crate) fn without_operators<R>(run: impl FnOnce() -> R) -> R {
    let before = WITHOUT_OPERATORS.replace(true);
    let out = run();
    WITHOUT_OPERATORS.set(before);
    out
}

/// Half of the families have a merge operator, always the same.
fn merge_operator(rng: &Rng) -> Option<MergeChoice> {
    let is_drawn = aside(rng, 0x6d65_7267_6521).one_in(2) && !WITHOUT_OPERATORS.get();
    is_drawn.then(|| MergeChoice::append(OPERATOR_DELIMITER))
}

/// Draws a policy, so that it changes between opens; `vlsm` with tables so small that its levels
/// fill.
fn policy(rng: &Rng) -> PolicyChoice {
    let mut aside = aside(rng, 0x706f_6c69_6379);
    if aside.one_in(2) {
        return PolicyChoice::default();
    }
    PolicyChoice::vlsm(&VlsmOptions {
        table_bytes: pick(&mut aside, &[4 << 10, 4 << 10, 8 << 10, 8 << 20]),
        poor_percent: pick(&mut aside, &[1, 50, 100]),
        level_1_tables: pick(&mut aside, &[1, 2, 8]),
        growth_max: pick(&mut aside, &[2, 4, 32]),
        overlap: pick(&mut aside, &[OverlapOf::Table, OverlapOf::FullTable]),
        queue_tables: pick(&mut aside, &[1, 2, 8]),
    })
}

/// Makes two thirds of the short puts merges, if the family takes them; drawn aside.
pub(crate) fn with_merges(rng: &Rng, family: &Family, change: Change) -> Change {
    match change {
        Change::Put(key, value)
            if value.len() <= OPERAND_LEN_MAX
                && !aside(rng, 0x7661_7269_616e).one_in(3)
                && family.options().merge_operator.is_some() =>
        {
            Change::Merge(key, value)
        }
        change => change,
    }
}

/// Returns a separate generator for later additions, so that recorded seeds keep their draws.
pub(crate) fn aside(rng: &Rng, what: u64) -> Rng {
    Rng::new(rng.clone().next_u64() ^ what)
}

/// Draws options of a store, within their ranges, as small as possible.
pub(crate) fn options(rng: &mut Rng) -> Options {
    let options = without_limit(rng);
    // Not drawn. A width above one is used whether it pays off or not.
    let writes_max = 1 + options.expert.compactions_max;
    // Or a width chosen adaptively, which changes during the run.
    let is_found = aside(rng, 0x7769_6474_6800).one_in(4);
    let loggers = Loggers { writes_max: if is_found { 0 } else { writes_max }, threads_min: 0 };
    let limited = Options { space_limit: space_limit(rng), ..options }.expert(|expert| {
        expert.ablation = ablation(rng);
        expert.loggers = loggers;
    });
    // Effective only with two disks; may change at each open.
    let limited = limited
        .expert(|expert| expert.fast_tier_levels = pick(&mut aside(rng, 0x7461_626c_6573), &[0, 1, 1, 2, 7]));
    let limited = with_speed_values(rng, limited);
    // Adaptive moves are fast, because a run is short.
    let limited = limited.expert(|expert| {
        expert.fast_tier_adaptive = aside(rng, 0x6d6f_7665_7321).one_in(2);
        expert.fast_tier_interval = Duration::from_millis(2);
    });
    let limited = with_aging(rng, limited.expert(|expert| expert.read_gap_bytes = read_gap(rng)));
    let mut aside = aside(rng, 0x7469_6768_7400);
    if aside.one_in(6) { tight(&mut aside, limited) } else { limited }
}

/// A fourth of the stores defer buffered pages for flushes, for moments or a whole run; all stores
/// if the campaign says so.
fn with_aging(rng: &Rng, options: Options) -> Options {
    let mut aside = aside(rng, 0x6167_696e_6721);
    let is_drawn = aside.one_in(4);
    if !is_drawn && !is_with(With::BufferedAge) {
        return options;
    }
    let options =
        options.expert(|expert| expert.buffered_age_ms_max = Some(pick(&mut aside, &[1, 20, 60_000])));
    Options { memory_bytes: options.memory_bytes + options.waiting_log_bytes(), ..options }
}

/// Applies the options of the campaign, for rows with options of their own.
pub(crate) fn with_what_all_have(rng: &Rng, options: Options) -> Options {
    if is_with(With::BufferedAge) { with_aging(rng, options) } else { options }
}

/// Options of every store of a campaign, in addition to the drawn ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum With {
    /// `ExpertOptions::buffered_age_ms_max`.
    #[value(name = "buffered_age")]
    BufferedAge,
}

/// Set once, before threads start.
static ALL_HAVE: OnceLock<Vec<With>> = OnceLock::new();

/// Sets the options of all later stores.
pub(crate) fn all_have(with: &[With]) {
    let _ = ALL_HAVE.set(with.to_vec());
}

pub(crate) fn is_with(what: With) -> bool {
    ALL_HAVE.get().is_some_and(|with| with.contains(&what))
}

/// Returns the arguments that pass these options to a child process.
pub(crate) fn with_arguments() -> Vec<String> {
    let name = |with: &With| with.to_possible_value().map(|value| value.get_name().to_owned());
    let names = ALL_HAVE.get().into_iter().flatten().filter_map(name);
    names.flat_map(|name| ["--with".to_owned(), name]).collect()
}

/// Draws mostly the measured gap, otherwise none or an arbitrary one.
fn read_gap(rng: &Rng) -> Option<u64> {
    pick(&mut aside(rng, 0x6761_7073_2121), &[None, None, None, Some(0), Some(1000), Some(1 << 20)])
}

/// With two disks, draws hot values or all flushed values on the fast tier, mostly without a bound.
fn with_speed_values(rng: &Rng, options: Options) -> Options {
    let bytes = match machine::has_two_disks() {
        true => pick(&mut aside(rng, 0x0076_616c_7565), &[0, 16 << 10, 1 << 40, 1 << 40]),
        false => 0,
    };
    let is_fresh = bytes > 0 && aside(rng, 0x6672_6573_6821).one_in(2);
    options.expert(|expert| {
        expert.fast_tier_values_bytes_max = bytes;
        expert.fast_tier_values_flushed = is_fresh;
    })
}

fn without_limit(rng: &mut Rng) -> Options {
    let memtable_bytes = pick(rng, &[16 << 10, 16 << 10, 32 << 10, 128 << 10]);
    let log_group_bytes = pick(rng, &[64 << 10, 64 << 10, 68 << 10, 128 << 10]);
    // Recorded seeds require this order of draws.
    let cache_bytes = pick(rng, &[0, 8 << 10, 64 << 10, 1 << 20]);
    let memory_bytes = memtable_bytes * pick(rng, &[2, 3, 8]);
    let wal_bytes_max = log_group_bytes * pick(rng, &[2, 3, 8]);
    let background_threads = pick(rng, &[1, 2, 3]);
    let compactions_max = pick(rng, &[0, 1, 2]);
    Options {
        cache_bytes,
        memtable_bytes,
        memory_bytes,
        background_threads,
        io_budget: pick(rng, &[0, 0, 0, 1 << 20]),
        access: pick(rng, &[Access::Direct, Access::Buffered]),
        durability: pick(rng, &[Durability::Durable, Durability::Buffered]),
        open_files_max: pick(rng, &[16, 32, 4096]),
        family: family_options(rng),
        ..Default::default()
    }
    .expert(|expert| {
        expert.log_group_bytes = log_group_bytes;
        expert.wal_bytes_max = wal_bytes_max;
        expert.compactions_max = compactions_max;
    })
}

/// Draws a limit that a run does not reach: admission, grants and the bounds of log and manifest
/// are active, without refusals.
fn space_limit(rng: &Rng) -> Option<SpaceLimit> {
    // Not drawn by `aside`, which was added later.
    let mut aside = rng.clone();
    let limits = [None, None, Some(SpaceLimit::Bytes(ROOMY_BYTES)), Some(SpaceLimit::Ratio(ROOMY_RATIO))];
    pick(&mut aside, &limits)
}

const ROOMY_BYTES: u64 = 1 << 30;
const ROOMY_RATIO: f64 = 4.0;

/// Draws mostly all mechanisms, otherwise some, and sometimes none.
fn ablation(rng: &Rng) -> Ablation {
    let mut aside = aside(rng, 0x6162_6c61_7465);
    // Recorded seeds disable all three parts of the scheduling of collections at once.
    let with_threads = ["gc_threshold", "gc_pace"];
    let names = Ablation::names().into_iter().filter(|name| !with_threads.contains(name));
    let mut off: Vec<&str> = match aside.below(8) {
        0 => names.collect(),
        1 | 2 => names.filter(|_| aside.one_in(2)).collect(),
        _ => Vec::new(),
    };
    if off.contains(&"gc_threads") {
        off.extend(with_threads);
    }
    Ablation::without(off).expect("these are their names")
}

/// Adds a scrub in half of the cases: slow, or as fast as possible.
pub(crate) fn scrubbed(rng: &Rng, options: Options) -> Options {
    let mut aside = aside(rng, 0x7363_7275_6200);
    options.expert(|expert| expert.scrub_bytes_per_s = pick(&mut aside, &[0, 0, 64 << 10, 1 << 40]))
}

/// Adds a limit that a run reaches: writes may be refused.
pub(crate) fn tight(rng: &mut Rng, options: Options) -> Options {
    let more = pick(rng, &[0, 16 << 10, 64 << 10, 256 << 10, 1 << 20]);
    let wait = Duration::from_millis(pick(rng, &[1, 60, 500]));
    let policies = [SpacePolicy::NoSpace, SpacePolicy::Wait { at_most: wait }];
    let options = Options { space_policy: pick(rng, &policies), ..options };
    if rng.one_in(3) {
        return Options { space_limit: Some(SpaceLimit::Ratio(1.05 + rng.unit())), ..options };
    }
    above_least(options, more)
}

/// Returns true if writes may be refused under these options.
pub(crate) fn is_tight(options: &Options) -> bool {
    match options.space_limit {
        None => false,
        Some(SpaceLimit::VolumePercent(_)) => true,
        Some(SpaceLimit::Bytes(bytes)) => bytes < ROOMY_BYTES,
        Some(SpaceLimit::Ratio(ratio)) => ratio < ROOMY_RATIO,
    }
}

/// Removes a limit that may refuse writes.
pub(crate) fn roomy(options: Options) -> Options {
    Options { space_limit: options.space_limit.filter(|_| !is_tight(&options)), ..options }
}

/// Sets the lowest accepted limit in bytes plus `more`.
fn above_least(options: Options, more: u64) -> Options {
    Options { space_limit: Some(SpaceLimit::Bytes(least_limit(&options) + more)), ..options }
}

/// Returns the lowest accepted limit in bytes.
pub(crate) fn least_limit(options: &Options) -> u64 {
    let at = |bytes| Options { space_limit: Some(SpaceLimit::Bytes(bytes)), ..options.clone() };
    let (mut low, mut high) = (0, ROOMY_BYTES / 2);
    while low < high {
        let middle = low.midpoint(high);
        if at(middle).validate().is_ok() {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// Draws options with separated values in small files that are collected soon.
pub(crate) fn churn_options(rng: &mut Rng) -> Options {
    let options = options(rng);
    let family =
        FamilyOptions { min_blob_size: pick(rng, &[32, 64, 200, 512]), ..options.family }.expert(|expert| {
            expert.vsst_bytes = pick(rng, &[4 << 10, 8 << 10, 32 << 10]);
            expert.gc_ratio_percent = pick(rng, &[1, 5, 20]);
        });
    let options = Options { family, ..options };
    // These values may need a higher limit than the drawn one.
    if is_tight(&options) && options.validate().is_err() { above_least(options, 64 << 10) } else { options }
}

/// Formats the options of a store in a line.
pub(crate) fn describe(options: &Options) -> String {
    let f = &options.family;
    format!(
        "memtable {} memory {} group {} wal {} cache {} threads {} compactions {} loggers {} age {:?} ms scrub {} access {:?} {:?}; {:?} block {} \
         filter {} prefix {:?} file {} base {} x{} levels {} ({} fast, {} B of values (fresh ones: {}), moving {}) l0 {}/{}/{} blob {} vsst {} gc {} %; {} {:?}; limit {:?} {:?}, {:?}",
        options.memtable_bytes,
        options.memory_bytes,
        options.expert.log_group_bytes,
        options.expert.wal_bytes_max,
        options.cache_bytes,
        options.background_threads,
        options.expert.compactions_max,
        options.expert.loggers.writes_max,
        options.expert.buffered_age_ms_max,
        options.expert.scrub_bytes_per_s,
        options.access,
        options.durability,
        f.compression,
        f.expert.block_bytes,
        f.filter_bits_per_key,
        f.prefix,
        f.expert.file_bytes,
        f.expert.level_base_bytes,
        f.expert.level_multiplier,
        f.expert.levels,
        options.expert.fast_tier_levels,
        options.expert.fast_tier_values_bytes_max,
        options.expert.fast_tier_values_flushed,
        options.expert.fast_tier_adaptive,
        f.expert.l0_compaction_files,
        f.expert.l0_slowdown_files,
        f.expert.l0_stop_files,
        f.min_blob_size,
        f.expert.vsst_bytes,
        f.expert.gc_ratio_percent,
        f.policy.name,
        f.policy.parameters,
        options.space_limit,
        options.space_policy,
        options.expert.ablation
    )
}

/// Distribution of keys and values of a run.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    keys: u64,
    odd_keys: bool,
    value_len_max: u64,
    large_one_in: u64,
    large_len_max: u64,
    range_deletes: bool,
}

impl Data {
    pub fn new(rng: &mut Rng) -> Self {
        Data {
            keys: pick(rng, &[4, 16, 64, 400]),
            odd_keys: rng.one_in(3),
            value_len_max: pick(rng, &[8, 100, 100, 600, 3000]),
            large_one_in: pick(rng, &[20, 100, 1000]),
            large_len_max: pick(rng, &[5_000, 20_000, 90_000]),
            range_deletes: !rng.one_in(3),
        }
    }

    /// Few keys with long values, constantly overwritten and deleted, to exercise separation and
    /// its collection.
    pub fn churn(rng: &mut Rng) -> Self {
        Data {
            keys: pick(rng, &[8, 16, 40, 100]),
            odd_keys: rng.one_in(4),
            value_len_max: pick(rng, &[300, 1500, 3000]),
            large_one_in: pick(rng, &[20, 100]),
            large_len_max: 9_000,
            range_deletes: !rng.one_in(3),
        }
    }

    /// Values of at most a few pages.
    pub fn small(rng: &mut Rng) -> Self {
        Data { large_len_max: 5_000, value_len_max: pick(rng, &[8, 60, 60, 600]), ..Data::new(rng) }
    }

    pub fn key(&self, rng: &mut Rng) -> Vec<u8> {
        if self.odd_keys {
            // Prefixes of each other, zero bytes, the highest byte: hard cases for comparisons and
            // separators.
            let len = 1 + rng.below(4) as usize;
            return (0..len).map(|_| pick(rng, &[0, 1, b'a', b'b', 0xfe, 0xff])).collect();
        }
        let n = rng.below(self.keys);
        if n.is_multiple_of(7) {
            format!("key{n:03}/long/tail/{n:020}").into_bytes()
        } else {
            format!("key{n:03}").into_bytes()
        }
    }

    pub fn value(&self, rng: &mut Rng) -> Vec<u8> {
        let max = if rng.one_in(self.large_one_in) { self.large_len_max } else { self.value_len_max };
        let mut value = vec![0; rng.below(max + 1) as usize];
        // Half of the value compresses.
        let random = value.len() / 2;
        rng.fill(&mut value[..random]);
        value
    }

    pub fn change(&self, rng: &mut Rng) -> Change {
        match rng.below(20) {
            0..=13 => Change::Put(self.key(rng), self.value(rng)),
            14 if self.range_deletes => {
                let (a, b) = (self.key(rng), self.key(rng));
                let (start, end) = if a <= b { (a, b) } else { (b, a) };
                Change::DeleteRange(if rng.one_in(10) { Vec::new() } else { start }, end)
            }
            _ => Change::Delete(self.key(rng)),
        }
    }
}
