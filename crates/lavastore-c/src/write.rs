//! Writes, each with how it is made.

use crate::batch::LavaBatch;
use crate::error::LavaError;
use crate::ffi::{Slice, call, handle};
use crate::store::{LavaDb, LavaFamily, family_or_default};
use lavastore::{Durability, Error, ErrorKind, Result, WriteOptions};

/// `LAVA_WRITE_NO_WAIT`.
const NO_WAIT: u32 = 16;

/// What the bits say.
pub(crate) fn options_of(how: u32) -> Result<WriteOptions> {
    let durability = match how & !NO_WAIT {
        0 => None,
        1 => Some(Durability::Durable),
        2 => Some(Durability::Buffered),
        3 => Some(Durability::Volatile),
        _ => {
            let why = format!(
                "{how} is no way to write: one of LAVA_WRITE_* is, with LAVA_WRITE_NO_WAIT or without"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, why));
        }
    };
    let options = WriteOptions { durability, ..WriteOptions::default() };
    Ok(if how & NO_WAIT == 0 { options } else { options.no_wait() })
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
    let put = || {
        // SAFETY: the rules of the header.
        let (db, key, value) = unsafe { (handle(db)?, key.bytes()?, value.bytes()?) };
        // SAFETY: the same.
        unsafe { family_or_default(&db.0, family) }.writing(&options_of(how)?).put(key, value)
    };
    // SAFETY: the rules of the header.
    unsafe { call(error, put) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_delete(
    db: *mut LavaDb,
    family: *const LavaFamily,
    key: Slice,
    how: u32,
    error: *mut *mut LavaError,
) -> u32 {
    let delete = || {
        // SAFETY: the rules of the header.
        let (db, key) = unsafe { (handle(db)?, key.bytes()?) };
        // SAFETY: the same.
        unsafe { family_or_default(&db.0, family) }.writing(&options_of(how)?).delete(key)
    };
    // SAFETY: the rules of the header.
    unsafe { call(error, delete) }
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
    let delete = || {
        // SAFETY: the rules of the header.
        let (db, start, end) = unsafe { (handle(db)?, start.bytes()?, end.bytes()?) };
        // SAFETY: the same.
        unsafe { family_or_default(&db.0, family) }.writing(&options_of(how)?).delete_range(start, end)
    };
    // SAFETY: the rules of the header.
    unsafe { call(error, delete) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_write(
    db: *mut LavaDb,
    batch: *const LavaBatch,
    how: u32,
    error: *mut *mut LavaError,
) -> u32 {
    // SAFETY: the rules of the header.
    unsafe { call(error, || handle(db)?.0.writing(&options_of(how)?).write(&handle(batch)?.0)) }
}
