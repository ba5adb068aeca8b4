//! Input files: plain, gzip, LZ4 frame or Zstandard (told by their first bytes), with a progress bar on a terminal.

use crate::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::Path;

/// Bytes read from the file at a time.
const BUFFER_LEN: usize = 256 << 10;

/// The progress of reading a file; drawn on standard error if that is a terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// Progress over `len` bytes (0: unknown) of what `name` names.
    pub fn new(name: &str, len: u64) -> Self {
        let bar = if !std::io::stderr().is_terminal() {
            ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::hidden())
        } else if len == 0 {
            ProgressBar::new_spinner()
        } else {
            ProgressBar::new(len)
        };
        let template = "{prefix} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(name.to_owned());
        Progress(bar)
    }

    /// Removes it from the screen.
    pub fn end(self) {
        self.0.finish_and_clear();
    }
}

/// Opens a file (`-`: standard input) as it is, and tells its length (0: unknown).
pub fn open_raw(path: &Path) -> Result<(Box<dyn Read>, u64)> {
    if path == Path::new("-") { Ok((Box::new(std::io::stdin()), 0)) } else { open_file(path) }
}

/// Opens a file (`-`: standard input), unpacked, and its progress.
pub fn open(path: &Path) -> Result<(Box<dyn BufRead>, Progress)> {
    let (raw, len) = open_raw(path)?;
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let progress = Progress::new(&name, len);
    let counted = progress.0.wrap_read(raw);
    let unpacked = unpack(Box::new(BufReader::with_capacity(BUFFER_LEN, counted)));
    Ok((unpacked.map_err(|e| format!("cannot read {}: {e}", path.display()))?, progress))
}

#[allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "reads files of the user, not of a store"
)]
fn open_file(path: &Path) -> Result<(Box<dyn Read>, u64)> {
    let open = || -> std::io::Result<_> {
        let file = std::fs::File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(std::io::Error::other("it is a directory"));
        }
        Ok((file, metadata.len()))
    };
    let (file, len) = open().map_err(|e| format!("cannot open {}: {e}", path.display()))?;
    Ok((Box::new(file), len))
}

/// Unpacks by the first bytes.
pub fn unpack(mut packed: Box<dyn BufRead>) -> std::io::Result<Box<dyn BufRead>> {
    let head = packed.fill_buf()?;
    let unpacked: Box<dyn Read> = match head {
        [0x1f, 0x8b, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
        [0x04, 0x22, 0x4d, 0x18, ..] => Box::new(lz4_flex::frame::FrameDecoder::new(packed)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(zstd::stream::read::Decoder::with_buffer(packed)?),
        _ => return Ok(packed),
    };
    Ok(Box::new(BufReader::with_capacity(BUFFER_LEN, unpacked)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read(packed: Vec<u8>) -> Vec<u8> {
        let mut out = Vec::new();
        unpack(Box::new(std::io::Cursor::new(packed))).unwrap().read_to_end(&mut out).unwrap();
        out
    }

    #[test]
    fn packed_and_plain_input_reads_alike() {
        let text: Vec<u8> = (0..100_000u32).flat_map(|i| (i % 1000).to_le_bytes()).collect();
        assert_eq!(read(text.clone()), text);
        assert_eq!(read(Vec::new()), b"");
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&text).unwrap();
        assert_eq!(read(gz.finish().unwrap()), text);
        let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        lz4.write_all(&text).unwrap();
        assert_eq!(read(lz4.finish().unwrap()), text);
        assert_eq!(read(zstd::encode_all(&text[..], 1).unwrap()), text);
    }

    #[test]
    fn damaged_input_is_an_error() {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&[7; 100_000]).unwrap();
        let mut packed = gz.finish().unwrap();
        packed.truncate(packed.len() - 4);
        let mut out = Vec::new();
        assert!(unpack(Box::new(std::io::Cursor::new(packed))).unwrap().read_to_end(&mut out).is_err());
    }
}
