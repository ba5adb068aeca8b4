//! A complete job queue on the public API: priorities, leases, delayed retries, dead letters.
//!
//! ```text
//! cargo run --example queue [JOBS]
//! ```
//!
//! # Data layout
//!
//! | family | key | value |
//! |---|---|---|
//! | `jobs` | id | attempts, priority, payload |
//! | `ready` | 255 - priority, id | |
//! | `later` | due time, id | |
//! | `leased` | lease end, id | worker |
//! | `dead` | id | last error |
//!
//! A job is in `jobs` until it is done, and in exactly one other family. Every step moves it by one
//! batch, so a crash leaves the state before or after the step. Numbers in keys are big-endian: the
//! first key of `ready` is the oldest job of the highest priority, and the first of `leased` is the
//! lease that ends first.
//!
//! # Crash consistency
//!
//! The effects of [`Queue::enqueue`], [`Queue::done`] and [`Queue::failed`] survive a loss of power
//! once the call has returned. A claim is buffered, which is faster: if it is lost, another worker
//! gets the job, as at the end of a lease. So a job runs at least once, and never again after
//! `done` has returned.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a program on the machine")]

use lavastore::{Db, Family, Result, WriteBatch, WriteOptions};
use std::sync::{Mutex, PoisonError};

/// Retry policy for failed jobs.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Duration of a lease in milliseconds.
    pub lease_ms: u64,
    /// Maximum number of attempts.
    pub attempts_max: u32,
    /// Delay before the second attempt in milliseconds; it doubles with each further attempt.
    pub retry_ms: u64,
}

/// A job leased to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Number of the job, in order of arrival.
    pub id: u64,
    /// Number of this attempt, from 1.
    pub attempt: u32,
    /// Work description.
    pub payload: Vec<u8>,
    priority: u8,
    until_ms: u64,
}

/// Number of jobs in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Jobs that can be claimed.
    pub ready: usize,
    /// Jobs that wait for their next attempt.
    pub later: usize,
    /// Jobs leased to a worker.
    pub leased: usize,
    /// Jobs that failed too often.
    pub dead: usize,
}

/// The queue. One process opens it; its threads share it.
pub struct Queue {
    db: Db,
    jobs: Family,
    ready: Family,
    later: Family,
    leased: Family,
    dead: Family,
    policy: Policy,
    /// The next id. Locked during every state change, so that no other thread claims the job.
    next_id: Mutex<u64>,
}

impl Queue {
    /// Opens the queue in a store, which may have other families.
    pub fn open(db: Db, policy: Policy) -> Result<Queue> {
        let jobs = db.family("jobs")?;
        let dead = db.family("dead")?;
        // Ids always ascend: the id of a finished job is not reused while a later id is known.
        let last = jobs.iter().keys().next_back().transpose()?.map_or(0, |key| number(&key));
        let last_dead = dead.iter().keys().next_back().transpose()?.map_or(0, |key| number(&key));
        let last_given = db.get("last id")?.map_or(0, |value| number(&value));
        Ok(Queue {
            ready: db.family("ready")?,
            later: db.family("later")?,
            leased: db.family("leased")?,
            next_id: Mutex::new(1 + last.max(last_dead).max(last_given)),
            db,
            jobs,
            dead,
            policy,
        })
    }

    /// Adds a job; 255 is the highest priority. The job is durable on return.
    pub fn enqueue(&self, priority: u8, payload: impl AsRef<[u8]>) -> Result<u64> {
        let id = {
            let mut next_id = self.lock();
            *next_id += 1;
            *next_id - 1
        };
        let mut batch = WriteBatch::new();
        batch.put("last id", id.to_be_bytes());
        batch.family(&self.jobs).put(id.to_be_bytes(), record(0, priority, payload.as_ref()));
        batch.family(&self.ready).put(ready_key(priority, id), "");
        self.db.writing(&WriteOptions::durable()).write(&batch)?;
        Ok(id)
    }

    /// Leases the oldest job of the highest priority to a worker.
    pub fn claim(&self, worker: &str, now_ms: u64) -> Result<Option<Claim>> {
        let _alone = self.lock();
        self.wake(now_ms)?;
        let Some(key) = self.ready.iter().keys().next().transpose()? else { return Ok(None) };
        let id = number(&key[1..]);
        let Some(claim) = self.job(id, now_ms + self.policy.lease_ms)? else {
            self.ready.delete(&key)?;
            return Ok(None);
        };
        let mut batch = WriteBatch::new();
        batch.family(&self.jobs).put(id.to_be_bytes(), record(claim.attempt, claim.priority, &claim.payload));
        batch.family(&self.ready).delete(&key);
        batch.family(&self.leased).put(timed_key(claim.until_ms, id), worker);
        self.db.write(&batch)?;
        Ok(Some(claim))
    }

    /// Marks a job as done. Returns false if its lease has ended: another worker may have it.
    pub fn done(&self, claim: &Claim) -> Result<bool> {
        let _alone = self.lock();
        if !self.holds(claim)? {
            return Ok(false);
        }
        let mut batch = WriteBatch::new();
        batch.family(&self.jobs).delete(claim.id.to_be_bytes());
        batch.family(&self.leased).delete(timed_key(claim.until_ms, claim.id));
        self.db.writing(&WriteOptions::durable()).write(&batch)?;
        Ok(true)
    }

    /// Marks an attempt as failed: the job is retried later or becomes dead. Returns false if its
    /// lease has ended.
    pub fn failed(&self, claim: &Claim, why: &str, now_ms: u64) -> Result<bool> {
        let _alone = self.lock();
        if !self.holds(claim)? {
            return Ok(false);
        }
        let mut batch = WriteBatch::new();
        self.give_back(&mut batch, claim, why, now_ms);
        self.db.writing(&WriteOptions::durable()).write(&batch)?;
        Ok(true)
    }

    /// Revives a dead job with a new attempt count.
    pub fn revive(&self, id: u64) -> Result<bool> {
        let _alone = self.lock();
        let (Some(_), Some(claim)) = (self.dead.get(id.to_be_bytes())?, self.job(id, 0)?) else {
            return Ok(false);
        };
        let mut batch = WriteBatch::new();
        batch.family(&self.dead).delete(id.to_be_bytes());
        batch.family(&self.jobs).put(id.to_be_bytes(), record(0, claim.priority, &claim.payload));
        batch.family(&self.ready).put(ready_key(claim.priority, id), "");
        self.db.writing(&WriteOptions::durable()).write(&batch)?;
        Ok(true)
    }

    /// Returns the dead jobs with their last errors.
    pub fn dead_letters(&self) -> impl Iterator<Item = Result<(u64, String)>> {
        let text = |why: Vec<u8>| String::from_utf8_lossy(&why).into_owned();
        self.dead.iter().map(move |entry| entry.map(|(key, why)| (number(&key), text(why))))
    }

    /// Counts the jobs in each state as of one moment.
    pub fn counts(&self) -> Result<Counts> {
        let now = self.db.snapshot();
        let count = |family| now.family(family).iter().keys().try_fold(0, |n, key| key.map(|_| n + 1));
        Ok(Counts {
            ready: count(&self.ready)?,
            later: count(&self.later)?,
            leased: count(&self.leased)?,
            dead: count(&self.dead)?,
        })
    }

    /// Closes the store.
    pub fn close(self) -> Result<()> {
        let Queue { db, jobs, ready, later, leased, dead, .. } = self;
        drop((jobs, ready, later, leased, dead));
        db.close()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, u64> {
        self.next_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn holds(&self, claim: &Claim) -> Result<bool> {
        Ok(self.leased.get(timed_key(claim.until_ms, claim.id))?.is_some())
    }

    /// Returns the claim that the next worker gets.
    fn job(&self, id: u64, until_ms: u64) -> Result<Option<Claim>> {
        let Some(stored) = self.jobs.get(id.to_be_bytes())? else { return Ok(None) };
        let (attempts, priority, payload) = parse(&stored);
        Ok(Some(Claim { id, attempt: attempts + 1, payload: payload.to_vec(), priority, until_ms }))
    }

    /// Moves due jobs to `ready`, and fails jobs whose lease has ended.
    fn wake(&self, now_ms: u64) -> Result<()> {
        let mut batch = WriteBatch::new();
        let due = now_ms.saturating_add(1).to_be_bytes();
        for key in self.later.range(..due).keys() {
            let key = key?;
            let id = number(&key[8..]);
            if let Some(job) = self.job(id, 0)? {
                batch.family(&self.ready).put(ready_key(job.priority, id), "");
            }
            batch.family(&self.later).delete(&key);
        }
        for key in self.leased.range(..due).keys() {
            let key = key?;
            if let Some(job) = self.job(number(&key[8..]), number(&key[..8]))? {
                let lost = Claim { attempt: job.attempt - 1, ..job };
                self.give_back(&mut batch, &lost, "its lease ended", now_ms);
            } else {
                batch.family(&self.leased).delete(&key);
            }
        }
        if batch.is_empty() { Ok(()) } else { self.db.write(&batch) }
    }

    fn give_back(&self, batch: &mut WriteBatch, claim: &Claim, why: &str, now_ms: u64) {
        let id = claim.id.to_be_bytes();
        batch.family(&self.leased).delete(timed_key(claim.until_ms, claim.id));
        if claim.attempt >= self.policy.attempts_max {
            batch.family(&self.dead).put(id, why);
            return;
        }
        let wait_ms = self.policy.retry_ms << (claim.attempt - 1).min(20);
        batch.family(&self.later).put(timed_key(now_ms + wait_ms, claim.id), "");
    }
}

fn ready_key(priority: u8, id: u64) -> Vec<u8> {
    [&[255 - priority][..], &id.to_be_bytes()].concat()
}

fn timed_key(ms: u64, id: u64) -> Vec<u8> {
    [ms.to_be_bytes(), id.to_be_bytes()].concat()
}

fn record(attempts: u32, priority: u8, payload: &[u8]) -> Vec<u8> {
    [&attempts.to_be_bytes()[..], &[priority], payload].concat()
}

/// Splits a stored job into attempts, priority and payload.
fn parse(record: &[u8]) -> (u32, u8, &[u8]) {
    match record {
        [a, b, c, d, priority, payload @ ..] => (u32::from_be_bytes([*a, *b, *c, *d]), *priority, payload),
        _ => (0, 0, record),
    }
}

/// Decodes the leading number of a key.
fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |n| u64::from_be_bytes(*n))
}

#[allow(dead_code, reason = "the test of this example has a main of its own")]
fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let jobs: u64 = std::env::args().nth(1).map_or(Ok(5000), |n| n.parse())?;
    let dir = std::env::temp_dir().join(format!("lavastore-queue-{}", std::process::id()));
    let policy = Policy { lease_ms: 30_000, attempts_max: 3, retry_ms: 5 };
    let queue = Queue::open(Db::open(&dir)?, policy)?;
    let begun = std::time::Instant::now();
    let now_ms = || begun.elapsed().as_millis() as u64;
    let workers = 4;
    let done = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        let mut threads: Vec<std::thread::ScopedJoinHandle<'_, Result<()>>> = Vec::new();
        for producer in 0..2 {
            let queue = &queue;
            threads.push(scope.spawn(move || {
                (producer..jobs)
                    .step_by(2)
                    .try_for_each(|job| queue.enqueue((job % 10) as u8, format!("job {job}")).map(drop))
            }));
        }
        for worker in 0..workers {
            let (queue, done) = (&queue, &done);
            threads.push(scope.spawn(move || {
                // Each 50th job fails at its first attempt, each 500th always.
                loop {
                    let Some(claim) = queue.claim(&format!("worker {worker}"), now_ms())? else {
                        let counts = queue.counts()?;
                        let dead = counts.dead as u64;
                        if done.load(std::sync::atomic::Ordering::Acquire) + dead == jobs {
                            return Ok(());
                        }
                        std::thread::sleep(std::time::Duration::from_millis(2));
                        continue;
                    };
                    if claim.id % 500 == 0 || (claim.id % 50 == 0 && claim.attempt == 1) {
                        queue.failed(&claim, "no luck", now_ms())?;
                    } else if queue.done(&claim)? {
                        done.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
                    }
                }
            }));
        }
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let dead = queue.dead_letters().collect::<Result<Vec<_>>>()?;
    println!("{} jobs done, {} given up, in {seconds:.2} s", done.into_inner(), dead.len());
    queue.close()?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
