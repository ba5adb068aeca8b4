//! Rows `forks` and `forks-on-lavafs`: stores that are copies of each other, on one volume.
//!
//! A store is copied by checkpoints, by copying its closed files, and by copying its files while it
//! is open; the latter copies must be refused or correct. The copies are opened side by side,
//! written, closed, renamed, deleted, and swapped. All continue from the same numbers with keys and
//! values of the same lengths. One may get files, blocks and directory names freed by another. Then
//! the process dies, or the power fails.
//!
//! Every open must find exactly the writes to that store and its ancestors; after a loss of power,
//! up to some write behind the last durable one. Each value names its writer, so that data of
//! another store is detected.

use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing, ensure};
use crate::crash::{check_verify, kind, loss};
use crate::driver::{scan, write_one};
use crate::history::Loss;
use crate::plan::{self, pick};
use crate::state::{Change, Contents, difference};
use crate::{machine, tally};
use io::{Access, AppendFile, CreateOptions, FileSystem, Rng, SyncKind, read_around};
use lavastore::testing::SimEnv;
use lavastore::{Db, Durability, ErrorKind, Options};
use std::path::Path;
use std::time::Duration;

/// Maximum number of stores at a time.
const FORKS_MAX: usize = 6;
/// Bytes per copied piece.
const COPY_LEN: usize = 64 << 10;
/// Unit of device read errors in bytes.
const SECTOR: usize = 512;

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut world = World::new(seed);
    let ran = guarded(|| world.run()).and_then(|ran| ran);
    outcome.note("copies of open stores that opened", world.copies_open);
    outcome.note("copies of open stores that were refused", world.copies_refused);
    outcome.note("stores used after one that was deleted", world.used_after);
    outcome.take(ran);
    outcome
}

/// A store and its expected contents.
struct Fork {
    dir: String,
    /// Writer id in its values.
    id: u64,
    /// Contents that survive a loss of power.
    sure: Contents,
    /// Writes acknowledged since then, in order.
    since: Vec<Change>,
    db: Option<Db>,
}

impl Fork {
    fn all(&self) -> Contents {
        let mut all = self.sure.clone();
        self.since.iter().for_each(|change| all.apply(change));
        all
    }

    /// Marks everything as durable.
    fn settle(&mut self) {
        self.sure = self.all();
        self.since.clear();
    }

    /// Checks the contents after an event, and takes them as the expected ones.
    fn check(&mut self, found: Contents, loss: Option<Loss>) -> Check {
        let mut expected = self.sure.clone();
        let mut fits = loss == Some(Loss::Power) && expected.fingerprint() == found.fingerprint();
        for change in &self.since {
            expected.apply(change);
            fits |= loss == Some(Loss::Power) && expected.fingerprint() == found.fingerprint();
        }
        if !fits {
            difference(expected.entries(), found.entries())
                .map_err(|why| format!("{} after {loss:?} ({} unsure): {why}", self.dir, self.since.len()))?;
        }
        (self.sure, self.since) = (found, Vec::new());
        Ok(())
    }
}

struct World {
    sim: SimEnv,
    rng: Rng,
    options: Options,
    forks: Vec<Fork>,
    next_id: u64,
    keys: u64,
    value_len: usize,
    copies_open: u64,
    copies_refused: u64,
    used_after: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed ^ 0x666f_726b_7300);
        World {
            sim: machine::new(seed),
            options: unlimited(&mut rng),
            forks: Vec::new(),
            next_id: 0,
            keys: pick(&mut rng, &[10, 100, 2_000]),
            // All values have one length, so that pages of two stores end at the same offsets.
            value_len: pick(&mut rng, &[20, 100, 100, 300, 900, 3_000, 9_000, 40_000]),
            rng,
            copies_open: 0,
            copies_refused: 0,
            used_after: 0,
        }
    }

    fn run(&mut self) -> Check {
        let dir = self.new_dir();
        self.add(dir, Contents::default());
        let options = self.options.clone();
        let db = Db::open_in(&machine::env(&self.sim)?, &self.forks[0].dir, &options);
        self.forks[0].db = Some(db.doing(|| "make the first store".into())?);
        self.write(0)?;
        for step in 0..self.rng.range(8, 40) {
            self.step().map_err(|why| format!("step {step}: {why}"))?;
        }
        self.crash()?;
        for fork in &mut self.forks {
            if let Some(db) = fork.db.take() {
                tally::add(&db);
                db.close().doing(|| format!("close {}", fork.dir))?;
            }
        }
        (0..self.forks.len()).try_for_each(|i| self.open(i, None))
    }

    fn step(&mut self) -> Check {
        let i = self.rng.below(self.forks.len() as u64) as usize;
        let open = self.forks[i].db.is_some();
        let room = self.forks.len() < FORKS_MAX;
        match self.rng.below(24) {
            0..=5 if open => self.write(i),
            6 if open => self.upkeep(i),
            7 | 8 if open => self.close(i),
            9 | 10 if open && room => self.checkpoint(i),
            11 if open => self.copy_while_open(i),
            12 | 13 if !open && room => self.copy(i),
            14 if !open => self.rename(i),
            15 if !open && self.forks.len() > 1 => self.delete(i),
            16 | 17 => self.restore(i),
            18 | 19 => self.use_after(i),
            20 | 21 => self.crash(),
            _ if !open => self.open(i, None),
            _ => self.write(i),
        }
    }

    fn new_dir(&mut self) -> String {
        self.next_id += 1;
        format!("/fork{}", self.next_id)
    }

    fn add(&mut self, dir: String, holds: Contents) {
        self.next_id += 1;
        self.forks.push(Fork { dir, id: self.next_id, sure: holds, since: Vec::new(), db: None });
    }

    /// Opens a store after this kind of end, and checks its contents.
    fn open(&mut self, i: usize, loss: Option<Loss>) -> Check {
        let fork = &mut self.forks[i];
        let mut options = self.options.clone();
        if self.rng.one_in(3) {
            options = unlimited(&mut self.rng);
        }
        options.create_if_missing = false;
        let db = Db::open_in(&machine::env(&self.sim)?, &fork.dir, &options);
        let db = db.doing(|| format!("open {} after {loss:?}", fork.dir))?;
        let found = contents(&db)?;
        fork.check(found, loss)?;
        if self.rng.one_in(8) {
            check_verify(&db).map_err(|why| format!("{}: {why}", fork.dir))?;
        }
        fork.db = Some(db);
        Ok(())
    }

    fn close(&mut self, i: usize) -> Check {
        let fork = &mut self.forks[i];
        if let Some(db) = fork.db.take() {
            tally::add(&db);
            db.close().doing(|| format!("close {}", fork.dir))?;
            fork.settle();
        }
        Ok(())
    }

    /// Makes some writes.
    fn write(&mut self, i: usize) -> Check {
        let few = pick(&mut self.rng, &[1, 3, 10, 30, 100]);
        (0..few.min(400_000 / self.value_len as u64 + 1)).try_for_each(|_| self.write_once(i))
    }

    fn write_once(&mut self, i: usize) -> Check {
        let fork = &mut self.forks[i];
        let db = fork.db.as_ref().ok_or("written while closed")?;
        let key = format!("key{:05}", self.rng.below(self.keys)).into_bytes();
        let change = match self.rng.below(20) {
            0 => Change::Delete(key),
            _ => {
                let mut value = format!("{}/{}/", fork.id, self.rng.next_u64()).into_bytes();
                value.resize(self.value_len, b'v');
                Change::Put(key, value)
            }
        };
        let durability = if self.rng.one_in(4) { Durability::Buffered } else { Durability::Durable };
        write_one(db.default_family(), &change, durability).doing(|| format!("write to {}", fork.dir))?;
        if self.rng.one_in(6) {
            db.engine().run_background_step();
        }
        fork.since.push(change);
        if durability == Durability::Durable {
            fork.settle();
        }
        Ok(())
    }

    fn upkeep(&mut self, i: usize) -> Check {
        let fork = &mut self.forks[i];
        let Some(db) = &fork.db else { return Ok(()) };
        match self.rng.below(3) {
            0 => db.flush().doing(|| "flush".into())?,
            1 => {
                let family = db.default_family().clone();
                family.compact_range(..).doing(|| "compact".into())?;
            }
            _ => ensure!(db.wait_idle(Duration::from_secs(60)), "{} does not come to rest", fork.dir),
        }
        Ok(())
    }

    fn checkpoint(&mut self, i: usize) -> Check {
        let dir = self.new_dir();
        let fork = &mut self.forks[i];
        let Some(db) = &fork.db else { return Ok(()) };
        db.checkpoint(&dir).doing(|| format!("checkpoint of {}", fork.dir))?;
        fork.settle();
        let holds = fork.sure.clone();
        self.add(dir, holds);
        Ok(())
    }

    /// Copies files one by one. `between` runs before each; with permission, vanished files are
    /// skipped.
    fn copy_files(
        &mut self,
        from: &str,
        to: &str,
        mut between: impl FnMut(&mut Self) -> Check,
        may_vanish: bool,
    ) -> Check {
        let fs = machine::env(&self.sim)?.fs;
        let mut names: Vec<String> =
            fs.list(Path::new(from)).doing(|| "list".into())?.into_iter().map(|entry| entry.name).collect();
        self.shuffle(&mut names);
        fs.create_dir_all(Path::new(to)).doing(|| "make a directory".into())?;
        for name in names {
            between(self)?;
            match copy_file(&*fs, &Path::new(from).join(&name), &Path::new(to).join(&name)) {
                Err(e) if e.kind() == ErrorKind::NotFound && may_vanish => {}
                copied => copied.doing(|| format!("copy {name}"))?,
            }
        }
        fs.sync_dir(Path::new(to)).and_then(|()| fs.sync_dir(Path::new("/"))).doing(|| "sync".into())
    }

    fn shuffle(&mut self, names: &mut [String]) {
        for i in (1..names.len()).rev() {
            names.swap(i, self.rng.below(i as u64 + 1) as usize);
        }
    }

    /// Copies the files of a closed store.
    fn copy(&mut self, i: usize) -> Check {
        let (to, from) = (self.new_dir(), self.forks[i].dir.clone());
        self.copy_files(&from, &to, |_| Ok(()), false)?;
        let holds = self.forks[i].sure.clone();
        self.add(to, holds);
        Ok(())
    }

    /// Copies the files of an open store during writes: the copy must be refused, or equal a state
    /// of the store meanwhile.
    fn copy_while_open(&mut self, i: usize) -> Check {
        let (to, from) = (self.new_dir(), self.forks[i].dir.clone());
        self.forks[i].settle();
        // Keep only fingerprints: a large store has many files, and a state for each.
        let mut states = vec![self.forks[i].sure.fingerprint()];
        let between = |world: &mut Self| {
            for _ in 0..world.rng.below(4) {
                world.write_once(i)?;
                states.push(world.forks[i].all().fingerprint());
            }
            Ok(())
        };
        self.copy_files(&from, &to, between, true)?;
        let options = Options { create_if_missing: false, ..self.options.clone() };
        let opened = Db::open_in(&machine::env(&self.sim)?, &to, &options);
        match opened.map_err(|e| e.to_string()).and_then(|db| contents(&db)) {
            Ok(found) => {
                self.copies_open += 1;
                let fits = states.contains(&found.fingerprint());
                ensure!(fits, "a copy of {from} while it was open is none of its {} states", states.len());
            }
            Err(_) => self.copies_refused += 1,
        }
        self.remove(&to)
    }

    fn rename(&mut self, i: usize) -> Check {
        let to = self.new_dir();
        self.rename_to(i, to)
    }

    fn rename_to(&mut self, i: usize, to: String) -> Check {
        let fs = machine::env(&self.sim)?.fs;
        let renamed = fs.rename(Path::new(&self.forks[i].dir), Path::new(&to));
        renamed.and_then(|()| fs.sync_dir(Path::new("/"))).doing(|| "rename".into())?;
        self.forks[i].dir = to;
        Ok(())
    }

    fn delete(&mut self, i: usize) -> Check {
        self.close(i)?;
        let fork = self.forks.swap_remove(i);
        self.remove(&fork.dir)
    }

    fn remove(&mut self, dir: &str) -> Check {
        let (fs, dir) = (machine::env(&self.sim)?.fs, Path::new(dir));
        let remove = || {
            for entry in fs.list(dir)? {
                fs.remove(&dir.join(&entry.name))?;
            }
            fs.remove_dir(dir)?;
            fs.sync_dir(Path::new("/"))
        };
        remove().doing(|| "delete".into())
    }

    /// Replaces this store by another one.
    fn restore(&mut self, i: usize) -> Check {
        if self.forks.len() < 2 {
            return Ok(());
        }
        let dir = self.forks[i].dir.clone();
        self.delete(i)?;
        let other = self.rng.below(self.forks.len() as u64) as usize;
        self.close(other)?;
        self.rename_to(other, dir)
    }

    /// The most likely confusion of two stores: one is used and deleted; another one with the same
    /// numbers gets its resources and dies.
    fn use_after(&mut self, i: usize) -> Check {
        if self.forks[i].db.is_none() {
            self.open(i, None)?;
        }
        let first = self.forks.len();
        if self.rng.one_in(2) {
            self.checkpoint(i)?;
            self.checkpoint(i)?;
        } else {
            self.close(i)?;
            self.copy(i)?;
            self.copy(i)?;
        }
        if self.rng.one_in(2) {
            self.close(i)?;
        }
        self.open(first, None)?;
        self.write(first)?;
        self.write(first)?;
        self.delete(first)?;
        // The last fork moved to its index.
        self.open(first, None)?;
        self.write(first)?;
        self.used_after += 1;
        self.crash()
    }

    /// Crashes the machine and checks every store.
    fn crash(&mut self) -> Check {
        let kind = kind(&mut self.rng);
        let after = self.sim.crash(kind, self.rng.next_u64());
        let mut was_open = Vec::new();
        for fork in &mut self.forks {
            was_open.push(fork.db.take().inspect(tally::add).is_some());
        }
        self.sim = after;
        for (i, was_open) in was_open.into_iter().enumerate() {
            // A closed store is unchanged.
            let loss = was_open.then(|| loss(kind));
            if was_open || self.rng.one_in(3) {
                self.open(i, loss).map_err(|why| format!("{kind:?}: {why}"))?;
                if self.rng.one_in(2) {
                    self.close(i)?;
                }
            }
        }
        Ok(())
    }
}

/// Draws options without refusals for lack of space.
fn unlimited(rng: &mut Rng) -> Options {
    Options { space_limit: None, ..plan::options(rng) }
}

fn contents(db: &Db) -> Check<Contents> {
    let mut found = scan(db)?;
    Ok(Contents::from_entries(found.remove(&0).ok_or("the default family is not there")?))
}

fn copy_file(fs: &dyn FileSystem, from: &Path, to: &Path) -> lavastore::Result<()> {
    let source = fs.open(from, Access::Buffered)?;
    let mut target: Box<dyn AppendFile> = fs.create(to, &CreateOptions::default())?;
    let (len, mut offset) = (source.readable_len()?, 0);
    let mut buf = vec![0; COPY_LEN];
    while offset < len {
        let n = COPY_LEN.min((len - offset) as usize);
        // A copy after a loss of power skips unreadable sectors.
        read_around(&mut buf[..n], offset, SECTOR, |piece, at| source.read_at(piece, at))?;
        target.append(&buf[..n])?;
        offset += n as u64;
    }
    target.sync(SyncKind::Full)
}
