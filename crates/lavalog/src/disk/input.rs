//! Reading a file: its footer, its directory, and frames at offsets.

use super::SUM_LEN;
use super::footer::{FOOTER_LEN, FileKind, Footer};
use base::{Error, Result, Uid, checksum};
use io::ReadFile;
use std::path::Path;
use std::sync::Arc;

/// An open file with a valid footer.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    file: Arc<dyn ReadFile>,
    footer: Footer,
}

impl Input {
    /// Opens the file `uid` of this kind.
    ///
    /// # Errors
    /// `Corruption` or `Unsupported`, with file and offset; I/O errors.
    pub(crate) fn open(file: Arc<dyn ReadFile>, kind: FileKind, uid: Uid) -> Result<Input> {
        let footer = read_footer(&*file, kind, uid).map_err(|e| e.at_file(file.path()))?;
        Ok(Input { file, footer })
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(crate) fn footer(&self) -> &Footer {
        &self.footer
    }

    /// Returns the payload of the directory.
    pub(crate) fn directory(&self) -> Result<Vec<u8>> {
        self.frame(self.footer.directory_offset, self.footer.directory_len, self.footer.directory_offset)
    }

    /// Returns the payload of the frame of `len` bytes at `offset`. The frame must lie between
    /// `from` and the end of the directory.
    pub(crate) fn frame(&self, offset: u64, len: u64, from: u64) -> Result<Vec<u8>> {
        let mut frame = self.bytes(offset, len, from)?;
        self.verify(&frame, offset)?;
        frame.truncate(frame.len() - SUM_LEN);
        Ok(frame)
    }

    /// Reads `len` bytes at `offset` without verification. They must lie between `from` and the end
    /// of the directory.
    pub(crate) fn bytes(&self, offset: u64, len: u64, from: u64) -> Result<Vec<u8>> {
        let end = self.footer.file_len - FOOTER_LEN as u64;
        let lies_there = offset >= from && offset.checked_add(len).is_some_and(|e| e <= end);
        if !lies_there || len < SUM_LEN as u64 {
            let why = format!(
                "the place of {len} bytes at this offset is outside the data of the file, or shorter than a checksum: the bytes that name this place are damaged"
            );
            return Err(self.blame(Error::corruption(why), offset));
        }
        let mut bytes = vec![0; len as usize];
        self.file.read_at(&mut bytes, offset).map_err(|e| self.blame(e, offset))?;
        Ok(bytes)
    }

    /// Verifies a frame read from `offset`. Returns its payload.
    pub(crate) fn verify<'a>(&self, frame: &'a [u8], offset: u64) -> Result<&'a [u8]> {
        let short = || {
            self.blame(
                Error::corruption("a part (frame) of the file is shorter than its checksum of 4 bytes"),
                offset,
            )
        };
        let (payload, sum) = frame.split_last_chunk::<SUM_LEN>().ok_or_else(short)?;
        let sum = u32::from_le_bytes(*sum);
        checksum::verify(payload, self.footer.uid, offset, sum).map_err(|e| self.blame(e, offset))?;
        Ok(payload)
    }

    /// Adds file and offset to an error.
    #[cold]
    pub(crate) fn blame(&self, e: Error, offset: u64) -> Error {
        e.at_offset(offset).at_file(self.file.path())
    }
}

fn read_footer(file: &dyn ReadFile, kind: FileKind, uid: Uid) -> Result<Footer> {
    let len = file.len()?;
    let Some(at) = len.checked_sub(FOOTER_LEN as u64) else {
        let why = format!(
            "the file is no {}: its {len} bytes are fewer than the {FOOTER_LEN} bytes of a footer, so the file was cut",
            kind.name()
        );
        return Err(Error::corruption(why).at_offset(0));
    };
    let mut bytes = [0; FOOTER_LEN];
    file.read_at(&mut bytes, at).map_err(|e| e.at_offset(at))?;
    Footer::decode(kind, &bytes, uid, len)
}

/// Returns the kind and identity in the footer of a file, for repair without a manifest. They are
/// unverified until the file is opened with them.
///
/// # Errors
/// `Corruption` if there is no such footer; I/O errors.
pub fn identity_of(file: &dyn ReadFile) -> Result<(FileKind, Uid)> {
    let no_footer = || {
        Error::corruption("the file has no footer of a file of the log engine (LavaLog)").at_file(file.path())
    };
    let at = file.len()?.checked_sub(FOOTER_LEN as u64).ok_or_else(no_footer)?;
    let mut bytes = [0; FOOTER_LEN];
    file.read_at(&mut bytes, at)?;
    let mut uid = Uid::default();
    uid.0.copy_from_slice(&bytes[..16]);
    let kinds = [FileKind::Index, FileKind::Checkpoint, FileKind::Cold];
    let kind = kinds.into_iter().find(|kind| bytes.ends_with(&kind.magic())).ok_or_else(no_footer)?;
    Ok((kind, uid))
}
