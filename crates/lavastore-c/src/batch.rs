//! Atomic batches.

use crate::error::LavaError;
use crate::ffi::{Slice, call, free, give, handle_mut, range};
use crate::store::LavaFamily;
use lavastore::WriteBatch;

/// A `lava_batch`.
#[derive(Debug)]
pub struct LavaBatch(pub(crate) WriteBatch);

#[unsafe(no_mangle)]
pub extern "C" fn lava_batch_new() -> *mut LavaBatch {
    give(LavaBatch(WriteBatch::new()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_batch_free(batch: *mut LavaBatch) {
    // SAFETY: the caller follows the rules of the header.
    unsafe { free(batch) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_batch_clear(batch: *mut LavaBatch) {
    // SAFETY: the caller follows the rules of the header.
    if let Some(batch) = unsafe { batch.as_mut() } {
        batch.0.clear();
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_batch_put(
    batch: *mut LavaBatch,
    family: *const LavaFamily,
    key: Slice,
    value: Slice,
    error: *mut *mut LavaError,
) -> u32 {
    let put = || {
        // SAFETY: the caller follows the rules of the header.
        let (batch, key, value) = unsafe { (handle_mut(batch)?, key.bytes()?, value.bytes()?) };
        // SAFETY: as above.
        match unsafe { family.as_ref() } {
            Some(family) => drop(batch.0.family(&family.0).put(key, value)),
            None => drop(batch.0.put(key, value)),
        }
        Ok(())
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, put) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_batch_merge(
    batch: *mut LavaBatch,
    family: *const LavaFamily,
    key: Slice,
    operand: Slice,
    error: *mut *mut LavaError,
) -> u32 {
    let merge = || {
        // SAFETY: the caller follows the rules of the header.
        let (batch, key, operand) = unsafe { (handle_mut(batch)?, key.bytes()?, operand.bytes()?) };
        // SAFETY: as above.
        match unsafe { family.as_ref() } {
            Some(family) => drop(batch.0.family(&family.0).merge(key, operand)),
            None => drop(batch.0.merge(key, operand)),
        }
        Ok(())
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, merge) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_batch_delete(
    batch: *mut LavaBatch,
    family: *const LavaFamily,
    key: Slice,
    error: *mut *mut LavaError,
) -> u32 {
    let delete = || {
        // SAFETY: the caller follows the rules of the header.
        let (batch, key) = unsafe { (handle_mut(batch)?, key.bytes()?) };
        // SAFETY: as above.
        match unsafe { family.as_ref() } {
            Some(family) => drop(batch.0.family(&family.0).delete(key)),
            None => drop(batch.0.delete(key)),
        }
        Ok(())
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, delete) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_batch_delete_range(
    batch: *mut LavaBatch,
    family: *const LavaFamily,
    start: Slice,
    end: Slice,
    error: *mut *mut LavaError,
) -> u32 {
    let delete = || {
        // SAFETY: the caller follows the rules of the header.
        let (batch, start, end) = unsafe { (handle_mut(batch)?, start.bound()?, end.bound()?) };
        // SAFETY: as above.
        match unsafe { family.as_ref() } {
            Some(family) => drop(batch.0.family(&family.0).delete_range(range(start, end))),
            None => drop(batch.0.delete_range(range(start, end))),
        }
        Ok(())
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, delete) }
}
