use super::*;
use crate::history::Chain;
use crate::recover::RecoveryMode;
use crate::store_model::{
    Caller, Manifest, dir, floors_of_all, options, path_of, recover_all, store, uid_of,
};
use io::AlignedBuf;
use io::sim::{CrashKind, FaultEffect, FaultPlan, OpKind, Policy, SimEnv};
use io::{Access, InPlaceFile};
use std::sync::{Arc, OnceLock};

fn writes(caller: &Caller) -> (u64, u64, u64) {
    let count = |kind| caller.sim.count_ops(Some(kind), ".log");
    (count(OpKind::WriteDurable), count(OpKind::WriteAt), count(OpKind::SyncData))
}

fn append(caller: &mut Caller, len: usize) -> Position {
    caller.append(len, Durability::Buffered).unwrap()
}

#[test]
fn a_durable_put_is_one_write_of_one_page() {
    let mut caller = Caller::new(1, 1);
    let before = writes(&caller);
    for _ in 0..5 {
        caller.put(200).unwrap();
    }
    let after = writes(&caller);
    assert_eq!((after.0 - before.0, after.1, after.2), (5, 0, 0));
    assert_eq!(caller.wal.stats().written_bytes, 5 * PAGE as u64);
}

#[test]
fn buffered_appends_touch_no_file_until_the_ring_is_full() {
    let mut caller = Caller::new(1, 1);
    let before = caller.sim.op_count() - caller.sim.count_ops(Some(OpKind::ScratchWrite), "");
    while caller.wal.stats().next_lpn < 5 {
        append(&mut caller, 200);
    }
    let after = caller.sim.op_count() - caller.sim.count_ops(Some(OpKind::ScratchWrite), "");
    assert_eq!(before, after, "five pages in the ring of five, no call but stores");
    while caller.wal.stats().next_lpn < 6 {
        append(&mut caller, 150);
    }
    append(&mut caller, 150);
    assert_eq!(caller.wal.stats().inline_write_outs, 1);
    let waits = caller.wal.times().ring_full.read();
    assert!(waits.count() == 1 && waits.max() > 0, "the wait is told: {waits:?}");
    assert_eq!(writes(&caller), (0, 1, 0), "one run of three pages makes room enough");
    assert_eq!(caller.wal.stats().durable_end, 0);
}

#[test]
fn background_write_out_waits_for_a_run_of_pages() {
    let mut caller = Caller::new(1, 1);
    append(&mut caller, 5000);
    assert!(!caller.wal.deferred().wants_write_out() && !caller.wal.deferred().write_out().unwrap());
    append(&mut caller, 4000);
    assert!(caller.wal.deferred().wants_write_out() && caller.wal.deferred().write_out().unwrap());
    assert!(!caller.wal.deferred().write_out().unwrap());
    assert_eq!(writes(&caller), (0, 1, 0));
}

#[test]
fn a_durable_batch_above_written_pages_syncs_the_file_first() {
    let mut caller = Caller::new(1, 1);
    append(&mut caller, 9000);
    assert!(caller.wal.deferred().write_out().unwrap());
    let position = append(&mut caller, 10);
    caller.sync(position).unwrap();
    assert_eq!(writes(&caller), (0, 2, 1));
    caller.put(10).unwrap();
    assert_eq!(writes(&caller), (1, 2, 1));
}

#[test]
fn a_failed_data_sync_is_reported_and_stops_the_log() {
    let mut caller = Caller::new(1, 1);
    append(&mut caller, 9000);
    assert!(caller.wal.deferred().write_out().unwrap());
    let position = append(&mut caller, 10);
    caller.sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::SyncData]));
    assert_eq!(caller.wal.syncer().sync(position).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(caller.wal.syncer().sync(position).unwrap_err().kind(), ErrorKind::Poisoned);
}

#[test]
fn sync_of_a_durable_position_does_nothing() {
    let mut caller = Caller::new(1, 1);
    let first = append(&mut caller, 10);
    let last = append(&mut caller, 9000);
    caller.sync(last).unwrap();
    let before = caller.sim.op_count();
    caller.sync(first).unwrap();
    caller.sync(last).unwrap();
    assert_eq!(caller.sim.op_count(), before);
}

#[test]
fn without_a_fitting_spare_group_nothing_happens() {
    let caller = Caller::new(1, 1);
    let put = |len: usize| caller.wal.append(TenantId::FIRST, &[&vec![1; len]], 1, 1, Durability::Durable, 0);
    let before = caller.wal.stats();
    assert_eq!(put(60_000).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(caller.wal.stats(), before);
    assert!(put(40_000).is_ok());
    assert_eq!(put(8000).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(caller.wal.content().groups_wanted(), 1);
}

#[test]
fn a_large_batch_gets_a_group_of_its_own() {
    let mut caller = Caller::new(1, 1);
    caller.put(100).unwrap();
    caller.add_group(12).unwrap();
    let position = caller.put(200_000).unwrap();
    assert_eq!(caller.wal.stats().rolls, 1, "the spare that was too small is skipped");
    caller.flush_below(u64::MAX);
    assert_eq!(caller.manifests.last().unwrap().1.groups.len(), 1);
    assert!(position.lpn > 40);
    let last = caller.manifests.last().unwrap().1.clone();
    let (report, replayed) = recover_all(&caller.sim.fork(0), &last, RecoveryMode::ReadOnly).unwrap();
    assert_eq!((report.batches, replayed[0].1.len()), (1, 200_000));
}

/// Returns the lowest sequence in a group that was not released.
fn oldest_seq(caller: &Caller) -> Option<u64> {
    caller
        .wal
        .content()
        .groups()
        .iter()
        .filter_map(|g| g.seqs.of(TenantId::FIRST))
        .map(|(first, _)| first)
        .min()
}

/// A log with `n` batches of each of two tenants with separate sequences; the group is closed.
fn of_two_tenants(n: u64) -> Caller {
    let mut caller = Caller::new(1, 1);
    for seq in 1..=n {
        for tenant in [TenantId(0), TenantId(9)] {
            let seq = seq + 1000 * u64::from(tenant.0);
            let position = caller.wal.append(tenant, &[&[7; 100]], seq, seq, Durability::Durable, 0).unwrap();
            caller.wal.syncer().sync(position).unwrap();
        }
    }
    caller.add_group(12).unwrap();
    while caller.wal.stats().rolls == 0 {
        caller.next_seq = caller.next_seq.max(100);
        caller.put(3000).unwrap();
    }
    caller
}

#[test]
fn a_group_is_released_when_all_tenants_passed_it() {
    let none = Vec::<u64>::new();
    let caller = of_two_tenants(4);
    let seqs = caller.wal.content().groups()[0].seqs.clone();
    assert_eq!((seqs.of(TenantId(9)), seqs.of(TenantId(1))), (Some((9001, 9004)), None));
    let released = |floors: &[(TenantId, u64)]| caller.wal.content().release_below(floors);
    let (all, mine) = ((TenantId(0), u64::MAX), TenantId(9));
    assert_eq!(released(&[(mine, u64::MAX)]), none, "of the first there are some");
    assert_eq!(released(&[all]), none, "one that says nothing needs everything");
    assert_eq!(released(&[all, (TenantId(1), u64::MAX)]), none);
    assert_eq!(released(&[all, (mine, 9004)]), none, "that is the first it needs");
    let mut history = crate::history::History { chain: None, groups: caller.wal.content().groups() };
    assert_eq!(history.release_below(&[all, (mine, 9004)]), none);
    assert_eq!(history.release_below(&[all, (mine, 9005)]), [1, 2]);
    assert_eq!(released(&[all, (mine, 9005)]), [1]);
}

/// The batches of two tenants in one log are recovered for each, also after a process crash with
/// pages only in staging.
#[test]
fn two_tenants_have_sequences_of_their_own() {
    let caller = of_two_tenants(4);
    let position = caller.wal.append(TenantId(9), &[b"last"], 9005, 9005, Durability::Buffered, 0).unwrap();
    assert!(position.lpn > 0);
    let sim = caller.sim.crash(io::sim::CrashKind::ProcessKill, 1);
    let manifest = caller.manifests.last().unwrap().1.clone();
    let groups = crate::store_model::groups(&sim, &manifest);
    let mut found: Vec<(u8, u64)> = Vec::new();
    let mut take = |tenant: TenantId, seq, _: &[u8]| {
        found.push((tenant.0, seq));
        Ok(())
    };
    let report = crate::recover(
        &sim.env(),
        crate::store_model::dir(),
        crate::store_model::store(),
        &groups,
        RecoveryMode::ReadWrite,
        &mut take,
    );
    let report = report.unwrap();
    assert_eq!(found[..4], [(0, 1), (9, 9001), (0, 2), (9, 9002)]);
    assert_eq!(found.last(), Some(&(9, 9005)));
    assert_eq!((report.seqs.last(TenantId(9)), report.staged_pages > 0), (Some(9005), true));
    assert!(report.history.groups[0].seqs.of(TenantId(9)).is_some());
    // The next log has the groups of both tenants.
    let mut all = report.history.groups.clone();
    all.retain(|g| g.seqs.of(TenantId(9)).is_some());
    assert_eq!(all.len(), 2);
}

/// Pages of a log with one tenant are of version 2; pages from the second tenant on are of version
/// 3.
#[test]
fn pages_are_of_version_3_from_the_second_tenant_on() {
    let mut caller = Caller::new(1, 1);
    caller.put(100).unwrap();
    append(&mut caller, 100);
    let seq = caller.next_seq;
    for tenant in [TenantId(3), TenantId(0), TenantId(3)] {
        let position = caller.wal.append(
            tenant,
            &[b"shared"],
            seq + u64::from(tenant.0),
            seq + 9,
            Durability::Buffered,
            0,
        );
        if tenant.0 == 0 {
            caller.wal.syncer().sync(position.unwrap()).unwrap();
        }
    }
    caller.wal.close().unwrap();
    let bytes = caller.sim.read_file(crate::store_model::path_of(1)).unwrap();
    let versions: Vec<u8> = bytes.chunks(PAGE).map(|page| page[8]).take(6).collect();
    assert_eq!(versions, [2, 2, 3, 3, 3, 0]);
}

#[test]
fn groups_are_released_oldest_first_and_once() {
    let mut caller = Caller::new(1, 1);
    for _ in 0..40 {
        caller.put(2000).unwrap();
    }
    let seq_of = |caller: &Caller, i: usize| caller.written[i].seq;
    assert_eq!(caller.wal.content().release_below(&floors_of_all(seq_of(&caller, 5))), Vec::<u64>::new());
    let bytes = caller.wal.content().live_bytes();
    assert_eq!(oldest_seq(&caller), Some(seq_of(&caller, 0)));
    let released = caller.wal.content().release_below(&floors_of_all(seq_of(&caller, 25)));
    assert_eq!(released, vec![1, 2]);
    assert_eq!(caller.wal.content().live_bytes(), bytes - 2 * options().group_len);
    assert_eq!(caller.wal.content().release_below(&floors_of_all(seq_of(&caller, 25))), Vec::<u64>::new());
    assert_eq!(oldest_seq(&caller), Some(seq_of(&caller, 22)));
}

#[test]
fn without_syncs_the_background_makes_old_groups_releasable() {
    let mut caller = Caller::new(1, 1);
    for _ in 0..30 {
        append(&mut caller, 3000);
    }
    assert_eq!(
        caller.wal.content().release_below(&floors_of_all(u64::MAX)),
        Vec::<u64>::new(),
        "nothing is durable"
    );
    assert!(caller.wal.deferred().wants_write_out() && caller.wal.deferred().write_out().unwrap());
    assert!(!caller.wal.content().release_below(&floors_of_all(u64::MAX)).is_empty());
}

#[test]
fn a_watermark_is_written_once_and_always_fits() {
    let mut caller = Caller::new(1, 1);
    assert!(!caller.persist_watermark().unwrap());
    for _ in 0..40 {
        append(&mut caller, 3900);
        assert!(caller.persist_watermark().unwrap());
        assert!(!caller.persist_watermark().unwrap());
    }
    // Fills a group to its last data page.
    while caller.wal.content().groups_wanted() == 1 {
        caller.add_group(12).unwrap();
    }
    let rolls = caller.wal.stats().rolls;
    while caller.wal.stats().rolls == rolls {
        append(&mut caller, 3000);
    }
    for _ in 0..10 {
        append(&mut caller, 3900);
    }
    caller.close().unwrap();
    let last = caller.manifests.last().unwrap().1.clone();
    let (report, replayed) = recover_all(&caller.sim, &last, RecoveryMode::ReadOnly).unwrap();
    assert_eq!(report.unverified_tail_bytes, 0);
    assert_eq!(replayed.len(), caller.written.len());
    assert_eq!(report.witness_edit, caller.written.last().unwrap().seq);
}

#[test]
fn appends_after_close_are_refused() {
    let mut caller = Caller::new(1, 1);
    caller.put(10).unwrap();
    caller.close().unwrap();
    caller.close().unwrap();
    assert_eq!(caller.append(10, Durability::Durable).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(caller.wal.persist_watermark().unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn batches_out_of_bounds_are_refused() {
    let caller = Caller::new(1, 1);
    let put = |bytes: &[u8], first, last| {
        caller
            .wal
            .append(TenantId::FIRST, &[bytes], first, last, Durability::Buffered, 0)
            .map(drop)
            .map_err(|e| e.kind())
    };
    assert_eq!(put(b"", 1, 1), Err(ErrorKind::InvalidArgument));
    assert_eq!(put(b"x", 2, 1), Err(ErrorKind::InvalidArgument));
    assert_eq!(put(b"x", 1, 1 << 40), Err(ErrorKind::InvalidArgument));
    assert_eq!(put(&vec![0; BATCH_LEN_MAX + 1], 1, 1), Err(ErrorKind::TooLarge));
}

#[test]
#[should_panic(expected = "volatile")]
fn volatile_batches_panic() {
    let caller = Caller::new(1, 1);
    let _ = caller.wal.append(TenantId::FIRST, &[b"x"], 1, 1, Durability::Volatile, 0);
}

#[test]
fn groups_out_of_order_or_too_small_are_refused() {
    let caller = Caller::new(1, 5);
    let env = caller.sim.env();
    let group = |ltn: u64, pages: u64| PreparedGroup {
        ltn,
        uid: uid_of(ltn),
        file: env.fs.create_in_place(&path_of(100 + ltn * 10 + pages), pages * 4096, Access::Direct).unwrap(),
    };
    let add = |ltn, pages| caller.wal.content().add_group(group(ltn, pages)).map_err(|e| e.kind());
    assert_eq!(add(6, 1), Err(ErrorKind::InvalidArgument));
    assert_eq!(add(5, 4), Err(ErrorKind::InvalidArgument));
    assert_eq!(add(9, 4), Ok(()));
    assert_eq!(add(8, 4), Err(ErrorKind::InvalidArgument));
    let small = WalOptions { tail_buffer_len: PAGE, ..options() };
    let started = Wal::start(&env, dir(), small, store(), 1, group(20, 4), History::default());
    assert_eq!(started.unwrap_err().kind(), ErrorKind::InvalidArgument);
    let start = |ltn, next_lpn, history| {
        let e = Wal::start(&env, dir(), options(), store(), next_lpn, group(ltn, 5), history).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
        e.message().to_owned()
    };
    let told = start(30, page::LPN_LIMIT, History::default());
    assert_eq!(
        told,
        format!("log page number {0} is not below {0}, the limit of the format", page::LPN_LIMIT)
    );
    let chain = Some(Chain { ltn: 30, end_lpn: 50, used: 200 });
    let told = start(31, 49, History { chain, groups: Vec::new() });
    assert_eq!(
        told,
        "log group 31 from log page 49 on does not follow log page 50 of log group 30 (a fault of the engine: report it)"
    );
}

/// Half a batch may be in the tail after a panic.
#[test]
fn a_panic_under_the_lock_of_the_tail_stops_the_log() {
    let mut caller = Caller::new(1, 1);
    caller.put(10).unwrap();
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _guard = PanicGuard(&caller.wal.commit);
        panic!("while pages are filled");
    }))
    .unwrap_err();
    let e = caller.append(10, Durability::Durable).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Poisoned);
    assert!(e.to_string().contains("a thread panicked while it appended to the log"), "{e}");
    poisoned_for_good(&mut caller);
}

/// Every write and sync of a short life fails once: nothing is acknowledged after the failure. The
/// batches that a restart then recovers survive a power loss.
#[test]
fn a_failure_poisons_and_a_restart_recovers() {
    let kinds = [OpKind::WriteAt, OpKind::WriteDurable, OpKind::SyncData];
    for seed in 0..12 {
        let mut struck = 0;
        for nth in 0..60 {
            let mut caller = Caller::new(seed, 1);
            let effect = if nth % 2 == 0 { FaultEffect::Eio } else { FaultEffect::Short };
            caller.sim.inject(FaultPlan::nth(nth, effect).kinds(&kinds).path(".log"));
            let failure = (0..30).find_map(|_| caller.step().err());
            let Some(failure) = failure else { break };
            struck += 1;
            assert_eq!(failure.kind(), ErrorKind::Io);
            poisoned_for_good(&mut caller);
            let expected = caller.expectation(caller.sim.op_count(), CrashKind::PowerLoss);
            let kind = if nth % 3 == 0 { CrashKind::PowerLoss } else { CrashKind::ProcessKill };
            let sim = caller.sim.crash(kind, nth);
            let (report, replayed) = recover_all(&sim, &expected.manifest, RecoveryMode::ReadWrite).unwrap();
            let kept = expected.check(&replayed);
            let next = expected.resume(sim, &report, kept, nth);
            let later = next.expectation(next.sim.op_count(), CrashKind::PowerLoss);
            let sim = next.sim.crash(CrashKind::PowerLossWith(Policy::Dropped), nth);
            let (_, replayed) = recover_all(&sim, &later.manifest, RecoveryMode::ReadWrite).unwrap();
            later.check(&replayed);
        }
        assert!(struck > 3, "seed {seed}");
    }
}

fn poisoned_for_good(caller: &mut Caller) {
    caller.sim.clear_faults();
    let before = caller.sim.op_count();
    let wal = &caller.wal;
    let kinds = [
        wal.append(TenantId::FIRST, &[b"x"], 1 << 20, 1 << 20, Durability::Buffered, 0).map(drop),
        wal.syncer().sync(Position { lpn: 1 << 40 }),
        wal.deferred().write_out().map(drop),
        wal.persist_watermark().map(drop),
        wal.close(),
    ];
    for (i, outcome) in kinds.into_iter().enumerate() {
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Poisoned, "call {i}");
    }
    assert_eq!(caller.sim.op_count(), before, "no further write");
}

/// A file that calls a probe before each write, with the offset.
struct ProbedFile {
    inner: Arc<dyn InPlaceFile>,
    before: Box<dyn Fn(u64) + Send + Sync>,
}

impl std::fmt::Debug for ProbedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl InPlaceFile for ProbedFile {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn write_at(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        (self.before)(offset);
        self.inner.write_at(data, offset)
    }
    fn write_durable(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        (self.before)(offset);
        self.inner.write_durable(data, offset)
    }
    fn sync_data(&self) -> Result<()> {
        self.inner.sync_data()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner.read_at(buf, offset)
    }
    fn path(&self) -> &Path {
        self.inner.path()
    }
}

/// A log in one group of 1,000 pages from page 0, with a tail buffer of 8 pages and writes of at
/// most 2.
fn probed(sim: &SimEnv, before: impl Fn(u64) + Send + Sync + 'static) -> Wal {
    probed_of(sim, WalOptions::default(), before)
}

fn probed_of(sim: &SimEnv, options: WalOptions, before: impl Fn(u64) + Send + Sync + 'static) -> Wal {
    let env = sim.env();
    env.fs.create_dir_all(dir()).unwrap();
    env.fs.sync_dir("/".as_ref()).unwrap();
    let inner = env.fs.create_in_place(&path_of(1), 1000 * PAGE as u64, Access::Direct).unwrap();
    env.fs.sync_dir(dir()).unwrap();
    let file = Arc::new(ProbedFile { inner, before: Box::new(before) });
    let options =
        WalOptions { tail_buffer_len: 8 * PAGE, write_len_min: 2 * PAGE, write_len_max: 2 * PAGE, ..options };
    let first = PreparedGroup { ltn: 1, uid: uid_of(1), file };
    Wal::start(&env, dir(), options, store(), 0, first, History::default()).unwrap()
}

#[test]
fn slots_are_released_only_after_their_pages_are_written() {
    let wal: Arc<OnceLock<Wal>> = Arc::default();
    // A weak reference, since the log holds the probe.
    let probe = Arc::downgrade(&wal);
    let sim = SimEnv::new(1);
    let log = probed(&sim, move |offset| {
        let wal = probe.upgrade();
        let frontier = wal.as_ref().and_then(|wal| wal.get()).map(|wal| &wal.commit.frontier);
        assert!(frontier.is_none_or(|f| f.written_end() * PAGE as u64 == offset && f.durable_end() <= f.written_end()));
    });
    let wal = wal.get_or_init(|| log);
    let mut rng = io::Rng::new(1);
    for seq in 1..300 {
        let batch = vec![1; rng.range(1, 9000) as usize];
        let position = wal.append(TenantId::FIRST, &[&batch], seq, seq, Durability::Buffered, 0).unwrap();
        match rng.below(6) {
            0 => wal.syncer().sync(position).unwrap(),
            1 => drop(wal.deferred().write_out().unwrap()),
            2 => drop(wal.persist_watermark().unwrap()),
            _ => {}
        }
    }
    let stats = wal.stats();
    assert!(stats.inline_write_outs > 0 && stats.syncs > 10, "{stats:?}");
}

/// A batch longer than the tail buffer is written while it is appended. No floor covers the batch,
/// while all noted batches are in tables.
#[test]
fn half_a_batch_is_not_superseded() {
    let wal: Arc<OnceLock<Wal>> = Arc::default();
    let probe = Arc::downgrade(&wal);
    let sim = SimEnv::new(1);
    let options = WalOptions { buffered_age_ns: u64::MAX, ..WalOptions::default() };
    let log = probed_of(&sim, options, move |_| {
        let wal = probe.upgrade();
        let floors = crate::store_model::floors_of_all(u64::MAX);
        let overtaken = wal.as_ref().and_then(|wal| wal.get()).map(|wal| wal.deferred().overtaken(&floors));
        // The page in which the batch begins is the first of those being written.
        assert!(overtaken.flatten().is_none_or(|it| it.begin.lpn <= 1), "in the middle of the batch");
    });
    let wal = wal.get_or_init(|| log);
    for (seq, len) in [(1, 5000), (2, 90_000)] {
        wal.append(TenantId::FIRST, &[&vec![1; len]], seq, seq, Durability::Buffered, 0).unwrap();
    }
    assert!(wal.stats().inline_write_outs > 3 && wal.stats().written_bytes > 8 * PAGE as u64);
}

#[test]
fn threads_share_writes_and_lose_nothing() {
    const THREADS: u64 = 8;
    const EACH: u64 = 200;
    let sim = SimEnv::new(3);
    let kernel = Env::kernel();
    // Takes as long as a device, so that other threads arrive meanwhile.
    let wal = probed(&sim, move |_| kernel.clock.sleep_ns(50_000));
    let order = Mutex::<_, rank::Outside>::new(0u64);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (wal, order) = (&wal, &order);
            scope.spawn(move || {
                for i in 0..EACH {
                    let position = {
                        let mut seq = lock(order);
                        *seq += 1;
                        let bytes = seq.to_le_bytes();
                        let pad = vec![thread as u8; (i % 7) as usize * 300];
                        wal.append(TenantId::FIRST, &[&bytes, &pad], *seq, *seq, Durability::Durable, 0)
                            .unwrap()
                    };
                    match i % 5 {
                        0 => drop(wal.deferred().write_out().unwrap()),
                        1 if i % 50 == 1 => drop(wal.persist_watermark().unwrap()),
                        _ => wal.syncer().sync(position).unwrap(),
                    }
                }
            });
        }
    });
    let stats = wal.stats();
    assert_eq!(stats.batches, THREADS * EACH);
    assert!(stats.durable_writes + stats.writes < stats.batches, "{stats:?}");
    wal.close().unwrap();
    let manifest = Manifest::of_one(1);
    let sim = sim.crash(CrashKind::PowerLossWith(Policy::Dropped), 1);
    let (report, replayed) = recover_all(&sim, &manifest, RecoveryMode::ReadWrite).unwrap();
    assert!(replayed.iter().map(|r| r.0).eq(1..=THREADS * EACH));
    assert_eq!(report.unverified_tail_bytes, 0);
}

/// The staging file becomes longer between batches; a process crash at any operation of that loses
/// nothing.
#[test]
fn lengthening_the_tail_buffer_loses_nothing() {
    let mut caller = Caller::new(3, 1);
    for len in [100, 3000, 9000, 50] {
        append(&mut caller, len);
    }
    let begun = caller.sim.op_count();
    caller.wal.lengthen_staging(&caller.sim.env(), dir(), 9 * PAGE).unwrap();
    assert_eq!(caller.wal.content().tail_buffer_len(), 9 * PAGE);
    for len in [200, 5000, 12_000, 70] {
        append(&mut caller, len);
    }
    for op in begun..=caller.sim.op_count() {
        let after = caller.sim.record().crash_at(op, CrashKind::ProcessKill, op);
        let expected = caller.expectation(op, CrashKind::ProcessKill);
        let (_, replayed) = recover_all(&after, &expected.manifest, RecoveryMode::ReadWrite).unwrap();
        expected.check(&replayed);
    }
    // Shorter than the present length: nothing to do.
    caller.wal.lengthen_staging(&caller.sim.env(), dir(), 4 * PAGE).unwrap();
    assert_eq!(caller.wal.content().tail_buffer_len(), 9 * PAGE);
}

/// Without space for a longer staging file the log continues with the present one.
#[test]
fn a_tail_buffer_without_space_keeps_its_length() {
    let mut caller = Caller::new(4, 1);
    append(&mut caller, 3000);
    caller.sim.set_capacity(Some(caller.sim.used()));
    let refused = caller.wal.lengthen_staging(&caller.sim.env(), dir(), 9 * PAGE).unwrap_err();
    assert_eq!(
        (refused.kind(), caller.wal.content().tail_buffer_len()),
        (base::ErrorKind::NoSpace, 5 * PAGE)
    );
    for _ in 0..10 {
        append(&mut caller, 700);
    }
    let op = caller.sim.op_count();
    let expected = caller.expectation(op, CrashKind::ProcessKill);
    let after = caller.sim.crash(CrashKind::ProcessKill, 1);
    let (_, replayed) = recover_all(&after, &expected.manifest, RecoveryMode::ReadWrite).unwrap();
    expected.check(&replayed);
}

/// The volume has no space for the longer staging file, and stays full. The log continues with the
/// present file.
#[test]
fn a_full_volume_while_lengthening_the_tail_buffer_is_survived() {
    let mut caller = Caller::new(5, 1);
    append(&mut caller, 3000);
    for kind in [OpKind::CreateScratch, OpKind::Rename] {
        caller.sim.inject(FaultPlan::nth(0, FaultEffect::NoSpace).kinds(&[kind]).sticky());
        let refused = caller.wal.lengthen_staging(&caller.sim.env(), dir(), 9 * PAGE).unwrap_err();
        assert_eq!(
            (refused.kind(), caller.wal.content().tail_buffer_len()),
            (base::ErrorKind::NoSpace, 5 * PAGE)
        );
        append(&mut caller, 700);
        let op = caller.sim.op_count();
        let expected = caller.expectation(op, CrashKind::ProcessKill);
        let after = caller.sim.fork(1).crash(CrashKind::ProcessKill, 1);
        let (_, replayed) = recover_all(&after, &expected.manifest, RecoveryMode::ReadWrite).unwrap();
        expected.check(&replayed);
        caller.sim.clear_faults();
    }
    caller.wal.lengthen_staging(&caller.sim.env(), dir(), 9 * PAGE).unwrap();
    append(&mut caller, 700);
}

/// The name of the longer staging file finds no space, as on LavaFS. No page goes to the file
/// before its name is durable.
#[test]
fn a_tail_buffer_is_unused_until_its_name_is_durable() {
    let mut caller = Caller::new(6, 1);
    append(&mut caller, 3000);
    caller.sim.inject(FaultPlan::nth(0, FaultEffect::NoRoom).kinds(&[OpKind::SyncDir]).sticky());
    let refused = caller.wal.lengthen_staging(&caller.sim.env(), dir(), 9 * PAGE).unwrap_err();
    assert_eq!(refused.kind(), base::ErrorKind::NoSpace);
    let staged = caller.sim.count_ops(Some(OpKind::ScratchWrite), "");
    assert_eq!(caller.append(700, Durability::Buffered).unwrap_err().kind(), base::ErrorKind::NoSpace);
    assert_eq!(caller.sim.count_ops(Some(OpKind::ScratchWrite), ""), staged);
    caller.put(700).unwrap();
    caller.sim.clear_faults();
    append(&mut caller, 700);
    assert_eq!(caller.wal.content().tail_buffer_len(), 9 * PAGE);
    let expected = caller.expectation(caller.sim.op_count(), CrashKind::ProcessKill);
    let after = caller.sim.crash(CrashKind::ProcessKill, 1);
    let (_, replayed) = recover_all(&after, &expected.manifest, RecoveryMode::ReadWrite).unwrap();
    expected.check(&replayed);
}

/// The pages of a durable batch find no space in their group. The log continues, and makes them
/// durable once there is space.
#[test]
fn async_waiters_are_told_about_no_space() {
    let mut caller = Caller::new(8, 1);
    let position = caller.append(3000, Durability::Durable).unwrap();
    let (completer, mut told) = base::completion::pending();
    caller.wal.syncer().when_durable(position, completer);
    caller.sim.inject(FaultPlan::nth(0, FaultEffect::NoSpace).kinds(&[OpKind::WriteAt]).sticky());
    while !caller.wal.deferred().wants_write_out() {
        append(&mut caller, 3000);
    }
    assert_eq!(caller.wal.deferred().write_out().unwrap_err().kind(), base::ErrorKind::NoSpace);
    assert_eq!(told.take().unwrap().unwrap_err().kind(), base::ErrorKind::NoSpace);
    caller.sim.clear_faults();
    caller.wal.deferred().write_out().unwrap();
    caller.wal.syncer().sync(position).unwrap();
}

#[derive(Debug, Default)]
struct OneDomain(Mutex<Option<base::Error>, rank::HealthError>);

impl crate::domain::Domain for OneDomain {
    fn fail(&self, error: &base::Error) {
        lock(&self.0).get_or_insert(error.clone());
    }
    fn check(&self) -> base::Result<()> {
        lock(&self.0).clone().map_or(Ok(()), |e| Err(e.with_kind(base::ErrorKind::Poisoned)))
    }
}

/// A failure elsewhere in the domain ends the acknowledgments of an intact log.
#[test]
fn a_failed_domain_acknowledges_nothing() {
    let (mut caller, domain) = (Caller::new(6, 1), Arc::new(OneDomain::default()));
    caller.wal.join(domain.clone());
    let position = append(&mut caller, 100);
    caller.wal.syncer().sync(position).unwrap();
    let waits = append(&mut caller, 100);
    let told: Arc<Mutex<Vec<base::Result<()>>, rank::Outside>> = Arc::default();
    let teller = || {
        let told = told.clone();
        base::completion::Completer::calling(move |outcome| lock(&told).push(outcome))
    };
    caller.wal.syncer().when_durable(waits, teller());
    crate::domain::Domain::fail(&*domain, &base::Error::new(base::ErrorKind::Io, "the manifest"));
    for position in [position, waits] {
        assert_eq!(caller.wal.syncer().sync(position).unwrap_err().kind(), base::ErrorKind::Poisoned);
    }
    // One earlier waiter, and one for a page that is already durable.
    caller.wal.syncer().when_durable(position, teller());
    let kinds: Vec<_> = lock(&told).iter().map(|told| told.as_ref().unwrap_err().kind()).collect();
    assert_eq!(kinds, [base::ErrorKind::Poisoned; 2]);
}

#[test]
fn a_log_failure_fails_its_domain() {
    let (mut caller, domain) = (Caller::new(7, 1), Arc::new(OneDomain::default()));
    caller.wal.join(domain.clone());
    let position = append(&mut caller, 100);
    caller.sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::WriteDurable]));
    assert_eq!(caller.wal.syncer().sync(position).unwrap_err().kind(), base::ErrorKind::Io);
    assert_eq!(lock(&domain.0).as_ref().unwrap().kind(), base::ErrorKind::Io);
}

/// A group commit of records of 1,000 bytes in the log lane: bytes written per byte of payload, in
/// one write, at the final place of the records.
#[test]
fn bytes_written_per_group_commit_are_bounded() {
    // The encoding of an append by the log engine.
    let (head, record) = ([1; 14], [7; 1000]);
    for (block, records, at_most) in
        [(512, 1, 1.54), (512, 8, 1.16), (512, 64, 1.09), (4096, 1, 4.10), (4096, 8, 1.54), (4096, 64, 1.10)]
    {
        let sim = SimEnv::new(1);
        sim.set_block_len(block);
        let env = sim.env();
        env.fs.create_dir_all(dir()).unwrap();
        let file = env.fs.create_in_place(&path_of(1), 1 << 20, Access::Direct).unwrap();
        let options = WalOptions { lane: Lane::LOG, ..WalOptions::default() };
        let first = PreparedGroup { ltn: 1, uid: uid_of(1), file };
        let wal = Wal::start(&env, dir(), options, store(), 0, first, History::default()).unwrap();
        for commit in 0..4 {
            let before = (sim.op_count(), wal.stats());
            let append = |n: u64| {
                let seq = 1 + commit * records + n;
                wal.append(TenantId(1), &[&head, &record], seq, seq, Durability::Durable, 0).unwrap()
            };
            let last = (0..records).map(append).last().unwrap();
            wal.syncer().sync(last).unwrap();
            let after = wal.stats();
            assert_eq!(sim.op_count() - before.0, 1, "one write that makes itself durable, and nothing else");
            assert_eq!(after.durable_writes - before.1.durable_writes, 1);
            let written = after.written_bytes - before.1.written_bytes;
            let each = written as f64 / (1000 * records) as f64;
            println!("{block} B blocks, {records} records: {each:.3} device bytes for each");
            assert!(each <= at_most, "{each} in blocks of {block}, {records} records");
        }
    }
}
