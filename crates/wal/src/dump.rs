//! Text dumps of a log group, for manual inspection of a store.
//!
//! Nothing is checked against the rest of the log: each page is shown with its own contents, and a
//! damaged page with the reason. The store's uid is taken from the pages, so that a group can be
//! read without its manifest.

use crate::lane::Lane;
use crate::page::{self, FragmentKind, Fragments, Verdict};
use crate::walk::Walk;
use base::{Error, ErrorKind, Result};
use io::{InPlaceFile, PAGE};
use std::fmt::{self, Write};

/// Writes one line for each page and each fragment of a group file; a run of ranges without log
/// pages takes one line.
///
/// # Errors
/// Those of reading the file, and `Io` if `out` refuses.
pub fn dump_group(file: &dyn InPlaceFile, out: &mut dyn Write) -> Result<()> {
    let refused = |_: fmt::Error| {
        Error::new(
            ErrorKind::Io,
            "the listing of the log group cannot be written to its output: check the output, and repeat",
        )
    };
    // All pages of a group have the same unit of page numbers.
    let mut unit = PAGE as u64;
    let (mut offset, mut blank) = (0, 0);
    let mut walk = Walk::new(file, PAGE, 0..file.len());
    while offset < file.len() {
        walk.move_to(offset)?;
        let bytes = walk.page(offset);
        let i = offset / unit;
        if bytes.starts_with(&page::MAGIC) {
            dump_blank(out, i, blank).and_then(|()| dump_page(out, i, bytes)).map_err(refused)?;
            let header = page::peek(bytes);
            unit = header.map_or(unit, |header| header.shape().unit() as u64);
            offset += header.map_or(unit, |header| (header.page_len() as u64).max(unit));
            blank = 0;
        } else {
            offset += unit;
            blank += 1;
        }
    }
    dump_blank(out, offset / unit, blank).map_err(refused)
}

fn dump_blank(out: &mut dyn Write, end: u64, count: u64) -> fmt::Result {
    match count {
        0 => Ok(()),
        _ => writeln!(out, "pages {}..{end}: no log pages", end - count),
    }
}

fn dump_page(out: &mut dyn Write, i: u64, bytes: &[u8]) -> fmt::Result {
    let Some(header) = page::peek(bytes) else {
        return writeln!(out, "page {i}: the header makes no sense");
    };
    write!(
        out,
        "page {i}: lpn {} ltn {} first {} used {} durable-end {} prev {}@{} prev-used {} edit {} store {:?}",
        header.lpn,
        header.ltn,
        header.first_lpn,
        header.used,
        header.durable_end,
        header.prev_end,
        header.prev_ltn,
        header.prev_used,
        header.witness_edit,
        header.owner.store
    )?;
    if let Some(group) = header.owner.group {
        write!(out, " group {group:?}")?;
    }
    if let Some(page::Stream { lane, logger, shape }) = header.stream {
        write!(out, " lane {} logger {logger}", lane.0)?;
        if lane != Lane::FIRST {
            write!(out, " block {} length {}", shape.block_len(), header.page_len())?;
        }
    }
    match page::read_closed(bytes, header.owner, header.ltn) {
        Verdict::Valid(_) => writeln!(out)?,
        Verdict::Invalid => writeln!(out, " DAMAGED")?,
        Verdict::Newer(unknown) => return writeln!(out, " of a later release: {unknown}"),
    }
    for fragment in Fragments::new(bytes, header.owner, header.lpn) {
        let kind = match fragment.kind {
            FragmentKind::Full => "full",
            FragmentKind::First => "first",
            FragmentKind::Middle => "middle",
            FragmentKind::Last => "last",
        };
        write!(out, "  @{} {kind} {} bytes", fragment.pos, fragment.payload.len())?;
        if header.stream.is_some() {
            write!(out, " of tenant {}", fragment.tenant.0)?;
        }
        match fragment.batch {
            Some(b) => {
                let last = b.last_seq();
                writeln!(out, ", batch of {} bytes, sequences {}..={last}", b.len, b.first_seq)?;
            }
            None => writeln!(out)?,
        }
    }
    Ok(())
}
