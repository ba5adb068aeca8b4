//! Open files by number, at most so many of them.
//!
//! A lookup takes a read lock and a reference count. Past the bound the least recently used files are closed (who holds one
//! keeps it open). Beside other stores of the process the bound is the cache's part of the descriptors, if that is less.

use crate::descriptors::Descriptors;
use base::sync::statistic::{AtomicU64, Ordering};
use base::sync::{OnceLock, RwLock, rank, read, try_write, write};
use base::{HashMap, Result};
use io::descriptors::CloseIdle;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub struct OpenFiles<F> {
    cached: Arc<Cached<F>>,
    uses: AtomicU64,
}

#[derive(Debug)]
struct Cached<F> {
    /// Open files by number. Files are opened outside of it.
    open: RwLock<HashMap<u64, Open<F>>, rank::TableCache>,
    max: usize,
    /// Files were closed to make room, or for want of descriptors.
    has_closed: OnceLock<()>,
    /// The descriptors of the store, and the number of caches that share them.
    descriptors: OnceLock<(Arc<Descriptors>, u64)>,
}

#[derive(Debug)]
struct Open<F> {
    file: F,
    last_use: AtomicU64,
}

impl<F: Clone> OpenFiles<F> {
    /// At most `max` at once.
    pub fn new(max: usize) -> Self {
        let open = RwLock::new(HashMap::default());
        let (has_closed, descriptors) = (OnceLock::new(), OnceLock::new());
        let cached = Arc::new(Cached { open, max, has_closed, descriptors });
        OpenFiles { cached, uses: AtomicU64::new(0) }
    }

    /// From now on at most as many files are open as one of `parts` caches of the store may have, and files that are not in use
    /// are closed where some store finds no descriptor.
    pub fn share(&self, descriptors: &Arc<Descriptors>, parts: u64)
    where
        F: Send + Sync + 'static,
    {
        if self.cached.descriptors.set((descriptors.clone(), parts)).is_ok() {
            descriptors.add(&self.cached);
        }
    }

    /// True if files were closed that were not to be forgotten.
    pub fn has_closed(&self) -> bool {
        self.cached.has_closed.get().is_some()
    }

    /// Forgets a file that is about to be removed.
    pub fn forget(&self, number: u64) {
        drop(self.take(number));
    }

    /// Forgets a file, and hands it out if it is open.
    pub fn take(&self, number: u64) -> Option<F> {
        write(&self.cached.open).remove(&number).map(|open| open.file)
    }

    /// True if the file of this number is open.
    pub fn is_open(&self, number: u64) -> bool {
        read(&self.cached.open).contains_key(&number)
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
        let max = self.cached.max();
        let mut open = write(&self.cached.open);
        if open.len() >= max {
            let count = open.len() - max + max / 4 + 1;
            self.cached.close_unused(&mut open, count);
        }
        let entry = Open { file, last_use: AtomicU64::new(self.uses.load(Ordering::Relaxed)) };
        Ok(open.entry(number).or_insert(entry).file.clone())
    }
}

impl<F> Cached<F> {
    fn max(&self) -> usize {
        match self.descriptors.get() {
            Some((descriptors, parts)) if !descriptors.is_alone() => descriptors.part(*parts).min(self.max),
            _ => self.max,
        }
    }

    /// Closes the least recently used files.
    fn close_unused(&self, open: &mut HashMap<u64, Open<F>>, count: usize) {
        let mut by_use: Vec<(u64, u64)> =
            open.iter().map(|(&n, o)| (o.last_use.load(Ordering::Relaxed), n)).collect();
        by_use.sort_unstable();
        for (_, number) in by_use.iter().take(count) {
            open.remove(number);
        }
        let _ = self.has_closed.set(());
    }
}

impl<F: Send + Sync> CloseIdle for Cached<F> {
    fn close_idle(&self) -> bool {
        // The caller may hold any lock.
        let Some(mut open) = try_write(&self.open).filter(|open| !open.is_empty()) else { return false };
        let count = open.len() / 2 + 1;
        self.close_unused(&mut open, count);
        true
    }

    fn shrink(&self) {
        let max = self.max();
        if let Some(mut open) = try_write(&self.open).filter(|open| open.len() > max) {
            let count = open.len() - max;
            self.close_unused(&mut open, count);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::descriptors::open_max;
    use base::Error;
    use io::sim::SimEnv;
    use io::sim::threads::Plan;
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
        let (descriptors, files) = (Descriptors::join(&SimEnv::new(1).env()), OpenFiles::new(100));
        files.share(&descriptors, 1);
        let open: Vec<Arc<u64>> =
            (0..40).map(|n| files.find(n, || Ok::<_, Error>(Arc::new(n))).unwrap()).collect();
        let is_open = |n: usize| open.get(n).is_some_and(|file| Arc::strong_count(file) > 1);
        let call = || if is_open(19) { Err(no_descriptor()) } else { Ok(()) };
        descriptors.with_one(call).unwrap();
        assert!(!is_open(0) && is_open(39), "the least recently used are closed");
    }

    #[test]
    fn a_call_fails_when_nothing_is_left_to_close_and_after_any_other_error() {
        let (descriptors, files) = (Descriptors::join(&SimEnv::new(1).env()), OpenFiles::new(100));
        files.share(&descriptors, 1);
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

    /// A store with a cache, and as many files in it as it may have.
    fn full(env: &io::Env) -> (Arc<Descriptors>, OpenFiles<Arc<u64>>) {
        let (descriptors, files) = (Descriptors::join(env), OpenFiles::new(open_max(&*env.fs, 1000, 1)));
        files.share(&descriptors, 1);
        (0..600).for_each(|n| drop(files.find(n, || Ok::<_, Error>(Arc::new(n))).unwrap()));
        (descriptors, files)
    }

    fn count<F>(files: &OpenFiles<F>) -> usize {
        read(&files.cached.open).len()
    }

    #[test]
    fn a_store_that_is_opened_takes_its_part_from_the_others() {
        let sim = SimEnv::new(2);
        sim.set_open_max(Some(1024));
        let (_first, one) = full(&sim.env());
        assert!(count(&one) > 300);
        let (second, two) = full(&sim.env());
        assert!(count(&one) <= 240 && count(&two) <= 240, "{} and {}", count(&one), count(&two));
        drop((second, two));
        (600..1200).for_each(|n| drop(one.find(n, || Ok::<_, Error>(Arc::new(n))).unwrap()));
        assert!(count(&one) > 300, "its part is the half again");
    }

    #[test]
    fn a_call_closes_files_of_other_stores() {
        let sim = SimEnv::new(3);
        let (_first, one) = full(&sim.env());
        let second = Descriptors::join(&sim.env());
        second.with_one(|| if count(&one) > 100 { Err(no_descriptor()) } else { Ok(()) }).unwrap();
    }

    /// Threads of two stores look files up, take descriptors, and close one of the stores.
    #[test]
    fn stores_share_descriptors_under_any_schedule() {
        for seed in 0..300 {
            let sim = SimEnv::new(seed);
            sim.set_open_max(Some(68));
            let ran = sim.run_threads(&Plan::new(seed), move |env| {
                let spawn = |work: Box<dyn FnOnce() + Send>| {
                    env.spawner.as_ref().unwrap().spawn("store", io::Priority::Foreground, work).unwrap()
                };
                let one = Arc::new(full(env));
                let mut threads = Vec::new();
                for _ in 0..2 {
                    let env = env.clone();
                    threads.push(spawn(Box::new(move || {
                        let (descriptors, files) = full(&env);
                        assert!(files.cached.max() <= 18);
                        drop((files, descriptors));
                    })));
                    let one = one.clone();
                    threads.push(spawn(Box::new(move || {
                        let (descriptors, files) = &*one;
                        let left = Cell::new(3);
                        let call = || match left.replace(left.get() - 1) {
                            0 => Ok(()),
                            _ => Err(no_descriptor()),
                        };
                        // It may find nothing to close, and it ends.
                        let _ = descriptors.with_one(call);
                        let found = (0..20).map(|n| files.find(n, || Ok::<_, Error>(Arc::new(n))).unwrap());
                        assert!(found.enumerate().all(|(nth, file)| nth as u64 == *file));
                    })));
                }
                threads.into_iter().for_each(|thread| assert!(thread.join(), "a thread panicked"));
                assert_eq!((env.descriptors.stores(), one.1.cached.max()), (1, 18), "the others have left");
                assert!(count(&one.1) <= 18);
            });
            if let Err(stuck) = ran {
                panic!("seed {seed}: {}", stuck.0);
            }
        }
    }
}
