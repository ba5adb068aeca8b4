//! Reads of single keys, and snapshots.

use crate::error::LavaError;
use crate::ffi::{Slice, call, free, give, handle, place};
use crate::store::{LavaDb, LavaFamily, family_or_default};
use lavastore::{Snapshot, Value};

/// A `lava_snapshot`.
#[derive(Debug)]
pub struct LavaSnapshot(pub(crate) Snapshot);

/// A `lava_value`.
#[derive(Debug)]
pub enum LavaValue {
    /// A value of the store.
    Value(Value),
    /// Other bytes.
    Bytes(Vec<u8>),
}

impl LavaValue {
    fn bytes(&self) -> &[u8] {
        match self {
            LavaValue::Value(value) => value,
            LavaValue::Bytes(bytes) => bytes,
        }
    }

    /// Returns NULL for a missing value.
    pub(crate) fn give(value: Option<Value>) -> *mut LavaValue {
        value.map_or(std::ptr::null_mut(), |value| give(LavaValue::Value(value)))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_value_bytes(value: *const LavaValue) -> Slice {
    // SAFETY: the caller follows the rules of the header.
    unsafe { value.as_ref() }.map_or(Slice::NONE, |value| Slice::of(value.bytes()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_value_free(value: *mut LavaValue) {
    // SAFETY: the caller follows the rules of the header.
    unsafe { free(value) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_snapshot_new(
    db: *mut LavaDb,
    snapshot: *mut *mut LavaSnapshot,
    error: *mut *mut LavaError,
) -> u32 {
    let make = || {
        // SAFETY: the caller follows the rules of the header.
        let (db, snapshot) = unsafe { (handle(db)?, place(snapshot)?) };
        *snapshot = give(LavaSnapshot(db.0.snapshot()));
        Ok(())
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, make) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_snapshot_free(snapshot: *mut LavaSnapshot) {
    // SAFETY: the caller follows the rules of the header.
    unsafe { free(snapshot) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_get(
    db: *mut LavaDb,
    family: *const LavaFamily,
    snapshot: *const LavaSnapshot,
    key: Slice,
    value: *mut *mut LavaValue,
    error: *mut *mut LavaError,
) -> u32 {
    let get = || {
        // SAFETY: the caller follows the rules of the header.
        let (db, key, value) = unsafe { (handle(db)?, key.bytes()?, place(value)?) };
        // SAFETY: as above.
        let (family, snapshot) = unsafe { (family_or_default(&db.0, family), snapshot.as_ref()) };
        let found = match snapshot {
            Some(snapshot) => snapshot.0.family(family).get(key)?,
            None => family.get(key)?,
        };
        *value = LavaValue::give(found);
        Ok(())
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, get) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_contains_key(
    db: *mut LavaDb,
    family: *const LavaFamily,
    snapshot: *const LavaSnapshot,
    key: Slice,
    there: *mut bool,
    error: *mut *mut LavaError,
) -> u32 {
    let look = || {
        // SAFETY: the caller follows the rules of the header.
        let (db, key, there) = unsafe { (handle(db)?, key.bytes()?, place(there)?) };
        // SAFETY: as above.
        let (family, snapshot) = unsafe { (family_or_default(&db.0, family), snapshot.as_ref()) };
        *there = match snapshot {
            Some(snapshot) => snapshot.0.family(family).contains_key(key)?,
            None => family.contains_key(key)?,
        };
        Ok(())
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, look) }
}
