//! A failing operation of the file system, or a lack of space, while a store with both engines is
//! opened and used. Acknowledged writes must remain, in the same process and after a crash, with
//! both halves of a batch or neither.

use super::life::{
    DIR, EnvOf, Found, Life, changes, find, find_left, key, kv_options, open, open_with, write_both,
};
use base::{ErrorKind, Result};
use io::sim::{CrashKind, FaultPlan, SimEnv};
use lavakv::{Db, Durability, Options, SpaceLimit};
use lavalog::LogStore;

/// Time for which calls are retried after a full volume or a lack of descriptors, simulated
/// nanoseconds.
const PATIENCE_NS: u64 = 20_000_000_000;
/// Time between two retries.
const TRY_NS: u64 = 100_000_000;

/// A closed store with a past, and its contents.
pub struct Past {
    pub sim: SimEnv,
    pub found: Found,
    pub env: EnvOf,
}

/// The space of a machine.
pub trait Room {
    /// Limits the free space to `more` bytes, or removes the limit.
    fn set(&self, sim: &SimEnv, more: Option<u64>);
    /// Starts watching the space of the store's files.
    fn watch(&self, sim: &SimEnv);
    /// Returns the maximum space of the files since then.
    fn peak(&self, sim: &SimEnv) -> u64;
    /// Returns whether operations that free space always succeed on a full volume.
    fn trims_pass(&self) -> bool;
}

/// Effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Struck {
    /// None: there are fewer operations.
    Nothing,
    /// The store continued.
    WentOn,
    /// The store refused writes until it was opened again.
    Stopped,
}

/// The end of time: every operation of the dead process had begun by then.
const ALWAYS: u64 = u64::MAX;

impl Past {
    /// Continues on a copy of the machine with a fault. `passes`: the fault is temporary, so the
    /// store may not stop. `loses`: whether the failure discarded data that was not durable,
    /// although the store continues in the same process.
    pub fn strikes(
        &self,
        seed: u64,
        plan: FaultPlan,
        passes: bool,
        loses: &dyn Fn(&SimEnv) -> bool,
    ) -> Struck {
        let sim = self.sim.fork(seed);
        let mut life = Life::new(sim.clone(), self.env, seed, self.found);
        sim.inject(plan);
        let opened = (self.env)(&sim).and_then(|env| open(&env));
        let ran = match &opened {
            Ok((db, logs)) => life.go_on(db, logs, 80).and_then(|()| logs.wait_idle()),
            Err(_) => Ok(()),
        };
        let struck = sim.faults_fired() > 0;
        sim.clear_faults();
        let mut stopped = false;
        if let Ok((db, logs)) = &opened {
            stopped = still_serves(&mut life, db, logs, &ran, passes);
        }
        let power = loses(&sim);
        drop(opened);
        for kind in [CrashKind::ProcessKill, CrashKind::PowerLoss] {
            let left = sim.crash(kind, seed);
            let (found, _) = find_left(&left, self.env, seed % 3);
            life.judge(found, ALWAYS, if power { CrashKind::PowerLoss } else { kind });
            Life::new(left, self.env, seed, found).live(6);
        }
        match (struck, stopped) {
            (false, _) => Struck::Nothing,
            (true, false) => Struck::WentOn,
            (true, true) => Struck::Stopped,
        }
    }

    /// Continues on a copy of the machine with `more` bytes of space until calls are refused, and
    /// then with space again. Returns the number of refused calls, and of refused batches of both
    /// engines.
    pub fn fills_up(&self, seed: u64, room: &dyn Room, more: u64) -> (u64, u64) {
        let sim = self.sim.fork(seed);
        let mut life = Life::new(sim.clone(), self.env, seed, self.found);
        let (db, logs) = open(&(self.env)(&sim).unwrap()).unwrap();
        room.set(&sim, Some(more));
        for _ in 0..60 {
            life.go_on(&db, &logs, 20).unwrap();
            assert_eq!(find(&db, &logs), life.now, "without room");
            if life.done.refused_of_both > 3 {
                break;
            }
        }
        let refused = life.done.refused_trims;
        assert!(refused == 0 || !room.trims_pass(), "{refused} trims were refused, which make room");
        for kind in [CrashKind::ProcessKill, CrashKind::PowerLoss] {
            let left = sim.crash(kind, seed);
            room.set(&left, None);
            life.judge(find_left(&left, self.env, seed % 3).0, ALWAYS, kind);
        }
        room.set(&sim, None);
        let tries = PATIENCE_NS / TRY_NS;
        let resumes = (0..tries).any(|_| {
            sim.advance_ns(TRY_NS);
            let before = life.done.refused;
            life.go_on(&db, &logs, 10).unwrap();
            life.done.refused == before
        });
        assert!(resumes, "writes do not resume where there is room again");
        assert_eq!(find(&db, &logs), life.now, "where there is room again");
        logs.close().unwrap();
        db.close().unwrap();
        life.closed();
        let left = sim.crash(CrashKind::PowerLoss, seed);
        life.judge(find_left(&left, self.env, 0).0, ALWAYS, CrashKind::PowerLoss);
        (life.done.refused, life.done.refused_of_both)
    }
}

impl Past {
    /// Continues on a copy of the machine under a limit that leaves `more` bytes, until calls are
    /// refused. Then continues in several processes below the limit, and finally without it.
    /// Returns the same as [`Past::fills_up`].
    pub fn reaches_limit(&self, seed: u64, room: &dyn Room, more: u64, lives: u64) -> (u64, u64) {
        let (sim, life, limit) = self.at_limit(seed, room, more);
        self.lives_on_at_limit(seed, room, (&sim, life.now, limit), lives);
        let left = sim.crash(CrashKind::PowerLoss, seed);
        let (found, _) = find_left(&left, self.env, seed % 3);
        life.judge(found, ALWAYS, CrashKind::PowerLoss);
        Life::new(left, self.env, seed, found).live(40);
        (life.done.refused, life.done.refused_of_both)
    }

    /// Repeatedly opens a store left at its limit by a killed process, on copies of the machine.
    /// Most of these processes die at once and leave the initial groups of their logs to the next.
    pub fn lives_on_at_limit(
        &self,
        seed: u64,
        room: &dyn Room,
        (sim, mut found, limit): (&SimEnv, Found, u64),
        lives: u64,
    ) {
        let mut sim = sim.clone();
        for nth in 0..lives {
            sim = sim.crash(CrashKind::ProcessKill, seed.wrapping_add(nth));
            room.watch(&sim);
            let mut life = Life::new(sim.clone(), self.env, seed.wrapping_add(nth), found);
            let (db, logs) = open_with(&(self.env)(&sim).unwrap(), DIR, limited(limit)).unwrap();
            assert_eq!(find(&db, &logs), found, "life {nth} at the limit");
            life.go_on(&db, &logs, if nth % 4 == 3 { 6 } else { 0 }).unwrap();
            found = life.now;
            let most = room.peak(&sim);
            assert!(most <= limit, "seed {seed}, life {nth}: {most} bytes were occupied of {limit}");
        }
    }

    /// Returns a process that was killed when calls were refused below a limit, and the limit.
    pub fn at_limit(&self, seed: u64, room: &dyn Room, more: u64) -> (SimEnv, Life, u64) {
        let sim = self.sim.fork(seed);
        let mut life = Life::new(sim.clone(), self.env, seed, self.found);
        room.watch(&sim);
        let limit = room.peak(&sim) + least_limit() + more;
        self.comes_to_limit(&mut life, room, limit);
        (sim, life, limit)
    }

    /// Continues below a limit until calls are refused.
    pub fn comes_to_limit(&self, life: &mut Life, room: &dyn Room, limit: u64) {
        let sim = life.sim.clone();
        let (db, logs) = open_with(&(self.env)(&sim).unwrap(), DIR, limited(limit)).unwrap();
        for round in 0..300 {
            life.go_on(&db, &logs, 20).unwrap();
            if round % 20 == 0 || life.done.refused_of_both > 0 {
                assert_eq!(find(&db, &logs), life.now, "at the limit");
            }
            let most = room.peak(&sim);
            assert!(most <= limit, "{most} bytes were occupied of {limit}");
            if life.done.refused_of_both > 3 {
                break;
            }
        }
        assert_eq!(life.done.refused_trims, 0, "a trim was refused, which makes room");
    }
}

/// Returns options with a limit. Value files are short, so that a low limit is allowed.
pub fn limited(limit: u64) -> Options {
    let options = kv_options();
    let family = options.family.expert(|expert| expert.vsst_bytes = 16 << 10);
    Options { space_limit: Some(SpaceLimit::Bytes(limit)), family, ..options }
}

/// Returns the lowest limit that a store may have.
fn least_limit() -> u64 {
    let is_allowed = |limit: &u64| limited(*limit).validate().is_ok();
    (1..).map(|n| n * (64 << 10)).find(is_allowed).unwrap()
}

/// Checks that a store continues, or refuses writes of both engines after it stopped. Reads succeed
/// in both cases. Returns true if it stopped.
fn still_serves(life: &mut Life, db: &Db, logs: &LogStore, ran: &Result<()>, passes: bool) -> bool {
    let found = find(db, logs);
    life.judge(found, ALWAYS, CrashKind::ProcessKill);
    let stopped = matches!(ran, Err(e) if e.kind() == ErrorKind::Poisoned);
    if stopped {
        assert!(!passes, "what passes by itself stopped the store: {ran:?}");
        refuses(life, db, logs, ran);
    } else if passes || ran.is_ok() {
        life.resolve(found);
        life.sim.advance_ns(PATIENCE_NS);
        let went_on = life.go_on(db, logs, 20).and_then(|()| logs.wait_idle()).and_then(|()| db.flush());
        went_on.unwrap_or_else(|e| panic!("after {ran:?} it does not go on: {e:#}"));
        assert_eq!(find(db, logs), life.now);
    }
    stopped
}

/// Checks that writes of each engine alone and of both together are refused.
fn refuses(life: &Life, db: &Db, logs: &LogStore, ran: &Result<()>) {
    let is_refused = |what: &str, done: Result<()>| {
        let e = done.err().unwrap_or_else(|| panic!("{what} was done by a store that was stopped: {ran:?}"));
        // A stopped volume of LavaFS reports that itself until the engine notices.
        let by_volume =
            e.kind() == ErrorKind::Io && format!("{e}").contains("write or sync of the device failed");
        assert!(e.kind() == ErrorKind::Poisoned || by_volume, "{what}: {e}");
    };
    is_refused("a put", db.put(&key(life.now.keys), b"never"));
    let Some(other) = db.column_family("other") else { return };
    let Ok(log) = logs.open_log("log") else { return };
    let lsn = life.now.log.last + 2;
    is_refused("an append", log.append(lsn, b"never", Durability::Durable));
    let both = changes(&other, life.now.keys);
    is_refused("a batch of both", write_both(db, &both, &log, lsn, b"never", Durability::Durable));
}
