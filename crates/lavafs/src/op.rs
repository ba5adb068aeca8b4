//! Operations: the metadata changes recorded in the journal.
//!
//! Each operation is applied exactly once, in order, to the state after all earlier ones (`meta`).
//! No operation is repeated, so it need not be idempotent. A directory is named by its path without
//! a leading slash; the root is the empty string.

use crate::layout::{Extent, decode_u32};
use base::codec::{Reader, put_bytes, put_varint};
use base::{Error, Result};
use std::fmt;

/// File number, never reused.
pub type Ino = u64;

/// Maximum length of a file or directory name, in bytes.
pub const NAME_LEN_MAX: usize = 255;
/// Maximum length of a directory path, in bytes.
pub const DIR_LEN_MAX: usize = 1024;
/// Maximum number of extents in one operation.
pub const EXTENTS_MAX: usize = 1 << 16;
/// Maximum number of bytes covered by one claim.
pub const CLAIM_LEN_MAX: u64 = 64 << 10;

/// A file without its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// File number.
    pub ino: Ino,
    /// Number of bytes known to be written.
    pub size: u64,
    /// True if nothing was written after `size`.
    pub closed: bool,
    /// Extents of the file.
    pub extents: Vec<Extent>,
}

/// A metadata change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are what the variants say")]
pub enum Op {
    /// Makes a directory in an existing parent.
    MakeDir { dir: String },
    /// Removes an empty directory.
    RemoveDir { dir: String },
    /// Renames a directory with everything below it.
    RenameDir { from: String, to: String },
    /// Makes a file without names.
    File(FileRecord),
    /// Links a name to a file.
    Link { dir: String, name: String, ino: Ino },
    /// Removes a name, and the file with its last name.
    Unlink { dir: String, name: String },
    /// Renames a file, replacing an existing one.
    Rename { from_dir: String, from: String, to_dir: String, to: String },
    /// Adds blocks to a file.
    Extend { ino: Ino, extents: Vec<Extent> },
    /// Records the size. If `closed`, nothing was written after it.
    Size { ino: Ino, size: u64, closed: bool },
    /// Records the size, provided that the bytes from `from` on have the hash `hash`. These bytes
    /// were written just before the operation, and become durable with it.
    Claim { ino: Ino, size: u64, from: u64, hash: u64 },
    /// Frees all blocks after the first `blocks`.
    Trim { ino: Ino, blocks: u64 },
    /// Punches a hole.
    Punch { ino: Ino, block: u64, blocks: u32 },
    /// Marks all smaller file numbers as used.
    NextIno { ino: Ino },
    /// Appends blocks to the journal.
    JournalExtend { extents: Vec<Extent> },
    /// Continues the journal in these blocks, with the next transaction.
    JournalSwitch { extents: Vec<Extent> },
    /// Ends a dump. The transaction `sequence`, whose predecessor has the hash `chain`, is the
    /// first in these blocks.
    Jump { sequence: u64, chain: u64, extents: Vec<Extent> },
}

fn put_extents(out: &mut Vec<u8>, extents: &[Extent]) {
    put_varint(out, extents.len() as u64);
    extents.iter().for_each(|e| e.encode(out));
}

fn extents(r: &mut Reader<'_>) -> Result<Vec<Extent>> {
    let count = r.length(EXTENTS_MAX)?;
    // Each extent takes at least two bytes, so the remaining bytes bound the allocation.
    let mut list = Vec::with_capacity(count.min(r.rest().len() / 2));
    for _ in 0..count {
        list.push(Extent::decode(r)?);
    }
    Ok(list)
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

fn text(r: &mut Reader<'_>, limit: usize) -> Result<String> {
    let bytes = r.bytes()?;
    match std::str::from_utf8(bytes) {
        Ok(text) if text.len() <= limit => Ok(text.to_owned()),
        Ok(_) => Err(Error::corruption(format!(
            "a path in the journal of the volume has {} bytes, over the limit of {limit} bytes",
            bytes.len()
        ))),
        Err(_) => Err(Error::corruption("a path in the journal of the volume is not UTF-8")),
    }
}

fn name(r: &mut Reader<'_>) -> Result<String> {
    let name = text(r, NAME_LEN_MAX)?;
    if is_name(&name) {
        Ok(name)
    } else {
        Err(Error::corruption(format!(
            "the journal of the volume has the invalid file name {name:?} (empty, '.', '..', or with a slash or zero byte)"
        )))
    }
}

fn dir(r: &mut Reader<'_>) -> Result<String> {
    let dir = text(r, DIR_LEN_MAX)?;
    let sound = dir.is_empty() || dir.split('/').all(is_name);
    if sound {
        Ok(dir)
    } else {
        Err(Error::corruption(format!(
            "the journal of the volume has the invalid directory path {dir:?} (a name in it is empty, '.', '..', too long, or has a zero byte)"
        )))
    }
}

/// Returns true if `name` is a valid file or directory name.
pub fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= NAME_LEN_MAX
        && name != "."
        && name != ".."
        && !name.contains(['/', '\0'])
}

fn flag(r: &mut Reader<'_>) -> Result<bool> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        n => Err(Error::corruption(format!(
            "a flag in the journal of the volume has the value {n}, neither 0 nor 1"
        ))),
    }
}

fn claim(r: &mut Reader<'_>) -> Result<Op> {
    let (ino, size, len) = (r.varint()?, r.varint()?, r.varint()?);
    match size.checked_sub(len).filter(|_| len <= CLAIM_LEN_MAX) {
        Some(from) => Ok(Op::Claim { ino, size, from, hash: r.u64()? }),
        None => Err(Error::corruption(format!(
            "a checksum in the journal of the volume covers {len} bytes of the file number (inode) {ino}, over its \
             {size} bytes or the limit of {CLAIM_LEN_MAX} bytes"
        ))),
    }
}

impl Op {
    /// Appends the encoded operation.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.tag());
        match self {
            Op::MakeDir { dir } | Op::RemoveDir { dir } => put_text(out, dir),
            Op::RenameDir { from, to } => {
                put_text(out, from);
                put_text(out, to);
            }
            Op::File(file) => {
                put_varint(out, file.ino);
                put_varint(out, file.size);
                out.push(u8::from(file.closed));
                put_extents(out, &file.extents);
            }
            Op::Link { dir, name, ino } => {
                put_text(out, dir);
                put_text(out, name);
                put_varint(out, *ino);
            }
            Op::Unlink { dir, name } => {
                put_text(out, dir);
                put_text(out, name);
            }
            Op::Rename { from_dir, from, to_dir, to } => {
                [from_dir, from, to_dir, to].into_iter().for_each(|t| put_text(out, t));
            }
            Op::Extend { ino, extents } => {
                put_varint(out, *ino);
                put_extents(out, extents);
            }
            Op::Size { ino, size, closed } => {
                put_varint(out, *ino);
                put_varint(out, *size);
                out.push(u8::from(*closed));
            }
            Op::Claim { ino, size, from, hash } => {
                put_varint(out, *ino);
                put_varint(out, *size);
                put_varint(out, size - from);
                out.extend_from_slice(&hash.to_le_bytes());
            }
            Op::Trim { ino, blocks } => {
                put_varint(out, *ino);
                put_varint(out, *blocks);
            }
            Op::Punch { ino, block, blocks } => {
                put_varint(out, *ino);
                put_varint(out, *block);
                put_varint(out, u64::from(*blocks));
            }
            Op::NextIno { ino } => put_varint(out, *ino),
            Op::JournalExtend { extents } | Op::JournalSwitch { extents } => put_extents(out, extents),
            Op::Jump { sequence, chain, extents } => {
                put_varint(out, *sequence);
                out.extend_from_slice(&chain.to_le_bytes());
                put_extents(out, extents);
            }
        }
    }

    fn tag(&self) -> u8 {
        match self {
            Op::MakeDir { .. } => 1,
            Op::RemoveDir { .. } => 2,
            Op::RenameDir { .. } => 3,
            Op::File(_) => 4,
            Op::Link { .. } => 5,
            Op::Unlink { .. } => 6,
            Op::Rename { .. } => 7,
            Op::Extend { .. } => 8,
            Op::Size { .. } => 9,
            Op::Trim { .. } => 10,
            Op::Punch { .. } => 11,
            Op::NextIno { .. } => 12,
            Op::JournalExtend { .. } => 13,
            Op::JournalSwitch { .. } => 14,
            Op::Jump { .. } => 15,
            Op::Claim { .. } => 16,
        }
    }

    /// Decodes one operation.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode(r: &mut Reader<'_>) -> Result<Op> {
        Ok(match r.u8()? {
            1 => Op::MakeDir { dir: dir(r)? },
            2 => Op::RemoveDir { dir: dir(r)? },
            3 => Op::RenameDir { from: dir(r)?, to: dir(r)? },
            4 => Op::File(FileRecord {
                ino: r.varint()?,
                size: r.varint()?,
                closed: flag(r)?,
                extents: extents(r)?,
            }),
            5 => Op::Link { dir: dir(r)?, name: name(r)?, ino: r.varint()? },
            6 => Op::Unlink { dir: dir(r)?, name: name(r)? },
            7 => Op::Rename { from_dir: dir(r)?, from: name(r)?, to_dir: dir(r)?, to: name(r)? },
            8 => Op::Extend { ino: r.varint()?, extents: extents(r)? },
            9 => Op::Size { ino: r.varint()?, size: r.varint()?, closed: flag(r)? },
            10 => Op::Trim { ino: r.varint()?, blocks: r.varint()? },
            11 => Op::Punch { ino: r.varint()?, block: r.varint()?, blocks: decode_u32(r)? },
            12 => Op::NextIno { ino: r.varint()? },
            13 => Op::JournalExtend { extents: extents(r)? },
            14 => Op::JournalSwitch { extents: extents(r)? },
            15 => {
                let sequence = r.varint()?;
                Op::Jump { sequence, chain: r.u64()?, extents: extents(r)? }
            }
            16 => claim(r)?,
            tag => {
                return Err(Error::corruption(format!(
                    "an operation in the journal of the volume has the unknown kind {tag}"
                )));
            }
        })
    }

    /// Decodes all operations in `bytes`.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Op>> {
        let mut r = Reader::new(bytes);
        let mut ops = Vec::new();
        while !r.is_empty() {
            ops.push(Op::decode(&mut r)?);
        }
        Ok(ops)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |extents: &[Extent]| {
            let runs: Vec<String> = extents.iter().map(Extent::to_string).collect();
            runs.join(" ")
        };
        match self {
            Op::MakeDir { dir } => write!(f, "make directory /{dir}"),
            Op::RemoveDir { dir } => write!(f, "remove directory /{dir}"),
            Op::RenameDir { from, to } => write!(f, "rename directory /{from} to /{to}"),
            Op::File(file) => {
                let closed = if file.closed { "" } else { ", open" };
                write!(f, "file {}: {} bytes{closed}, blocks {}", file.ino, file.size, list(&file.extents))
            }
            Op::Link { dir, name, ino } => write!(f, "link file {ino} as /{dir}/{name}"),
            Op::Unlink { dir, name } => write!(f, "unlink /{dir}/{name}"),
            Op::Rename { from_dir, from, to_dir, to } => {
                write!(f, "rename /{from_dir}/{from} to /{to_dir}/{to}")
            }
            Op::Extend { ino, extents } => write!(f, "extend file {ino} by blocks {}", list(extents)),
            Op::Size { ino, size, closed } => {
                write!(f, "file {ino} has {size} bytes{}", if *closed { ", closed" } else { "" })
            }
            Op::Claim { ino, size, from, hash } => {
                write!(f, "file {ino} has {size} bytes, if those from {from} on have the hash {hash:016x}")
            }
            Op::Trim { ino, blocks } => write!(f, "trim file {ino} to {blocks} blocks"),
            Op::Punch { ino, block, blocks } => write!(f, "punch blocks {block}+{blocks} of file {ino}"),
            Op::NextIno { ino } => write!(f, "next file number {ino}"),
            Op::JournalExtend { extents } => write!(f, "journal goes on in blocks {}", list(extents)),
            Op::JournalSwitch { extents } => write!(f, "journal switches to blocks {}", list(extents)),
            Op::Jump { sequence, chain, extents } => {
                write!(f, "jump to transaction {sequence} after {chain:016x} in blocks {}", list(extents))
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns one operation of each kind.
    pub(crate) fn samples() -> Vec<Op> {
        let extents = vec![Extent::new(40, 3), Extent::hole(2), Extent::new(1 << 20, 300)];
        let text = |s: &str| s.to_owned();
        vec![
            Op::MakeDir { dir: text("a/b") },
            Op::RemoveDir { dir: text("a") },
            Op::RenameDir { from: text("a"), to: text("c/d") },
            Op::File(FileRecord { ino: 7, size: 20_000, closed: false, extents: extents.clone() }),
            Op::Link { dir: text(""), name: text("000007.vsst"), ino: 7 },
            Op::Unlink { dir: text("a"), name: text("x") },
            Op::Rename { from_dir: text(""), from: text("x"), to_dir: text("a"), to: text("y") },
            Op::Extend { ino: 9, extents: extents.clone() },
            Op::Size { ino: 9, size: u64::MAX, closed: true },
            Op::Claim { ino: 9, size: 1 << 40, from: (1 << 40) - 4096, hash: u64::MAX - 7 },
            Op::Trim { ino: 9, blocks: 5 },
            Op::Punch { ino: 9, block: 1 << 33, blocks: 77 },
            Op::NextIno { ino: 1 << 40 },
            Op::JournalExtend { extents: extents.clone() },
            Op::JournalSwitch { extents: extents.clone() },
            Op::Jump { sequence: 1000, chain: u64::MAX - 5, extents },
        ]
    }

    #[test]
    fn operations_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        samples().iter().for_each(|op| op.encode(&mut bytes));
        assert_eq!(Op::decode_all(&bytes).unwrap(), samples());
        for op in samples() {
            let mut bytes = Vec::new();
            op.encode(&mut bytes);
            for cut in 1..bytes.len() {
                assert!(Op::decode_all(&bytes[..cut]).unwrap_err().is_corruption(), "{op} cut at {cut}");
            }
        }
    }

    #[test]
    fn names_are_checked() {
        for (name, sound) in
            [("a", true), ("", false), (".", false), ("..", false), ("a/b", false), ("\0", false)]
        {
            assert_eq!(is_name(name), sound, "{name:?}");
            let mut bytes = Vec::new();
            Op::Link { dir: String::new(), name: name.into(), ino: 1 }.encode(&mut bytes);
            assert_eq!(Op::decode_all(&bytes).is_ok(), sound);
        }
        for dir in ["/a", "a/", "a//b", "..", "a/../b"] {
            let mut bytes = Vec::new();
            Op::MakeDir { dir: dir.into() }.encode(&mut bytes);
            assert!(Op::decode_all(&bytes).is_err(), "{dir:?}");
        }
        let mut bytes = Vec::new();
        Op::Link { dir: String::new(), name: "x".repeat(NAME_LEN_MAX + 1), ino: 1 }.encode(&mut bytes);
        assert!(Op::decode_all(&bytes).is_err());
    }

    #[test]
    fn encodings_that_no_release_writes_are_refused() {
        let cases: [(&str, &[u8]); 5] = [
            ("an operation in the journal of the volume has the unknown kind 99", &[99]),
            ("a path in the journal of the volume is not UTF-8", &[6, 0, 1, 0xff]),
            ("a flag in the journal of the volume has the value 2, neither 0 nor 1", &[9, 1, 1, 2]),
            (
                "a checksum in the journal of the volume covers 3 bytes of the file number (inode) 1, over its 2 bytes or the limit of 65536 bytes",
                &[16, 1, 2, 3],
            ),
            (
                "a block number or count in the journal of the volume is 4294967296, over 32 bits",
                &[11, 1, 1, 0x80, 0x80, 0x80, 0x80, 0x10],
            ),
        ];
        for (told, bytes) in cases {
            let e = Op::decode_all(bytes).unwrap_err();
            assert!(e.is_corruption() && e.message() == told, "{e}");
        }
    }
}
