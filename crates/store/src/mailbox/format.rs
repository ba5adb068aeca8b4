//! Contents of requests and answers: a few lines of text (docs/format/requests.md).
//!
//! Non-printable bytes, non-ASCII bytes and the backslash are written as `\xNN`, so any path is one
//! line.

use base::{Error, ErrorKind, Result};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum file length, bytes. A path has at most 4096 bytes, each of them four characters.
pub const LEN_MAX: usize = 32 << 10;
/// Maximum message length of an answer, bytes before escaping.
const MESSAGE_MAX: usize = 4 << 10;

const REQUEST: &str = "lavastore request 1";
const ANSWER: &str = "lavastore answer 1";

/// Returns the contents of a request for a checkpoint in the directory `target`.
pub fn request(target: &Path) -> String {
    format!("{REQUEST}\ncheckpoint {}\n", escaped(target.as_os_str().as_bytes()))
}

/// Returns the target of a request.
///
/// # Errors
/// `InvalidArgument`; `Unsupported` for a request of another version.
pub fn target(bytes: &[u8]) -> Result<PathBuf> {
    let malformed = || {
        Error::invalid(
            "the file of a request for a checkpoint has wrong lines: request it with `lava checkpoint`",
        )
    };
    let text = std::str::from_utf8(bytes).map_err(|_| malformed())?;
    let mut lines = text.strip_suffix('\n').ok_or_else(malformed)?.split('\n');
    match lines.next() {
        Some(REQUEST) => {}
        Some(other) if other.starts_with("lavastore request ") => {
            let why = "the request for a checkpoint is of a later release than the process that has \
                       the store open: request it with the release of that process";
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        _ => return Err(malformed()),
    }
    let path = lines.next().and_then(|line| line.strip_prefix("checkpoint ")).ok_or_else(malformed)?;
    let path = unescaped(path).filter(|path| !path.contains(&0)).ok_or_else(malformed)?;
    if lines.next().is_some() {
        return Err(malformed());
    }
    let target = PathBuf::from(OsStr::from_bytes(&path));
    super::client::check_target(&target)?;
    Ok(target)
}

/// Returns the contents of an answer.
pub fn answer(outcome: &Result<()>) -> String {
    match outcome {
        Ok(()) => format!("{ANSWER}\ndone\n"),
        Err(e) => {
            let (text, kind) = (e.to_string(), e.kind().name());
            let message = text.strip_prefix(kind).and_then(|text| text.strip_prefix(": ")).unwrap_or(&text);
            let message = &message.as_bytes()[..message.len().min(MESSAGE_MAX)];
            format!("{ANSWER}\nfailed {kind}\nmessage {}\n", escaped(message))
        }
    }
}

/// Returns the outcome that an answer states.
///
/// # Errors
/// That of the checkpoint; `Corruption`.
pub fn outcome(bytes: &[u8]) -> Result<()> {
    let malformed = || {
        Error::corruption("the file with the answer to the request for a checkpoint has wrong lines")
            .with_remedy("if the copy is a store, it is complete; if not, request it again")
    };
    let text = std::str::from_utf8(bytes).map_err(|_| malformed())?;
    let lines: Vec<&str> = text.strip_suffix('\n').ok_or_else(malformed)?.split('\n').collect();
    match lines[..] {
        [ANSWER, "done"] => Ok(()),
        [ANSWER, failed, message] => {
            let kind = failed.strip_prefix("failed ").ok_or_else(malformed)?;
            let message = message.strip_prefix("message ").and_then(unescaped).ok_or_else(malformed)?;
            let why = String::from_utf8_lossy(&message);
            let refused = format!("the process that has the store open made no checkpoint: {why}");
            // An error kind of a later release becomes a plain I/O error.
            let kind = ErrorKind::named(kind).unwrap_or(ErrorKind::Io);
            Err(Error::new(ErrorKind::Io, refused).with_kind(kind))
        }
        _ => Err(malformed()),
    }
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\\' | 0..b' ' | 0x7f.. => text.push_str(&format!("\\x{byte:02x}")),
            _ => text.push(byte.into()),
        }
    }
    text
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'\\' => {
                let digits = std::str::from_utf8(rest.get(1..3)?).ok()?;
                let is_escape = rest.first() == Some(&b'x') && digits.bytes().all(|d| d.is_ascii_hexdigit());
                bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_escape)?);
                rest = &rest[3..];
            }
            0..b' ' | 0x7f.. => return None,
            _ => bytes.push(byte),
        }
    }
    Some(bytes)
}
