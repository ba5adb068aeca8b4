//! A pending segment, which is being written: see `segments`.

use crate::files::KvFiles;
use base::Result;
use io::{AppendFile, CreateOptions};
use std::path::PathBuf;
use std::sync::Arc;
use table::{SegmentIdentity, SegmentReference, SegmentWriter};
use version::{FamilyId, names};

/// Size of the write buffer, bytes.
const WRITE_BUFFER_LEN: usize = 1 << 20;
/// Interval of write-back, bytes, so that the final sync does not come as one burst.
const SYNC_EVERY: u64 = 8 << 20;

/// A pending segment: unfinished, or not referenced by a logged batch yet. Its file is removed on
/// drop, unless [`PendingSegment::keep`] was called.
pub(crate) struct PendingSegment {
    files: Arc<KvFiles>,
    path: PathBuf,
    number: u64,
    identity: SegmentIdentity,
    writer: Option<SegmentWriter>,
    kept: bool,
}

impl PendingSegment {
    /// Begins the segment of a value. `expected_len` is a hint; 0: unknown.
    pub fn begin(
        files: &Arc<KvFiles>,
        family: FamilyId,
        key: &[u8],
        expected_len: u64,
    ) -> Result<PendingSegment> {
        let context = &files.context;
        context.health.check()?;
        let number = files.manifest.allocate_file_number();
        let path = context.path(&names::vsst(number));
        let identity = SegmentIdentity {
            number,
            uid: context.env.new_uid(),
            family,
            edit: files.manifest.durable_edit(),
            created_unix_seconds: context.env.clock.unix_seconds(),
        };
        let create = CreateOptions {
            access: context.options.access,
            expected_len: if expected_len == 0 { 0 } else { expected_len + expected_len / 4096 + 4096 },
            write_buffer_len: WRITE_BUFFER_LEN,
            sync_every: SYNC_EVERY,
            ..CreateOptions::default()
        };
        let file: Box<dyn AppendFile> = context.env.fs.create(&path, &create)?;
        let mut draft =
            PendingSegment { files: files.clone(), path, number, identity, writer: None, kept: false };
        draft.writer = Some(SegmentWriter::new(file, &draft.path, &draft.identity, key)?);
        Ok(draft)
    }

    /// Appends bytes of the value.
    pub fn append(&mut self, data: &[u8]) -> Result<()> {
        self.writer.as_mut().expect("appended to before it is finished").append(data)
    }

    /// Finishes the file and makes it durable, name included. Returns the reference to log.
    pub fn finish(&mut self) -> Result<SegmentReference> {
        let finished = self.writer.take().expect("finished once").finish()?;
        self.files.sync_dir()?;
        self.files.context.stats.segment_bytes_written.add(finished.len);
        Ok(SegmentReference {
            file: self.number,
            uid: self.identity.uid,
            raw_len: finished.raw_len,
            stored_len: finished.len,
            checksum: finished.checksum,
        })
    }

    /// Keeps the file, because the batch that references it is logged, or may be.
    pub fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for PendingSegment {
    fn drop(&mut self) {
        if !self.kept {
            self.writer = None;
            // A file that cannot be removed now is removed at the next open. After a close another
            // process may own the store.
            if let Ok(_entered) = self.files.context.enter() {
                let _ = self.files.context.env.fs.remove(&self.path);
            }
        }
    }
}
