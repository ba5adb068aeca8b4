//! Iterators.

use crate::error::LavaError;
use crate::ffi::{Slice, call, free, give, handle, handle_mut, place};
use crate::read::LavaSnapshot;
use crate::store::{LavaDb, LavaFamily, family_or_default};
use lavastore::{Cursor, Error, ErrorKind, Result};
use std::ops::Bound;

/// A `lava_iter`.
#[derive(Debug)]
pub struct LavaIter(Cursor);

impl LavaIter {
    /// Returns the cursor if it is on an entry.
    fn standing(&self) -> Result<&Cursor> {
        let why = "the iterator is at no entry: call lava_iter_valid first";
        self.0.valid().then_some(&self.0).ok_or_else(|| Error::new(ErrorKind::InvalidArgument, why))
    }
}

/// Returns the range from `start` on and below `end`; a NULL slice is unbounded.
pub(crate) type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// # Safety
/// The caller must follow the rules of the header.
pub(crate) unsafe fn range_of<'a>(start: Slice, end: Slice) -> Result<Range<'a>> {
    // SAFETY: guaranteed by the caller.
    let (start, end) = unsafe { (start.bound()?, end.bound()?) };
    Ok((start.map_or(Bound::Unbounded, Bound::Included), end.map_or(Bound::Unbounded, Bound::Excluded)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_iter_new(
    db: *mut LavaDb,
    family: *const LavaFamily,
    snapshot: *const LavaSnapshot,
    start: Slice,
    end: Slice,
    iter: *mut *mut LavaIter,
    error: *mut *mut LavaError,
) -> u32 {
    let make = || {
        // SAFETY: the caller follows the rules of the header.
        let (db, iter, range) = unsafe { (handle(db)?, place(iter)?, range_of(start, end)?) };
        // SAFETY: as above.
        let (family, snapshot) = unsafe { (family_or_default(&db.0, family), snapshot.as_ref()) };
        let entries = match snapshot {
            Some(snapshot) => snapshot.0.family(family).range(range),
            None => family.range(range),
        };
        *iter = give(LavaIter(entries.cursor()?));
        Ok(())
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, make) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_iter_free(iter: *mut LavaIter) {
    // SAFETY: the caller follows the rules of the header.
    unsafe { free(iter) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_iter_valid(iter: *const LavaIter) -> bool {
    // SAFETY: the caller follows the rules of the header.
    unsafe { iter.as_ref() }.is_some_and(|iter| iter.0.valid())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_iter_first(iter: *mut LavaIter, error: *mut *mut LavaError) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || handle_mut(iter)?.0.seek_to_first()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_iter_last(iter: *mut LavaIter, error: *mut *mut LavaError) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || handle_mut(iter)?.0.seek_to_last()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_iter_seek(iter: *mut LavaIter, key: Slice, error: *mut *mut LavaError) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || handle_mut(iter)?.0.seek(key.bytes()?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_iter_seek_for_prev(
    iter: *mut LavaIter,
    key: Slice,
    error: *mut *mut LavaError,
) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || handle_mut(iter)?.0.seek_for_prev(key.bytes()?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_iter_next(iter: *mut LavaIter, error: *mut *mut LavaError) -> u32 {
    let step = || {
        // SAFETY: the caller follows the rules of the header.
        let iter = unsafe { handle_mut(iter)? };
        iter.standing()?;
        iter.0.next()
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, step) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_iter_prev(iter: *mut LavaIter, error: *mut *mut LavaError) -> u32 {
    let step = || {
        // SAFETY: the caller follows the rules of the header.
        let iter = unsafe { handle_mut(iter)? };
        iter.standing()?;
        iter.0.prev()
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, step) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_iter_key(
    iter: *const LavaIter,
    key: *mut Slice,
    error: *mut *mut LavaError,
) -> u32 {
    let tell = || {
        // SAFETY: the caller follows the rules of the header.
        let (iter, key) = unsafe { (handle(iter)?, place(key)?) };
        *key = Slice::of(iter.standing()?.key());
        Ok(())
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, tell) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_iter_value(
    iter: *const LavaIter,
    value: *mut Slice,
    error: *mut *mut LavaError,
) -> u32 {
    let tell = || {
        // SAFETY: the caller follows the rules of the header.
        let (iter, value) = unsafe { (handle(iter)?, place(value)?) };
        *value = Slice::of(iter.standing()?.value()?);
        Ok(())
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, tell) }
}
