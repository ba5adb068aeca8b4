//! Every interleaving of a few threads that share the commit of the log, up to a bound on preemptions: whoever asks for a
//! durable page returns, and returns rightly. Loom takes a thread that waits for ever for a failure.
//!
//! The device is left out: a page is written when the holder of the token says so. What [`crate::wal`] does with the token
//! is repeated here in small (`sync`, `write_out`, `confirm`); pages are numbered by a counter that stands for the tail.

use super::*;
use base::completion;
use base::sync::model::check;
use base::sync::model::loom::thread;
use std::sync::Arc;

/// A log without pages: numbers of the next one.
struct Log {
    commit: Commit,
    next_lpn: AtomicU64,
}

impl Log {
    fn with_pages(pages: u64, written_end: u64) -> Arc<Log> {
        Arc::new(Log { commit: Commit::new(0, written_end), next_lpn: AtomicU64::new(pages) })
    }

    fn append(&self) -> u64 {
        self.next_lpn.fetch_add(1, Ordering::AcqRel)
    }

    /// `Syncer::sync`.
    fn sync(&self, lpn: u64) -> Result<()> {
        match self.commit.lead_or_wait(lpn)? {
            Turn::Durable => {}
            Turn::Lead(mut token) => {
                let end = self.next_lpn.load(Ordering::Acquire);
                token.covers(end);
                self.make_durable(&token, end);
                // The next round may be waited for.
                token.took(Took { ns: 100, until_ns: 100 });
                token.finish(Ok(()))?;
            }
        }
        assert!(self.commit.frontier.durable_end() > lpn, "acknowledged before it is durable");
        Ok(())
    }

    /// The token taken for something else than a sync, which makes all pages durable all the same: the write-out of a log
    /// that nobody syncs (`covers`: false), or the watermark of an idle one.
    fn write_out(&self, covers: bool) -> Result<()> {
        let token = self.commit.acquire()?;
        let end = self.next_lpn.load(Ordering::Acquire);
        if covers {
            token.covers(end);
        }
        self.make_durable(&token, end);
        token.finish(Ok(()))
    }

    fn make_durable(&self, token: &Token<'_>, end: u64) {
        if end > self.commit.frontier.written_end() {
            token.written(end);
        }
        token.durable(end.max(self.commit.frontier.durable_end()));
    }
}

fn spawn<T: 'static>(log: &Arc<Log>, body: impl FnOnce(&Log) -> T + 'static) -> thread::JoinHandle<T> {
    let log = log.clone();
    thread::spawn(move || body(&log))
}

/// Two syncs that come while somebody writes out what they wait for: neither is left behind.
#[test]
fn loom_write_out_forgets_nobody() {
    for covers in [false, true] {
        check(3, move || {
            let log = Log::with_pages(2, 2);
            let syncs: Vec<_> = (0..2).map(|lpn| spawn(&log, move |log| log.sync(lpn))).collect();
            log.write_out(covers).unwrap();
            syncs.into_iter().for_each(|sync| sync.join().unwrap().unwrap());
        });
    }
}

/// Three threads append a page each and sync it, leading or following.
#[test]
fn loom_every_sync_returns_durable() {
    check(3, || {
        let log = Log::with_pages(0, 0);
        let one = |log: &Log| log.sync(log.append());
        let others = [spawn(&log, one), spawn(&log, one)];
        one(&log).unwrap();
        others.into_iter().for_each(|sync| sync.join().unwrap().unwrap());
        assert_eq!(log.commit.frontier.durable_end(), 3);
    });
}

/// The first failure reaches all who wait and all who come later, whether the writer met it or somebody else.
#[test]
fn loom_a_failure_reaches_everybody() {
    check(3, || {
        let log = Log::with_pages(2, 0);
        let syncs: Vec<_> = (0..2).map(|lpn| spawn(&log, move |log| log.sync(lpn))).collect();
        // A round that made nothing durable and woke one of them to lead; then somebody who appends panics.
        log.commit.acquire().unwrap().finish(Ok(())).unwrap();
        log.commit.fail(Error::new(ErrorKind::Io, "x"));
        assert!(log.sync(5).is_err());
        syncs.into_iter().for_each(|sync| drop(sync.join().unwrap()));
    });
    check(3, || {
        let log = Log::with_pages(2, 0);
        let syncs: Vec<_> = (0..2).map(|lpn| spawn(&log, move |log| log.sync(lpn))).collect();
        let outcome =
            log.commit.acquire().map(|token| token.finish::<()>(Err(Error::new(ErrorKind::Io, "x"))));
        assert!(matches!(outcome, Ok(Err(_))));
        assert!(log.sync(5).is_err());
        syncs.into_iter().for_each(|sync| drop(sync.join().unwrap()));
    });
}

/// An append that waits for a slot of the ring goes on when somebody has written, or writes itself.
#[test]
fn loom_an_append_gets_its_slot() {
    check(3, || {
        let log = Log::with_pages(2, 0);
        let sync = spawn(&log, |log| log.sync(0));
        let enough = |frontier: &Frontier| frontier.written_end() >= 2;
        if let Some(token) = log.commit.acquire_unless(enough).unwrap()
            && !enough(&log.commit.frontier)
        {
            token.written(2);
            token.finish(Ok(())).unwrap();
        }
        assert!(log.commit.frontier.written_end() >= 2);
        sync.join().unwrap().unwrap();
    });
}

/// Those who wait without a thread are told, by whichever round makes their page durable: one that somebody leads for himself, or the
/// one that is made for their sake.
#[test]
fn loom_who_waits_without_a_thread_is_told() {
    check(3, || {
        let log = Log::with_pages(1, 0);
        let other = spawn(&log, |log| log.sync(0));
        let lpn = log.append();
        let (completer, mut waiting) = completion::pending();
        let is_first = log.commit.when_durable(lpn, completer);
        assert!(is_first || log.commit.frontier.durable_end() > lpn);
        // Who waits without a thread for another page; it may find this one durable, and then has to be told to somebody.
        let (completer, mut later) = completion::pending();
        let is_first = log.commit.when_durable(log.append(), completer);
        let mut looks = u64::from(is_first);
        while let Some(lpn) = log.commit.last_wanted() {
            log.sync(lpn).unwrap();
            looks += 1;
        }
        other.join().unwrap().unwrap();
        assert!(matches!(waiting.take(), Some(Ok(()))) && matches!(later.take(), Some(Ok(()))));
        assert!(log.commit.frontier.durable_end() == 3 && looks <= 3);
    });
}

/// A failure reaches those, too.
#[test]
fn loom_a_failure_reaches_who_waits_without_a_thread() {
    check(3, || {
        let log = Log::with_pages(1, 0);
        let failing = spawn(&log, |log| log.commit.fail(Error::new(ErrorKind::Io, "x")));
        let (completer, mut waiting) = completion::pending();
        log.commit.when_durable(0, completer);
        let synced = log.sync(0);
        failing.join().unwrap();
        // A failure says that nothing is known; a page may be durable all the same.
        let told = waiting.take().expect("a round or the failure has told");
        assert!(told.is_err() || log.commit.frontier.durable_end() > 0);
        assert!(synced.is_ok() || log.commit.check().is_err());
    });
}

/// Those who are refused while a round goes on are told once: by the round, or by who refuses them.
#[test]
fn loom_who_is_refused_is_told() {
    check(3, || {
        let log = Log::with_pages(1, 0);
        let refusing = spawn(&log, |log| log.commit.refuse_wanted(&Error::new(ErrorKind::Poisoned, "x")));
        let (completer, mut waiting) = completion::pending();
        log.commit.when_durable(0, completer);
        log.sync(0).unwrap();
        refusing.join().unwrap();
        assert!(waiting.take().is_some());
    });
}

/// A log whose rounds go to the device beside each other. `written`: what the device has.
struct Beside {
    log: Log,
    written: [AtomicU64; 4],
}

impl Beside {
    fn with_pages(pages: u64) -> Arc<Beside> {
        Beside::with_loggers(pages, Loggers { writes_max: 2, threads_min: 0 })
    }

    fn with_loggers(pages: u64, loggers: Loggers) -> Arc<Beside> {
        let commit = Commit::new(0, 0).with_flights(loggers);
        let log = Log { commit, next_lpn: AtomicU64::new(pages) };
        Arc::new(Beside { log, written: Default::default() })
    }

    /// `Syncer::sync`; `outcome`: what becomes of a write.
    fn sync(&self, lpn: u64, outcome: &dyn Fn() -> Result<()>) -> Result<()> {
        while let Turn::Lead(token) = self.log.commit.lead_or_wait(lpn)? {
            let end = self.log.next_lpn.load(Ordering::Acquire);
            token.covers(end);
            let start = token.taken_end();
            assert!(start <= lpn && lpn < end, "pages are taken once");
            let flight = token.takes_off(end, 1);
            let outcome = outcome();
            if outcome.is_ok() {
                (start..end).for_each(|lpn| self.written[lpn as usize].store(1, Ordering::Release));
            }
            flight.lands(outcome, Took { ns: 100, until_ns: 100 })?;
        }
        for lpn in 0..=lpn {
            assert_eq!(self.written[lpn as usize].load(Ordering::Acquire), 1, "acknowledged behind a hole");
        }
        Ok(())
    }

    fn append_and_sync(&self) -> Result<()> {
        self.sync(self.log.append(), &|| Ok(()))
    }
}

/// Three threads append a page each and make it durable.
fn three_append(log: &Arc<Beside>) {
    let others = [0, 1].map(|_| {
        let log = log.clone();
        thread::spawn(move || log.append_and_sync())
    });
    log.append_and_sync().unwrap();
    others.into_iter().for_each(|other| other.join().unwrap().unwrap());
    assert_eq!(log.log.commit.frontier.durable_end(), 3);
}

/// Rounds beside each other, that land in any order: what is acknowledged is a prefix, and nobody is forgotten.
#[test]
fn loom_flights_land_in_order() {
    check(3, || {
        let log = Beside::with_pages(0);
        three_append(&log);
    });
}

/// How many may be in flight changes when a round ends: two to begin with, then one. Nobody is forgotten when there are fewer, and what is
/// acknowledged is a prefix.
#[test]
fn loom_the_number_of_flights_changes() {
    check(3, || {
        let log = Beside::with_loggers(0, Loggers { writes_max: 0, threads_min: 0 });
        log.log.commit.lock().flights.tries();
        three_append(&log);
    });
}

/// Other work with the token waits until nothing is in flight, and is not starved.
#[test]
fn loom_other_work_waits_for_flights() {
    check(3, || {
        let log = Beside::with_pages(0);
        let others = [0, 1].map(|_| {
            let log = log.clone();
            thread::spawn(move || log.append_and_sync())
        });
        let token = log.log.commit.acquire().unwrap();
        assert_eq!(token.taken_end(), log.log.commit.frontier.durable_end(), "something is in flight");
        token.finish(Ok(())).unwrap();
        others.into_iter().for_each(|other| other.join().unwrap().unwrap());
    });
}

/// A round that needs more than a write waits for those that are in flight.
#[test]
fn loom_a_leader_settles() {
    check(3, || {
        let log = Beside::with_pages(0);
        let other = log.clone();
        let other = thread::spawn(move || other.append_and_sync());
        let lpn = log.log.append();
        if let Turn::Lead(token) = log.log.commit.lead_or_wait(lpn).unwrap() {
            let end = log.log.next_lpn.load(Ordering::Acquire);
            token.covers(end);
            let token = token.settles().unwrap();
            let start = token.taken_end();
            (start..end).for_each(|lpn| log.written[lpn as usize].store(1, Ordering::Release));
            log.log.make_durable(&token, end);
            token.finish(Ok(())).unwrap();
        }
        assert!(log.log.commit.frontier.durable_end() > lpn);
        other.join().unwrap().unwrap();
    });
}

/// A flight that fails: nothing after it is acknowledged, and everybody is told.
#[test]
fn loom_a_flight_that_fails_reaches_everybody() {
    check(3, || {
        let log = Beside::with_pages(0);
        let others = [0, 1].map(|_| {
            let log = log.clone();
            thread::spawn(move || log.append_and_sync())
        });
        let lpn = log.log.append();
        let synced = log.sync(lpn, &|| Err(Error::new(ErrorKind::Io, "x")));
        // As the end of the store does: it waits for what is at the device, and for nothing else.
        let closed = log.log.commit.acquire().map(|token| token.finish(Ok(())));
        let others = others.map(|other| other.join().unwrap());
        assert_eq!(closed.is_err(), synced.is_err());
        match synced {
            // Somebody else wrote it.
            Ok(()) => assert!(others.iter().all(|other| other.is_ok())),
            Err(_) => {
                assert!(log.log.commit.check().is_err() && log.log.commit.frontier.durable_end() <= lpn)
            }
        }
    });
}
