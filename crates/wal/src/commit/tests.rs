use super::rounds_in_flight::RoundInFlight;
use super::*;
use base::completion;

const TOOK: Took = Took { ns: 100, until_ns: 100 };

fn lead(commit: &Commit, lpn: u64) -> Token<'_> {
    match commit.lead_or_wait(lpn).unwrap() {
        Turn::Lead(token) => token,
        Turn::Durable => panic!("page {lpn} is not durable"),
    }
}

fn kind(outcome: Result<()>) -> ErrorKind {
    outcome.unwrap_err().kind()
}

#[test]
fn a_leader_advances_the_frontiers_for_all() {
    let commit = Commit::new(5, 10);
    let token = lead(&commit, 10);
    token.covers(12);
    token.written(12);
    token.durable(12);
    token.finish(Ok(())).unwrap();
    assert!(matches!(commit.lead_or_wait(11).unwrap(), Turn::Durable));
    assert_eq!(commit.frontier.durable_end(), 12);
    lead(&commit, 12).finish(Ok(())).unwrap();
}

/// A round acknowledges the pages before its end, and leaves the page at its end to the next round.
#[test]
fn a_round_acknowledges_no_page_at_its_end() {
    let commit = Commit::new(0, 0);
    let pending = |lpn| {
        let (completer, waiting) = completion::pending();
        commit.when_durable(lpn, completer);
        waiting
    };
    let (mut before, mut at) = (pending(1), pending(2));
    for (end, answers) in [(2, [true, false]), (3, [false, true])] {
        let token = lead(&commit, end - 1);
        token.covers(end);
        token.written(end);
        token.durable(end);
        token.finish(Ok(())).unwrap();
        let told = [before.take(), at.take()].map(|told| matches!(told, Some(Ok(()))));
        assert_eq!(told, answers, "durable up to {end}");
    }
}

#[test]
fn the_first_failure_is_kept() {
    let commit = Commit::new(0, 0);
    let outcome: Result<()> = lead(&commit, 1).finish(Err(Error::new(ErrorKind::Io, "the first")));
    assert_eq!(kind(outcome), ErrorKind::Io);
    commit.fail(Error::new(ErrorKind::Io, "another"));
    let error = commit.check().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    assert!(error.message().contains("the first"));
    assert_eq!(kind(commit.acquire().map(drop)), ErrorKind::Poisoned);
    assert_eq!(kind(commit.lead_or_wait(3).map(drop)), ErrorKind::Poisoned);
}

#[test]
fn a_panicking_leader_poisons_the_log() {
    let commit = Commit::new(0, 0);
    drop(lead(&commit, 1));
    assert_eq!(kind(commit.check()), ErrorKind::Poisoned);
}

/// A woken waiter that does not have the lock yet no longer counts. Otherwise the next round would
/// wake later waiters in vain.
#[test]
fn woken_waiters_no_longer_count_as_waiting() {
    let commit = Commit::new(0, 0);
    let token = lead(&commit, 3);
    commit.lock().sides[1].enter(3);
    token.covers(4);
    token.written(4);
    token.durable(4);
    token.finish(Ok(())).unwrap();
    let side = &mut commit.lock().sides[1];
    side.enter(9);
    assert_eq!((side.threads, side.lowest_lpn), (2, 9));
}

/// Threads that make pages durable, threads that only take the token, and a growing log: all
/// succeed, and a failure reaches the waiters.
#[test]
fn no_waiter_is_lost() {
    for fail_at in [u64::MAX, 300] {
        let commit = Commit::new(0, 0);
        let appended = AtomicU64::new(0);
        let rounds = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let (commit, appended, rounds) = (&commit, &appended, &rounds);
                scope.spawn(move || {
                    for _ in 0..400 {
                        if thread == 0 {
                            let Ok(token) = commit.acquire() else { return };
                            std::thread::yield_now();
                            token.finish(Ok(())).unwrap();
                            continue;
                        }
                        let lpn = appended.fetch_add(1, Ordering::SeqCst);
                        match commit.lead_or_wait(lpn) {
                            Ok(Turn::Durable) => assert!(commit.frontier.durable_end() > lpn),
                            Ok(Turn::Lead(token)) => {
                                let end = appended.load(Ordering::SeqCst);
                                token.covers(end);
                                std::thread::yield_now();
                                if rounds.fetch_add(1, Ordering::SeqCst) >= fail_at {
                                    let _ = token.finish::<()>(Err(Error::new(ErrorKind::Io, "x")));
                                    return;
                                }
                                token.written(end);
                                token.durable(end);
                                token.finish(Ok(())).unwrap();
                            }
                            Err(e) => {
                                assert_eq!(e.kind(), ErrorKind::Poisoned);
                                return;
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(commit.check().is_err(), rounds.load(Ordering::SeqCst) > fail_at);
    }
}

/// Other work with the token may make pages durable without an announcement: it wakes all waiters
/// for them, not only the one that would lead the next round.
#[test]
fn pages_made_durable_by_other_work_wake_all_waiters() {
    const WAITERS: usize = 4;
    let commit = Commit::new(0, 3);
    let (returned, clock) = (AtomicU64::new(0), io::Env::kernel().clock);
    std::thread::scope(|scope| {
        let token = commit.acquire().unwrap();
        for _ in 0..WAITERS {
            scope.spawn(|| {
                let durable = matches!(commit.lead_or_wait(2), Ok(Turn::Durable));
                returned.fetch_add(u64::from(durable), Ordering::SeqCst);
            });
        }
        while commit.lock().sides.iter().map(|side| side.threads).sum::<usize>() < WAITERS {
            std::thread::yield_now();
        }
        token.durable(3);
        token.finish(Ok(())).unwrap();
        let all = || returned.load(Ordering::SeqCst) == WAITERS as u64;
        // Only a failed test takes that long; the waiters are then released, so that the test ends.
        let patience = (0..2000).any(|_| {
            clock.sleep_ns(1_000_000);
            all()
        });
        commit.fail(Error::new(ErrorKind::Io, "the test ends"));
        assert!(
            patience,
            "{} of {WAITERS} syncs of a durable page came back",
            returned.load(Ordering::SeqCst)
        );
    });
}

/// A log whose rounds are concurrent whenever possible.
fn beside() -> Commit {
    Commit::new(0, 0).with_flights(Loggers { writes_max: 3, threads_min: 0 })
}

fn release_token_for_write(commit: &Commit, end: u64) -> RoundInFlight<'_> {
    let token = lead(commit, end - 1);
    token.covers(end);
    token.release_token_for_write(end, 1)
}

#[test]
fn a_write_that_completes_early_waits_for_earlier_ones() {
    let commit = beside();
    let flights = [2, 3, 5].map(|end| release_token_for_write(&commit, end));
    let (completer, mut waiting) = completion::pending();
    commit.when_durable(2, completer);
    let [first, second, third] = flights;
    third.complete(Ok(()), TOOK).unwrap();
    second.complete(Ok(()), TOOK).unwrap();
    assert_eq!((commit.frontier.durable_end(), commit.frontier.written_end()), (0, 0));
    assert!(waiting.take().is_none(), "behind a hole");
    first.complete(Ok(()), TOOK).unwrap();
    assert_eq!((commit.frontier.durable_end(), commit.frontier.written_end()), (5, 5));
    assert!(matches!(waiting.take(), Some(Ok(()))));
}

/// A failed log acknowledges nothing any more, even if it is durable.
#[test]
fn no_write_completes_after_a_failure() {
    let commit = beside();
    let [first, second] = [2, 3].map(|end| release_token_for_write(&commit, end));
    let (completer, mut waiting) = completion::pending();
    commit.when_durable(1, completer);
    assert_eq!(kind(second.complete(Err(Error::new(ErrorKind::Io, "the first")), TOOK)), ErrorKind::Io);
    assert_eq!(waiting.take().map(kind), Some(ErrorKind::Poisoned));
    first.complete(Ok(()), TOOK).unwrap();
    assert_eq!(commit.frontier.durable_end(), 0);
    assert_eq!(kind(commit.lead_or_wait(0).map(drop)), ErrorKind::Poisoned);
    assert_eq!(kind(commit.acquire().map(drop)), ErrorKind::Poisoned, "nothing is in flight to wait for");
}

/// A round that ended and waited for an older one is removed by a failure: no thread is left that
/// would remove it.
#[test]
fn a_failure_removes_completed_writes_that_wait() {
    for fails_in_flight in [true, false] {
        let commit = beside();
        let [first, second, third] = [2, 3, 5].map(|end| release_token_for_write(&commit, end));
        second.complete(Ok(()), TOOK).unwrap();
        let why = Error::new(ErrorKind::Io, "the first");
        if fails_in_flight {
            assert_eq!(kind(first.complete(Err(why), TOOK)), ErrorKind::Io);
            third.complete(Ok(()), TOOK).unwrap();
        } else {
            commit.fail(why);
            third.complete(Ok(()), TOOK).unwrap();
            assert!(!commit.lock().flights.is_empty(), "one is at the device still");
            first.complete(Ok(()), TOOK).unwrap();
        }
        assert!(commit.lock().flights.is_empty(), "or who takes the token waits for ever");
        assert_eq!(kind(commit.acquire().map(drop)), ErrorKind::Poisoned);
        assert_eq!(commit.frontier.durable_end(), 0);
    }
}

#[test]
fn a_panic_during_a_write_poisons_the_log() {
    let commit = beside();
    drop(release_token_for_write(&commit, 1));
    assert_eq!(kind(commit.check()), ErrorKind::Poisoned);
}

/// A round whose pages are already in flight has nothing to write, and pages are taken once.
#[test]
fn concurrent_writes_take_each_page_once() {
    let commit = beside();
    let first = release_token_for_write(&commit, 2);
    let token = lead(&commit, 2);
    assert_eq!(token.taken_end(), 2);
    token.covers(4);
    let second = token.release_token_for_write(4, 2);
    let of = |lpn| commit.lock().flights.of(lpn);
    let rounds = [0, 1, 2, 4].map(of);
    assert!(rounds[0] == rounds[1] && rounds[1] < rounds[2] && rounds[3].is_none(), "{rounds:?}");
    first.complete(Ok(()), TOOK).unwrap();
    second.complete(Ok(()), TOOK).unwrap();
    assert_eq!(lead(&commit, 4).taken_end(), 4);
}
