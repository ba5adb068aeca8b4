//! Reads of several files in one batch.
//!
//! The next reads of a scan are often spread over many files, with a record in each. A batch per
//! file would leave the device with one request at a time. So the reads of all files go to the
//! device together where the files are on the kernel's file system; other files are read one by
//! one.
//!
//! Each file has its own read limiter. In a store on two disks each disk has one, and reads on one
//! disk say nothing about the other. Foreground reads still go to both disks together, and each
//! limiter counts its own. Reads that wait for their turn do so disk by disk.

use crate::kernel::KernelReadFile;
use crate::{FileRead, ReadConcurrencyLimiter, ReadFile, ReadRequest, UnlimitedReadKind};
use base::Result;
use std::any::Any;
use std::sync::Arc;

/// Fills many buffers from several files, with as many reads in flight as the engine allows. Reads
/// of one file should be adjacent.
///
/// # Errors
/// The first error; all buffers are then unspecified.
pub fn read_files(reads: &mut [FileRead<'_>]) -> Result<()> {
    if !are_of_one_pace(reads.iter().map(|read| read.file)) {
        return read_by_pace(reads);
    }
    match reads.first().and_then(|read| pace_of(read.file)) {
        Some(pace) => pace.read_files(reads, &|some| read_now(some)),
        None => read_now(reads),
    }
}

fn pace_of(file: &Arc<dyn ReadFile>) -> Option<&dyn ReadConcurrencyLimiter> {
    file.paced().map(|paced| paced.pace)
}

fn is_same(a: Option<&dyn ReadConcurrencyLimiter>, b: Option<&dyn ReadConcurrencyLimiter>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => std::ptr::addr_eq(a, b),
        (a, b) => a.is_none() && b.is_none(),
    }
}

/// Returns true if all files have the same limiter, or none has one.
pub(crate) fn are_of_one_pace<'a>(mut files: impl Iterator<Item = &'a Arc<dyn ReadFile>>) -> bool {
    let first = files.next().and_then(pace_of);
    files.all(|file| is_same(pace_of(file), first))
}

/// Reads with the same limiter, or those without one.
struct Paced<'a, 'b> {
    pace: Option<&'a dyn ReadConcurrencyLimiter>,
    reads: Vec<FileRead<'b>>,
}

/// Reads files with different limiters.
fn read_by_pace(reads: &mut [FileRead<'_>]) -> Result<()> {
    let mut groups: Vec<Paced<'_, '_>> = Vec::new();
    for read in reads.iter_mut() {
        let FileRead { file, offset, .. } = *read;
        let (pace, read) = (pace_of(file), FileRead { file, offset, buf: &mut *read.buf });
        match groups.iter_mut().find(|group| is_same(group.pace, pace)) {
            Some(group) => group.reads.push(read),
            None => groups.push(Paced { pace, reads: vec![read] }),
        }
    }
    let paced = || groups.iter().filter_map(|group| Some((group.pace?, &group.reads)));
    let joins = |(pace, reads): &(&dyn ReadConcurrencyLimiter, &Vec<FileRead<'_>>)| {
        let bytes = reads.iter().map(|read| read.buf.len() as u64).sum();
        pace.begin_unlimited(UnlimitedReadKind::OtherDisk, reads.len(), bytes)
    };
    let leaves = |(pace, count): (&dyn ReadConcurrencyLimiter, usize)| {
        pace.end_unlimited(UnlimitedReadKind::OtherDisk, count)
    };
    let joined: Vec<_> = paced().take_while(joins).map(|(pace, reads)| (pace, reads.len())).collect();
    if joined.len() < paced().count() {
        joined.into_iter().for_each(leaves);
        return groups.iter_mut().try_for_each(|group| match group.pace {
            Some(pace) => pace.read_files(&mut group.reads, &|some| read_now(some)),
            None => read_now(&mut group.reads),
        });
    }
    let mut all: Vec<_> = groups.into_iter().flat_map(|group| group.reads).collect();
    let read = read_now(&mut all);
    joined.into_iter().for_each(leaves);
    read
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
    read_by_file(reads)
}

/// Reads one file after the other, the reads of each together.
pub(crate) fn read_by_file(reads: &mut [FileRead<'_>]) -> Result<()> {
    reads.chunk_by_mut(|a, b| Arc::ptr_eq(a.file, b.file)).try_for_each(|group| {
        let Some(file) = group.first().map(|read| read.file) else { return Ok(()) };
        let requests = group.iter_mut().map(|r| ReadRequest { offset: r.offset, buf: &mut *r.buf });
        file.read_batch(&mut requests.collect::<Vec<_>>())
    })
}

fn as_kernel(file: &dyn ReadFile) -> Option<&KernelReadFile> {
    (file as &dyn Any).downcast_ref()
}
