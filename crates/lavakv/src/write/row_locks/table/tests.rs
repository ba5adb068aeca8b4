use super::*;
use LockMode::{Exclusive, Shared};
use io::Rng;

const HELD: Answer = Answer::Held { is_new: true };
const FAMILY: FamilyId = 3;

/// Requests a lock of the row `k`.
fn request(table: &mut LockTable, id: OwnerId, mode: LockMode, now_ns: u64) -> Answer {
    table.request((id, mode), FAMILY, b"k", now_ns).unwrap()
}

fn waits(answer: Answer) -> bool {
    matches!(answer, Answer::Waits(_))
}

#[test]
fn shared_locks_go_together_and_an_exclusive_one_is_alone() {
    let mut table = LockTable::default();
    let [a, b, c] = [0; 3].map(|_| table.add_owner(u64::MAX));
    assert_eq!(request(&mut table, a, Shared, 0), HELD);
    assert_eq!(request(&mut table, b, Shared, 0), HELD);
    assert!(waits(request(&mut table, c, Exclusive, 0)));
    table.remove_owner(a);
    assert!(waits(request(&mut table, c, Exclusive, 0)));
    table.remove_owner(b);
    assert_eq!(request(&mut table, c, Exclusive, 0), HELD);
    assert_eq!(request(&mut table, c, Shared, 0), Answer::Held { is_new: false });
    assert!(table.is_locked(FAMILY, b"k", None, 0) && !table.is_locked(FAMILY, b"k", Some(c), 0));
}

#[test]
fn a_shared_request_does_not_pass_a_waiting_exclusive_one() {
    let mut table = LockTable::default();
    let [a, b, c] = [0; 3].map(|_| table.add_owner(u64::MAX));
    assert_eq!(request(&mut table, a, Shared, 0), HELD);
    assert!(waits(request(&mut table, b, Exclusive, 0)));
    assert!(waits(request(&mut table, c, Shared, 0)));
    table.remove_owner(a);
    assert!(waits(request(&mut table, c, Shared, 0)), "it is behind the other");
    assert_eq!(request(&mut table, b, Exclusive, 0), HELD);
}

#[test]
fn a_holder_becomes_exclusive_before_all_waiting_owners() {
    let mut table = LockTable::default();
    let [a, b, c] = [0; 3].map(|_| table.add_owner(u64::MAX));
    assert_eq!(request(&mut table, a, Shared, 0), HELD);
    assert_eq!(request(&mut table, b, Shared, 0), HELD);
    assert!(waits(request(&mut table, c, Exclusive, 0)));
    assert!(waits(request(&mut table, a, Exclusive, 0)));
    assert_eq!(request(&mut table, b, Exclusive, 0), Answer::Deadlock, "each waits for the other");
    table.remove_owner(b);
    assert!(waits(request(&mut table, c, Exclusive, 0)));
    assert_eq!(request(&mut table, a, Exclusive, 0), HELD, "it had waited: others may have written");
    assert_eq!(request(&mut table, a, Exclusive, 0), Answer::Held { is_new: false });
}

#[test]
fn a_release_grants_the_row_to_all_waiting_readers_at_once() {
    let mut table = LockTable::default();
    let [a, b, c] = [0; 3].map(|_| table.add_owner(u64::MAX));
    assert_eq!(request(&mut table, a, Exclusive, 0), HELD);
    assert_eq!(table.request((c, Exclusive), FAMILY, b"other", 0).unwrap(), HELD);
    assert!(waits(request(&mut table, b, Shared, 0)) && waits(request(&mut table, c, Shared, 0)));
    table.remove_owner(a);
    assert_eq!(table.granted(), 2);
    assert_eq!(request(&mut table, b, Shared, 0), HELD);
    // No deadlock: the owner of the other row waits for nothing, though it does not know yet.
    assert!(waits(table.request((b, Shared), FAMILY, b"other", 0).unwrap()));
    assert_eq!(request(&mut table, c, Shared, 0), HELD);
}

#[test]
fn locks_of_expired_owners_make_room() {
    let mut table = LockTable::default();
    let [a, b] = [10, u64::MAX].map(|expires_ns| table.add_owner(expires_ns));
    assert_eq!(request(&mut table, a, Exclusive, 0), HELD);
    table.bytes += BYTES_MAX - LOCK_BYTES - 1;
    assert_eq!(table.request((b, Shared), FAMILY, b"z", 9).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(table.request((b, Shared), FAMILY, b"z", 10).unwrap(), HELD);
}

#[test]
fn a_circle_of_three_owners_is_a_deadlock() {
    let mut table = LockTable::default();
    let owners = [0; 3].map(|_| table.add_owner(u64::MAX));
    let mut ask =
        |n: usize, key: usize| table.request((owners[n], Exclusive), FAMILY, &[key as u8], 0).unwrap();
    (0..3).for_each(|n| assert_eq!(ask(n, n), HELD));
    assert!(waits(ask(0, 1)) && waits(ask(1, 2)));
    assert_eq!(ask(2, 0), Answer::Deadlock);
    assert_eq!(ask(2, 5), HELD, "it is in no queue, and can go on");
}

#[test]
fn an_expired_owner_holds_nobody_up_and_cannot_go_on() {
    let mut table = LockTable::default();
    let [a, b] = [100, u64::MAX].map(|expires_ns| table.add_owner(expires_ns));
    assert_eq!(request(&mut table, a, Exclusive, 99), HELD);
    assert_eq!(request(&mut table, b, Exclusive, 99), Answer::Waits(100));
    assert!(table.is_locked(FAMILY, b"k", None, 99) && !table.is_locked(FAMILY, b"k", None, 100));
    assert!(table.is_any_locked(FAMILY, (b"a", b"z"), 99) && !table.is_any_locked(FAMILY, (b"a", b"z"), 100));
    assert_eq!(request(&mut table, b, Exclusive, 100), HELD);
    assert_eq!(table.check_owner(a, 100).unwrap_err().kind(), ErrorKind::Conflict);
    table.remove_owner(b);
    // Also after all locks are gone, and if the clock went back.
    assert_eq!(table.check_owner(a, 50).unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn locks_of_other_families_and_outside_a_range_are_no_obstacle() {
    let mut table = LockTable::default();
    let a = table.add_owner(u64::MAX);
    assert_eq!(request(&mut table, a, Exclusive, 0), HELD);
    assert!(!table.is_locked(FAMILY + 1, b"k", None, 0));
    for (range, is_locked) in [
        ((&b"a"[..], &b"k"[..]), false),
        ((b"k", b"k\0"), true),
        ((b"l", b"z"), false),
        ((b"z", b"a"), false),
    ] {
        assert_eq!(table.is_any_locked(FAMILY, range, 0), is_locked, "{range:?}");
    }
}

#[test]
fn a_full_table_refuses_locks_and_keeps_those_it_has() {
    let mut table = LockTable::default();
    let a = table.add_owner(u64::MAX);
    assert_eq!(request(&mut table, a, Shared, 0), HELD);
    table.bytes += BYTES_MAX - LOCK_BYTES - 1;
    let refused = table.request((a, Shared), FAMILY, b"other", 0).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy);
    assert_eq!(request(&mut table, a, Exclusive, 0), Answer::Held { is_new: false });
}

/// Random requests and ends: holders never contradict each other, nobody waits in a circle, each
/// queue moves when its row is free, and nothing is left at the end.
#[test]
fn random_owners_leave_no_circle_and_nothing_behind() {
    let mut deadlocks = 0;
    for seed in 0..300 {
        let (mut rng, mut table) = (Rng::new(seed), LockTable::default());
        let mut owners: Vec<OwnerId> = (0..5).map(|_| table.add_owner(u64::MAX)).collect();
        for _ in 0..300 {
            let nth = rng.below(5) as usize;
            if rng.one_in(8) {
                table.remove_owner(owners[nth]);
                owners[nth] = table.add_owner(u64::MAX);
                continue;
            }
            let mode = if rng.one_in(2) { Shared } else { Exclusive };
            let key = match &table.owners[&owners[nth]].waits_for {
                Some((_, key)) => key.to_vec(),
                None => vec![rng.below(4) as u8],
            };
            deadlocks +=
                u64::from(table.request((owners[nth], mode), FAMILY, &key, 0).unwrap() == Answer::Deadlock);
            check(&table);
        }
        for owner in owners {
            table.remove_owner(owner);
        }
        assert!(table.rows.is_empty() && table.owners.is_empty(), "seed {seed}");
        assert_eq!((table.held, table.bytes), (0, 0), "seed {seed}");
    }
    assert!(deadlocks > 500, "{deadlocks}");
}

fn check(table: &LockTable) {
    for row in table.rows.values().flat_map(BTreeMap::values) {
        assert!(row.holders.len() <= 1 || !row.is_exclusive);
        assert!(!row.holders.is_empty() || !row.queue.is_empty());
    }
    assert!(table.owners.keys().all(|owner| !table.waits_for_itself(*owner)));
    let held: usize = table.owners.values().map(|owner| owner.locks.len()).sum();
    assert_eq!(held, table.held);
}
