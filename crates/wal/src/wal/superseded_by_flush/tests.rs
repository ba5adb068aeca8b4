use super::*;
use crate::check::{GroupToCheck, LogCheck, LogFindings};
use crate::durability::Durability;
use crate::recover::LoggedBatch;
use crate::store_model::{Caller, dir, floors_of_all, path_of, store, uid_of};
use crate::wal::WalOptions;
use io::Access;
use io::sim::{Costs, SimEnv};

const SECOND_NS: u64 = 1_000_000_000;

fn append(caller: &mut Caller, len: usize) {
    caller.append(len, Durability::Buffered).unwrap();
}

/// Overwrites whose memtables are flushed before the tail buffer is full cause no writes except to
/// the staging file, for any length of time.
#[test]
fn batches_flushed_in_time_cause_no_log_writes() {
    let mut caller = Caller::that_keeps_pages(1, 1);
    let mut groups = 0;
    for n in 1..400 {
        append(&mut caller, 900);
        if n % 20 == 0 {
            // The memtable before the active one.
            let floor = caller.written[caller.written.len() - 10].seq;
            let before = caller.wal.content().groups().len();
            caller.flush_below(floor);
            groups += before - caller.wal.content().groups().len();
        }
        while caller.wal.content().groups_wanted() > 0 {
            caller.add_group(12).unwrap();
        }
        assert!(!caller.wal.deferred().write_out().unwrap(), "nothing is due");
    }
    let stats = caller.wal.stats();
    assert_eq!((stats.written_bytes, stats.writes, stats.durable_writes, stats.syncs), (0, 0, 0, 0));
    assert!(groups >= 5 && stats.skipped_bytes > 80 * PAGE as u64, "{groups} {stats:?}");
}

#[test]
fn pages_older_than_the_age_are_made_durable() {
    let mut caller = Caller::that_keeps_pages(1, 1);
    append(&mut caller, 5000);
    caller.sim.advance_ns(SECOND_NS / 10 * 8);
    append(&mut caller, 9000);
    assert!(!caller.wal.deferred().wants_write_out(), "nothing is that old");
    caller.sim.advance_ns(SECOND_NS / 10 * 2);
    assert!(caller.wal.deferred().write_out().unwrap());
    // Up to the page in which the first batch ends, with the part of the second in it.
    assert_eq!((caller.wal.stats().durable_end, caller.wal.stats().next_lpn), (3, 4));
    assert!(!caller.wal.deferred().wants_write_out());
    caller.sim.advance_ns(SECOND_NS / 10 * 8);
    assert!(caller.wal.deferred().write_out().unwrap());
    let stats = caller.wal.stats();
    assert_eq!((stats.durable_end, stats.next_lpn), (5, 5), "the open page was closed");
}

#[test]
fn a_nearly_full_tail_buffer_is_written_by_half() {
    let mut caller = Caller::that_keeps_pages(1, 1);
    while !caller.wal.deferred().wants_write_out() {
        append(&mut caller, 2000);
        while caller.wal.content().groups_wanted() > 0 {
            caller.add_group(12).unwrap();
        }
    }
    let next_lpn = caller.wal.stats().next_lpn;
    assert_eq!(next_lpn, 1 + 18, "of 24 slots");
    assert!(caller.wal.deferred().write_out().unwrap());
    let stats = caller.wal.stats();
    assert_eq!((stats.written_bytes, stats.durable_end), (6 * PAGE as u64, 0), "{stats:?}");
    assert_eq!(stats.inline_write_outs, 0);
}

/// A durable write includes all earlier pages, and a waiter for a batch that is superseded by a
/// flush is satisfied.
#[test]
fn a_durable_batch_superseded_by_flush_is_durable() {
    let mut caller = Caller::that_keeps_pages(1, 1);
    append(&mut caller, 3000);
    let position = caller.append(3000, Durability::Durable).unwrap();
    append(&mut caller, 3000);
    let (completer, mut told) = base::completion::pending();
    assert!(caller.wal.syncer().when_durable(position, completer));
    let floor = caller.next_seq;
    caller.flush_below(floor);
    assert!(told.take().unwrap().is_ok() && !caller.wal.syncer().is_wanted());
    caller.wal.syncer().sync(position).unwrap();
    assert_eq!(caller.wal.stats().written_bytes, 0);
}

/// A batch that its tenant still needs keeps all pages behind it as well.
#[test]
fn no_page_after_a_needed_batch_is_skipped() {
    let mut caller = Caller::that_keeps_pages(1, 1);
    append(&mut caller, 3000);
    let durable = caller.put(3000).unwrap();
    (0..5).for_each(|_| append(&mut caller, 3000));
    let floor = caller.written[1].seq;
    assert!(
        caller.wal.syncer().is_durable(durable)
            && caller.wal.deferred().overtaken(&floors_of_all(floor)).is_none()
    );
    let floor = caller.written[4].seq;
    let overtaken = caller.wal.deferred().overtaken(&floors_of_all(floor)).unwrap();
    assert!(overtaken.begin.lpn > durable.lpn + 1);
    assert!(caller.wal.deferred().overtaken(&[]).is_none(), "nobody has stated a floor");
}

/// A check of the log reads from its beginning, and finds all of it.
#[test]
fn a_check_starts_at_the_log_beginning() {
    let mut caller = Caller::that_keeps_pages(1, 1);
    (0..12).for_each(|_| append(&mut caller, 3000));
    let floor = caller.written[8].seq;
    caller.flush_below(floor);
    append(&mut caller, 6000);
    let last = caller.wal.content().last_position().unwrap();
    caller.sync(last).unwrap();
    let env = caller.sim.env();
    let open = |ltn| env.fs.open_in_place(&path_of(ltn), Access::Direct).unwrap();
    let to_check = |group: crate::history::PriorGroup| GroupToCheck {
        ltn: group.ltn,
        uid: Some(uid_of(group.ltn)),
        file: open(group.ltn),
        begins: group.begins,
        filled: group.filled,
    };
    let groups = caller.wal.content().groups().into_iter().map(to_check).collect();
    let (mut found, mut seqs) = (LogFindings::default(), Vec::new());
    let mut check = LogCheck::new(store(), groups);
    let mut on_batch = |batch: &LoggedBatch<'_>| seqs.push(batch.first_seq);
    while check.step(&mut found, &mut on_batch) {}
    check.staged(&caller.wal, (&env, dir()), &mut found, &mut on_batch);
    assert!(found.errors.is_empty(), "{:?}", found.errors);
    let wanted: Vec<u64> = caller.written[8..].iter().map(|w| w.seq).collect();
    assert!(seqs.ends_with(&wanted), "{seqs:?}");
}

/// A durable write does not wait each time for all buffered pages.
#[test]
fn expected_durable_writes_trigger_early_page_writes() {
    let mut caller = Caller::that_keeps_pages(1, 1);
    append(&mut caller, 9000);
    assert!(!caller.wal.deferred().wants_write_out(), "nobody is expected");
    caller.put(100).unwrap();
    append(&mut caller, 9000);
    assert!(caller.wal.deferred().write_out().unwrap());
    let stats = caller.wal.stats();
    assert!(stats.written_bytes >= 4 * PAGE as u64 && stats.syncs == 0, "{stats:?}");
    assert!(!caller.wal.deferred().wants_write_out());
    // There are no waiters for durable writes any more.
    caller.sim.advance_ns(10 * SECOND_NS);
    while caller.wal.deferred().write_out().unwrap() {}
    append(&mut caller, 9000);
    assert!(!caller.wal.deferred().wants_write_out());
}

/// A log with a tail buffer of 8 MB and an age of a minute, on a disk with the given write rate.
fn on_a_disk(bytes_per_s: u64, durable_wait_ns_max: u64) -> Caller {
    let sim = SimEnv::new(1);
    sim.env().fs.create_dir_all(dir()).unwrap();
    sim.env().fs.sync_dir("/".as_ref()).unwrap();
    let options = WalOptions {
        group_len: 4 << 20,
        tail_buffer_len: 8 << 20,
        buffered_age_ns: 60 * SECOND_NS,
        durable_wait_ns_max,
        ..WalOptions::default()
    };
    let caller = Caller::with(options, sim, 1, 1);
    caller.sim.set_costs(Costs { kib_ns: 1024 * SECOND_NS / bytes_per_s, write_ns: 0, ..Costs::default() });
    caller
}

/// Appends buffered batches for ten seconds, 4 MB of them, with background work. Returns the wait
/// of a durable batch after that.
fn waits_after_ten_seconds_of_buffered(caller: &mut Caller) -> u64 {
    for _ in 0..1000 {
        append(caller, 4000);
        while caller.wal.deferred().write_out().unwrap() {}
        caller.sim.advance_ns(10_000_000);
    }
    let begun_ns = caller.sim.now_ns();
    caller.put(100).unwrap();
    caller.sim.now_ns() - begun_ns
}

/// A durable batch waits at most for the pages that the disk writes within the budget, however long
/// there was no durable batch.
#[test]
fn a_durable_batch_waits_at_most_the_budget() {
    const MS_NS: u64 = 1_000_000;
    for (bytes_per_s, budget_ns) in
        [(100_000_000, 10 * MS_NS), (400_000_000, 5 * MS_NS), (30_000_000, 20 * MS_NS)]
    {
        let mut caller = on_a_disk(bytes_per_s, budget_ns);
        let whole_ns = waits_after_ten_seconds_of_buffered(&mut caller);
        let all_ns = 4_000_000 * (SECOND_NS / 1000) / (bytes_per_s / 1000);
        assert!(whole_ns >= all_ns, "{whole_ns}: the first of all waits for all that is kept");
        // From then on durable batches are expected.
        for round in 0..3 {
            // The time without durable writes exceeds `ASKED_NS`.
            caller.sim.advance_ns(10 * SECOND_NS);
            let written = caller.wal.stats().written_bytes;
            let wait_ns = waits_after_ten_seconds_of_buffered(&mut caller);
            assert!(
                wait_ns < budget_ns + MS_NS,
                "{bytes_per_s} B/s, round {round}: {wait_ns} of {budget_ns}"
            );
            assert!(wait_ns > budget_ns / 4, "what waits is of use: {wait_ns} of {budget_ns}");
            let written = caller.wal.stats().written_bytes - written;
            println!(
                "{bytes_per_s} B/s: {} us, then {} us with {written} B",
                whole_ns / 1000,
                wait_ns / 1000
            );
        }
    }
}

/// A sync of buffered records waits for those records; it does not make the log expect durable
/// batches.
#[test]
fn explicit_syncs_do_not_predict_durable_batches() {
    let mut caller = on_a_disk(100_000_000, 10_000_000);
    append(&mut caller, 3000);
    let last = caller.wal.content().last_position().unwrap();
    caller.sync(last).unwrap();
    caller.sim.advance_ns(10 * SECOND_NS);
    let before = caller.wal.stats().written_bytes;
    (0..1000).for_each(|_| append(&mut caller, 4000));
    assert!(!caller.wal.deferred().wants_write_out());
    // An asynchronous waiter counts as a durable writer.
    let (completer, _told) = base::completion::pending();
    caller.wal.syncer().when_durable(caller.wal.content().last_position().unwrap(), completer);
    assert!(caller.wal.deferred().write_out().unwrap() && caller.wal.stats().written_bytes > before);
}

#[test]
fn a_long_tail_buffer_is_useful_only_for_buffered_batches() {
    let mut caller = on_a_disk(100_000_000, 10_000_000);
    let useful = |caller: &Caller| caller.wal.deferred().useful_ring_bytes();
    assert_eq!(useful(&caller), u64::MAX, "until it is known better");
    caller.put(900).unwrap();
    caller.sim.advance_ns(20 * SECOND_NS);
    assert_eq!(useful(&caller), 0, "all are durable");
    (0..20).for_each(|_| append(&mut caller, 900));
    assert_eq!(useful(&caller), 4_000_000, "twice what may wait; nothing was measured");
    caller.put(900).unwrap();
    assert_eq!(useful(&caller), 0, "what is buffered is written at once");
    caller.sim.advance_ns(20 * SECOND_NS);
    for _ in 0..200 {
        caller.put(900).unwrap();
    }
    caller.sim.advance_ns(20 * SECOND_NS);
    assert_eq!(useful(&caller), 0, "few are buffered");
}
