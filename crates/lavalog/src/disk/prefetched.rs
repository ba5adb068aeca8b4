//! The ends of many files, read at once.
//!
//! A file of rows is opened by its footer and then its directory, which lies before it. At open that is asked of every file there is, one
//! after another: two reads each, and the device has one request at a time. So the ends of some files are read together, as many in flight
//! as the system takes, and each file is opened over its end in memory. Of one whose directory is longer the rest is read as ever.
//!
//! Who opens a file so learns what he would have learnt otherwise: where the reads of several fail, each file is opened without, and says
//! itself what is wrong with it.

use base::Result;
use io::{FileRead, ReadFile};
use std::path::Path;
use std::sync::Arc;

/// Bytes of the end of a file that are read. A directory of a thousand logs has a quarter of that.
const END_LEN: u64 = 64 << 10;

/// A file whose end is in memory.
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

/// The same files, each with the end of the length that it should have in memory, if they can be read.
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

    /// Files of some lengths, and what is in each.
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
    fn ends_are_read_once_and_what_is_before_them_as_ever() {
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
    fn a_file_that_is_too_short_is_opened_without_and_so_are_its_neighbours() {
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
