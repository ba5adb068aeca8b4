//! Row `two-disks`: stores that get a fast tier for their log and tables, give it back, and are
//! opened with wrong tiers.
//!
//! A workload is some sessions of durable writes. Between them the log moves to the fast tier and
//! back, with tables and hot values. Each open draws the number of levels in the tier and whether
//! that number may change, which moves tables while the store is open. In every fifth workload a
//! few keys get most writes, so that their values are hot. The machine dies at any operation of a
//! session or of a move. Then the store must open with its two disks, and without the fast tier
//! only if that is correct. It holds the acknowledged data, and crashes once more during that. The
//! workload continues from one of these states.
//!
//! Both directories of each closed session are kept. At the end they are combined, as by an
//! operator who restores only one disk or has two copies of a store. A directory and a tier of the
//! same moment give the store of that moment. All others are refused without a change, and so are a
//! missing tier, an empty one, and that of another store. If the right tier is back afterwards, it
//! is accepted, and no data is lost.
//!
//! The rows `...-on-two-disks` run other workloads on two disks.

use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing, ensure};
use crate::crash::{TRACE, kind};
use crate::machine::{DIR, SPEED_DIR};
use crate::plan;
use crate::tally;
use io::{CreateOptions, Rng, SyncKind};
use lavastore::testing::SimEnv;
use lavastore::{Db, Durability, ErrorKind, FamilyOptions, Loggers, Options, Volumes};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Crashes tested per session.
const DEATHS: u64 = 6;
/// Tested pairs of a directory and a tier of different moments.
const PAIRS: u64 = 6;

type StoreEntries = BTreeMap<Vec<u8>, Vec<u8>>;
/// Files of a directory.
type DirFiles = Vec<(String, Vec<u8>)>;

/// A copy of a store that was closed on two disks.
struct Kept {
    dir: DirFiles,
    speed: DirFiles,
    contents: StoreEntries,
}

struct TwoDiskWorkload {
    sim: SimEnv,
    rng: Rng,
    now: StoreEntries,
    on_two: bool,
    kept: Vec<Kept>,
    moves: u64,
    /// Tables may be in the fast tier; in every fourth workload only the log is.
    has_fast_tables: bool,
    /// A few keys get most writes, and their values may be in the fast tier.
    has_hot_values: bool,
}

fn volumes(sim: &SimEnv) -> Volumes {
    let env = sim.env();
    Volumes::in_envs((&env, DIR.as_ref()), (&env, SPEED_DIR.as_ref()))
}

fn options() -> Options {
    Options {
        memtable_bytes: 32 << 10,
        memory_bytes: 96 << 10,
        cache_bytes: 64 << 10,
        durability: Durability::Durable,
        family: FamilyOptions::default().expert(|expert| {
            expert.file_bytes = 16 << 10;
            expert.level_base_bytes = 64 << 10;
        }),
        ..Default::default()
    }
    .expert(|expert| {
        expert.log_group_bytes = 128 << 10;
        expert.wal_bytes_max = 512 << 10;
    })
}

fn contents(db: &Db) -> Check<StoreEntries> {
    db.iter()
        .map(|entry| entry.map(|entry| (entry.0.to_vec(), entry.1.to_vec())))
        .collect::<Result<_, _>>()
        .doing(|| "scan".into())
}

fn read(sim: &SimEnv, dir: &str) -> Check<DirFiles> {
    let fs = sim.env().fs;
    let mut files = Vec::new();
    for entry in fs.list(Path::new(dir)).doing(|| "list".into())? {
        let bytes = sim.read_file(Path::new(dir).join(&entry.name)).doing(|| "read a file".into())?;
        files.push((entry.name, bytes));
    }
    Ok(files)
}

/// Replaces the contents of a directory by files, like an operator. `None`: removes the directory.
fn write(sim: &SimEnv, dir: &str, files: Option<&DirFiles>) -> Check {
    let (fs, dir) = (sim.env().fs, Path::new(dir));
    let put = || -> lavastore::Result<()> {
        for entry in fs.list(dir).unwrap_or_default() {
            fs.remove(&dir.join(entry.name))?;
        }
        let Some(files) = files else { return fs.remove_dir(dir) };
        fs.create_dir_all(dir)?;
        for (name, bytes) in files {
            let mut file = fs.create(&dir.join(name), &CreateOptions::default())?;
            file.append(bytes)?;
            file.sync(SyncKind::Full)?;
        }
        fs.sync_dir(dir)?;
        fs.sync_dir(Path::new("/"))
    };
    put().doing(|| format!("restore {}", dir.display()))
}

impl TwoDiskWorkload {
    fn open(&self, sim: &SimEnv, on_two: bool) -> lavastore::Result<Db> {
        let env = if on_two { volumes(sim).env() } else { sim.env() };
        // Not drawn, and equal for all forks of one moment.
        let fast_tier_levels =
            if self.has_fast_tables { [1, 0, 2, 7][(sim.op_count() % 4) as usize] } else { 0 };
        let has_values = on_two && self.has_hot_values && !sim.op_count().is_multiple_of(5);
        let fast_tier_values_bytes_max = if has_values { 1 << 40 } else { 0 };
        let fast_tier_adaptive = self.has_fast_tables && (sim.op_count() / 4).is_multiple_of(2);
        let fast_tier_interval = Duration::from_millis(1);
        let fast_tier_values_flushed = has_values && (sim.op_count() / 8).is_multiple_of(2);
        let values = options().expert(|expert| {
            expert.fast_tier_values_bytes_max = fast_tier_values_bytes_max;
            expert.fast_tier_values_flushed = fast_tier_values_flushed;
        });
        let writes_max = [1, 3, 0, 2][(sim.op_count() / 3 % 4) as usize];
        let loggers = Loggers { writes_max, threads_min: 0 };
        let options = values.expert(|expert| {
            expert.fast_tier_levels = fast_tier_levels;
            expert.fast_tier_adaptive = fast_tier_adaptive;
            expert.fast_tier_interval = fast_tier_interval;
            expert.loggers = loggers;
        });
        let options = plan::with_what_all_have(&Rng::new(sim.op_count()), options);
        Db::open_in(&env, DIR, &options)
    }

    /// Draws the number of writes of a session.
    fn writes(&mut self) -> u64 {
        if self.has_hot_values { self.rng.range(100, 400) } else { self.rng.range(1, 40) }
    }

    /// Draws the key of a write.
    fn key(&mut self) -> Vec<u8> {
        let among = if self.has_hot_values && !self.rng.one_in(4) { 8 } else { 200 };
        format!("key{:03}", self.rng.below(among)).into_bytes()
    }

    /// Runs a session, sometimes after a move, and the crashes within.
    fn live(&mut self) -> Check {
        let begun = self.sim.op_count();
        let before = self.now.clone();
        if self.rng.one_in(2) {
            self.moves += 1;
            if self.on_two {
                volumes(&self.sim).detach_fast_tier().doing(|| "give the disk back".into())?;
            }
            self.on_two = !self.on_two;
        }
        let db = self.open(&self.sim, self.on_two).doing(|| "open".into())?;
        ensure!(contents(&db)? == self.now, "after a closed session something is missing");
        let mut acknowledged = Vec::new();
        for _ in 0..self.writes() {
            let key = self.key();
            let value = vec![self.rng.next_u64() as u8; self.rng.below(2000) as usize];
            db.put(&key, &value).doing(|| "put".into())?;
            self.now.insert(key.clone(), value.clone());
            acknowledged.push((self.sim.op_count(), key, value));
            if self.rng.one_in(30) {
                db.flush().doing(|| "flush".into())?;
            }
            if self.has_hot_values {
                while db.engine().run_background_step() {}
            }
        }
        tally::add(&db);
        db.close().doing(|| "close".into())?;
        let record = self.sim.record();
        let ops: Vec<u64> = record.mutations().into_iter().filter(|op| *op >= begun).collect();
        let mut next = None;
        for _ in 0..DEATHS {
            // Half of the crashes are early, while tiers are attached or detached.
            let most = if self.rng.one_in(2) { ops.len().min(60) } else { ops.len() };
            let op = ops[self.rng.below(most as u64) as usize];
            let kind = kind(&mut self.rng);
            let left = record.crash_at(op, kind, self.rng.next_u64());
            let mut states = vec![before.clone()];
            for (end, key, value) in &acknowledged {
                let mut state = states.last().cloned().unwrap_or_default();
                state.insert(key.clone(), value.clone());
                // A write may be there before its acknowledgement, and must be afterwards.
                states = if *end <= op { vec![state] } else { vec![states.pop().unwrap_or_default(), state] };
                if *end > op {
                    break;
                }
            }
            let found =
                self.judge(&left, &states).map_err(|why| format!("{kind:?} at operation {op}: {why}"))?;
            next = Some((left, found));
        }
        match next {
            Some((left, found)) if self.rng.one_in(3) => {
                self.on_two = self.open(&left.fork(1), false).is_err();
                // The next open makes the remains of the last write durable.
                let db = self.open(&left, self.on_two).doing(|| "open what a death left".into())?;
                self.now = contents(&db)?;
                ensure!(self.now == found, "two openings of one image differ");
                db.close().doing(|| "close what a death left".into())?;
                self.sim = left;
            }
            _ if self.on_two => {
                let (dir, speed) = (read(&self.sim, DIR)?, read(&self.sim, SPEED_DIR)?);
                self.kept.push(Kept { dir, speed, contents: self.now.clone() });
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks the state after a crash: it opens on its disks, and equals one of these states.
    fn judge(&mut self, left: &SimEnv, states: &[StoreEntries]) -> Check<StoreEntries> {
        let alone = left.fork(self.rng.next_u64());
        match self.open(&alone, false) {
            Ok(db) => {
                let found = contents(&db)?;
                ensure!(states.contains(&found), "without the second disk it is another store");
            }
            Err(e) => ensure!(e.kind() == ErrorKind::InvalidArgument, "without the second disk: {e}"),
        }
        let twice = left.fork(self.rng.next_u64());
        drop(self.open(&twice, true).doing(|| "open with both disks".into())?);
        let record = twice.record();
        let ops = record.mutations();
        if !ops.is_empty() {
            let op = ops[self.rng.below(ops.len() as u64) as usize];
            let again = record.crash_at(op, kind(&mut self.rng), self.rng.next_u64());
            let db = self
                .open(&again, true)
                .inspect_err(|_| {
                    if std::env::var_os(TRACE).is_some() {
                        println!("first open:\n{}\nafter the death:\n{}", twice.trace(), again.trace());
                    }
                })
                .doing(|| format!("open after another death at operation {op}"))?;
            ensure!(states.contains(&contents(&db)?), "after another death it is another store");
        }
        let copy = left.fork(self.rng.next_u64());
        let db = self.open(&copy, true).doing(|| "open with both disks".into())?;
        let found = contents(&db)?;
        ensure!(states.contains(&found), "with both disks it is another store");
        Ok(found)
    }

    /// Combines directories and tiers of different moments.
    fn mix(&mut self) -> Check<u64> {
        let mut tried = 0;
        for _ in 0..PAIRS {
            if self.kept.is_empty() {
                break;
            }
            let count = self.kept.len() as u64;
            let (a, b) = (self.rng.below(count) as usize, self.rng.below(count) as usize);
            let (dir, disk) = (&self.kept[a], &self.kept[b]);
            let sim = self.sim.fork(self.rng.next_u64());
            write(&sim, DIR, Some(&dir.dir))?;
            let empty = DirFiles::new();
            let speed = match self.rng.below(6) {
                0 => None,
                1 => Some(&empty),
                _ => Some(&disk.speed),
            };
            write(&sim, SPEED_DIR, speed)?;
            let fits = a == b && speed.is_some_and(|files| !files.is_empty());
            let hash = sim.state_hash();
            match self.open(&sim, true) {
                Ok(db) => {
                    ensure!(fits, "the directory of session {a} is opened with the disk of {b}, or of none");
                    ensure!(contents(&db)? == dir.contents, "session {a} is not what it was");
                }
                Err(e) => {
                    ensure!(!fits, "the disk of the same moment is refused: {e}");
                    let named = e.file().is_some_and(|file| file.starts_with(SPEED_DIR));
                    ensure!(named, "the disk is refused without its name: {e}");
                    ensure!(sim.state_hash() == hash, "a refused opening changed something: {e}");
                    // The tier is back.
                    write(&sim, SPEED_DIR, Some(&dir.speed))?;
                    let db =
                        self.open(&sim, true).doing(|| "open with the disk that is there again".into())?;
                    ensure!(contents(&db)? == dir.contents, "session {a} is not what it was, with its disk");
                }
            }
            tried += 1;
        }
        Ok(tried)
    }
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let rng = Rng::new(seed ^ 0x7477_6f2d_6469);
    let (sim, now) = (SimEnv::new(seed), StoreEntries::new());
    let mut life = TwoDiskWorkload {
        sim,
        rng,
        now,
        on_two: false,
        kept: Vec::new(),
        moves: 0,
        has_fast_tables: !seed.is_multiple_of(4),
        has_hot_values: seed % 5 == 1,
    };
    let lived = guarded(|| {
        for session in 0..life.rng.range(2, 7) {
            life.live().map_err(|why| format!("session {session}: {why}"))?;
            outcome.take(Ok(()));
        }
        life.mix()
    });
    match lived.and_then(|lived| lived) {
        Ok(tried) => (0..tried).for_each(|_| outcome.take(Ok(()))),
        Err(why) => outcome.take(Err(why)),
    }
    outcome.note("moves of the log to another disk", life.moves);
    outcome
}
