//! Stores and families: open, close, flush.

use crate::error::LavaError;
use crate::ffi::{call, free, give, handle, path, place, text};
use crate::options::LavaOptions;
use crate::read::LavaValue;
use lavastore::{Cancel, CheckpointOptions, Db, Env, Family, Options, Result, SpaceLimit, StoreFormat};
use std::ffi::c_char;
use std::path::Path;
use std::time::Duration;

/// A `lava_db`.
#[derive(Debug)]
pub struct LavaDb(pub(crate) Db);

/// A `lava_family`.
#[derive(Debug)]
pub struct LavaFamily(pub(crate) Family);

/// Returns the family, or `default` for NULL.
///
/// # Safety
/// The caller must follow the rules of the header.
pub(crate) unsafe fn family_or_default<'a>(db: &'a Db, family: *const LavaFamily) -> &'a Family {
    // SAFETY: guaranteed by the caller.
    unsafe { family.as_ref() }.map_or_else(|| db.default_family(), |family: &'a LavaFamily| &family.0)
}

/// # Safety
/// The caller must follow the rules of the header.
unsafe fn open(
    at: *const c_char,
    options: *const LavaOptions,
    db: *mut *mut LavaDb,
    open: impl FnOnce(&Path, &Options) -> Result<Db>,
) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    let (at, options, db) = unsafe { (path(at)?, options.as_ref(), place(db)?) };
    let options = options.map_or_else(Options::default, |options| options.0.clone());
    *db = give(LavaDb(open(at, &options)?));
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_open(
    at: *const c_char,
    options: *const LavaOptions,
    db: *mut *mut LavaDb,
    error: *mut *mut LavaError,
) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || open(at, options, db, |at, options| Db::open_with(at, options))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_open_read_only(
    at: *const c_char,
    options: *const LavaOptions,
    db: *mut *mut LavaDb,
    error: *mut *mut LavaError,
) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || open(at, options, db, |at, options| Db::open_read_only(at, options))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_catch_up(
    db: *mut LavaDb,
    now: *mut *mut LavaDb,
    error: *mut *mut LavaError,
) -> u32 {
    let catch_up = || {
        // SAFETY: the caller follows the rules of the header.
        let (db, now) = unsafe { (handle(db)?, place(now)?) };
        *now = give(LavaDb(db.0.catch_up()?));
        Ok(())
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, catch_up) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_set_space_limit_bytes(
    db: *mut LavaDb,
    bytes: u64,
    error: *mut *mut LavaError,
) -> u32 {
    let limit = (bytes > 0).then_some(SpaceLimit::Bytes(bytes));
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || handle(db)?.0.set_space_limit(limit)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_set_space_limit_percent(
    db: *mut LavaDb,
    percent: u8,
    error: *mut *mut LavaError,
) -> u32 {
    let limit = (percent > 0).then_some(SpaceLimit::VolumePercent(percent));
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || handle(db)?.0.set_space_limit(limit)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_close(db: *mut LavaDb, error: *mut *mut LavaError) -> u32 {
    let close = || {
        // SAFETY: the caller follows the rules of the header.
        let own = unsafe { handle(db)? }.0.clone();
        // SAFETY: as above; the handle is not used any more, whatever the result of the close.
        unsafe { free(db) };
        own.close()
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, close) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_db_free(db: *mut LavaDb) {
    // SAFETY: the caller follows the rules of the header.
    unsafe { free(db) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_family_open(
    db: *mut LavaDb,
    name: *const c_char,
    family: *mut *mut LavaFamily,
    error: *mut *mut LavaError,
) -> u32 {
    let open = || {
        // SAFETY: the caller follows the rules of the header.
        let (db, name, family) = unsafe { (handle(db)?, text(name)?, place(family)?) };
        *family = give(LavaFamily(db.0.family(name)?));
        Ok(())
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, open) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_family_create(
    db: *mut LavaDb,
    name: *const c_char,
    options: *const LavaOptions,
    family: *mut *mut LavaFamily,
    error: *mut *mut LavaError,
) -> u32 {
    let create = || {
        // SAFETY: the caller follows the rules of the header.
        let (db, name, family) = unsafe { (handle(db)?, text(name)?, place(family)?) };
        // SAFETY: as above.
        let own = unsafe { options.as_ref() }.map(|options| options.0.family.clone());
        *family = give(LavaFamily(db.0.create_family(name, &own.unwrap_or_default())?));
        Ok(())
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, create) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_family_drop(
    db: *mut LavaDb,
    family: *mut LavaFamily,
    error: *mut *mut LavaError,
) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || handle(db)?.0.drop_family(&handle(family)?.0)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_family_free(family: *mut LavaFamily) {
    // SAFETY: the caller follows the rules of the header.
    unsafe { free(family) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_sync(db: *mut LavaDb, error: *mut *mut LavaError) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || handle(db)?.0.sync()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_flush(db: *mut LavaDb, error: *mut *mut LavaError) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || handle(db)?.0.flush()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_upgrade(db: *mut LavaDb, format: u32, error: *mut *mut LavaError) -> u32 {
    let to = |number| if number == 0 { Ok(StoreFormat::NEWEST) } else { StoreFormat::from_number(number) };
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || handle(db)?.0.upgrade(to(format)?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_checkpoint(
    db: *mut LavaDb,
    at: *const c_char,
    error: *mut *mut LavaError,
) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || handle(db)?.0.checkpoint(path(at)?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_checkpoint_within(
    db: *mut LavaDb,
    at: *const c_char,
    milliseconds: u64,
    error: *mut *mut LavaError,
) -> u32 {
    let copy = || {
        let cancel = Cancel::with_deadline(&Env::kernel(), Duration::from_millis(milliseconds));
        // SAFETY: the caller follows the rules of the header.
        let (own, at) = unsafe { (handle(db)?, path(at)?) };
        own.0.checkpoint_with(at, &CheckpointOptions { cancel: Some(cancel) })
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, copy) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_metrics(
    db: *mut LavaDb,
    text: *mut *mut LavaValue,
    error: *mut *mut LavaError,
) -> u32 {
    let tell = || {
        // SAFETY: the caller follows the rules of the header.
        let (db, text) = unsafe { (handle(db)?, place(text)?) };
        *text = give(LavaValue::Bytes(db.0.metrics()?.into_bytes()));
        Ok(())
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, tell) }
}
