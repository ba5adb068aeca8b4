//! Writes and their options.

use crate::batch::LavaBatch;
use crate::error::LavaError;
use crate::ffi::{Slice, call, handle, range};
use crate::store::{LavaDb, LavaFamily, family_or_default};
use lavastore::{Durability, Error, ErrorKind, Result, WriteOptions, Writer};
use std::ptr::null;

/// `LAVA_WRITE_NO_WAIT`.
const NO_WAIT: u32 = 16;

/// Decodes the bits of `how`.
pub(crate) fn options_of(how: u32) -> Result<WriteOptions> {
    let durability = match how & !NO_WAIT {
        0 => None,
        1 => Some(Durability::Durable),
        2 => Some(Durability::Buffered),
        3 => Some(Durability::Volatile),
        _ => {
            let why = format!(
                "{how} is no write mode: pass one of LAVA_WRITE_*, with or without LAVA_WRITE_NO_WAIT"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, why));
        }
    };
    let options = WriteOptions { durability, ..WriteOptions::default() };
    Ok(if how & NO_WAIT == 0 { options } else { options.no_wait() })
}

/// Writes to a family with the options in `how`.
///
/// # Safety
/// The caller must follow the rules of the header.
unsafe fn write(
    db: *mut LavaDb,
    family: *const LavaFamily,
    how: u32,
    error: *mut *mut LavaError,
    change: impl FnOnce(&Writer<'_>) -> Result<()>,
) -> u32 {
    let write = || {
        // SAFETY: guaranteed by the caller.
        let db = unsafe { handle(db)? };
        // SAFETY: as above.
        let family = unsafe { family_or_default(&db.0, family) };
        change(&family.writing(&options_of(how)?))
    };
    // SAFETY: guaranteed by the caller.
    unsafe { call(error, write) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_put(
    db: *mut LavaDb,
    family: *const LavaFamily,
    key: Slice,
    value: Slice,
    how: u32,
    error: *mut *mut LavaError,
) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { write(db, family, how, error, |writer| writer.put(key.bytes()?, value.bytes()?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_merge(
    db: *mut LavaDb,
    family: *const LavaFamily,
    key: Slice,
    operand: Slice,
    how: u32,
    error: *mut *mut LavaError,
) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { write(db, family, how, error, |writer| writer.merge(key.bytes()?, operand.bytes()?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_delete(
    db: *mut LavaDb,
    family: *const LavaFamily,
    key: Slice,
    how: u32,
    error: *mut *mut LavaError,
) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { write(db, family, how, error, |writer| writer.delete(key.bytes()?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_delete_range(
    db: *mut LavaDb,
    family: *const LavaFamily,
    start: Slice,
    end: Slice,
    how: u32,
    error: *mut *mut LavaError,
) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        write(db, family, how, error, |writer| writer.delete_range(range(start.bound()?, end.bound()?)))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_write(
    db: *mut LavaDb,
    batch: *const LavaBatch,
    how: u32,
    error: *mut *mut LavaError,
) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { write(db, null(), how, error, |writer| writer.write(&handle(batch)?.0)) }
}
