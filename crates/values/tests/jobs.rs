//! Hand-made collections: copied records, rejected inputs, and early ends of a job.

mod store;

use base::{Compression, ErrorKind, Result, SeqNo, ValueKind, key::encode};
use io::sim::{FaultEffect, FaultPlan, OpKind};
use io::{Access, CreateOptions, Rng, SyncKind};
use lavastore_values::*;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::{FAMILY, Store, World, path_of, table_meta, value_of};
use table::{ReadCounters, Reference};
use version::{AliasTarget, Record, Version, VsstClass, VsstMeta, names};

fn user_key(i: u64) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

/// Returns a value that is long enough to be separated, and unique.
fn long_value(i: u64, seq: SeqNo) -> Vec<u8> {
    [value_of(&user_key(i), seq), vec![7; 50]].concat()
}

/// Writes a vSST of keys, all under one sequence.
fn vsst(store: &mut Store, alignment: u32, seq: SeqNo, keys: &[u64]) -> (VsstMeta, Vec<(u64, Reference)>) {
    let world = &mut store.world;
    let mut series = VsstSeries::new(u64::MAX, || world.begin(alignment, VsstClass::Cold));
    let references =
        keys.iter().map(|&i| (i, series.add(&user_key(i), seq, &long_value(i, seq)).unwrap())).collect();
    let mut metas = series.finish().unwrap();
    assert_eq!(metas.len(), 1);
    (metas.remove(0), references)
}

/// Commits a table with these references, at level 0.
fn add_table(store: &mut Store, seq: SeqNo, references: &[(u64, Reference)]) -> u64 {
    let mut builder = store.world.begin_table(0).unwrap();
    for (i, reference) in references {
        builder.add(&encode(&user_key(*i), seq, ValueKind::Reference), &reference.encode()).unwrap();
    }
    let meta = table_meta(builder).unwrap();
    let number = meta.number;
    store.commit(vec![Record::AddFile { family: FAMILY, level: 0, meta }]);
    number
}

fn add_vsst(store: &mut Store, meta: VsstMeta) {
    store.commit(vec![Record::AddVsst { family: FAMILY, meta }]);
}

fn job(version: &Arc<Version>, options: &GcOptions, without: &[u64]) -> GcJob {
    let ledger = Ledger::of(version);
    let gc = pick(version, &ledger, options, &|v| without.contains(&v.number)).expect("there is garbage");
    GcJob::new(gc, version, options.clone())
}

fn run(job: &mut GcJob, world: &mut World) -> Result<GcOutcome> {
    loop {
        if let GcStep::Done(outcome) = job.step(world)? {
            return Ok(outcome);
        }
    }
}

fn value(store: &Store, version: &Version, i: u64, seq: SeqNo, reference: &Reference) -> Vec<u8> {
    let meta = version.resolve(reference.blob_id, &user_key(i), seq).unwrap();
    let vsst = store.world.files.vsst(meta).unwrap();
    vsst.get(&user_key(i), seq, reference, false, &mut ReadCounters::default()).unwrap().to_vec()
}

/// Returns one vSST of 100 records of which every third is referenced.
fn a_third_live(store: &mut Store) -> (VsstMeta, Vec<(u64, Reference)>) {
    let (meta, references) = vsst(store, 0, 5, &(0..100).collect::<Vec<_>>());
    let live: Vec<_> = references.into_iter().step_by(3).collect();
    add_vsst(store, meta.clone());
    add_table(store, 5, &live);
    (meta, live)
}

#[test]
fn survivors_of_many_files_merge_into_one_resolvable_file() {
    let mut store = Store::new(2);
    let mut all = Vec::new();
    // Alignments differ: the output takes the finest.
    for (n, alignment) in [1, 8, 64].into_iter().enumerate() {
        let keys: Vec<u64> = (0..60).map(|i| i * 3 + n as u64).collect();
        let (meta, references) = vsst(&mut store, alignment, 5 + n as u64, &keys);
        add_vsst(&mut store, meta);
        let live: Vec<_> = references.into_iter().step_by(2).collect();
        add_table(&mut store, 5 + n as u64, &live);
        all.extend(live.into_iter().map(|(i, r)| (i, 5 + n as u64, r)));
    }
    let version = store.version();
    let mut job = job(&version, &GcOptions::default(), &[]);
    assert_eq!(job.gc().inputs.len(), 3);
    assert!(job.created().is_empty());
    let GcOutcome::Replace { inputs, outputs } = run(&mut job, &mut store.world).unwrap() else {
        panic!("abandoned")
    };
    let [output] = outputs.as_slice() else { panic!("{} outputs", outputs.len()) };
    let mut names = inputs.clone();
    names.sort_unstable();
    assert_eq!(output.blob_ids, names);
    assert_eq!((output.entries, output.class), (90, VsstClass::Cold));
    assert_eq!(job.created()[0].0, output.number);
    assert!(job.take_read_bytes() > 0 && job.take_read_bytes() == 0);
    assert_eq!(job.take_written_bytes(), output.len);
    let stats = job.stats();
    assert_eq!((stats.keys, stats.live_keys), (180, 90));
    store.commit(vec![Record::ReplaceVsst { family: FAMILY, inputs, outputs }]);
    for (i, seq, reference) in &all {
        for version in [&version, &store.version()] {
            assert_eq!(value(&store, version, *i, *seq, reference), long_value(*i, *seq));
        }
    }
    assert_eq!(Ledger::of(&store.version()).exposed_bytes(), 0);
}

/// The reads of lookups are made together, so that a device works on many at once: one submission
/// for the filters of 64 keys, one for the index, one for the blocks. Before, each block had its
/// own submission and wait.
#[test]
fn the_reads_of_many_lookups_are_submitted_together() {
    // One in ten references of the table resolves to the collected file, if that still exists.
    let keys: Vec<u64> = (0..640).map(|i| i * 10).collect();
    let others: Vec<u64> = (0..6400).filter(|i| i % 10 != 0).collect();
    let collect = |lookups| {
        let mut store = Store::new(8);
        let (meta, references) = vsst(&mut store, 0, 5, &keys);
        add_vsst(&mut store, meta);
        let live: Vec<_> = references.into_iter().step_by(3).collect();
        let (meta, mut all) = vsst(&mut store, 0, 5, &others);
        add_vsst(&mut store, meta);
        all.extend(live.iter().copied());
        all.sort_by_key(|(i, _)| *i);
        add_table(&mut store, 5, &all);
        let mut job = job(&store.version(), &GcOptions { lookups, ..GcOptions::default() }, &[]);
        let GcOutcome::Replace { outputs, .. } = run(&mut job, &mut store.world).unwrap() else {
            panic!("abandoned")
        };
        let stats = job.stats();
        assert_eq!((outputs[0].entries, stats.live_keys), (live.len() as u64, live.len() as u64));
        (stats, store.world.submissions.get(), store.world.lookup_reads.get())
    };
    let (points, submissions, reads) = collect(Lookups::Points);
    assert_eq!(points.point_lookups, keys.len() as u64);
    assert!(submissions <= 3 * keys.len().div_ceil(64) as u64, "{submissions} for {reads} reads");
    assert!(reads > 3 * submissions && points.lookup_read_bytes > 0, "{submissions} for {reads} reads");
    let (join, submissions, _) = collect(Lookups::Join);
    assert_eq!((join.live_keys, submissions), (points.live_keys, 0));
}

#[test]
fn reading_whole_files_gives_the_same_output_at_higher_cost() {
    let collect = |lazy_read, gap_bytes| {
        let mut store = Store::new(4);
        let mut before = 0;
        for n in 0..3 {
            let keys: Vec<u64> = (0..200).map(|i| i * 3 + n).collect();
            let (meta, references) = vsst(&mut store, 1, 5 + n, &keys);
            before += meta.record_bytes;
            add_vsst(&mut store, meta);
            let live: Vec<_> = references.into_iter().step_by(7).collect();
            add_table(&mut store, 5 + n, &live);
        }
        let version = store.version();
        let options = GcOptions { lazy_read, gap_bytes, step_bytes: 30_000, ..GcOptions::default() };
        let mut job = job(&version, &options, &[]);
        let GcOutcome::Replace { outputs, .. } = run(&mut job, &mut store.world).unwrap() else {
            panic!("abandoned")
        };
        let [output] = outputs.as_slice() else { panic!("{} outputs", outputs.len()) };
        let bytes =
            store.world.files.env.fs.read_all(&path_of(&names::vsst(output.number)), 1 << 20).unwrap();
        (output.clone(), bytes, job.stats(), before)
    };
    let (output, bytes, lazy, record_bytes) = collect(true, Some(0));
    for gap_bytes in [None, Some(0)] {
        let (all_output, all_bytes, all, _) = collect(false, gap_bytes);
        assert_eq!((&all_output, &all_bytes), (&output, &bytes));
        assert_eq!((all.record_read_bytes, lazy.record_read_bytes), (record_bytes, lazy.live_bytes));
        assert_eq!((all.keys, all.live_keys), (lazy.keys, lazy.live_keys));
        assert!(all.record_reads < lazy.record_reads, "long runs: {all:?}");
    }
}

/// Predicted reads include the dead records between live ones.
#[test]
fn predicted_record_reads_are_within_a_fifth() {
    for (seed, dead_percent) in [(1, 30), (2, 60), (3, 85), (4, 97)] {
        for gap_bytes in [Some(0), Some(150), Some(1000), None] {
            let (mut store, mut rng) = (Store::new(seed), Rng::new(seed));
            let (meta, references) = vsst(&mut store, 1, 5, &(0..4000).collect::<Vec<_>>());
            add_vsst(&mut store, meta);
            let live: Vec<_> = references.into_iter().filter(|_| rng.below(100) >= dead_percent).collect();
            add_table(&mut store, 5, &live);
            let version = store.version();
            let options = GcOptions { gap_bytes, ..GcOptions::default() };
            let gc = pick(&version, &Ledger::of(&version), &options, &|_| false).unwrap();
            let (said, mut job) = (gc.expected_read, GcJob::new(gc, &version, options));
            run(&mut job, &mut store.world).unwrap();
            let stats = job.stats();
            let is = stats.key_read_bytes + stats.record_read_bytes;
            assert!(is.abs_diff(said) <= is / 5, "{dead_percent} %, {gap_bytes:?}: said {said}, {is} read");
        }
    }
}

/// Collects three files of 200 records, of which one in three is live. Returns the bytes of the
/// output, or the error, and the cost.
fn collected(seed: u64, options: &GcOptions, prepare: impl Fn(&Store)) -> (Result<Vec<u8>>, GcStats) {
    let mut store = Store::new(seed);
    for n in 0..3 {
        let keys: Vec<u64> = (0..200).map(|i| i * 3 + n).collect();
        let (meta, references) = vsst(&mut store, 1, 5 + n, &keys);
        add_vsst(&mut store, meta);
        let live: Vec<_> = references.into_iter().step_by(3).collect();
        add_table(&mut store, 5 + n, &live);
    }
    let version = store.version();
    let mut job = job(&version, options, &[]);
    if !options.pipelined {
        // The queue of a pipeline takes a seed, and identities of files are drawn after it.
        let _ = store.world.files.env.rng();
    }
    prepare(&store);
    let outcome = run(&mut job, &mut store.world);
    let stats = job.stats();
    if let Err(e) = &outcome {
        assert_eq!(job.step(&mut store.world).unwrap_err().to_string(), e.to_string(), "and for good");
    }
    store.sim.clear_faults();
    let bytes = outcome.map(|outcome| {
        let GcOutcome::Replace { outputs, .. } = outcome else { panic!("abandoned") };
        let [output] = outputs.as_slice() else { panic!("{} outputs", outputs.len()) };
        store.world.files.env.fs.read_all(&path_of(&names::vsst(output.number)), 1 << 20).unwrap()
    });
    (bytes, stats)
}

/// Returns options with windows and batches so small that many of both are in flight.
fn in_many_batches(rng: &mut Rng) -> GcOptions {
    GcOptions {
        step_bytes: rng.range(1, 3000),
        window_keys: rng.range(1, 200) as usize,
        window_key_bytes: rng.range(1, 2000) as usize,
        gap_bytes: Some(rng.below(300)),
        lazy_read: !rng.one_in(4),
        ..GcOptions::default()
    }
}

#[test]
fn a_pipelined_job_makes_the_same_file() {
    let mut ahead = 0;
    for seed in 0..40 {
        let options = in_many_batches(&mut Rng::new(seed));
        let (bytes, stats) = collected(seed, &options, |_| {});
        let (by_turns, alone) = collected(seed, &GcOptions { pipelined: false, ..options }, |_| {});
        assert!(bytes.unwrap() == by_turns.unwrap(), "seed {seed}");
        assert_eq!(
            (stats.keys, stats.live_keys, stats.live_bytes),
            (alone.keys, alone.live_keys, alone.live_bytes)
        );
        assert_eq!(alone.record_reads_ahead, 0);
        assert!(stats.record_reads_ahead < stats.record_reads, "the first batch is waited for");
        ahead += stats.record_reads_ahead;
    }
    assert!(ahead > 1000, "{ahead}");
}

/// Collects three files of `entries` records with values of `len` bytes, one in three live, in
/// order of arrival or in key order. Returns the bytes of the output, and the cost.
fn collected_of(
    is_arrival: bool,
    seed: u64,
    (entries, len): (u64, usize),
    options: &GcOptions,
) -> (Vec<u8>, GcStats) {
    let mut store = Store::new(seed);
    let mut rng = Rng::new(seed);
    for n in 0..3u64 {
        let mut arrived: Vec<(u64, SeqNo)> = (0..entries).map(|i| (i * 3 + n, 0)).collect();
        (1..arrived.len()).rev().for_each(|i| arrived.swap(i, rng.below(i as u64 + 1) as usize));
        arrived.iter_mut().zip(1..).for_each(|(one, nth)| one.1 = n * entries + nth);
        if !is_arrival {
            arrived.sort_unstable();
        }
        let OutputVsst { number, mut builder, .. } = store.world.begin(1, VsstClass::Mixed).unwrap();
        if is_arrival {
            builder = builder.in_order_of_arrival();
        }
        let mut references = Vec::new();
        for &(i, seq) in &arrived {
            let mut value = vec![0; len];
            Rng::new(seq).fill(&mut value);
            let lens = match is_arrival {
                true => builder.append(&user_key(i), seq, &value).unwrap().0,
                false => builder.add(&user_key(i), seq, &value).unwrap(),
            };
            references.push((
                i,
                seq,
                Reference { blob_id: number, raw_len: lens.raw_len, stored_len: lens.stored_len },
            ));
        }
        let meta = VsstMeta { segment: false, ..vsst_meta(&builder.finish(Vec::new()).unwrap()).unwrap() };
        add_vsst(&mut store, meta);
        references.sort_unstable_by_key(|(i, ..)| *i);
        let mut table = store.world.begin_table(0).unwrap();
        for (i, seq, reference) in references.iter().step_by(3) {
            table.add(&encode(&user_key(*i), *seq, ValueKind::Reference), &reference.encode()).unwrap();
        }
        let meta = table_meta(table).unwrap();
        store.commit(vec![Record::AddFile { family: FAMILY, level: 0, meta }]);
    }
    let version = store.version();
    let mut job = job(&version, options, &[]);
    if !options.pipelined {
        let _ = store.world.files.env.rng();
    }
    let GcOutcome::Replace { outputs, .. } = run(&mut job, &mut store.world).unwrap() else {
        panic!("abandoned")
    };
    let [output] = outputs.as_slice() else { panic!("{} outputs", outputs.len()) };
    let fs = &store.world.files.env.fs;
    (fs.read_all(&path_of(&names::vsst(output.number)), 64 << 20).unwrap(), job.stats())
}

/// A value log file yields the same output as a file in key order. It is read in runs of the same
/// length, except for gaps that cost more than a request: with records of 4 KB more than three dead
/// ones.
#[test]
fn a_value_log_file_is_read_by_offset_and_copied_by_key() {
    let options = GcOptions::default();
    for len in [100, 1000, 4000] {
        let (sorted, by_key) = collected_of(false, 7, (300, len), &options);
        let (arrived, by_place) = collected_of(true, 7, (300, len), &options);
        assert!(sorted == arrived, "{len} B");
        assert_eq!(by_key.live_keys, 300);
        let reads_max = if len < 4000 { 2 * by_key.record_reads } else { by_place.live_keys / 4 };
        assert!(by_place.record_reads <= reads_max, "{len} B: {by_key:?} {by_place:?}");
    }
}

#[test]
fn a_value_log_file_in_many_batches_makes_the_same_output() {
    for seed in 0..40 {
        let options = in_many_batches(&mut Rng::new(seed));
        let (bytes, _) = collected_of(true, seed, (60, 200), &options);
        let (by_turns, _) =
            collected_of(true, seed, (60, 200), &GcOptions { pipelined: false, ..options.clone() });
        let (sorted, _) = collected_of(false, seed, (60, 200), &options);
        assert!(bytes == by_turns && bytes == sorted, "seed {seed}");
    }
}

/// With long values at random offsets, the held bytes are still bounded.
#[test]
fn held_bytes_of_value_log_files_are_bounded() {
    let (_, stats) = collected_of(true, 3, (300, 100 << 10), &GcOptions::default());
    let held = stats.held_bytes_max;
    assert!((4 << 20..=16 << 20).contains(&held), "{stats:?}");
}

#[test]
fn a_failed_read_ahead_fails_the_job_without_output() {
    let (mut failed, mut ahead) = (0, 0);
    for seed in 0..60 {
        let options = in_many_batches(&mut Rng::new(seed));
        let (_, sound) = collected(seed, &options, |_| {});
        // Keys and tables are read as well, so some reads are beyond the end.
        let nth = Rng::new(seed).below(sound.record_reads + 10);
        let fault = FaultPlan::nth(nth, FaultEffect::Eio).kinds(&[OpKind::Read]);
        let (bytes, stats) = collected(seed, &options, |store| store.sim.inject(fault.clone()));
        let Err(e) = bytes else { continue };
        assert!(e.kind() == ErrorKind::Io && e.file().is_some(), "{e}");
        failed += 1;
        ahead += u32::from(stats.record_reads_ahead > 0);
    }
    assert!(failed > 40 && ahead > 20, "{failed} {ahead}");
}

/// A job that is dropped in the middle, with reads in flight, leaves only the files that it lists.
#[test]
fn a_job_may_be_dropped_after_any_step() {
    let mut store = Store::new(2);
    a_third_live(&mut store);
    let version = store.version();
    let options = GcOptions { step_bytes: 300, window_keys: 30, ..GcOptions::default() };
    for steps in 0.. {
        let mut job = job(&version, &options, &[]);
        let done = (0..steps).any(|_| matches!(job.step(&mut store.world).unwrap(), GcStep::Done(_)));
        let created: Vec<_> = job.created().to_vec();
        drop(job);
        created.iter().for_each(|(_, path)| store.world.files.env.fs.remove(path).unwrap());
        if done {
            assert!(steps > 10);
            break;
        }
    }
}

#[test]
fn held_bytes_of_a_pipeline_are_bounded() {
    for (pipelined, held_max) in [(true, 6 << 20), (false, 4 << 20)] {
        let mut store = Store::new(3);
        let (world, mut references) = (&mut store.world, Vec::new());
        let mut series = VsstSeries::new(u64::MAX, || world.begin(1, VsstClass::Cold));
        for i in 0..240 {
            let mut value = vec![0; 80 << 10];
            Rng::new(i).fill(&mut value);
            references.push((i, series.add(&user_key(i), 5, &value).unwrap()));
        }
        let meta = series.finish().unwrap().remove(0);
        drop(series);
        add_vsst(&mut store, meta);
        references.retain(|(i, _)| i % 3 != 0);
        add_table(&mut store, 5, &references);
        let version = store.version();
        let mut job = job(&version, &GcOptions { pipelined, ..GcOptions::default() }, &[]);
        run(&mut job, &mut store.world).unwrap();
        let stats = job.stats();
        let held = stats.held_bytes_max;
        assert!((1 << 20..=held_max).contains(&held) && (held > 4 << 20) == pipelined, "{stats:?}");
        assert_eq!(stats.record_reads_ahead > 0, pipelined);
    }
}

#[test]
fn only_damaged_live_records_stop_the_job() {
    let mut refused = 0;
    for record in 0..12 {
        let mut store = Store::new(3);
        let (meta, live) = a_third_live(&mut store);
        let path = path_of(&names::vsst(meta.number));
        let offset = {
            let vsst = store.world.files.vsst(&meta).unwrap();
            vsst.locate(&user_key(record), 5, &mut ReadCounters::default()).unwrap()
        };
        store.sim.flip_bit(&path, offset + 20, 3).unwrap();
        let version = store.version();
        let mut job = job(&version, &GcOptions { step_bytes: 300, ..GcOptions::default() }, &[]);
        let result = run(&mut job, &mut store.world);
        if live.iter().any(|(i, _)| *i == record) {
            let e = result.unwrap_err();
            assert_eq!(
                (e.kind(), e.file(), e.offset()),
                (ErrorKind::Corruption, Some(&*path), Some(offset)),
                "{e}"
            );
            assert_eq!(job.step(&mut store.world).unwrap_err().to_string(), e.to_string());
            refused += 1;
        } else {
            assert!(matches!(result.unwrap(), GcOutcome::Replace { .. }));
        }
    }
    assert_eq!(refused, 4);
}

#[test]
fn damaged_keys_stop_the_job() {
    let mut store = Store::new(4);
    let (meta, _) = a_third_live(&mut store);
    let path = path_of(&names::vsst(meta.number));
    // The dense keys follow the records.
    store.sim.flip_bit(&path, meta.record_bytes + 9, 1).unwrap();
    let version = store.version();
    let e = run(&mut job(&version, &GcOptions::default(), &[]), &mut store.world).unwrap_err();
    assert_eq!((e.kind(), e.file()), (ErrorKind::Corruption, Some(&*path)), "{e}");
}

/// Returns the errors of a collection when each byte of the dense keys is changed by one, under a
/// valid checksum.
fn told_of_dense_keys(store: &mut Store, meta: &VsstMeta) -> BTreeSet<String> {
    let path = path_of(&names::vsst(meta.number));
    let env = store.sim.env();
    let file = env.fs.open(&path, Access::Buffered).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_at(&mut bytes, 0).unwrap();
    let mut listing = String::new();
    table::dump_vsst(&store.world.files.vsst(meta).unwrap(), Default::default(), &mut listing).unwrap();
    let line = listing.lines().find(|line| line.contains(" dense partition 0")).unwrap();
    let numbers: Vec<usize> = line.split([' ', '+']).filter_map(|word| word.parse().ok()).collect();
    let frame = numbers[0]..numbers[0] + numbers[1];
    let sound = bytes[frame.clone()].to_vec();
    let version = store.version();
    let mut told = BTreeSet::new();
    for (at, by) in (0..sound.len() - 5).flat_map(|at| [(at, 1), (at, 255), (at, 2)]) {
        let mut sealed = sound[..sound.len() - 5].to_vec();
        sealed[at] = sealed[at].wrapping_add(by);
        table::frame::seal(&mut sealed, 0, Compression::None);
        table::frame::mask(&mut sealed, meta.uid, frame.start as u64);
        bytes[frame.clone()].copy_from_slice(&sealed);
        env.fs.remove(&path).unwrap();
        let mut file = env.fs.create(&path, &CreateOptions::default()).unwrap();
        file.append(&bytes).unwrap();
        file.sync(SyncKind::Full).unwrap();
        store.world.files.forget(meta.number);
        if let Err(e) = run(&mut job(&version, &GcOptions::default(), &[]), &mut store.world) {
            assert!(e.is_corruption(), "byte {at}: {e}");
            told.insert(e.message().to_owned());
        }
    }
    told
}

#[test]
fn dense_keys_that_disagree_with_records_stop_the_job() {
    let mut store = Store::new(4);
    let (meta, references) = vsst(&mut store, 1, 5, &[0, 1, 2, 5]);
    add_vsst(&mut store, meta.clone());
    // The table has a key that is one byte off another key of the file.
    let (first, last) = (references[0].1, references[3].1);
    add_table(&mut store, 5, &[(0, first), (6, last)]);
    let told = told_of_dense_keys(&mut store, &meta);
    for expected in [
        "the keys of a value file (vSST) are not in ascending order",
        "the value record found for key \"key00006\" has another key or sequence",
    ] {
        assert!(told.iter().any(|told| told.starts_with(expected)), "{expected}: {told:#?}");
    }
}

/// The picker chooses no ingested file; a job that is given one copies nothing under a wrong
/// sequence.
#[test]
fn an_ingested_file_is_not_collected() {
    let mut store = Store::new(4);
    a_third_live(&mut store);
    let version = store.version();
    let mut gc = pick(&version, &Ledger::of(&version), &GcOptions::default(), &|_| false).unwrap();
    let ingested = VsstMeta { global_seq: Some(9), ..VsstMeta::clone(&gc.inputs[0]) };
    gc.inputs = vec![Arc::new(ingested)];
    let e = run(&mut GcJob::new(gc, &version, GcOptions::default()), &mut store.world).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
    assert!(e.message().ends_with("so its records stay: collect them after the next compaction"), "{e}");
}

#[test]
fn a_reference_without_a_record_stops_the_job() {
    let mut store = Store::new(5);
    let (meta, live) = a_third_live(&mut store);
    // A key that the file does not hold.
    add_table(&mut store, 6, &[(5000, live[0].1)]);
    let version = store.version();
    let e = run(&mut job(&version, &GcOptions::default(), &[]), &mut store.world).unwrap_err();
    assert!(e.is_corruption() && e.to_string().contains(&meta.number.to_string()), "{e}");
}

#[test]
fn a_reference_of_another_length_stops_the_job() {
    let mut store = Store::new(6);
    let (meta, references) = vsst(&mut store, 1, 5, &(0..10).collect::<Vec<_>>());
    add_vsst(&mut store, meta.clone());
    let wrong = Reference { stored_len: references[0].1.stored_len - 1, ..references[0].1 };
    add_table(&mut store, 5, &[(0, wrong)]);
    let version = store.version();
    let e = run(&mut job(&version, &GcOptions::default(), &[]), &mut store.world).unwrap_err();
    assert_eq!((e.kind(), e.offset()), (ErrorKind::Corruption, Some(0)), "{e}");
}

#[test]
fn a_dead_file_is_not_opened() {
    let mut store = Store::new(7);
    let (meta, _) = vsst(&mut store, 0, 5, &[1, 2, 3]);
    add_vsst(&mut store, meta.clone());
    store.world.files.env.fs.remove(&path_of(&names::vsst(meta.number))).unwrap();
    let version = store.version();
    let mut job = job(&version, &GcOptions::default(), &[]);
    let GcOutcome::Replace { inputs, outputs } = run(&mut job, &mut store.world).unwrap() else {
        panic!("abandoned")
    };
    assert_eq!((inputs.as_slice(), outputs.len()), (&[meta.number][..], 0));
    store.commit(vec![Record::ReplaceVsst { family: FAMILY, inputs, outputs }]);
    assert!(store.version().vssts.is_empty() && store.version().aliases.is_empty());
}

/// Two files under one blob id, of which the first is all live and the second all garbage: each is
/// estimated as half garbage.
#[test]
fn a_wrong_estimate_is_detected_early() {
    let mut store = Store::new(8);
    let (mut low, references) = vsst(&mut store, 1, 5, &(0..500).collect::<Vec<_>>());
    let (mut high, _) = vsst(&mut store, 1, 5, &(500..1000).collect::<Vec<_>>());
    let name = 3;
    (low.blob_ids, high.blob_ids) = (vec![name], vec![name]);
    let (low_number, high_number) = (low.number, high.number);
    let target = |first_key: Vec<u8>, file| AliasTarget { first_key, file };
    let targets = vec![
        target(Vec::new(), low_number),
        target(encode(&user_key(500), 5, ValueKind::Value), high_number),
    ];
    let add = |meta| Record::AddVsst { family: FAMILY, meta };
    store.commit(vec![add(low), add(high), Record::SetAlias { family: FAMILY, blob_id: name, targets }]);
    let renamed: Vec<_> = references.iter().map(|(i, r)| (*i, Reference { blob_id: name, ..*r })).collect();
    add_table(&mut store, 5, &renamed);
    let version = store.version();
    let options = GcOptions { window_keys: 20, ..GcOptions::default() };

    let mut hopeless = job(&version, &options, &[high_number]);
    assert!(!hopeless.gc().exact && hopeless.gc().expected_free > 0);
    let GcOutcome::Abandoned { measured } = run(&mut hopeless, &mut store.world).unwrap() else {
        panic!("a job that frees nothing was not abandoned")
    };
    let [measured] = measured.as_slice() else { panic!("one input") };
    assert_eq!((measured.file, measured.garbage_bytes), (low_number, 0));
    assert!(hopeless.stats().keys < 150, "{} keys of 500 were judged", hopeless.stats().keys);

    let mut worthwhile = job(&version, &options, &[low_number]);
    let GcOutcome::Replace { outputs, .. } = run(&mut worthwhile, &mut store.world).unwrap() else {
        panic!("abandoned")
    };
    assert!(outputs.is_empty());

    // Both together are exact: every blob id resolves to inputs only.
    let mut both = job(&version, &options, &[]);
    let GcOutcome::Replace { inputs, outputs } = run(&mut both, &mut store.world).unwrap() else {
        panic!("abandoned")
    };
    assert_eq!((inputs.len(), outputs.iter().map(|o| o.entries).sum::<u64>()), (2, 500));
}

#[test]
fn outputs_end_between_user_keys_and_fit_long_records() {
    let mut store = Store::new(9);
    let mut rng = Rng::new(1);
    let world = &mut store.world;
    let mut series = VsstSeries::new(u64::MAX, || world.begin(1, VsstClass::Mixed));
    let mut builder_entries = Vec::new();
    for i in 0..30 {
        for seq in (1..=1 + rng.below(5)).rev() {
            let mut value = vec![0; if i == 7 { 6 << 20 } else { rng.range(50, 3000) as usize }];
            rng.fill(&mut value);
            let reference = series.add(&user_key(i), seq, &value).unwrap();
            builder_entries.push((i, seq, value, reference));
        }
    }
    let meta = series.finish().unwrap().remove(0);
    drop(series);
    let mut table = store.world.begin_table(0).unwrap();
    builder_entries.retain(|_| !rng.one_in(3));
    for (i, seq, _, reference) in &builder_entries {
        table.add(&encode(&user_key(*i), *seq, ValueKind::Reference), &reference.encode()).unwrap();
    }
    add_vsst(&mut store, meta);
    let meta = table_meta(table).unwrap();
    store.commit(vec![Record::AddFile { family: FAMILY, level: 0, meta }]);
    let options = GcOptions { file_bytes: 4000, ratio_percent: 1, ..GcOptions::default() };
    let mut job = job(&store.version(), &options, &[]);
    let GcOutcome::Replace { inputs, outputs } = run(&mut job, &mut store.world).unwrap() else {
        panic!("abandoned")
    };
    assert!(outputs.len() > 3);
    for pair in outputs.windows(2) {
        assert!(base::key::user_key(&pair[0].largest) < base::key::user_key(&pair[1].smallest));
    }
    store.commit(vec![Record::ReplaceVsst { family: FAMILY, inputs, outputs }]);
    for (i, seq, expected, reference) in &builder_entries {
        assert_eq!(&value(&store, &store.version(), *i, *seq, reference), expected);
    }
}

#[test]
fn a_series_splits_files_and_fails_permanently() {
    let mut store = Store::new(10);
    let world = RefCell::new(&mut store.world);
    let mut series = VsstSeries::new(2000, || world.borrow_mut().begin(0, VsstClass::Hot));
    assert!(series.finish().unwrap().is_empty(), "no values, no files");
    let mut references = Vec::new();
    for i in 0..40 {
        for seq in [9, 8] {
            references.push((i, seq, series.add(&user_key(i), seq, &long_value(i, seq)).unwrap()));
        }
    }
    let metas = series.finish().unwrap();
    assert!(metas.len() > 3);
    assert_eq!(metas.iter().map(|m| m.entries).sum::<u64>(), 80);
    assert_eq!(metas.iter().map(|m| m.record_bytes).sum::<u64>(), series.record_bytes());
    assert_eq!(metas.iter().map(|m| m.len).sum::<u64>(), series.take_written_bytes());
    assert!(series.created().iter().map(|(n, _)| *n).eq(metas.iter().map(|m| m.number)));
    for meta in &metas {
        assert!(meta.class == VsstClass::Hot && meta.blob_ids.is_empty() && meta.validate().is_ok());
        assert!(meta.len < 4000);
    }
    for pair in metas.windows(2) {
        assert!(base::key::user_key(&pair[0].largest) < base::key::user_key(&pair[1].smallest));
    }
    let e = series.add(&user_key(3), 1, &[]).and_then(|_| series.add(&user_key(2), 1, &[])).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    assert_eq!(series.add(&user_key(9), 1, &[]).unwrap_err().to_string(), e.to_string());
    assert_eq!(series.finish().unwrap_err().to_string(), e.to_string());
    drop(series);
    metas.into_iter().for_each(|meta| add_vsst(&mut store, meta));
    for (i, seq, reference) in &references {
        assert_eq!(value(&store, &store.version(), *i, *seq, reference), long_value(*i, *seq));
    }
}
