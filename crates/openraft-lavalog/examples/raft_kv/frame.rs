//! Framing of messages on a connection.
//!
//! ```text
//! length u32, little-endian | as many bytes of MessagePack
//! ```
//!
//! The length is untrusted: a length over [`LEN_MAX`] is refused before any allocation, and a
//! message must use all of its bytes. A violation ends the connection, since the start of the next
//! frame is unknown.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Maximum length of a message, bytes. It holds 300 entries with the longest values of the
/// demonstration, or a piece of a snapshot.
pub const LEN_MAX: usize = 16 << 20;

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(ErrorKind::InvalidData, why)
}

pub async fn send<T: Serialize>(to: &mut (impl AsyncWrite + Unpin), message: &T) -> Result<()> {
    let mut frame = vec![0; 4];
    rmp_serde::encode::write(&mut frame, message).map_err(invalid)?;
    let len = frame.len() - 4;
    if len > LEN_MAX {
        return Err(invalid(format!("a message of {len} bytes is longer than {LEN_MAX}")));
    }
    frame[..4].copy_from_slice(&(len as u32).to_le_bytes());
    to.write_all(&frame).await
}

pub async fn receive<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> Result<T> {
    let mut head = [0; 4];
    from.read_exact(&mut head).await?;
    let len = u32::from_le_bytes(head) as usize;
    if len > LEN_MAX {
        return Err(invalid(format!("a frame of {len} bytes is longer than {LEN_MAX}")));
    }
    let mut body = vec![0; len];
    from.read_exact(&mut body).await?;
    let mut rest = &body[..];
    let message = rmp_serde::from_read(&mut rest).map_err(invalid)?;
    if rest.is_empty() { Ok(message) } else { Err(invalid("a frame is longer than its message")) }
}
