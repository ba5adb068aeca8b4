//! What a vSST says about itself: fields as in the properties of a kSST (tag, length, bytes; ascending; a reader skips
//! tags it does not know). With the footer they are enough to rebuild the manifest's record of the file.

use crate::options::TableIdentity;
use base::SeqNo;

/// What a vSST says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VsstProperties {
    /// Who wrote it. Its own BlobId is its number.
    pub identity: TableIdentity,
    /// Records.
    pub entries: u64,
    /// Bytes of all records, padding included: what garbage is measured against.
    pub record_bytes: u64,
    /// Bytes of the values, uncompressed.
    pub raw_bytes: u64,
    /// The smallest sequence.
    pub min_seq: SeqNo,
    /// The largest.
    pub max_seq: SeqNo,
    /// Records begin at, and take, multiples of this.
    pub alignment: u32,
    /// Hot or cold, as the engine numbers it.
    pub class: u8,
    /// BlobIds of other files that lead to this one, ascending.
    pub took_over: Vec<u64>,
    /// The codecs that occur in the file: bit `n` for the codec with number `n`.
    pub codecs: u64,
    /// When it was written, seconds since 1970; 0: not recorded.
    pub created_unix_seconds: u64,
    /// True for a write-once segment, whose records are not in key order.
    pub segment: bool,
    /// The smallest encoded internal key, with kind `Value`.
    pub smallest: Vec<u8>,
    /// The largest.
    pub largest: Vec<u8>,
    /// Bytes of the dense partitions and their index in the file.
    pub dense_bytes: u64,
    /// Bytes of index frames and directory in the file.
    pub index_bytes: u64,
}
