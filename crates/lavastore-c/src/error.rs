//! Errors and the status numbers of their kinds.

use crate::ffi::{free, quiet};
use lavastore::ErrorKind;
use std::ffi::{CString, c_char};
use std::path::Path;

/// `LAVA_OK`.
pub const OK: u32 = 0;
/// `LAVA_BUG`.
pub const BUG: u32 = 100;

/// A `lava_error`.
#[derive(Debug)]
pub struct LavaError {
    pub(crate) status: u32,
    message: CString,
    file: Option<CString>,
}

impl LavaError {
    pub(crate) fn new(status: u32, message: &str, file: Option<&Path>) -> LavaError {
        use std::os::unix::ffi::OsStrExt;
        let file = file.and_then(|file| CString::new(file.as_os_str().as_bytes()).ok());
        // A message quotes keys and names, which may contain NUL; escape it so that the C string is
        // not cut.
        let message = CString::new(message.replace('\0', "\\0")).unwrap_or_default();
        LavaError { status, message, file }
    }
}

/// Returns the status number of a kind. Assigned numbers never change.
pub(crate) fn status_of(kind: ErrorKind) -> u32 {
    match kind {
        ErrorKind::Corruption => 1,
        ErrorKind::Io => 2,
        ErrorKind::NoSpace => 3,
        ErrorKind::InvalidArgument => 4,
        ErrorKind::TooLarge => 5,
        ErrorKind::NotFound => 6,
        ErrorKind::AlreadyExists => 7,
        ErrorKind::Trimmed => 8,
        ErrorKind::Locked => 9,
        ErrorKind::Unsupported => 10,
        ErrorKind::ReadOnly => 11,
        ErrorKind::Busy => 12,
        ErrorKind::Closed => 13,
        ErrorKind::Poisoned => 14,
        ErrorKind::UserCallback => 15,
        ErrorKind::Forked => 16,
        ErrorKind::Cancelled => 17,
        ErrorKind::Conflict => 18,
        // A kind without a number in this version of the interface.
        _ => BUG,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn lava_abi() -> u32 {
    1
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_error_message(error: *const LavaError) -> *const c_char {
    // SAFETY: the caller follows the rules of the header.
    unsafe { error.as_ref() }.map_or(c"no error".as_ptr(), |error| error.message.as_ptr())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_error_status(error: *const LavaError) -> u32 {
    // SAFETY: the caller follows the rules of the header.
    unsafe { error.as_ref() }.map_or(OK, |error| error.status)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_error_file(error: *const LavaError) -> *const c_char {
    // SAFETY: the caller follows the rules of the header.
    let file = unsafe { error.as_ref() }.and_then(|error| error.file.as_ref());
    file.map_or(std::ptr::null(), |file| file.as_ptr())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lava_error_free(error: *mut LavaError) {
    // SAFETY: the caller follows the rules of the header.
    quiet((), || unsafe { free(error) });
}
