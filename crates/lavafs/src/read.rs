//! Files read at offsets.
//!
//! Where the bytes are is looked up in memory; a read is as many requests to the device as it meets runs of blocks.

use crate::core::Live;
use crate::layout;
use crate::volume::{Volume, count};
use base::{Error, Result};
use io::{ReadFile, ReadRequest};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct LavaReadFile {
    pub volume: Arc<Volume>,
    pub live: Arc<Live>,
    pub path: PathBuf,
}

/// Fills buffers from an open file.
pub(crate) fn read(
    volume: &Volume,
    live: &Live,
    path: &Path,
    requests: &mut [ReadRequest<'_>],
) -> Result<()> {
    let view = live.view();
    let mut wanted = Vec::with_capacity(requests.len());
    for request in requests.iter_mut() {
        let (offset, len) = (request.offset, request.buf.len() as u64);
        if offset.checked_add(len).is_none_or(|end| end > view.readable) {
            let (size, readable) = (live.size(), view.readable);
            let why = format!(
                "the file has {size} bytes (blocks for {readable}), which end before the {len} bytes to be read; \
                 it was cut off"
            );
            return Err(Error::corruption(why).at_file(path).at_offset(offset));
        }
        let pieces = layout::pieces(&view.extents, offset, len);
        for (now, offset) in layout::cut_mut(&pieces, request.buf) {
            match offset {
                Some(offset) => wanted.push(ReadRequest { offset, buf: now }),
                None => now.fill(0),
            }
        }
        count(&volume.counters.read_bytes, len);
    }
    match &mut wanted[..] {
        [] => Ok(()),
        [one] => volume.device.read_at(one.buf, one.offset),
        many => volume.device.read_batch(many),
    }
    .map_err(|e| e.context(format!("while reading {}", path.display())))
}

impl ReadFile for LavaReadFile {
    fn len(&self) -> Result<u64> {
        Ok(self.live.size())
    }

    fn readable_len(&self) -> Result<u64> {
        Ok(self.live.view().readable)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.read_batch(&mut [ReadRequest { offset, buf }])
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        read(&self.volume, &self.live, &self.path, requests)
    }

    fn path(&self) -> &Path {
        &self.path
    }
}
