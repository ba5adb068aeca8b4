//! The session store of `examples/sessions.rs` keeps its index unique and its counters right, also
//! after crashes.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the example is a program of its own"
)]

#[path = "../../examples/sessions.rs"]
mod sessions;

use io::Rng;
use lavastore::Db;
use lavastore::testing::{CrashKind, SimEnv};
use sessions::Sessions;
use std::collections::BTreeMap;

const USERS: [&str; 4] = ["ada", "ben", "cleo", "dan"];

/// The time of the machine, seconds since 1970.
fn now(sim: &SimEnv) -> u64 {
    sim.env().clock.unix_seconds()
}

fn open(sim: &SimEnv) -> Sessions {
    Sessions::open(Db::open_in(&sim.env(), "/sessions", &Sessions::options()).unwrap()).unwrap()
}

#[test]
fn a_user_has_one_session_until_it_ends() {
    let sim = SimEnv::new(1);
    let (sessions, now) = (open(&sim), now(&sim));
    assert!(sessions.log_in("ada", "1", (now, 60)).unwrap());
    assert!(!sessions.log_in("ada", "2", (now + 59, 60)).unwrap());
    assert_eq!(sessions.user_of("1", now + 59).unwrap().as_deref(), Some("ada"));
    assert_eq!(sessions.user_of("1", now + 60).unwrap(), None, "ended");
    assert!(sessions.log_in("ada", "2", (now + 60, 60)).unwrap());
    assert!(sessions.log_out("2", now + 61).unwrap() && !sessions.log_out("2", now + 61).unwrap());
    assert!(sessions.log_in("ada", "3", (now + 61, 60)).unwrap());
    assert_eq!(sessions.logins("ada").unwrap(), 3);
    // The machine is an hour later: compactions remove ended sessions.
    sim.advance_ns(3_600_000_000_000);
    assert!(sessions.log_in("ben", "4", (now + 3600, 600)).unwrap());
    sessions.clean_up().unwrap();
    assert_eq!(sessions.session_of("ben", now + 3600).unwrap().as_deref(), Some("4"));
    assert_eq!(sessions.session_of("ada", now + 62).unwrap(), None, "removed");
}

#[test]
fn twenty_crashes_lose_no_login_and_leave_the_index_unique() {
    let (mut rng, mut sim) = (Rng::new(3), SimEnv::new(3));
    let (mut logins, mut living) = (BTreeMap::<&str, i64>::new(), BTreeMap::<&str, (String, u64)>::new());
    let mut number = 0;
    for round in 0..20 {
        let sessions = open(&sim);
        for user in USERS {
            assert_eq!(sessions.logins(user).unwrap(), logins.get(user).copied().unwrap_or(0), "{round}");
            let expected = living.get(user).filter(|(_, end)| *end > now(&sim)).map(|(id, _)| id.clone());
            assert_eq!(sessions.session_of(user, now(&sim)).unwrap(), expected, "{round}");
            if let Some(id) = expected {
                assert_eq!(sessions.user_of(&id, now(&sim)).unwrap().as_deref(), Some(user));
            }
        }
        for _ in 0..rng.below(20) {
            let (user, at, seconds) = (USERS[rng.below(4) as usize], now(&sim), rng.range(1, 30));
            number += 1;
            let has_one = living.get(user).is_some_and(|(_, end)| *end > at);
            match rng.below(4) {
                0 if has_one => {
                    assert!(sessions.log_out(&living[user].0, at).unwrap());
                    living.remove(user);
                }
                1 => sessions.clean_up().unwrap(),
                _ => {
                    let begins = sessions.log_in(user, &number.to_string(), (at, seconds)).unwrap();
                    assert_eq!(begins, !has_one);
                    if begins {
                        living.insert(user, (number.to_string(), at + seconds));
                        *logins.entry(user).or_default() += 1;
                    }
                }
            }
            sim.advance_ns(1_000_000_000 * rng.below(5));
        }
        let kind = if rng.one_in(2) { CrashKind::PowerLoss } else { CrashKind::ProcessKill };
        sim = sim.crash(kind, rng.next_u64());
    }
    assert!(logins.values().sum::<i64>() > 50, "{logins:?}");
}

/// A crash at any operation of logins leaves each of them whole or not there.
#[test]
fn a_crash_cuts_no_login() {
    let sim = SimEnv::new(5);
    let (sessions, at) = (open(&sim), now(&sim));
    let (begun, mut ends) = (sim.op_count(), Vec::new());
    for (nth, user) in USERS.into_iter().enumerate() {
        assert!(sessions.log_in(user, &nth.to_string(), (at, 3600)).unwrap());
        ends.push(sim.op_count());
    }
    let (record, mut cut) = (sim.record(), 0);
    for op in record.mutations().into_iter().filter(|op| *op >= begun) {
        let sessions = open(&record.crash_before(op, CrashKind::PowerLoss, op));
        for (nth, user) in USERS.into_iter().enumerate() {
            let (session, id) = (sessions.session_of(user, at).unwrap(), nth.to_string());
            let is_there = session.is_some();
            assert!(is_there || ends[nth] > op, "operation {op}: {user} is lost");
            assert_eq!(sessions.logins(user).unwrap(), i64::from(is_there), "operation {op}");
            let user_of = sessions.user_of(&id, at).unwrap();
            assert_eq!(user_of.as_deref(), is_there.then_some(user), "operation {op}");
            cut += u32::from(!is_there);
        }
    }
    assert!(cut > 0);
}
