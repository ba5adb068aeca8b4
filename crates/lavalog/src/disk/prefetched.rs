//! Reads the ends of many files at once.
//!
//! Opening an index or cold file reads its footer and then the directory before it. For all files
//! of a store in sequence, that is two reads each, with one request at a time at the device.
//! Instead, the ends of several files are read together, with as many reads in flight as the system
//! allows. Each file is then opened over its end in memory. A longer directory is completed with a
//! normal read.
//!
//! Errors are the same as without prefetching: if one of the reads fails, each file is opened
//! normally and reports its own error.

use base::Result;
use io::{FileRead, ReadFile};
use std::path::Path;
use std::sync::Arc;

/// Bytes read from the end of a file. A directory of a thousand logs takes a quarter of that.
const END_LEN: u64 = 64 << 10;

/// A file with its end in memory.
#[derive(Debug)]
struct Prefetched {
    file: Arc<dyn ReadFile>,
    from: u64,
    end: Vec<u8>,
}

impl ReadFile for Prefetched {
    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let at = offset.checked_sub(self.from).and_then(|at| usize::try_from(at).ok());
        match at.and_then(|at| self.end.get(at..)?.get(..buf.len())) {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            None => self.file.read_at(buf, offset),
        }
    }

    fn path(&self) -> &Path {
        self.file.path()
    }
}

/// Returns the same files, each with its end in memory if all ends can be read. The length given
/// for each file determines its end.
pub(crate) fn with_ends(files: Vec<(Arc<dyn ReadFile>, u64)>) -> Vec<Arc<dyn ReadFile>> {
    let from = |len: u64| len.saturating_sub(END_LEN);
    let mut ends: Vec<Vec<u8>> = files.iter().map(|(_, len)| vec![0; (len - from(*len)) as usize]).collect();
    let mut reads: Vec<FileRead<'_>> = files
        .iter()
        .zip(&mut ends)
        .map(|((file, len), buf)| FileRead { file, offset: from(*len), buf })
        .collect();
    if io::read_files(&mut reads).is_err() {
        return files.into_iter().map(|(file, _)| file).collect();
    }
    let over = |((file, len), end)| Arc::new(Prefetched { file, from: from(len), end }) as Arc<dyn ReadFile>;
    files.into_iter().zip(ends).map(over).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::sim::{OpKind, SimEnv};
    use io::{Access, CreateOptions, SyncKind};

    /// Creates files of these lengths. Returns each with its contents.
    fn files(sim: &SimEnv, lens: &[usize]) -> Vec<(Arc<dyn ReadFile>, Vec<u8>)> {
        let make = |(n, len): (usize, &usize)| {
            let (fs, path) = (sim.env().fs, format!("f{n}"));
            let bytes: Vec<u8> = (0..*len).map(|i| (i / 7 + n) as u8).collect();
            let mut file = fs.create(Path::new(&path), &CreateOptions::default()).unwrap();
            file.append(&bytes).unwrap();
            file.sync(SyncKind::Full).unwrap();
            (fs.open(Path::new(&path), Access::Buffered).unwrap(), bytes)
        };
        lens.iter().enumerate().map(make).collect()
    }

    #[test]
    fn file_ends_are_read_once_and_cached() {
        let sim = SimEnv::new(1);
        let made = files(&sim, &[100, 64 << 10, 200_000]);
        let opened = with_ends(made.iter().map(|(file, bytes)| (file.clone(), bytes.len() as u64)).collect());
        let reads = || sim.count_ops(Some(OpKind::Read), "");
        assert_eq!(reads(), 3);
        for (file, (_, bytes)) in opened.iter().zip(&made) {
            let len = bytes.len();
            assert_eq!(file.len().unwrap(), len as u64);
            for from in [len - 64, len - 100, len.saturating_sub(60_000)] {
                let mut buf = vec![0; len - from];
                file.read_at(&mut buf, from as u64).unwrap();
                assert!(buf == bytes[from..]);
            }
        }
        assert_eq!(reads(), 3, "all of that was in memory");
        let mut buf = vec![0; 150_000];
        opened[2].read_at(&mut buf, 10).unwrap();
        assert!(buf == made[2].1[10..150_010] && reads() == 4);
        assert!(opened[0].read_at(&mut [0; 10], 95).is_err(), "there is nothing behind the end");
    }

    #[test]
    fn files_shorter_than_expected_open_without_prefetch() {
        let sim = SimEnv::new(2);
        let made = files(&sim, &[100, 50]);
        let opened = with_ends(made.iter().map(|(file, _)| (file.clone(), 100)).collect());
        for (file, (_, bytes)) in opened.iter().zip(&made) {
            let mut buf = vec![0; bytes.len()];
            file.read_at(&mut buf, 0).unwrap();
            assert!(buf == *bytes);
        }
    }
}
