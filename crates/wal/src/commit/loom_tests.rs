//! Every interleaving of a few threads that share the commit of the log, up to a bound on
//! preemptions. A request for a durable page returns, and with the right result. Loom reports a
//! thread that waits forever as a failure.
//!
//! There is no device: a page is written when the holder of the token says so. The use of the token
//! in [`crate::wal`] is reproduced in small (`sync`, `write_out`, `confirm`). A counter stands for
//! the tail and numbers the pages.

use super::*;
use base::completion;
use base::sync::model::check;
use base::sync::model::loom::thread;
use std::sync::Arc;

/// A log without pages, only with the number of the next one.
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
                // The next round may wait for a commit group.
                token.took(Took { ns: 100, until_ns: 100 });
                token.finish(Ok(()))?;
            }
        }
        assert!(self.commit.frontier.durable_end() > lpn, "acknowledged before it is durable");
        Ok(())
    }

    /// Takes the token for other work than a sync that makes all pages durable: the write-out of a
    /// log without syncs (`covers`: false), or the watermark of an idle log.
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

/// Two syncs arrive during a write-out of their pages: neither is left behind.
#[test]
fn loom_write_out_loses_no_waiter() {
    for covers in [false, true] {
        check(3, move || {
            let log = Log::with_pages(2, 2);
            let syncs: Vec<_> = (0..2).map(|lpn| spawn(&log, move |log| log.sync(lpn))).collect();
            log.write_out(covers).unwrap();
            syncs.into_iter().for_each(|sync| sync.join().unwrap().unwrap());
        });
    }
}

/// Three threads append a page each and sync it, as leader or follower.
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

/// The first failure reaches all present and later waiters, whether the writer or another thread
/// met it.
#[test]
fn loom_a_failure_reaches_every_waiter() {
    check(3, || {
        let log = Log::with_pages(2, 0);
        let syncs: Vec<_> = (0..2).map(|lpn| spawn(&log, move |log| log.sync(lpn))).collect();
        // A round that made nothing durable and woke a waiter to lead; then an appending thread
        // panics.
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

/// An append that waits for a slot of the tail buffer continues after a write by another thread, or
/// writes itself.
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

/// Asynchronous waiters are resolved by any round that makes their page durable: the round of a
/// blocked waiter, or one led for their pages.
#[test]
fn loom_async_waiters_are_resolved() {
    check(3, || {
        let log = Log::with_pages(1, 0);
        let other = spawn(&log, |log| log.sync(0));
        let lpn = log.append();
        let (completer, mut waiting) = completion::pending();
        let is_first = log.commit.when_durable(lpn, completer);
        assert!(is_first || log.commit.frontier.durable_end() > lpn);
        // An asynchronous waiter for another page; it may find this one durable, and is then
        // responsible for its waiter.
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

/// A failure reaches asynchronous waiters, too.
#[test]
fn loom_a_failure_reaches_async_waiters() {
    check(3, || {
        let log = Log::with_pages(1, 0);
        let failing = spawn(&log, |log| log.commit.fail(Error::new(ErrorKind::Io, "x")));
        let (completer, mut waiting) = completion::pending();
        log.commit.when_durable(0, completer);
        let synced = log.sync(0);
        failing.join().unwrap();
        // After a failure the state is unknown; the page may be durable all the same.
        let told = waiting.take().expect("a round or the failure has told");
        assert!(told.is_err() || log.commit.frontier.durable_end() > 0);
        assert!(synced.is_ok() || log.commit.check().is_err());
    });
}

/// Asynchronous waiters that are refused during a round are resolved once, by the round or by the
/// refusal.
#[test]
fn loom_refused_async_waiters_are_resolved_once() {
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

/// A log with concurrent rounds. `written`: pages on the device.
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

    /// `Syncer::sync`; `outcome`: result of a write.
    fn sync(&self, lpn: u64, outcome: &dyn Fn() -> Result<()>) -> Result<()> {
        while let Turn::Lead(token) = self.log.commit.lead_or_wait(lpn)? {
            let end = self.log.next_lpn.load(Ordering::Acquire);
            token.covers(end);
            let start = token.taken_end();
            assert!(start <= lpn && lpn < end, "pages are taken once");
            let flight = token.release_token_for_write(end, 1);
            let outcome = outcome();
            if outcome.is_ok() {
                (start..end).for_each(|lpn| self.written[lpn as usize].store(1, Ordering::Release));
            }
            flight.complete(outcome, Took { ns: 100, until_ns: 100 })?;
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

/// Concurrent rounds that end in any order: the acknowledged pages are a prefix, and no waiter is
/// forgotten.
#[test]
fn loom_concurrent_writes_complete_in_order() {
    check(3, || {
        let log = Beside::with_pages(0);
        three_append(&log);
    });
}

/// The number of allowed rounds changes when a round ends, from two to one. No waiter is forgotten
/// when there are fewer, and the acknowledged pages are a prefix.
#[test]
fn loom_logger_concurrency_changes() {
    check(3, || {
        let log = Beside::with_loggers(0, Loggers { writes_max: 0, threads_min: 0 });
        log.log.commit.lock().flights.tries();
        three_append(&log);
    });
}

/// Other work with the token waits until nothing is in flight, and is not starved.
#[test]
fn loom_other_work_waits_for_writes_in_flight() {
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

/// A round that needs more than one write waits for those in flight.
#[test]
fn loom_a_leader_waits_for_writes_in_flight() {
    check(3, || {
        let log = Beside::with_pages(0);
        let other = log.clone();
        let other = thread::spawn(move || other.append_and_sync());
        let lpn = log.log.append();
        if let Turn::Lead(token) = log.log.commit.lead_or_wait(lpn).unwrap() {
            let end = log.log.next_lpn.load(Ordering::Acquire);
            token.covers(end);
            let token = token.wait_for_in_flight().unwrap();
            let start = token.taken_end();
            (start..end).for_each(|lpn| log.written[lpn as usize].store(1, Ordering::Release));
            log.log.make_durable(&token, end);
            token.finish(Ok(())).unwrap();
        }
        assert!(log.log.commit.frontier.durable_end() > lpn);
        other.join().unwrap().unwrap();
    });
}

/// A round in flight fails: nothing after it is acknowledged, and every waiter gets the error.
#[test]
fn loom_a_failed_write_in_flight_reaches_every_waiter() {
    check(3, || {
        let log = Beside::with_pages(0);
        let others = [0, 1].map(|_| {
            let log = log.clone();
            thread::spawn(move || log.append_and_sync())
        });
        let lpn = log.log.append();
        let synced = log.sync(lpn, &|| Err(Error::new(ErrorKind::Io, "x")));
        // As at the close of a store: waits for the rounds in flight, and for nothing else.
        let closed = log.log.commit.acquire().map(|token| token.finish(Ok(())));
        let others = others.map(|other| other.join().unwrap());
        assert_eq!(closed.is_err(), synced.is_err());
        match synced {
            // Another thread wrote the page.
            Ok(()) => assert!(others.iter().all(|other| other.is_ok())),
            Err(_) => {
                assert!(log.log.commit.check().is_err() && log.log.commit.frontier.durable_end() <= lpn)
            }
        }
    });
}
