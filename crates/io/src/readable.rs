//! Reads after a power loss, where some sectors may be unreadable.
//!
//! A sector that was being written at a power loss may be unreadable until it is written again. It
//! held no durable data, so a search for the end of the data after a crash treats it as never
//! written. A device that can read nothing is a different failure. An error counts as a bad sector
//! only if it recurs when the sector is read alone, and if another part can be read.

use base::{Error, Result};

/// `EIO`.
const EIO: i32 = 5;

/// Returns true if the medium could not be read: neither a transient refusal nor damaged data.
pub fn is_unreadable(error: &Error) -> bool {
    error.io_error().is_some_and(|io| io.raw_os_error() == Some(EIO))
}

/// Fills `buf` by `read` from `offset` on. Unreadable pieces of `unit` bytes become zeros.
///
/// # Errors
/// Those of `read`, if they are of another kind, or if nothing at all can be read.
pub fn read_around(
    buf: &mut [u8],
    offset: u64,
    unit: usize,
    read: impl Fn(&mut [u8], u64) -> Result<()>,
) -> Result<()> {
    let Err(first) = read(buf, offset) else { return Ok(()) };
    if !is_unreadable(&first) {
        return Err(first);
    }
    let mut any = false;
    for (at, piece) in (offset..).step_by(unit).zip(buf.chunks_mut(unit)) {
        match read(piece, at) {
            Ok(()) => any = true,
            Err(e) if is_unreadable(&e) => piece.fill(0),
            Err(e) => return Err(e),
        }
    }
    if any { Ok(()) } else { Err(first) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn eio() -> Error {
        Error::from_io("read", "/f", std::io::Error::from_raw_os_error(EIO))
    }

    #[test]
    fn unreadable_sectors_read_as_zeros_if_any_are_readable() {
        let read = |bad: std::ops::Range<u64>| {
            move |buf: &mut [u8], offset: u64| {
                buf.fill(7);
                if offset < bad.end && bad.start < offset + buf.len() as u64 { Err(eio()) } else { Ok(()) }
            }
        };
        let mut buf = [1; 40];
        read_around(&mut buf, 100, 10, read(115..118)).unwrap();
        assert_eq!(buf, [[7; 10], [0; 10], [7; 10], [7; 10]].concat()[..]);
        assert!(is_unreadable(&read_around(&mut buf, 100, 10, read(0..200)).unwrap_err()));
        let full = |_: &mut [u8], _| Err(Error::invalid("of another kind"));
        assert!(!is_unreadable(&read_around(&mut buf, 0, 10, full).unwrap_err()));
    }

    #[test]
    fn a_transient_read_failure_is_retried() {
        let calls = Cell::new(0);
        let read = |buf: &mut [u8], _| {
            buf.fill(7);
            calls.set(calls.get() + 1);
            if calls.get() == 1 { Err(eio()) } else { Ok(()) }
        };
        let mut buf = [0; 40];
        read_around(&mut buf, 0, 10, read).unwrap();
        assert_eq!(buf, [7; 40]);
    }
}
