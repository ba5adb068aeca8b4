//! The header of a value segment: its origin and the key of the value.
//!
//! ```text
//! file number varint | family varint | manifest edit varint | written at varint | flags varint
//! user key: length varint, bytes | checksum u32, masked with (uid, 0)
//! ```
//!
//! Flags are 0; a reader rejects others. The length of the header is in the footer.

use super::SUM_LEN;
use base::codec::{Reader, put_bytes, put_u32, put_varint};
use base::{Error, ErrorKind, Result, Uid, checksum, limits};

/// Maximum length of a header, in bytes.
pub const HEADER_LEN_MAX: usize = limits::KEY_LEN_MAX + 64 + SUM_LEN;

/// Origin of a segment: enough to identify it without a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentIdentity {
    /// File number, never reused.
    pub number: u64,
    /// 128 random bits, in the footer and the manifest.
    pub uid: Uid,
    /// Id of the column family.
    pub family: u32,
    /// Manifest edit that was durable when the file was begun.
    pub edit: u64,
    /// Creation time, in seconds since 1970; 0: not recorded.
    pub created_unix_seconds: u64,
}

/// Encodes a header.
pub(super) fn encode(identity: &SegmentIdentity, user_key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(user_key.len() + 64);
    for n in [identity.number, u64::from(identity.family), identity.edit, identity.created_unix_seconds, 0] {
        put_varint(&mut out, n);
    }
    put_bytes(&mut out, user_key);
    let sum = checksum::stored(&out, identity.uid, 0);
    put_u32(&mut out, sum);
    out
}

/// Verifies and decodes a header of the file `uid`. Returns identity and user key.
///
/// # Errors
/// `Unsupported` for unknown flags, which a newer release wrote; `Corruption` for all other faults.
pub(super) fn decode(bytes: &[u8], uid: Uid) -> Result<(SegmentIdentity, Vec<u8>)> {
    let (body, sum) = bytes.split_last_chunk::<SUM_LEN>().ok_or_else(|| {
        Error::corruption(format!(
            "the header of the value segment has {} bytes, but its checksum has {SUM_LEN}",
            bytes.len()
        ))
    })?;
    checksum::verify(body, uid, 0, u32::from_le_bytes(*sum))?;
    let mut r = Reader::new(body);
    let number = r.varint()?;
    let family = r.varint()?;
    let family = u32::try_from(family).map_err(|_| {
        Error::corruption(format!(
            "the header of the value segment names the column family {family}, an id over 32 bits"
        ))
    })?;
    let (edit, created_unix_seconds, flags) = (r.varint()?, r.varint()?, r.varint()?);
    if flags != 0 {
        let why = format!("the value segment has unknown flags {flags:#x}: use a newer release");
        return Err(Error::new(ErrorKind::Unsupported, why));
    }
    let user_key = r.bytes()?.to_vec();
    if user_key.len() > limits::KEY_LEN_MAX || !r.is_empty() {
        return Err(Error::corruption(format!(
            "the header of the value segment has a key of {} bytes (at most {}), followed by {} surplus \
             bytes",
            user_key.len(),
            limits::KEY_LEN_MAX,
            r.rest().len()
        )));
    }
    Ok((SegmentIdentity { number, uid, family, edit, created_unix_seconds }, user_key))
}
