//! Open files by number, at most so many of them.
//!
//! A lookup takes a read lock and a reference count. Past the bound the least recently used files are closed (who holds one
//! keeps it open).

use base::sync::statistic::{AtomicU64, Ordering};
use base::sync::{RwLock, rank, read, write};
use base::{HashMap, Result};

/// See the module.
#[derive(Debug)]
pub struct OpenFiles<F> {
    /// Open files by number. Files are opened outside of it.
    open: RwLock<HashMap<u64, Open<F>>, rank::TableCache>,
    uses: AtomicU64,
    max: usize,
}

#[derive(Debug)]
struct Open<F> {
    file: F,
    last_use: AtomicU64,
}

impl<F: Clone> OpenFiles<F> {
    /// At most `max` at once.
    pub fn new(max: usize) -> Self {
        OpenFiles { open: RwLock::new(HashMap::default()), uses: AtomicU64::new(0), max }
    }

    /// Forgets a file that is about to be removed.
    pub fn forget(&self, number: u64) {
        drop(self.take(number));
    }

    /// Forgets a file, and hands it out if it is open.
    pub fn take(&self, number: u64) -> Option<F> {
        write(&self.open).remove(&number).map(|open| open.file)
    }

    /// The open file of this number; what `make` makes if there is none.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn find<E>(&self, number: u64, make: impl FnOnce() -> Result<F, E>) -> Result<F, E> {
        if let Some(found) = read(&self.open).get(&number) {
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
        let mut open = write(&self.open);
        if open.len() >= self.max {
            Self::close_unused(&mut open);
        }
        let entry = Open { file, last_use: AtomicU64::new(self.uses.load(Ordering::Relaxed)) };
        Ok(open.entry(number).or_insert(entry).file.clone())
    }

    /// Closes the least recently used quarter.
    fn close_unused(open: &mut HashMap<u64, Open<F>>) {
        let mut by_use: Vec<(u64, u64)> =
            open.iter().map(|(&n, o)| (o.last_use.load(Ordering::Relaxed), n)).collect();
        by_use.sort_unstable();
        for (_, number) in by_use.iter().take(open.len() / 4 + 1) {
            open.remove(number);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn past_the_bound_the_least_recently_used_are_closed_and_opened_again() {
        let files = OpenFiles::new(8);
        let made = std::cell::Cell::new(0);
        let find =
            |n: u64| files.find(n, || Ok::<_, base::Error>((n, made.replace(made.get() + 1)))).unwrap();
        let first = find(0);
        (1..8).for_each(|n| assert_eq!(find(n).0, n));
        assert_eq!((find(0), made.get()), (first, 8), "all of them are open");
        find(8);
        assert_eq!(read(&files.open).len(), 6, "a quarter and one made room");
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
}
