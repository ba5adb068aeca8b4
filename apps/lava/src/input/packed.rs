//! Compressed input: gzip, LZ4 and Zstandard, detected by their first bytes; reads all members of a
//! file.
//!
//! Each format is a sequence: `cat a.gz b.gz` is a gzip file of two *members*, and parallel
//! compressors write a *frame* for each piece of input. After a member, the next one begins or the
//! file ends. Other data there is an error, and so is a truncated member: accepting either as the
//! end would silently lose records. Zstandard and LZ4 share *skippable* frames, which contain no
//! data and may be anywhere between members.
//!
//! An error names the offset in the compressed file; the caller adds the file's name.

use std::io::{self, BufRead, Read};

/// Formats of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Codec {
    Gzip,
    Lz4,
    Zstd,
}

impl Codec {
    fn name(self) -> &'static str {
        match self {
            Codec::Gzip => "gzip member",
            Codec::Lz4 => "LZ4 frame",
            Codec::Zstd => "Zstandard frame",
        }
    }
}

/// The item that begins with a magic number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Member(Codec),
    Skippable,
    /// A frame of the old LZ4 format: it has no end mark, so no item can follow it.
    LegacyLz4,
    Other,
}

/// Maximum window of a Zstandard frame as a power of two: 128 MiB, the limit of the program `zstd`
/// without `--long`.
const WINDOW_LOG_MAX: u32 = 27;

/// Bytes of a magic number.
const MAGIC_LEN: usize = 4;

fn start(head: &[u8]) -> Start {
    match head {
        [0x1f, 0x8b, ..] => Start::Member(Codec::Gzip),
        [0x04, 0x22, 0x4d, 0x18] => Start::Member(Codec::Lz4),
        [0x28, 0xb5, 0x2f, 0xfd] => Start::Member(Codec::Zstd),
        [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Start::Skippable,
        [0x02, 0x21, 0x4c, 0x18] => Start::LegacyLz4,
        _ => Start::Other,
    }
}

/// The compressed file and its read-ahead.
struct PackedSource {
    inner: Box<dyn BufRead>,
    /// Bytes that were peeked at but not consumed yet.
    head: Vec<u8>,
    /// Bytes consumed so far.
    offset: u64,
    /// A read reached the end of the file.
    met_end: bool,
}

impl PackedSource {
    /// Returns the next bytes up to the length of a magic number; fewer at the end of the file.
    fn peek(&mut self) -> io::Result<&[u8]> {
        while self.head.len() < MAGIC_LEN {
            let more = self.inner.fill_buf()?;
            if more.is_empty() {
                break;
            }
            let len = more.len().min(MAGIC_LEN - self.head.len());
            self.head.extend_from_slice(&more[..len]);
            self.inner.consume(len);
        }
        Ok(&self.head)
    }

    fn skip_frame(&mut self) -> io::Result<()> {
        let mut header = [0; 8];
        self.read_exact(&mut header)?;
        let [_, _, _, _, len @ ..] = header;
        let len = u64::from(u32::from_le_bytes(len));
        match io::copy(&mut self.by_ref().take(len), &mut io::sink())? {
            skipped if skipped == len => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Read for PackedSource {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let len = available.len().min(buf.len());
        buf[..len].copy_from_slice(&available[..len]);
        self.consume(len);
        Ok(len)
    }
}

impl BufRead for PackedSource {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if !self.head.is_empty() {
            return Ok(&self.head);
        }
        let available = self.inner.fill_buf()?;
        self.met_end |= available.is_empty();
        Ok(available)
    }

    fn consume(&mut self, len: usize) {
        self.offset += len as u64;
        if self.head.is_empty() {
            self.inner.consume(len);
        } else {
            self.head.drain(..len);
        }
    }
}

/// A decoder of a member.
enum MemberDecoder {
    Gzip(Box<flate2::bufread::GzDecoder<PackedSource>>),
    Lz4(Box<lz4_flex::frame::FrameDecoder<PackedSource>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, PackedSource>>),
}

impl MemberDecoder {
    fn new(codec: Codec, mut source: PackedSource) -> io::Result<MemberDecoder> {
        source.met_end = false;
        Ok(match codec {
            Codec::Gzip => MemberDecoder::Gzip(Box::new(flate2::bufread::GzDecoder::new(source))),
            Codec::Lz4 => MemberDecoder::Lz4(Box::new(lz4_flex::frame::FrameDecoder::new(source))),
            Codec::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(source)?.single_frame();
                decoder.window_log_max(WINDOW_LOG_MAX)?;
                MemberDecoder::Zstd(Box::new(decoder))
            }
        })
    }

    fn codec(&self) -> Codec {
        match self {
            MemberDecoder::Gzip(_) => Codec::Gzip,
            MemberDecoder::Lz4(_) => Codec::Lz4,
            MemberDecoder::Zstd(_) => Codec::Zstd,
        }
    }

    fn source(&self) -> &PackedSource {
        match self {
            MemberDecoder::Gzip(decoder) => decoder.get_ref(),
            MemberDecoder::Lz4(decoder) => decoder.get_ref(),
            MemberDecoder::Zstd(decoder) => decoder.get_ref(),
        }
    }

    fn into_source(self) -> PackedSource {
        match self {
            MemberDecoder::Gzip(decoder) => decoder.into_inner(),
            MemberDecoder::Lz4(decoder) => decoder.into_inner(),
            MemberDecoder::Zstd(decoder) => decoder.finish(),
        }
    }

    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            MemberDecoder::Gzip(decoder) => decoder.read(buf),
            MemberDecoder::Lz4(decoder) => decoder.read(buf),
            MemberDecoder::Zstd(decoder) => decoder.read(buf),
        }
    }
}

/// The concatenated contents of all members.
struct ConcatenatedMembers {
    member: Option<MemberDecoder>,
}

impl Read for ConcatenatedMembers {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let codec = member.codec();
            let len = member.read(buf).map_err(|e| {
                at(member.source().offset, format!("the {} cannot be unpacked: {}", codec.name(), reason(&e)))
            })?;
            if len > 0 || buf.is_empty() {
                return Ok(len);
            }
            let source = member.source();
            // The LZ4 decoder takes the end of the file for the end of the frame.
            if codec == Codec::Lz4 && source.met_end {
                return Err(at(source.offset, "the LZ4 frame cannot be unpacked: it is cut off".to_owned()));
            }
            let source = self.member.take().map(MemberDecoder::into_source);
            self.member = source.map(|source| next(source, codec)).transpose()?.flatten();
        }
        Ok(0)
    }
}

/// Describes the error of a member.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return "it is cut off".to_owned();
    }
    // The library's error has no kind, only this text.
    if text.contains("too much memory") {
        let limit = 1u64 << (WINDOW_LOG_MAX - 20);
        return format!("its window is wider than {limit} MiB: decompress it with zstd -d --long=31");
    }
    text
}

/// Returns the next member after one of this format; `None` at the end of the file.
fn next(mut source: PackedSource, codec: Codec) -> io::Result<Option<MemberDecoder>> {
    loop {
        let offset = source.offset;
        let head = source.peek()?;
        if head.is_empty() {
            return Ok(None);
        }
        match start(head) {
            Start::Member(next) if next == codec => return MemberDecoder::new(codec, source).map(Some),
            Start::Skippable if codec != Codec::Gzip => skip(&mut source)?,
            _ => {
                let name = codec.name();
                return Err(at(
                    offset,
                    format!(
                        "what follows is no {name}, and the one before has ended: cut it off there, or unpack the file by hand"
                    ),
                ));
            }
        }
    }
}

fn skip(source: &mut PackedSource) -> io::Result<()> {
    let offset = source.offset;
    source.skip_frame().map_err(|e| at(offset, format!("the skippable frame cannot be passed: {e}")))
}

fn at(offset: u64, what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("offset {offset} of the packed file: {what}"))
}

/// Decompresses by the first bytes; other data is read as it is.
pub fn unpack(packed: Box<dyn BufRead>) -> io::Result<Box<dyn Read>> {
    let mut source = PackedSource { inner: packed, head: Vec::new(), offset: 0, met_end: false };
    let mut skipped = false;
    loop {
        match start(source.peek()?) {
            Start::Member(codec) => {
                return Ok(Box::new(ConcatenatedMembers {
                    member: Some(MemberDecoder::new(codec, source)?),
                }));
            }
            Start::Skippable => {
                skip(&mut source)?;
                skipped = true;
            }
            Start::LegacyLz4 => {
                return Err(at(
                    0,
                    "a legacy LZ4 frame, which does not say where it ends: unpack it with lz4 -d".into(),
                ));
            }
            Start::Other if skipped && source.peek()?.is_empty() => return Ok(Box::new(io::empty())),
            Start::Other if skipped => {
                return Err(at(source.offset, "neither an LZ4 nor a Zstandard frame follows".into()));
            }
            Start::Other => return Ok(Box::new(source)),
        }
    }
}

#[cfg(test)]
mod tests;
