//! Lists a vSST as text: its properties, its frames and, on request, its keys.

use super::index::{IndexFrame, Node, node};
use super::reader::Vsst;
use crate::dump::{DumpOptions, shown};
use crate::file::{BlockKind, Caching};
use crate::footer::VERSION;
use crate::options::ReadCounters;
use crate::sections;
use base::{Error, ErrorKind, Result};
use std::fmt::{self, Write};
use std::sync::Arc;

/// Lists a vSST, bypassing the cache.
///
/// # Errors
/// The errors of reading the file; lines before the damage are written. `Io` if a write to `out`
/// fails.
pub fn dump_vsst(vsst: &Arc<Vsst>, options: DumpOptions, out: &mut dyn Write) -> Result<()> {
    head(vsst, out).map_err(refused)?;
    let keys = vsst.keys()?;
    for (p, handle) in keys.partitions().enumerate() {
        writeln!(out, "block {:>10} +{:<8} dense partition {p}", handle.offset, handle.len)
            .map_err(refused)?;
    }
    list(vsst, &vsst.directory.root, vsst.directory.levels, &mut 0, out)?;
    for s in &vsst.sections {
        let name = match s.tag {
            sections::PROPERTIES => "properties",
            sections::DIRECTORY => "root of the directory",
            sections::DENSE_INDEX => "index of dense partitions",
            _ => "unknown section",
        };
        writeln!(out, "block {:>10} +{:<8} {name}", s.handle.offset, s.handle.len).map_err(refused)?;
    }
    writeln!(out, "block {:>10} +{:<8} meta index", vsst.meta.offset, vsst.meta.len).map_err(refused)?;
    if options.entries { list_keys(vsst, out) } else { Ok(()) }
}

fn refused(_: fmt::Error) -> Error {
    Error::new(ErrorKind::Io, "the listing of the value file (vSST) cannot be written to its output")
}

fn head(vsst: &Vsst, out: &mut dyn Write) -> fmt::Result {
    let p = vsst.properties();
    let id = &p.identity;
    writeln!(out, "vSST version {VERSION}, {} bytes, uid {:?}", vsst.len(), vsst.uid())?;
    writeln!(
        out,
        "number {} family {} level {} job {} edit {} inputs {:?} created {} class {}",
        id.number, id.family, id.level, id.job, id.edit, id.inputs, p.created_unix_seconds, p.class
    )?;
    writeln!(
        out,
        "records {} bytes {} (values {} uncompressed), alignment {}, codecs {:#b}, sequences {}..={}",
        p.entries, p.record_bytes, p.raw_bytes, p.alignment, p.codecs, p.min_seq, p.max_seq
    )?;
    let index_per_key = p.index_bytes as f64 / p.entries.max(1) as f64;
    writeln!(
        out,
        "block bytes: dense keys {} index {} ({index_per_key:.2} a key)",
        p.dense_bytes, p.index_bytes
    )?;
    writeln!(out, "took over {:?}", p.took_over)?;
    writeln!(out, "smallest {}", shown(&p.smallest))?;
    writeln!(out, "largest {}", shown(&p.largest))
}

/// Lists the children of a node. Index frames must not begin before `end`, so that the listing
/// ends.
fn list(vsst: &Vsst, at: &Node, levels: u8, end: &mut u64, out: &mut dyn Write) -> Result<()> {
    for row in 0..at.rows() {
        let handle = at.handle(row);
        if levels == 0 && handle.offset < *end {
            let e = Error::corruption(format!(
                "the index tree (directory) points back to an earlier index block: from one that ends at \
                 byte {end} to byte {}",
                handle.offset
            ));
            return Err(vsst.file.locate(e, handle.offset));
        }
        let mut user = Vec::new();
        let trailer = at.separator(row, &mut user);
        let what = match levels {
            0 => {
                *end = handle.end();
                let counters = &mut ReadCounters::default();
                let frame = vsst.file.fetch(handle, BlockKind::VsstIndex, Caching::Bypass, counters)?;
                let frame = IndexFrame::parse(&frame).map_err(|e| vsst.file.locate(e, handle.offset))?;
                format!("index frame of {} crit-bit blocks", frame.shape.rows())
            }
            _ => "directory".to_string(),
        };
        let (separator, seq) = (user.escape_ascii(), trailer >> 8);
        writeln!(
            out,
            "block {:>10} +{:<8} {what} up to \"{separator}\" seq {seq}",
            handle.offset, handle.len
        )
        .map_err(refused)?;
        if levels > 0 {
            let below = node(&vsst.file, handle, Caching::Bypass, &mut ReadCounters::default())?;
            list(vsst, &below, levels - 1, end, out)?;
        }
    }
    Ok(())
}

fn list_keys(vsst: &Arc<Vsst>, out: &mut dyn Write) -> Result<()> {
    let mut keys = vsst.keys()?;
    while keys.valid() {
        let e = keys.entry();
        writeln!(
            out,
            "record {:>10} +{:<8} \"{}\" seq {} raw {}",
            e.offset,
            e.stored_len,
            e.user_key.escape_ascii(),
            e.seq,
            e.raw_len
        )
        .map_err(refused)?;
        keys.next()?;
    }
    Ok(())
}
