//! Encoding of openraft's values: a version byte, then MessagePack. Structs are encoded as arrays
//! of fields, so a field added at the end with a default keeps older records readable.

use base::{Error, ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

const VERSION: u8 = 1;

pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    let mut out = vec![VERSION];
    rmp_serde::encode::write(&mut out, value)
        .map_err(|e| Error::invalid("a value of Raft cannot be encoded as MessagePack").caused_by(e))?;
    Ok(out)
}

pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    match bytes.split_first() {
        Some((&VERSION, body)) => rmp_serde::from_slice(body)
            .map_err(|e| Error::corruption("a record of Raft cannot be decoded as MessagePack").caused_by(e)),
        Some((version, _)) => {
            let why = format!(
                "a record of Raft has version {version}, which this release does not know: use a newer release"
            );
            Err(Error::new(ErrorKind::Unsupported, why))
        }
        None => Err(Error::corruption("a record of Raft is empty")),
    }
}

#[cfg(test)]
mod tests;
