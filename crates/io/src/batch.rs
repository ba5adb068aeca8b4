//! Reads of several files in one batch.
//!
//! What a scan reads next is often spread over many files, a record in each. A batch for each file would leave the
//! device with one request at a time, so the reads of all files go to it together where the files belong to the
//! machine's own file system; others read file by file.

use crate::kernel::KernelReadFile;
use crate::{FileRead, ReadFile, ReadRequest};
use base::Result;
use std::any::Any;
use std::sync::Arc;

/// Fills many buffers from several files, with as many reads in flight as the engine allows. Reads of one file should
/// stand side by side.
///
/// # Errors
/// The first one met; all buffers are then unspecified.
pub fn read_files(reads: &mut [FileRead<'_>]) -> Result<()> {
    let first = reads.first().map(|read| read.file);
    match first.and_then(|file| file.paced()) {
        Some(paced) => paced.pace.read_files(reads, &|some| read_now(some)),
        None => read_now(reads),
    }
}

fn read_now(reads: &mut [FileRead<'_>]) -> Result<()> {
    let inner =
        |read: &mut FileRead<'_>| read.file = read.file.paced().map_or(read.file, |paced| paced.inner);
    reads.iter_mut().for_each(inner);
    if reads.windows(2).any(|pair| !Arc::ptr_eq(pair[0].file, pair[1].file)) {
        let kernel: Option<Vec<_>> = reads.iter().map(|read| as_kernel(&**read.file)).collect();
        if let Some(files) = kernel {
            let requests = reads.iter_mut().map(|r| ReadRequest { offset: r.offset, buf: &mut *r.buf });
            return KernelReadFile::read_across(&mut files.into_iter().zip(requests).collect::<Vec<_>>());
        }
    }
    reads.chunk_by_mut(|a, b| Arc::ptr_eq(a.file, b.file)).try_for_each(|group| {
        let Some(first) = group.first() else { return Ok(()) };
        let file = first.file;
        let mut requests: Vec<_> =
            group.iter_mut().map(|r| ReadRequest { offset: r.offset, buf: &mut *r.buf }).collect();
        file.read_batch(&mut requests)
    })
}

fn as_kernel(file: &dyn ReadFile) -> Option<&KernelReadFile> {
    (file as &dyn Any).downcast_ref()
}
