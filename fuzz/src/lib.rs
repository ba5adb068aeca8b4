//! Fuzz targets for every decoder of LavaStore.
//!
//! A target is a function of bytes that must not panic, hang or take memory without bound, whatever the bytes: typed
//! errors are the only way out. There are two sorts. *Plain* targets hand the bytes to a decoder as they are. *Sealed*
//! ones read the bytes as a script that damages something valid and then computes its checksums anew, because behind a
//! checksum random bytes never arrive: so a buggy or hostile writer is played, not a worn disk.
//!
//! The same functions run in two harnesses: [`runner`] (stable, deterministic by seed, part of CI) and libFuzzer
//! (`cargo-fuzz/`, nightly, guided by coverage). `README.md` has the commands.
//!
//! * [`blocks`], [`mod@ksst`]: the table format. [`index`], [`mod@vsst`]: files of values. [`log`]: the write-ahead log. [`mod@manifest`]: edits, manifest and `CURRENT`.
//!   [`mod@lavafs`]: volumes. [`mod@lavalog`]: the log engine. [`engine`]: batches, family options, whole directories.
//! * [`files`]: files in memory, and valid things to begin with. [`script`]: scripts of damage. [`seal`]: where the
//!   checksums are, and how they are computed anew.
//! * [`mutate`], [`memory`], [`runner`]: the harness.

pub mod blocks;
pub mod engine;
pub mod files;
pub mod index;
pub mod ksst;
pub mod lavafs;
pub mod lavalog;
pub mod log;
pub mod log_files;
pub mod manifest;
pub mod memory;
pub mod mutate;
pub mod runner;
pub mod script;
pub mod seal;
pub mod vsst;

/// What can be fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of its directory of inputs.
    pub name: &'static str,
    /// Runs one input.
    pub run: fn(&[u8]),
    /// Inputs to begin with, made afresh from valid files.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Inputs are not grown beyond this, bytes.
    pub len_max: usize,
    /// Mutations that the tests try.
    pub test_runs: u64,
}

macro_rules! targets {
    ($($module:ident :: $name:ident, $seeds:ident, $len_max:expr, $test_runs:expr;)*) => {
        /// All targets.
        pub const TARGETS: &[Target] = &[$(Target {
            name: stringify!($name),
            run: $module::$name,
            seeds: $module::$seeds,
            len_max: $len_max,
            test_runs: $test_runs,
        }),*];
        $(pub use $module::$name;)*
    };
}

targets! {
    blocks::inline_block, inline_block_seeds, 4096, 4000;
    blocks::reference_block, reference_block_seeds, 4096, 4000;
    blocks::index_block, index_block_seeds, 4096, 4000;
    blocks::filter_partition, filter_seeds, 1024, 4000;
    blocks::properties, properties_seeds, 1024, 4000;
    blocks::meta_index, meta_index_seeds, 256, 4000;
    blocks::range_tombstones, range_tombstone_seeds, 1024, 4000;
    blocks::footer, footer_seeds, 128, 4000;
    blocks::frame, frame_seeds, 4096, 2000;
    blocks::reference, reference_seeds, 64, 4000;
    blocks::packed_column, packed_seeds, 256, 4000;
    ksst::ksst, ksst_seeds, 32 << 10, 1000;
    ksst::ksst_sealed, script_seeds, 512, 600;
    index::crit_bit_block, crit_bit_block_seeds, 1024, 4000;
    index::crit_bit_offsets, crit_bit_offsets_seeds, 1024, 4000;
    index::crit_bit_keys, crit_bit_keys_seeds, 4096, 2000;
    vsst::vsst, vsst_seeds, 32 << 10, 1000;
    vsst::vsst_sealed, vsst_script_seeds, 512, 600;
    vsst::vsst_properties, vsst_properties_seeds, 1024, 4000;
    vsst::vsst_footer, vsst_footer_seeds, 128, 4000;
    vsst::segment, segment_seeds, 8192, 2000;
    vsst::segment_sealed, vsst_script_seeds, 512, 2000;
    vsst::segment_reference, segment_reference_seeds, 64, 4000;
    log::log_page, log_page_seeds, 4096, 3000;
    log::log_group, log_group_seeds, 64 << 10, 600;
    log::log_sealed, log_sealed_seeds, 2048, 600;
    manifest::edit, edit_seeds, 8192, 3000;
    manifest::current, current_seeds, 256, 3000;
    manifest::speed_identity, speed_identity_seeds, 256, 3000;
    manifest::manifest, manifest_seeds, 32 << 10, 800;
    manifest::manifest_sealed, manifest_sealed_seeds, 16 << 10, 800;
    lavafs::superblock, superblock_seeds, 4096, 3000;
    lavafs::operations, operations_seeds, 8192, 4000;
    lavafs::transaction, transaction_seeds, 8192, 3000;
    lavafs::volume, volume_seeds, 80 << 10, 200;
    lavafs::volume_sealed, volume_sealed_seeds, 4000, 200;
    lavalog::log_batch, log_batch_seeds, 4096, 4000;
    log_files::log_rows, log_rows_seeds, 4096, 4000;
    log_files::log_file, log_file_seeds, 48 << 10, 1000;
    log_files::log_index_sealed, log_script_seeds, 512, 2000;
    log_files::log_cold_sealed, log_script_seeds, 512, 1000;
    log_files::log_checkpoint_sealed, log_script_seeds, 512, 2000;
    engine::write_batch, write_batch_seeds, 96 << 10, 60;
    engine::family_options, family_options_seeds, 128, 60;
    engine::directory, directory_seeds, 512, 40;
}
