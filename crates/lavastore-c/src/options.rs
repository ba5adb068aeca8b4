//! Options of a store.

use crate::ffi::{free, give, path};
use lavastore::{KeyPrefix, MergeChoice, Options, PolicyChoice, SpaceLimit, VlsmOptions};
use std::ffi::{CStr, c_char};
use std::time::Duration;

/// A `lava_options`. The open checks all of them.
#[derive(Debug)]
pub struct LavaOptions(pub(crate) Options);

#[unsafe(no_mangle)]
pub extern "C" fn lava_options_new() -> *mut LavaOptions {
    give(LavaOptions(Options::default()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_options_free(options: *mut LavaOptions) {
    // SAFETY: the caller follows the rules of the header.
    unsafe { free(options) }
}

/// Changes existing options.
///
/// # Safety
/// The caller must follow the rules of the header.
unsafe fn set(options: *mut LavaOptions, change: impl FnOnce(&mut Options)) {
    // SAFETY: guaranteed by the caller.
    if let Some(options) = unsafe { options.as_mut() } {
        change(&mut options.0);
    }
}

/// Clamps a size; the open refuses the maximum.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_options_create_if_missing(options: *mut LavaOptions, create: bool) {
    // SAFETY: the caller follows the rules of the header.
    unsafe { set(options, |options| options.create_if_missing = create) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_options_cache_bytes(options: *mut LavaOptions, bytes: u64) {
    // SAFETY: the caller follows the rules of the header.
    unsafe { set(options, |options| options.cache_bytes = size(bytes)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_options_memtable_bytes(options: *mut LavaOptions, bytes: u64) {
    // SAFETY: the caller follows the rules of the header.
    unsafe { set(options, |options| options.memtable_bytes = size(bytes)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_options_background_threads(options: *mut LavaOptions, threads: u32) {
    // SAFETY: the caller follows the rules of the header.
    unsafe { set(options, |options| options.background_threads = size(threads.into())) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_options_space_limit_bytes(options: *mut LavaOptions, bytes: u64) {
    let limit = (bytes > 0).then_some(SpaceLimit::Bytes(bytes));
    // SAFETY: the caller follows the rules of the header.
    unsafe { set(options, |options| options.space_limit = limit) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_options_space_limit_percent(options: *mut LavaOptions, percent: u8) {
    let limit = (percent > 0).then_some(SpaceLimit::VolumePercent(percent));
    // SAFETY: the caller follows the rules of the header.
    unsafe { set(options, |options| options.space_limit = limit) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_options_stall_budget_us(options: *mut LavaOptions, us: u64) {
    // SAFETY: the caller follows the rules of the header.
    unsafe { set(options, |options| options.stall_budget = Duration::from_micros(us)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_options_io_budget(options: *mut LavaOptions, bytes_per_s: u64) {
    // SAFETY: the caller follows the rules of the header.
    unsafe { set(options, |options| options.io_budget = bytes_per_s) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_options_rest(options: *mut LavaOptions, rest: bool) {
    // SAFETY: the caller follows the rules of the header.
    unsafe { set(options, |options| options.rest = rest) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_options_min_blob_bytes(options: *mut LavaOptions, bytes: u64) {
    // SAFETY: the caller follows the rules of the header.
    unsafe { set(options, |options| options.family.min_blob_size = size(bytes)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_options_merge_operator(options: *mut LavaOptions, name: *const c_char) {
    // SAFETY: the caller follows the rules of the header.
    let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned());
    // SAFETY: as above.
    unsafe { set(options, |options| options.family.merge_operator = name.map(MergeChoice::custom)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_options_prefix_bytes(options: *mut LavaOptions, bytes: u8) {
    let prefix = (bytes > 0).then_some(KeyPrefix::Fixed(bytes));
    // SAFETY: the caller follows the rules of the header.
    unsafe { set(options, |options| options.family.prefix = prefix) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_options_prefix_delimiter(options: *mut LavaOptions, delimiter: u8) {
    let prefix = Some(KeyPrefix::Delimiter(delimiter));
    // SAFETY: the caller follows the rules of the header.
    unsafe { set(options, |options| options.family.prefix = prefix) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_options_policy_vlsm(options: *mut LavaOptions, vlsm: bool) {
    let policy = if vlsm { PolicyChoice::vlsm(&VlsmOptions::default()) } else { PolicyChoice::default() };
    // SAFETY: the caller follows the rules of the header.
    unsafe { set(options, |options| options.family.policy = policy) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_options_metrics_file(options: *mut LavaOptions, file: *const c_char) {
    // SAFETY: the caller follows the rules of the header.
    let file = unsafe { path(file) }.ok().map(Into::into);
    // SAFETY: as above.
    unsafe { set(options, |options| options.metrics_file = file) }
}
