use super::*;
use crate::context::expert::ExpertFamilyOptions;
use crate::context::fit::SizeReduction;
use datadriven::TestCase;
use std::error::Error;

/// Parses a number of a script: `100`, `64KiB`, `16MiB`, `4GiB`, `1TiB`.
fn number(text: &str) -> u64 {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let found = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (digits, shift) = found.unwrap_or((text, 0));
    digits.parse::<u64>().unwrap_or_else(|e| panic!("{text}: {e}")) << shift
}

/// Sets an option of the store or of the family, by its name in messages.
fn set(o: &mut Options, name: &str, value: u64) {
    let (expert, family, count) = (&mut o.expert, &mut o.family, value as usize);
    match name {
        "cache_bytes" => o.cache_bytes = count,
        "memtable_bytes" => o.memtable_bytes = count,
        "memory_bytes" => o.memory_bytes = count,
        "background_threads" => o.background_threads = count,
        "io_budget" => o.io_budget = value,
        "open_files_max" => o.open_files_max = count,
        "stall_budget_us" => o.stall_budget = Duration::from_micros(value),
        "space_limit" => o.space_limit = Some(SpaceLimit::Bytes(value)),
        "log_group_bytes" => expert.log_group_bytes = value,
        "wal_bytes_max" => expert.wal_bytes_max = value,
        "async_threads" => expert.async_threads = count,
        "compactions_max" => expert.compactions_max = count,
        "read_gap_bytes" => expert.read_gap_bytes = Some(value),
        "loggers.writes_max" => expert.loggers.writes_max = value.try_into().unwrap(),
        "buffered_age_ms_max" => expert.buffered_age_ms_max = Some(value),
        "scrub_bytes_per_s" => expert.scrub_bytes_per_s = value,
        "first_number" => expert.first_number = value,
        "fast_tier_levels" => expert.fast_tier_levels = count,
        "fast_tier_values_bytes_max" => expert.fast_tier_values_bytes_max = value,
        "filter_bits_per_key" => family.filter_bits_per_key = value as u32,
        "min_blob_size" => family.min_blob_size = count,
        "policy.name_len" => family.policy.name = "x".repeat(count),
        "policy.parameters_len" => family.policy.parameters = vec![0; count],
        name => set_expert(&mut family.expert, name, value),
    }
}

fn set_expert(family: &mut ExpertFamilyOptions, name: &str, value: u64) {
    let count = value as usize;
    match name {
        "block_bytes" => family.block_bytes = count,
        "file_bytes" => family.file_bytes = value,
        "level_base_bytes" => family.level_base_bytes = value,
        "level_multiplier" => family.level_multiplier = value as u32,
        "levels" => family.levels = count,
        "l0_compaction_files" => family.l0_compaction_files = count,
        "l0_slowdown_files" => family.l0_slowdown_files = count,
        "l0_stop_files" => family.l0_stop_files = count,
        "vsst_bytes" => family.vsst_bytes = value,
        "gc_ratio_percent" => family.gc_ratio_percent = value as u32,
        other => panic!("there is no option {other}"),
    }
}

fn judged(options: &Options) -> String {
    options.validate().map_or_else(|e| e.to_string(), |()| "valid".into())
}

/// Validates the option of a line with each of its values.
fn each(line: &str) -> String {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap();
    let judged = words.map(|value| {
        let mut options = Options::default();
        set(&mut options, name, number(value));
        format!("{name} = {value}: {}\n", judged(&options))
    });
    judged.collect()
}

/// Prints the reduced options of a store on a volume of so many MiB.
fn fit(options: &Options, volume_mib: u64) -> String {
    let fit = SizeReduction::to(options, (Some(volume_mib << 20), None));
    let (store, family) = (fit.store(options), fit.family(&options.family));
    let overhead_kib = fit.overhead_bytes(options) >> 10;
    let (memtable_kib, memory_kib) = (store.memtable_bytes >> 10, store.memory_bytes >> 10);
    let (group_kib, vsst_kib) = (store.expert.log_group_bytes >> 10, family.expert.vsst_bytes >> 10);
    let judged = judged(&Options { family, ..store });
    format!(
        "{volume_mib} MiB: overhead {overhead_kib} KiB; memtable {memtable_kib}, memory {memory_kib}, \
         log group {group_kib}, value file {vsst_kib} KiB; {judged}\n"
    )
}

fn run(case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let volumes: Vec<u64> = case.try_take_args("volumes-mib")?.unwrap_or_default();
    let is_derived = case.take_flag("derived")?;
    let mut options = Options::default();
    let set_names: Vec<String> = case.args.keys().cloned().collect();
    for name in set_names {
        set(&mut options, &name, number(&case.take_arg::<String>(&name)?));
    }
    Ok(match &*case.directive {
        "validate" => judged(&options) + "\n",
        "each" => case.input.lines().map(each).collect(),
        "explain" if is_derived => options.derived().explain().to_string(),
        "explain" => options.explain().to_string(),
        "fit" => volumes.into_iter().map(|mib| fit(&options, mib)).collect(),
        other => return Err(format!("no command is called {other}").into()),
    })
}

#[test]
fn scripts() {
    datadriven::walk("src/context/options/scripts", |file| file.run(run));
}

/// Returns the names of all fields. A missing field is a compile error.
macro_rules! names {
    ($options:ident { $($field:ident),* $(,)? }) => {{
        let $options { $($field: _),* } = $options::default();
        [$(stringify!($field)),*]
    }};
}

/// Maximum number of options on the first pages of a store and of a family together.
const FIRST_PAGE_MAX: usize = 30;

/// Each option stands on exactly one page, and the first page stays short.
#[test]
fn every_option_is_listed_on_its_page() {
    let store = names!(Options {
        create_if_missing,
        error_if_exists,
        space_limit,
        space_policy,
        memtable_bytes,
        memory_bytes,
        cache_bytes,
        durability,
        stall_budget,
        io_budget,
        rest,
        background_threads,
        open_files_max,
        access,
        fast_tier,
        metrics_file,
        listener,
        damaged_files,
        family,
        expert,
    });
    let family = names!(FamilyOptions {
        compression,
        min_blob_size,
        filter_bits_per_key,
        prefix,
        policy,
        merge_operator,
        expert,
    });
    let expert = names!(ExpertOptions {
        log_group_bytes,
        wal_bytes_max,
        async_threads,
        compactions_max,
        read_gap_bytes,
        loggers,
        buffered_age_ms_max,
        scrub_bytes_per_s,
        checkpoint_requests,
        fast_tier_levels,
        fast_tier_values_bytes_max,
        fast_tier_values_flushed,
        fast_tier_adaptive,
        fast_tier_interval,
        first_number,
        merge_operators,
        compaction_filters,
        policies,
        ablation,
    });
    let expert_family = names!(ExpertFamilyOptions {
        block_bytes,
        file_bytes,
        level_base_bytes,
        level_multiplier,
        levels,
        l0_compaction_files,
        l0_slowdown_files,
        l0_stop_files,
        vsst_bytes,
        gc_ratio_percent,
    });
    assert!(store.len() + family.len() <= FIRST_PAGE_MAX, "{} and {}", store.len(), family.len());
    assert!(expert.iter().all(|name| !store.contains(name)));
    assert!(expert_family.iter().all(|name| !family.contains(name)));
}
