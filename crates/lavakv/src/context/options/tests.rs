use super::*;
use crate::context::expert::ExpertFamilyOptions;
use base::{ErrorKind, limits};

#[test]
fn absurd_options_are_refused() {
    let absurd = [
        Options { memtable_bytes: 1, ..Default::default() },
        Options { memory_bytes: 1 << 20, ..Default::default() },
        Options { ..Default::default() }.expert(|expert| expert.log_group_bytes = 100_001),
        Options { background_threads: 0, ..Default::default() },
        Options {
            family: FamilyOptions { ..Default::default() }.expert(|expert| expert.level_multiplier = 0),
            ..Default::default()
        },
        Options {
            family: FamilyOptions { ..Default::default() }.expert(|expert| expert.l0_stop_files = 1),
            ..Default::default()
        },
    ];
    for o in absurd {
        assert_eq!(o.validate().unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    Options::default().validate().unwrap();
}

/// An option that nobody set follows those that somebody did; two that contradict each other are both named.
#[test]
fn every_option_alone_is_valid_at_both_ends_of_its_range() {
    let defaults = Options::default().derived();
    assert_eq!((defaults.memory_bytes, defaults.expert.wal_bytes_max), (112 << 20, 256 << 20));
    let family = &defaults.family;
    assert_eq!(
        (family.expert.level_base_bytes, family.expert.l0_slowdown_files, family.expert.l0_stop_files),
        (64 << 20, 16, 32)
    );
    type Change = fn(&mut Options, bool);
    let alone: [(&str, Change); 28] = [
        ("cache_bytes", |o, most| o.cache_bytes = if most { 1 << 42 } else { 0 }),
        ("memtable_bytes", |o, most| o.memtable_bytes = if most { 4 << 30 } else { 16 << 10 }),
        ("memtable_bytes = 64 MiB", |o, _| o.memtable_bytes = 64 << 20),
        ("memory_bytes", |o, most| o.memory_bytes = if most { 1 << 42 } else { 32 << 20 }),
        ("log_group_bytes", |o, most| o.expert.log_group_bytes = if most { 4 << 30 } else { 64 << 10 }),
        ("wal_bytes_max", |o, most| o.expert.wal_bytes_max = if most { 1 << 50 } else { 32 << 20 }),
        ("background_threads", |o, most| o.background_threads = if most { 64 } else { 1 }),
        ("async_threads", |o, most| o.expert.async_threads = if most { 64 } else { 1 }),
        ("compactions_max", |o, most| o.expert.compactions_max = if most { 64 } else { 0 }),
        ("io_budget", |o, most| o.io_budget = if most { 1 << 50 } else { 1 << 20 }),
        ("read_gap_bytes", |o, most| o.expert.read_gap_bytes = Some(if most { 1 << 20 } else { 0 })),
        ("buffered_age_ms_max", |o, most| {
            o.expert.buffered_age_ms_max = Some(if most { 3_600_000 } else { 0 })
        }),
        ("buffered_age_ms_max = 1", |o, _| o.expert.buffered_age_ms_max = Some(1)),
        ("scrub_bytes_per_s", |o, most| o.expert.scrub_bytes_per_s = if most { 1 << 50 } else { 64 << 10 }),
        ("open_files_max", |o, most| o.open_files_max = if most { 1 << 24 } else { 16 }),
        ("first_number", |o, most| o.expert.first_number = if most { 1 << 48 } else { 1 }),
        ("stall_budget", |o, most| {
            o.stall_budget = Duration::from_micros(if most { 3_600_000_000 } else { 100 })
        }),
        ("block_bytes", |o, most| o.family.expert.block_bytes = if most { 1 << 20 } else { 512 }),
        ("filter_bits_per_key", |o, most| o.family.filter_bits_per_key = if most { 64 } else { 0 }),
        ("file_bytes", |o, most| o.family.expert.file_bytes = if most { 4 << 30 } else { 4 << 10 }),
        ("level_base_bytes", |o, most| {
            o.family.expert.level_base_bytes = if most { 1 << 50 } else { 16 << 20 }
        }),
        ("level_multiplier", |o, most| o.family.expert.level_multiplier = if most { 1000 } else { 2 }),
        ("levels", |o, most| o.family.expert.levels = if most { limits::LEVELS_MAX } else { 2 }),
        ("l0_compaction_files", |o, most| o.family.expert.l0_compaction_files = if most { 1000 } else { 1 }),
        ("l0_slowdown_files", |o, most| o.family.expert.l0_slowdown_files = if most { 10_000 } else { 4 }),
        ("l0_stop_files", |o, most| o.family.expert.l0_stop_files = if most { 100_000 } else { 17 }),
        ("min_blob_size", |o, most| o.family.min_blob_size = if most { limits::VALUE_LEN_MAX } else { 0 }),
        ("vsst_bytes", |o, most| o.family.expert.vsst_bytes = if most { 4 << 30 } else { 4 << 10 }),
    ];
    for (name, change) in alone {
        for most in [false, true] {
            let mut options = Options::default();
            change(&mut options, most);
            options.derived().validate().unwrap_or_else(|e| panic!("{name}, most {most}: {e}"));
        }
    }
    let both = Options { memtable_bytes: 64 << 20, memory_bytes: 112 << 20, ..Options::default() };
    let e = both.derived().validate().unwrap_err();
    let told = "with memtable_bytes = 67108864: option memory_bytes = 117440512 is out of range";
    assert!(e.message().starts_with(told), "{e}");
}

/// Each option has a range, and what is outside of it is refused by name.
#[test]
fn every_option_out_of_its_range_is_named() {
    type Change = fn(&mut Options);
    let cases: [(&str, Change); 25] = [
        ("background_threads", |o| o.background_threads = 0),
        ("async_threads", |o| o.expert.async_threads = 0),
        ("compactions_max", |o| o.expert.compactions_max = 65),
        ("speed_levels", |o| o.expert.speed_levels = 8),
        ("speed_values_bytes_max", |o| o.expert.speed_values_bytes_max = u64::MAX),
        ("scrub_bytes_per_s", |o| o.expert.scrub_bytes_per_s = 1),
        ("io_budget", |o| o.io_budget = 1),
        ("buffered_age_ms_max", |o| {
            (o.expert.buffered_age_ms_max, o.memory_bytes) = (Some(3_600_001), 1 << 30);
        }),
        ("memory_bytes, with buffered_age_ms_max,", |o| {
            (o.expert.buffered_age_ms_max, o.memory_bytes) = (Some(1), 79 << 20);
        }),
        ("read_gap_bytes", |o| o.expert.read_gap_bytes = Some((1 << 20) + 1)),
        ("loggers.writes_max", |o| o.expert.loggers.writes_max = 4),
        ("stall_budget, microseconds,", |o| o.stall_budget = Duration::ZERO),
        ("open_files_max", |o| o.open_files_max = 1),
        ("wal_bytes_max", |o| o.expert.wal_bytes_max = 1),
        ("block_bytes", |o| o.family.expert.block_bytes = 1),
        ("file_bytes", |o| o.family.expert.file_bytes = 1),
        ("level_base_bytes", |o| o.family.expert.level_base_bytes = 1),
        ("level_multiplier", |o| o.family.expert.level_multiplier = 1),
        ("levels", |o| o.family.expert.levels = 100),
        ("l0_slowdown_files", |o| o.family.expert.l0_slowdown_files = 1),
        ("l0_stop_files", |o| o.family.expert.l0_stop_files = 1),
        ("vsst_bytes", |o| o.family.expert.vsst_bytes = 1),
        ("gc_ratio_percent", |o| o.family.expert.gc_ratio_percent = 100),
        ("bytes of policy.name", |o| o.family.policy.name.clear()),
        ("bytes of policy.parameters", |o| o.family.policy.parameters = vec![0; 5000]),
    ];
    for (name, change) in cases {
        let mut options = Options::default();
        change(&mut options);
        let e = options.derived().check_ranges().expect_err(name);
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
        let told = format!("option {name} = ");
        assert!(e.message().contains(&told) && e.message().contains("out of range"), "{name}: {e}");
    }
}

/// The names of all fields. A struct with a field that is not listed does not compile.
macro_rules! names {
    ($options:ident { $($field:ident),* $(,)? }) => {{
        let $options { $($field: _),* } = $options::default();
        [$(stringify!($field)),*]
    }};
}

/// The most options on the first pages of a store and of a family, together.
const FIRST_PAGE_MAX: usize = 30;

/// Each option stands on one page. A new one has to choose, and the first page stays short.
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
        background_threads,
        open_files_max,
        access,
        speed,
        metrics_file,
        listener,
        damaged_files,
        family,
        expert,
    });
    let family = names!(FamilyOptions { compression, min_blob_size, filter_bits_per_key, policy, expert });
    let expert = names!(ExpertOptions {
        log_group_bytes,
        wal_bytes_max,
        async_threads,
        compactions_max,
        read_gap_bytes,
        loggers,
        buffered_age_ms_max,
        scrub_bytes_per_s,
        speed_levels,
        speed_values_bytes_max,
        speed_values_fresh,
        speed_moving,
        speed_look,
        first_number,
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
