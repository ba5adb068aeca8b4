//! Open files by number, at most so many of them.
//!
//! A lookup takes a read lock and a reference count. Past the bound the least recently used files are closed (who holds one
//! keeps it open).

use crate::descriptors::{CloseIdle, Descriptors};
use base::sync::statistic::{AtomicU64, Ordering};
use base::sync::{RwLock, rank, read, try_write, write};
use base::{HashMap, Result};
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub struct OpenFiles<F> {
    cached: Arc<Cached<F>>,
    uses: AtomicU64,
    max: usize,
}

#[derive(Debug)]
struct Cached<F> {
    /// Open files by number. Files are opened outside of it.
    open: RwLock<HashMap<u64, Open<F>>, rank::TableCache>,
}

#[derive(Debug)]
struct Open<F> {
    file: F,
    last_use: AtomicU64,
}

impl<F: Clone> OpenFiles<F> {
    /// At most `max` at once.
    pub fn new(max: usize) -> Self {
        let cached = Arc::new(Cached { open: RwLock::new(HashMap::default()) });
        OpenFiles { cached, uses: AtomicU64::new(0), max }
    }

    /// From now on files that are not in use are closed where the store finds no descriptor.
    pub fn give_back_to(&self, descriptors: &Descriptors)
    where
        F: Send + Sync + 'static,
    {
        descriptors.add(&self.cached);
    }

    /// Forgets a file that is about to be removed.
    pub fn forget(&self, number: u64) {
        drop(self.take(number));
    }

    /// Forgets a file, and hands it out if it is open.
    pub fn take(&self, number: u64) -> Option<F> {
        write(&self.cached.open).remove(&number).map(|open| open.file)
    }

    /// The open file of this number; what `make` makes if there is none.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn find<E>(&self, number: u64, make: impl FnOnce() -> Result<F, E>) -> Result<F, E> {
        if let Some(found) = read(&self.cached.open).get(&number) {
            // The clock ticks with every file opened: exact enough to tell hot from cold, and reads of open files
            // write to no shared cache line.
            let now = self.uses.load(Ordering::Relaxed);
            if found.last_use.load(Ordering::Relaxed) + 64 < now {
                found.last_use.store(now, Ordering::Relaxed);
            }
            return Ok(found.file.clone());
        }
        self.uses.fetch_add(1, Ordering::Relaxed);
        let file = make()?;
        let mut open = write(&self.cached.open);
        if open.len() >= self.max {
            let count = open.len() / 4 + 1;
            close_unused(&mut open, count);
        }
        let entry = Open { file, last_use: AtomicU64::new(self.uses.load(Ordering::Relaxed)) };
        Ok(open.entry(number).or_insert(entry).file.clone())
    }
}

impl<F: Send + Sync> CloseIdle for Cached<F> {
    fn close_idle(&self) -> bool {
        // The caller may hold any lock.
        let Some(mut open) = try_write(&self.open).filter(|open| !open.is_empty()) else { return false };
        let count = open.len() / 2 + 1;
        close_unused(&mut open, count);
        true
    }
}

/// Closes the least recently used files.
fn close_unused<F>(open: &mut HashMap<u64, Open<F>>, count: usize) {
    let mut by_use: Vec<(u64, u64)> =
        open.iter().map(|(&n, o)| (o.last_use.load(Ordering::Relaxed), n)).collect();
    by_use.sort_unstable();
    for (_, number) in by_use.iter().take(count) {
        open.remove(number);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use base::Error;
    use std::cell::Cell;

    #[test]
    fn past_the_bound_the_least_recently_used_are_closed_and_opened_again() {
        let files = OpenFiles::new(8);
        let made = Cell::new(0);
        let find =
            |n: u64| files.find(n, || Ok::<_, base::Error>((n, made.replace(made.get() + 1)))).unwrap();
        let first = find(0);
        (1..8).for_each(|n| assert_eq!(find(n).0, n));
        assert_eq!((find(0), made.get()), (first, 8), "all of them are open");
        find(8);
        assert_eq!(read(&files.cached.open).len(), 6, "a quarter and one made room");
        assert_eq!(find(0).0, 0);
        assert_eq!(made.get(), 10, "the oldest had been closed");
        files.forget(0);
        assert_eq!(find(0).1, 10, "a file that was removed is not remembered");
        assert_eq!((files.take(0), files.take(0)), (Some((0, 10)), None));
    }

    #[test]
    fn what_cannot_be_opened_is_not_remembered() {
        let files = OpenFiles::new(8);
        files.find(1, || Err::<u64, _>(base::Error::not_found("gone"))).unwrap_err();
        assert_eq!(files.find(1, || Ok::<_, base::Error>(7)).unwrap(), 7);
    }

    fn no_descriptor() -> Error {
        Error::from_io("cannot open a file", "file", std::io::Error::from_raw_os_error(24))
    }

    #[test]
    fn a_call_without_a_descriptor_closes_files_until_it_gets_one() {
        let (descriptors, files) = (Descriptors::default(), OpenFiles::new(100));
        files.give_back_to(&descriptors);
        let open: Vec<Arc<u64>> =
            (0..40).map(|n| files.find(n, || Ok::<_, Error>(Arc::new(n))).unwrap()).collect();
        let is_open = |n: usize| open.get(n).is_some_and(|file| Arc::strong_count(file) > 1);
        let call = || if is_open(19) { Err(no_descriptor()) } else { Ok(()) };
        descriptors.with_one(call).unwrap();
        assert!(!is_open(0) && is_open(39), "the least recently used are closed");
    }

    #[test]
    fn a_call_fails_when_nothing_is_left_to_close_and_after_any_other_error() {
        let (descriptors, files) = (Descriptors::default(), OpenFiles::new(100));
        files.give_back_to(&descriptors);
        let calls = Cell::new(0);
        let fail = |e: Error| {
            calls.set(calls.get() + 1);
            Err::<(), _>(e)
        };
        assert!(descriptors.with_one(|| fail(no_descriptor())).unwrap_err().lacks_descriptor());
        assert_eq!(calls.take(), 1, "no file is open");
        files.find(1, || Ok::<_, Error>(Arc::new(1))).unwrap();
        descriptors.with_one(|| fail(Error::invalid("another"))).unwrap_err();
        assert_eq!(calls.take(), 1);
        descriptors.with_one(|| fail(no_descriptor())).unwrap_err();
        assert_eq!(calls.take(), 2);
        drop(files);
        descriptors.with_one(|| fail(no_descriptor())).unwrap_err();
        assert_eq!(calls.take(), 1);
    }
}
