//! Completions: the results of requests in a queue.

use crate::error::{LavaError, OK, lava_error_free, status_of};
use crate::ffi::{Slice, free, give};
use crate::read::{LavaValue, lava_value_free};
use lavastore::{Entry, Outcome, Result, Value};
use std::ptr::null_mut;

/// A `lava_completion`.
#[repr(C)]
#[derive(Debug)]
pub struct Completion {
    pub token: u64,
    pub status: u32,
    pub answer: u32,
    pub value: *mut LavaValue,
    pub entries: *mut LavaEntries,
    pub error: *mut LavaError,
}

/// A `lava_entries`.
#[derive(Debug)]
pub enum LavaEntries {
    /// Result of a scan.
    Page(Vec<Entry>),
    /// Result of a read of many keys.
    Values(Vec<Option<Value>>),
}

impl Completion {
    pub(crate) fn new(token: u64, outcome: Result<Outcome>) -> Completion {
        let mut out = Completion {
            token,
            status: OK,
            answer: 0,
            value: null_mut(),
            entries: null_mut(),
            error: null_mut(),
        };
        match outcome {
            Ok(Outcome::Done) => {}
            Ok(Outcome::Value(value)) => (out.answer, out.value) = (1, LavaValue::give(value)),
            Ok(Outcome::Values(values)) => (out.answer, out.entries) = (2, give(LavaEntries::Values(values))),
            Ok(Outcome::Entries(page)) => (out.answer, out.entries) = (2, give(LavaEntries::Page(page))),
            Err(e) => {
                out.status = status_of(e.kind());
                out.error = give(LavaError::new(out.status, &format!("{e:#}"), e.file()));
            }
        }
        out
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_completion_free(completion: *mut Completion) {
    // SAFETY: the caller follows the rules of the header.
    let Some(completion) = (unsafe { completion.as_mut() }) else { return };
    // SAFETY: as above; the completion owns its handles, or they are NULL.
    unsafe {
        lava_value_free(std::mem::replace(&mut completion.value, null_mut()));
        lava_entries_free(std::mem::replace(&mut completion.entries, null_mut()));
        lava_error_free(std::mem::replace(&mut completion.error, null_mut()));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_entries_len(entries: *const LavaEntries) -> usize {
    // SAFETY: the caller follows the rules of the header.
    match unsafe { entries.as_ref() } {
        Some(LavaEntries::Page(page)) => page.len(),
        Some(LavaEntries::Values(values)) => values.len(),
        None => 0,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_entries_key(entries: *const LavaEntries, i: usize) -> Slice {
    // SAFETY: the caller follows the rules of the header.
    match unsafe { entries.as_ref() } {
        Some(LavaEntries::Page(page)) => page.get(i).map_or(Slice::NONE, |(key, _)| Slice::of(key)),
        _ => Slice::NONE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_entries_value(entries: *const LavaEntries, i: usize) -> Slice {
    // SAFETY: the caller follows the rules of the header.
    match unsafe { entries.as_ref() } {
        Some(LavaEntries::Page(page)) => page.get(i).map_or(Slice::NONE, |(_, value)| Slice::of(value)),
        Some(LavaEntries::Values(values)) => {
            values.get(i).and_then(Option::as_ref).map_or(Slice::NONE, |value| Slice::of(value))
        }
        None => Slice::NONE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_entries_free(entries: *mut LavaEntries) {
    // SAFETY: the caller follows the rules of the header.
    unsafe { free(entries) }
}
