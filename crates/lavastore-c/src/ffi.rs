//! Common part of all functions: pointers become references, results become handles, errors and
//! panics become a status.

use crate::error::{BUG, LavaError, OK, status_of};
use lavastore::{Error, ErrorKind, Result};
use std::ffi::{CStr, c_char, c_void};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Bytes owned by the caller or by a handle.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    pub data: *const c_void,
    pub len: usize,
}

impl Slice {
    /// The NULL slice, distinct from an empty one.
    pub const NONE: Slice = Slice { data: std::ptr::null(), len: 0 };

    pub fn of(bytes: &[u8]) -> Slice {
        Slice { data: bytes.as_ptr().cast(), len: bytes.len() }
    }

    /// # Safety
    /// `data` is NULL, or points to `len` bytes that stay valid and unchanged while the result is
    /// used.
    pub unsafe fn bytes<'a>(self) -> Result<&'a [u8]> {
        if self.len == 0 {
            return Ok(&[]);
        }
        if self.data.is_null() {
            return Err(invalid("a slice of bytes at NULL"));
        }
        if isize::try_from(self.len).is_err() {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("a slice of {} bytes exceeds the address space: pass fewer bytes", self.len),
            ));
        }
        // SAFETY: not NULL, within the size limit, and otherwise guaranteed by the caller.
        Ok(unsafe { std::slice::from_raw_parts(self.data.cast(), self.len) })
    }

    /// Same as [`Slice::bytes`]; `None` for the NULL slice.
    ///
    /// # Safety
    /// As [`Slice::bytes`].
    pub unsafe fn bound<'a>(self) -> Result<Option<&'a [u8]>> {
        if self.data.is_null() && self.len == 0 {
            return Ok(None);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.bytes() }.map(Some)
    }
}

/// Returns the keys from `start` on and below `end`; `None` is unbounded.
pub fn range<'a>(start: Option<&'a [u8]>, end: Option<&'a [u8]>) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    (start.map_or(Bound::Unbounded, Bound::Included), end.map_or(Bound::Unbounded, Bound::Excluded))
}

fn invalid(what: &str) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        format!("{what} was passed to a function of lavastore.h: read its comment there"),
    )
}

/// Dereferences a required handle.
///
/// # Safety
/// `handle` is NULL, or was handed out and not freed, and no thread frees or changes it while the
/// result is used.
pub unsafe fn handle<'a, T>(handle: *const T) -> Result<&'a T> {
    // SAFETY: guaranteed by the caller.
    unsafe { handle.as_ref() }.ok_or_else(|| invalid("NULL in place of a handle"))
}

/// Dereferences a required handle mutably.
///
/// # Safety
/// As [`handle`], and no other thread uses the handle.
pub unsafe fn handle_mut<'a, T>(handle: *mut T) -> Result<&'a mut T> {
    // SAFETY: guaranteed by the caller.
    unsafe { handle.as_mut() }.ok_or_else(|| invalid("NULL in place of a handle"))
}

/// Converts a NUL-terminated string.
///
/// # Safety
/// `text` is NULL, or a NUL-terminated string that stays valid and unchanged while the result is
/// used.
pub unsafe fn text<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(invalid("NULL in place of a text"));
    }
    // SAFETY: not NULL, otherwise guaranteed by the caller.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|e| invalid("a text with invalid UTF-8").caused_by(e))
}

/// Converts a NUL-terminated path of any bytes.
///
/// # Safety
/// As [`text`].
pub unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path> {
    use std::os::unix::ffi::OsStrExt;
    if path.is_null() {
        return Err(invalid("NULL in place of a path"));
    }
    // SAFETY: not NULL, otherwise guaranteed by the caller.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    Ok(Path::new(std::ffi::OsStr::from_bytes(bytes)))
}

/// Dereferences an output parameter.
///
/// # Safety
/// `out` is NULL, or valid for a write of one value, and no other thread uses it.
pub unsafe fn place<'a, T>(out: *mut T) -> Result<&'a mut T> {
    // SAFETY: guaranteed by the caller.
    unsafe { out.as_mut() }.ok_or_else(|| invalid("NULL in place of an output pointer"))
}

/// Moves a value to the heap and hands out its pointer.
pub fn give<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Frees a handle that was handed out.
///
/// # Safety
/// `handle` is NULL, or was returned by [`give`] and is not used any more.
pub unsafe fn free<T>(handle: *mut T) {
    if handle.is_null() {
        return;
    }
    // SAFETY: guaranteed by the caller.
    let handle = unsafe { Box::from_raw(handle) };
    // The payload of a panic in a destructor cannot be reported.
    drop(catch_unwind(AssertUnwindSafe(|| drop(handle))));
}

/// Runs a call and returns its status; writes an error to `error` unless it is NULL.
///
/// # Safety
/// `error` is NULL, or valid for a write of one pointer.
pub unsafe fn call(error: *mut *mut LavaError, body: impl FnOnce() -> Result<()>) -> u32 {
    let failed = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return OK,
        Ok(Err(e)) => LavaError::new(status_of(e.kind()), &format!("{e:#}"), e.file()),
        Err(panic) => LavaError::new(BUG, &format!("a bug of the library: {}", said(&*panic)), None),
    };
    let status = failed.status;
    // SAFETY: guaranteed by the caller.
    if let Some(error) = unsafe { error.as_mut() } {
        *error = give(failed);
    }
    status
}

/// Runs an infallible function; returns `otherwise` if it panics.
pub fn quiet<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}
