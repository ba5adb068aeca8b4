use super::*;
use crate::check::{GroupToCheck, LogCheck, LogFindings};
use crate::store_model::{Caller, dir, floors_of_all, path_of, store, uid_of};
use crate::{Durability, LoggedBatch};
use io::Access;

const SECOND_NS: u64 = 1_000_000_000;

fn append(caller: &mut Caller, len: usize) {
    caller.append(len, Durability::Buffered).unwrap();
}

/// Overwrites whose memtables are flushed before the ring is full write nothing but what is staged, however long that goes on.
#[test]
fn what_is_flushed_in_time_costs_no_write_of_the_log() {
    let mut caller = Caller::that_keeps_pages(1, 1);
    let mut groups = 0;
    for n in 1..400 {
        append(&mut caller, 900);
        if n % 20 == 0 {
            // The memtable before the one that is being filled.
            let floor = caller.written[caller.written.len() - 10].seq;
            let before = caller.wal.groups().len();
            caller.flush_below(floor);
            groups += before - caller.wal.groups().len();
        }
        while caller.wal.groups_wanted() > 0 {
            caller.add_group(12).unwrap();
        }
        assert!(!caller.wal.write_out().unwrap(), "nothing is due");
    }
    let stats = caller.wal.stats();
    assert_eq!((stats.written_bytes, stats.writes, stats.durable_writes, stats.syncs), (0, 0, 0, 0));
    assert!(groups >= 5 && stats.skipped_bytes > 80 * PAGE as u64, "{groups} {stats:?}");
}

#[test]
fn what_is_old_is_made_durable() {
    let mut caller = Caller::that_keeps_pages(1, 1);
    append(&mut caller, 5000);
    caller.sim.advance_ns(SECOND_NS / 10 * 8);
    append(&mut caller, 9000);
    assert!(!caller.wal.wants_write_out(), "nothing is that old");
    caller.sim.advance_ns(SECOND_NS / 10 * 2);
    assert!(caller.wal.write_out().unwrap());
    // Up to the page in which the first ends, and all of what the second has in it.
    assert_eq!((caller.wal.stats().durable_end, caller.wal.stats().next_lpn), (3, 4));
    assert!(!caller.wal.wants_write_out());
    caller.sim.advance_ns(SECOND_NS / 10 * 8);
    assert!(caller.wal.write_out().unwrap());
    let stats = caller.wal.stats();
    assert_eq!((stats.durable_end, stats.next_lpn), (5, 5), "the open page was closed");
}

#[test]
fn a_ring_that_is_nearly_full_is_written_by_half() {
    let mut caller = Caller::that_keeps_pages(1, 1);
    while !caller.wal.wants_write_out() {
        append(&mut caller, 2000);
        while caller.wal.groups_wanted() > 0 {
            caller.add_group(12).unwrap();
        }
    }
    let next_lpn = caller.wal.stats().next_lpn;
    assert_eq!(next_lpn, 1 + 18, "of 24 slots");
    assert!(caller.wal.write_out().unwrap());
    let stats = caller.wal.stats();
    assert_eq!((stats.written_bytes, stats.durable_end), (6 * PAGE as u64, 0), "{stats:?}");
    assert_eq!(stats.inline_write_outs, 0);
}

/// A durable write takes along all before it, and who waits for one that a flush overtakes waits no longer.
#[test]
fn a_durable_batch_that_is_overtaken_is_durable() {
    let mut caller = Caller::that_keeps_pages(1, 1);
    append(&mut caller, 3000);
    let position = caller.append(3000, Durability::Durable).unwrap();
    append(&mut caller, 3000);
    let (completer, mut told) = base::completion::pending();
    assert!(caller.wal.when_durable(position, completer));
    let floor = caller.next_seq;
    caller.flush_below(floor);
    assert!(told.take().unwrap().is_ok() && !caller.wal.is_wanted());
    caller.wal.sync(position).unwrap();
    assert_eq!(caller.wal.stats().written_bytes, 0);
}

/// What a tenant needs that is not here keeps all behind it as well.
#[test]
fn nothing_is_skipped_behind_what_is_needed() {
    let mut caller = Caller::that_keeps_pages(1, 1);
    append(&mut caller, 3000);
    let durable = caller.put(3000).unwrap();
    (0..5).for_each(|_| append(&mut caller, 3000));
    let floor = caller.written[1].seq;
    assert!(caller.wal.is_durable(durable) && caller.wal.overtaken(&floors_of_all(floor)).is_none());
    let floor = caller.written[4].seq;
    let overtaken = caller.wal.overtaken(&floors_of_all(floor)).unwrap();
    assert!(overtaken.begin.lpn > durable.lpn + 1);
    assert!(caller.wal.overtaken(&[]).is_none(), "nobody has stated a floor");
}

/// A check of the log looks at what counts, and finds all of it.
#[test]
fn a_check_begins_where_the_log_does() {
    let mut caller = Caller::that_keeps_pages(1, 1);
    (0..12).for_each(|_| append(&mut caller, 3000));
    let floor = caller.written[8].seq;
    caller.flush_below(floor);
    append(&mut caller, 6000);
    let last = caller.wal.last_position().unwrap();
    caller.sync(last).unwrap();
    let env = caller.sim.env();
    let open = |ltn| env.fs.open_in_place(&path_of(ltn), Access::Direct).unwrap();
    let to_check = |group: crate::PriorGroup| GroupToCheck {
        ltn: group.ltn,
        uid: Some(uid_of(group.ltn)),
        file: open(group.ltn),
        begins: group.begins,
        filled: group.filled,
    };
    let groups = caller.wal.groups().into_iter().map(to_check).collect();
    let (mut found, mut seqs) = (LogFindings::default(), Vec::new());
    let mut check = LogCheck::new(store(), groups);
    let mut on_batch = |batch: &LoggedBatch<'_>| seqs.push(batch.first_seq);
    while check.step(&mut found, &mut on_batch) {}
    check.staged(&caller.wal, (&env, dir()), &mut found, &mut on_batch);
    assert!(found.errors.is_empty(), "{:?}", found.errors);
    let wanted: Vec<u64> = caller.written[8..].iter().map(|w| w.seq).collect();
    assert!(seqs.ends_with(&wanted), "{seqs:?}");
}

/// Who makes durable writes does not wait each time for all that others have buffered.
#[test]
fn where_durable_writes_are_expected_pages_are_written_when_they_are_worth_it() {
    let mut caller = Caller::that_keeps_pages(1, 1);
    append(&mut caller, 9000);
    assert!(!caller.wal.wants_write_out(), "nobody is expected");
    caller.put(100).unwrap();
    append(&mut caller, 9000);
    assert!(caller.wal.write_out().unwrap());
    let stats = caller.wal.stats();
    assert!(stats.written_bytes >= 4 * PAGE as u64 && stats.syncs == 0, "{stats:?}");
    assert!(!caller.wal.wants_write_out());
    // He has gone.
    caller.sim.advance_ns(10 * SECOND_NS);
    while caller.wal.write_out().unwrap() {}
    append(&mut caller, 9000);
    assert!(!caller.wal.wants_write_out());
}
