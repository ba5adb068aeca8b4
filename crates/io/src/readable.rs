//! Reading what is left after a loss of power, where some of it cannot be read.
//!
//! A device that loses power while it writes a sector may not be able to read it any more until it is written again. Nothing
//! that was durable was in it, so whoever looks for the end of what a crash left takes such a place for one that was never
//! written. A device that cannot read anything is another matter: a failure is believed to be of a place only if it comes
//! back when the place is read alone, and if something beside it can be read.

use base::{Error, Result};

/// `EIO`.
const EIO: i32 = 5;

/// True if the medium could not be read: not a refusal that passes by itself, and not damage that was read.
pub fn is_unreadable(error: &Error) -> bool {
    error.io_error().is_some_and(|io| io.raw_os_error() == Some(EIO))
}

/// Fills `buf` with what `read` finds from `offset` on. Pieces of `unit` bytes that cannot be read are zeros.
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
    fn what_cannot_be_read_is_zeros_if_anything_can() {
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
    fn a_failure_that_does_not_come_back_is_none() {
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
