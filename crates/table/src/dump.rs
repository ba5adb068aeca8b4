//! Lists a table as text, with a line for each block and, on request, each entry.

use crate::KeyPrefix;
use crate::block::InlineCursor;
use crate::cursor::BlockCursor;
use crate::file::{BlockKind, Caching};
use crate::footer::VERSION;
use crate::options::ReadCounters;
use crate::reader::Ksst;
use crate::reference::Reference;
use crate::reference_block::ReferenceCursor;
use crate::sections;
use crate::stream::Stream;
use base::{Dependency, Error, ErrorKind, Result, ValueKind, key};
use std::fmt::{self, Write};

/// Maximum number of bytes shown of a value.
const SHOWN: usize = 32;

/// Options of a listing.
#[derive(Clone, Copy, Debug, Default)]
pub struct DumpOptions {
    /// Whether to list entries as well as blocks.
    pub entries: bool,
}

/// Lists a table, bypassing the cache. Sequences are those stored.
///
/// # Errors
/// The errors of reading the table; lines before the damage are written. `Io` if a write to `out`
/// fails.
pub fn dump(table: &Ksst, options: DumpOptions, out: &mut dyn Write) -> Result<()> {
    let refused = |_: fmt::Error| {
        Error::new(ErrorKind::Io, "the listing of the key table (kSST) cannot be written to its output")
    };
    let mut text = String::new();
    let dependencies = table.dependencies(&mut ReadCounters::default())?;
    head(table, &dependencies, &mut text).map_err(refused)?;
    out.write_str(&text).map_err(refused)?;
    if let Some(stream) = &table.references {
        list::<ReferenceCursor>(table, stream, options, out)?;
    }
    if let Some(stream) = &table.inline {
        list::<InlineCursor>(table, stream, options, out)?;
    }
    for t in table.range_tombstones().tombstones() {
        let (start, end) = (t.start.escape_ascii(), t.end.escape_ascii());
        writeln!(out, "range tombstone [\"{start}\", \"{end}\") seq {}", t.seq).map_err(refused)?;
    }
    Ok(())
}

fn head(table: &Ksst, dependencies: &[Dependency], out: &mut String) -> fmt::Result {
    let p = table.properties();
    let id = &p.identity;
    writeln!(out, "kSST version {VERSION}, {} bytes, uid {:?}", table.len(), table.uid())?;
    writeln!(
        out,
        "number {} family {} level {} job {} edit {} inputs {:?} created {}",
        id.number, id.family, id.level, id.job, id.edit, id.inputs, p.created_unix_seconds
    )?;
    writeln!(
        out,
        "entries {} tombstones {} range tombstones {} references {} merge operands {}",
        p.entries, p.tombstones, p.range_tombstones, p.references, p.merge_operands
    )?;
    writeln!(
        out,
        "raw bytes: keys {} values {} referenced {}; sequences {}..={}; expiry {}..={}",
        p.raw_key_bytes,
        p.raw_value_bytes,
        p.referenced_raw_bytes,
        p.min_seq,
        p.max_seq,
        p.min_expiry,
        p.max_expiry
    )?;
    writeln!(
        out,
        "block bytes: inline {} references {} index {} filter {}",
        p.inline_block_bytes, p.reference_block_bytes, p.index_bytes, p.filter_bytes
    )?;
    if p.prefix_code != 0 {
        match KeyPrefix::from_code(p.prefix_code) {
            Some(kind) => writeln!(out, "filter has prefixes of the kind {kind}")?,
            None => writeln!(out, "filter has prefixes of the unknown kind {}", p.prefix_code)?,
        }
    }
    writeln!(out, "smallest {}", shown(&p.smallest))?;
    writeln!(out, "largest {}", shown(&p.largest))?;
    for d in dependencies {
        writeln!(
            out,
            "needs blob {}: {} references, raw {} stored {}",
            d.blob_id, d.count, d.raw_bytes, d.stored_bytes
        )?;
    }
    for r in &p.retained {
        writeln!(
            out,
            "keeps for snapshots {}..={}: table bytes {} record bytes {}",
            r.first, r.last, r.table_bytes, r.record_bytes
        )?;
    }
    for s in &table.sections {
        let name = match s.tag {
            sections::PROPERTIES => "properties",
            sections::TOP_REFERENCES => "top index of references",
            sections::TOP_INLINE => "top index of inline entries",
            sections::RANGE_TOMBSTONES => "range tombstones",
            sections::NOTES => "sizes of entries and fingerprints of keys",
            _ => "unknown section",
        };
        writeln!(out, "block {:>10} +{:<8} {name}", s.handle.offset, s.handle.len)?;
    }
    writeln!(out, "block {:>10} +{:<8} meta index", table.meta.offset, table.meta.len)
}

/// Formats an internal key as text.
pub(crate) fn shown(ikey: &[u8]) -> String {
    let (user, trailer) = key::split(ikey);
    let kind = match ValueKind::from_u8(trailer as u8) {
        Some(kind) => format!("{kind:?}"),
        None if trailer as u8 == ValueKind::Seek as u8 => "before all".into(),
        None => format!("kind {}", trailer as u8),
    };
    format!("\"{}\" seq {} {kind}", user.escape_ascii(), trailer >> 8)
}

fn list<C: BlockCursor>(
    table: &Ksst,
    stream: &Stream,
    options: DumpOptions,
    out: &mut dyn Write,
) -> Result<()> {
    let refused = |_: fmt::Error| {
        Error::new(ErrorKind::Io, "the listing of the key table (kSST) cannot be written to its output")
    };
    let name = if stream.role == BlockKind::References { "references" } else { "inline" };
    let mut counters = ReadCounters::default();
    let mut end = 0;
    for p in 0..stream.partitions() {
        if let Some(h) = stream.filter_handle(p) {
            writeln!(out, "block {:>10} +{:<8} {name} filter {p}", h.offset, h.len).map_err(refused)?;
        }
        let h = stream.index_handle(p);
        let index = stream.partition(&table.file, p, Caching::Bypass, &mut counters)?;
        let rows = index.shape.rows();
        writeln!(out, "block {:>10} +{:<8} {name} index {p}: {rows} blocks", h.offset, h.len)
            .map_err(refused)?;
        for row in 0..rows {
            let h = index.handle(row);
            let mut user = Vec::new();
            let trailer = index.shape.separator(&index.block, row, &mut user);
            let (separator, seq) = (user.escape_ascii(), trailer >> 8);
            writeln!(out, "block {:>10} +{:<8} {name} up to \"{separator}\" seq {seq}", h.offset, h.len)
                .map_err(refused)?;
            if h.offset < end {
                let e = Error::corruption(format!(
                    "the index of the key table (kSST) points back to an earlier data block: from one that \
                     ends at byte {end} to one at byte {}",
                    h.offset
                ));
                return Err(table.file.locate(e, h.offset));
            }
            end = h.end();
            let block = table.file.fetch(h, stream.role, Caching::Bypass, &mut counters)?;
            if options.entries {
                let mut cursor = C::default();
                let here = |e| table.file.locate(e, h.offset);
                cursor.load(block, None).map_err(here)?;
                cursor.seek_to_first().map_err(here)?;
                while cursor.valid() {
                    writeln!(out, "  {}", line(&cursor)).map_err(refused)?;
                    cursor.next().map_err(here)?;
                }
            }
        }
    }
    Ok(())
}

fn line<C: BlockCursor>(cursor: &C) -> String {
    let mut text = shown(cursor.key());
    if cursor.expiry() != 0 {
        text.push_str(&format!(" expires {}", cursor.expiry()));
    }
    let value = cursor.value();
    if key::kind(cursor.key()) == Some(ValueKind::Reference)
        && let Ok(r) = Reference::decode(value)
    {
        text.push_str(&format!(" -> blob {} raw {} stored {}", r.blob_id, r.raw_len, r.stored_len));
    } else if !value.is_empty() {
        let start = value.get(..SHOWN).unwrap_or(value);
        let more = if start.len() < value.len() { "..." } else { "" };
        text.push_str(&format!(" = {} bytes \"{}\"{more}", value.len(), start.escape_ascii()));
    }
    text
}
