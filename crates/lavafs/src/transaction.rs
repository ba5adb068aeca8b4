//! Transactions: the records of the journal.
//!
//! A transaction consists of a header and operations. It begins at a block and is padded to whole
//! blocks. It has no commit record: it is valid if its checksum is correct, its number is the next
//! one, and its `chain` is the hash of its predecessor. A crash may lose a transaction but keep a
//! later one. The chain then prevents the later one from following a transaction that is written in
//! place of the lost one.
//!
//! `durable` is the number of a transaction that was durable when this one was written. An intact
//! transaction thus proves that no crash tore the transactions up to `durable`, even if they are
//! unreadable now.
//!
//! The header has its own checksum. Therefore its length is trusted before the rest is read, and
//! its `durable` counts even if the rest is torn.
//!
//! Checksums are masked with the key of the volume and the transaction number, for a dump part also
//! with the part number.

use crate::layout::BLOCK;
use base::checksum::{checksum, mask};
use base::codec::{Reader, put_u32, put_u64};
use base::hash::key_hash;
use base::{Error, Result, Uid};

/// First bytes of a transaction.
pub const MAGIC: [u8; 4] = *b"LFTX";
/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 72;
/// Maximum length of a transaction, in bytes.
pub const TRANSACTION_LEN_MAX: usize = 16 << 20;

const CHECKSUM_AT: usize = 4;
/// Byte range under the header checksum.
const HEADER_SUMMED: std::ops::Range<usize> = 8..68;

/// Kind of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Changes, in order.
    Change,
    /// Part of a metadata dump, as of the transaction with this number.
    Dump,
}

/// Header of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the transaction.
    pub kind: Kind,
    /// Transaction number; for a dump, that of the last transaction in it.
    pub sequence: u64,
    /// Hash of the previous transaction or part.
    pub chain: u64,
    /// Number of a transaction that was durable when this one was written.
    pub durable: u64,
    /// Random value: two transactions with the same number differ.
    pub salt: u64,
    /// Part number in a dump.
    pub part: u32,
}

/// A decoded transaction.
#[derive(Clone, Debug)]
pub struct Found<'a> {
    /// Header.
    pub header: Header,
    /// Encoded operations.
    pub ops: &'a [u8],
    /// Hash, which is the `chain` of the next transaction.
    pub hash: u64,
    /// Number of blocks.
    pub blocks: u64,
}

/// Volume of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// Identity of the volume.
    pub uid: Uid,
    /// Key of the volume.
    pub key: Uid,
}

/// Place that masks header checksums; no transaction has it.
const HEADER_PLACE: u64 = u64::MAX;

fn place(sequence: u64, part: u32) -> u64 {
    sequence ^ (u64::from(part) << 40)
}

/// Returns the number of blocks of a transaction with `ops_len` bytes of operations.
pub fn blocks_of(ops_len: usize) -> u64 {
    ((HEADER_LEN + ops_len) as u64).div_ceil(BLOCK)
}

/// Encodes a transaction without padding. Returns its bytes and its hash.
pub fn encode(owner: Owner, header: &Header, ops: &[u8]) -> (Vec<u8>, u64) {
    let len = HEADER_LEN + ops.len();
    assert!(len <= TRANSACTION_LEN_MAX, "a transaction of {len} bytes");
    let mut out = Vec::with_capacity(len);
    out.extend_from_slice(&MAGIC);
    put_u32(&mut out, 0);
    put_u32(&mut out, len as u32);
    put_u32(&mut out, if header.kind == Kind::Change { 1 } else { 2 });
    out.extend_from_slice(&owner.uid.0);
    for word in [header.sequence, header.chain, header.durable, header.salt] {
        put_u64(&mut out, word);
    }
    put_u32(&mut out, header.part);
    let sum = checksum(&out[HEADER_SUMMED]) ^ mask(owner.key, HEADER_PLACE);
    put_u32(&mut out, sum);
    assert_eq!(out.len(), HEADER_LEN, "the header has its length");
    out.extend_from_slice(ops);
    let sum = checksum(&out[CHECKSUM_AT + 4..]) ^ mask(owner.key, place(header.sequence, header.part));
    out[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    let hash = key_hash(&out);
    (out, hash)
}

/// Returns the header at the start of a block and the transaction length, if the header is intact
/// and belongs to this volume.
pub fn decode_header(owner: Owner, block: &[u8]) -> Option<(Header, usize)> {
    let summed = block.get(HEADER_SUMMED)?;
    let mut r = Reader::new(block);
    let magic = r.array::<4>().ok()?;
    let _checksum = r.u32().ok()?;
    let len = r.u32().ok()? as usize;
    let kind = match r.u32().ok()? {
        1 => Kind::Change,
        2 => Kind::Dump,
        _ => return None,
    };
    let uid = Uid(r.array().ok()?);
    let mut word = || r.u64().ok();
    let (sequence, chain, durable, salt) = (word()?, word()?, word()?, word()?);
    let part = r.u32().ok()?;
    let sum = r.u32().ok()?;
    let sound = checksum(summed) ^ mask(owner.key, HEADER_PLACE) == sum;
    let ours =
        sound && magic == MAGIC && uid == owner.uid && (HEADER_LEN..=TRANSACTION_LEN_MAX).contains(&len);
    ours.then_some((Header { kind, sequence, chain, durable, salt, part }, len))
}

/// Decodes the transaction at the start of `bytes`, which may hold more.
///
/// # Errors
/// `Corruption` without an intact transaction of this volume.
pub fn decode(owner: Owner, bytes: &[u8]) -> Result<Found<'_>> {
    let (header, len) = decode_header(owner, bytes).ok_or_else(|| {
        Error::corruption(
            "the block has no journal transaction of this volume: its header is damaged or foreign",
        )
    })?;
    let whole = bytes.get(..len).ok_or_else(|| {
        Error::corruption(format!(
            "a journal transaction of {len} bytes is cut off after {} bytes",
            bytes.len()
        ))
    })?;
    let mut r = Reader::new(whole);
    let _magic = r.u32()?;
    let stored = r.u32()?;
    if checksum(r.rest()) ^ mask(owner.key, place(header.sequence, header.part)) != stored {
        let why = format!("the checksum of a journal transaction of {len} bytes does not match");
        return Err(Error::corruption(why));
    }
    let _rest_of_header = r.take(HEADER_LEN - 8)?;
    let blocks = (len as u64).div_ceil(BLOCK);
    Ok(Found { header, ops: r.rest(), hash: key_hash(whole), blocks })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner { uid: Uid::from_words(1, 2), key: Uid::from_words(3, 4) }
    }

    fn header() -> Header {
        Header { kind: Kind::Change, sequence: 9, chain: 8, durable: 7, salt: 6, part: 0 }
    }

    #[test]
    fn a_transaction_is_read_as_it_was_written() {
        for kind in [Kind::Change, Kind::Dump] {
            let header = Header { kind, part: 3, ..header() };
            let (mut bytes, hash) = encode(owner(), &header, b"operations");
            bytes.resize(BLOCK as usize, 0);
            let found = decode(owner(), &bytes).unwrap();
            assert_eq!(
                (found.header, found.ops, found.hash, found.blocks),
                (header, &b"operations"[..], hash, 1)
            );
        }
        assert_eq!(blocks_of(BLOCK as usize - HEADER_LEN), 1);
        assert_eq!(blocks_of(BLOCK as usize - HEADER_LEN + 1), 2);
    }

    #[test]
    fn bit_flips_and_transactions_of_other_volumes_are_detected() {
        let (good, _) = encode(owner(), &header(), b"operations");
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(owner(), &bytes).is_err(), "bit {bit}");
        }
        assert!(decode(Owner { uid: Uid::default(), ..owner() }, &good).is_err());
        assert!(
            decode(Owner { key: Uid::default(), ..owner() }, &good).is_err(),
            "the key cannot be guessed"
        );
        (0..good.len()).for_each(|cut| assert!(decode(owner(), &good[..cut]).is_err(), "cut at {cut}"));
    }
}
