//! What every function does: pointers become references, answers become handles, errors and panics become a status.

use crate::error::{BUG, LavaError, OK, status_of};
use lavastore::{Error, ErrorKind, Result};
use std::ffi::{CStr, c_char, c_void};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Bytes of the caller's, or bytes of a handle.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    pub data: *const c_void,
    pub len: usize,
}

impl Slice {
    /// No bytes, and not even none.
    pub const NONE: Slice = Slice { data: std::ptr::null(), len: 0 };

    pub fn of(bytes: &[u8]) -> Slice {
        Slice { data: bytes.as_ptr().cast(), len: bytes.len() }
    }

    /// # Safety
    /// `data` is NULL, or has `len` bytes that live and do not change as long as the answer is used.
    pub unsafe fn bytes<'a>(self) -> Result<&'a [u8]> {
        if self.len == 0 {
            return Ok(&[]);
        }
        if self.data.is_null() {
            return Err(invalid("bytes at NULL"));
        }
        if isize::try_from(self.len).is_err() {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("{} bytes in one piece of memory", self.len),
            ));
        }
        // SAFETY: not NULL, no longer than memory can be, and the caller's promise.
        Ok(unsafe { std::slice::from_raw_parts(self.data.cast(), self.len) })
    }

    /// The same; `None` where it is NULL.
    ///
    /// # Safety
    /// As [`Slice::bytes`].
    pub unsafe fn bound<'a>(self) -> Result<Option<&'a [u8]>> {
        if self.data.is_null() && self.len == 0 {
            return Ok(None);
        }
        // SAFETY: the caller's promise.
        unsafe { self.bytes() }.map(Some)
    }
}

/// The keys from `start` on and below `end`, as far as these are bounds.
pub fn range<'a>(start: Option<&'a [u8]>, end: Option<&'a [u8]>) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    (start.map_or(Bound::Unbounded, Bound::Included), end.map_or(Bound::Unbounded, Bound::Excluded))
}

fn invalid(what: &str) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        format!("{what} was passed to a function of lavastore.h: see there"),
    )
}

/// A handle that must be there.
///
/// # Safety
/// It is NULL, or one that was handed out and not freed, and nobody frees or changes it as long as the answer is used.
pub unsafe fn handle<'a, T>(handle: *const T) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| invalid("NULL in place of a handle"))
}

/// The same, to be changed.
///
/// # Safety
/// As [`handle`], and nobody else uses it.
pub unsafe fn handle_mut<'a, T>(handle: *mut T) -> Result<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_mut() }.ok_or_else(|| invalid("NULL in place of a handle"))
}

/// A text that ends with a 0 byte.
///
/// # Safety
/// It is NULL, or such a text, which lives and does not change as long as the answer is used.
pub unsafe fn text<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(invalid("NULL in place of a text"));
    }
    // SAFETY: not NULL, and the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|e| invalid("a text that is no UTF-8").caused_by(e))
}

/// A path: any bytes but 0.
///
/// # Safety
/// As [`text`].
pub unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path> {
    use std::os::unix::ffi::OsStrExt;
    if path.is_null() {
        return Err(invalid("NULL in place of a path"));
    }
    // SAFETY: not NULL, and the caller's promise.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    Ok(Path::new(std::ffi::OsStr::from_bytes(bytes)))
}

/// Where an answer goes.
///
/// # Safety
/// It is NULL, or there is room for one, and nobody else uses it.
pub unsafe fn place<'a, T>(out: *mut T) -> Result<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { out.as_mut() }.ok_or_else(|| invalid("NULL in place of room for the answer"))
}

/// Hands something out.
pub fn give<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Frees what was handed out.
///
/// # Safety
/// It is NULL, or what [`give`] returned; nobody uses it any more.
pub unsafe fn free<T>(handle: *mut T) {
    if handle.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    let handle = unsafe { Box::from_raw(handle) };
    // What is left of a panic in a destructor cannot be told to anybody.
    drop(catch_unwind(AssertUnwindSafe(|| drop(handle))));
}

/// What a call came to, with its error for whoever wants it.
///
/// # Safety
/// `error` is NULL, or there is room for a pointer.
pub unsafe fn call(error: *mut *mut LavaError, body: impl FnOnce() -> Result<()>) -> u32 {
    let failed = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return OK,
        Ok(Err(e)) => LavaError::new(status_of(e.kind()), &e.to_string(), e.file()),
        Err(panic) => LavaError::new(BUG, &format!("a bug of the library: {}", said(&*panic)), None),
    };
    let status = failed.status;
    // SAFETY: the caller's promise.
    if let Some(error) = unsafe { error.as_mut() } {
        *error = give(failed);
    }
    status
}

/// What a function that cannot fail answers; `otherwise` where it panics.
pub fn quiet<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}
