//! Speed of merging, scanning and compacting, on one core: `cargo run --release --example lsm_speed
//! -- [directory [part]]`.
//!
//! The default directory is a new one in the system's place for temporary files; give one on a
//! memory file system to leave the device out. Entries have 24-byte user keys and 200-byte values,
//! without compression, or references to values in 70 files. Parts are `merging`, `compacting` and
//! `references`; for instructions an entry, say, `perf stat -e instructions:u` with one of them.

use base::hash::key_hash;
use base::key::encode;
use base::{HashMap, InternalIterator, Result, SeqNo, Uid, ValueKind};
use cache::Cache;
use io::{Access, CreateOptions, Env, Rng};
use lavastore_lsm as lsm;
use lsm::vec_iter::{Entry, VecIter};
use lsm::{
    AssumeOlderEntries, Bounds, JobEnv, MergeJob, MergeOptions, MergeOutput, MergingIterator, OutputFile,
    OutputFiles, Rewrite, SizeCutter, Sources, Step, TableSource, ValueHook, Visibility, VisibleIterator,
    VisibleOptions,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use table::{FinishedTable, IterOptions, Ksst, KsstBuilder, Reference, TableIdentity, TableOptions};
use version::{FileMeta, Level};

const ENTRIES: u64 = 1_000_000;
const VALUE_LEN: usize = 200;

/// Entries of the merges in memory: few enough for the processor's cache, read `ENTRIES / HOT`
/// times.
const HOT: u64 = 10_000;

/// Returns sorted children that share `entries` keys: each key, or each run of `run` neighboring
/// keys, goes into a random one.
fn children(count: usize, run: u64, entries: u64) -> Vec<Arc<Vec<Entry>>> {
    let mut rng = Rng::new(7);
    let mut lists = vec![Vec::new(); count];
    let mut child = 0;
    for i in 0..entries {
        if i % run == 0 {
            child = rng.below(count as u64) as usize;
        }
        let mut value = vec![0; VALUE_LEN];
        rng.fill(&mut value);
        lists[child].push((encode(format!("user{i:020}").as_bytes(), i + 1, ValueKind::Value), value));
    }
    lists.into_iter().map(Arc::new).collect()
}

fn boxed(lists: &[Arc<Vec<Entry>>]) -> Vec<Box<dyn InternalIterator>> {
    lists.iter().map(|l| Box::new(VecIter::new(l.clone())) as Box<dyn InternalIterator>).collect()
}

fn report(what: &str, env: &Env, from_ns: u64, bytes: u64) {
    let ns = (env.clock.now_ns() - from_ns) as f64;
    print!("{what:<44} {:7.1} ns/entry", ns / ENTRIES as f64);
    println!("{}", if bytes > 0 { format!("  {:7.0} MB/s", bytes as f64 * 1e3 / ns) } else { String::new() });
}

struct Tables {
    env: Env,
    dir: PathBuf,
    next: u64,
}

impl Tables {
    fn uid(number: u64) -> Uid {
        Uid::from_words(number, 1)
    }

    fn open(&self, number: u64, cache: &Arc<Cache>) -> Result<Arc<Ksst>> {
        let file = self.env.fs.open(&self.path(number), Access::Buffered)?;
        Ok(Arc::new(Ksst::open(file, number, Self::uid(number), None, cache.clone())?))
    }

    fn path(&self, number: u64) -> PathBuf {
        io::fs::join(&self.dir, &format!("{number:06}.ksst"))
    }
}

impl OutputFiles<KsstBuilder> for Tables {
    fn create(&mut self) -> Result<OutputFile<KsstBuilder>> {
        let number = self.next;
        self.next += 1;
        let path = self.path(number);
        let options = CreateOptions { write_buffer_len: 256 << 10, ..CreateOptions::default() };
        let file = self.env.fs.create(&path, &options)?;
        let identity = TableIdentity { number, uid: Self::uid(number), ..TableIdentity::default() };
        let table = KsstBuilder::new(file, &path, identity, &TableOptions::default(), None);
        Ok(OutputFile { number, path, table })
    }
}

/// Tables that are open already.
struct Opened(HashMap<u64, Arc<Ksst>>);

impl TableSource for Opened {
    fn table(&self, file: &FileMeta) -> Result<Arc<Ksst>> {
        Ok(self.0[&file.number].clone())
    }
}

/// Value hook that gives references the newest name of their file, as compactions do.
struct Renamed(HashMap<u64, u64>);

impl ValueHook for Renamed {
    fn rewrite(
        &mut self,
        _user_key: &[u8],
        _seq: SeqNo,
        kind: ValueKind,
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Rewrite> {
        if kind != ValueKind::Reference {
            return Ok(Rewrite::Keep);
        }
        let reference = Reference::decode(value)?;
        match self.0.get(&reference.blob_id) {
            Some(&blob_id) if blob_id != reference.blob_id => {
                Reference { blob_id, ..reference }.encode_into(out);
                Ok(Rewrite::As(ValueKind::Reference))
            }
            _ => Ok(Rewrite::Keep),
        }
    }
}

/// Runs a job to its end; returns its outputs.
fn run<I: InternalIterator>(
    tables: &mut Tables,
    input: I,
    raw_bytes: u64,
    mut values: Option<&mut Renamed>,
) -> Result<Vec<MergeOutput<FinishedTable>>> {
    let mut job = MergeJob::<KsstBuilder, I>::new(input, &[], MergeOptions::new(vec![2 * ENTRIES + 1]));
    loop {
        let mut hooks = JobEnv {
            files: tables,
            cutter: &mut SizeCutter { raw_bytes },
            below: &mut AssumeOlderEntries,
            values: values.as_deref_mut().map(|values| values as _),
            observer: None,
        };
        if let Step::Done(outputs) = job.step(&mut hooks)? {
            return Ok(outputs);
        }
    }
}

fn numbers(outputs: &[MergeOutput<FinishedTable>]) -> impl Iterator<Item = u64> {
    outputs.iter().map(|output| output.number)
}

fn merging(env: &Env) -> Result<()> {
    for count in [1, 2, 4, 10] {
        for (run, name) in [(1, "every key from a random child"), (100, "runs of 100")] {
            let lists = children(count, run, HOT);
            let mut merged = MergingIterator::new(boxed(&lists));
            let from = env.clock.now_ns();
            for _ in 0..ENTRIES / HOT {
                merged.seek_to_first()?;
                while merged.valid() {
                    merged.next()?;
                }
            }
            report(&format!("merge {count} in memory, {name}"), env, from, 0);
            if run == 1 {
                let merged = MergingIterator::new(boxed(&lists));
                let mut visible = VisibleIterator::new(merged, Vec::new(), VisibleOptions::at(ENTRIES + 1));
                let from = env.clock.now_ns();
                for _ in 0..ENTRIES / HOT {
                    visible.seek_to_first()?;
                    while visible.valid() {
                        visible.next()?;
                    }
                }
                report(&format!("visible over {count} in memory"), env, from, 0);
            }
        }
    }
    Ok(())
}

fn compacting(env: &Env, dir: &Path) -> Result<()> {
    env.fs.create_dir_all(dir)?;
    let mut tables = Tables { env: env.clone(), dir: dir.to_owned(), next: 1 };
    let bytes = ENTRIES * (24 + 8 + VALUE_LEN as u64);
    for count in [1, 4, 10] {
        let lists = children(count, 1, ENTRIES);
        let from = env.clock.now_ns();
        let mut inputs = Vec::new();
        for list in &lists {
            inputs.extend(numbers(&run(&mut tables, VecIter::new(list.clone()), u64::MAX, None)?));
        }
        drop(lists);
        report(&format!("flush {count} memtables' worth"), env, from, bytes);
        scan_and_compact(&mut tables, inputs, &format!("{count} tables"), bytes)?;
    }
    Ok(())
}

/// Scans tables of `bytes`, compacts them, and removes them all.
fn scan_and_compact(tables: &mut Tables, inputs: Vec<u64>, what: &str, bytes: u64) -> Result<()> {
    let env = tables.env.clone();
    let cache = Arc::new(Cache::new(0));
    let options = IterOptions { fill_cache: false, readahead_bytes: 256 << 10 };
    let mut cursors: Vec<Box<dyn InternalIterator>> = Vec::new();
    for &number in &inputs {
        cursors.push(Box::new(tables.open(number, &cache)?.iter(options)));
    }
    let mut merged = MergingIterator::new(cursors);
    let from = env.clock.now_ns();
    merged.seek_to_first()?;
    while merged.valid() {
        merged.next()?;
    }
    report(&format!("scan {what}"), &env, from, bytes);
    let from = env.clock.now_ns();
    let outputs = run(tables, merged, 32 << 20, None)?;
    report(&format!("compact {what} into {}", outputs.len()), &env, from, bytes);
    let outputs: Vec<u64> = numbers(&outputs).collect();
    inputs.into_iter().chain(outputs).try_for_each(|number| env.fs.remove(&tables.path(number)))
}

/// Ascending keys that are spread as evenly, and have as little in common, as random ones.
fn spread_key(i: u64) -> String {
    const STEP: u64 = u64::MAX / ENTRIES;
    format!("user{:020}", i * STEP + key_hash(&i.to_be_bytes()) % STEP)
}

/// Returns every `step`th entry from `first` on, with references to values in random files.
fn references(first: u64, step: u64, seq: u64) -> Arc<Vec<Entry>> {
    let mut rng = Rng::new(seq);
    let entry = |i: u64| {
        let reference = Reference { blob_id: 900 + rng.below(70), raw_len: 1000, stored_len: 1040 };
        (encode(spread_key(i).as_bytes(), seq + i, ValueKind::Reference), reference.encode())
    };
    Arc::new((first..ENTRIES).step_by(step as usize).map(entry).collect())
}

/// Number of merges of one batch of references.
const ROUNDS: u64 = 5;

/// Compacts four tables of new references into a level of sixteen times as many, half of whose
/// names are old, as in a compaction with separated values.
fn compacting_references(env: &Env, dir: &Path) -> Result<()> {
    env.fs.create_dir_all(dir)?;
    let mut tables = Tables { env: env.clone(), dir: dir.to_owned(), next: 1 };
    let cache = Arc::new(Cache::new(0));
    let mut opened = HashMap::default();
    let mut add = |tables: &mut Tables, entries, raw_bytes| -> Result<Level> {
        let outputs = run(tables, VecIter::new(entries), raw_bytes, None)?;
        for number in numbers(&outputs) {
            opened.insert(number, tables.open(number, &cache)?);
        }
        Ok(outputs.iter().map(|output| Arc::new(lsm::file_meta(&output.table))).collect::<Vec<_>>().into())
    };
    let base = add(&mut tables, references(0, 1, 0), 48 << 20)?;
    let mut level_0 = Vec::new();
    for i in (0..4).rev() {
        level_0.extend(add(&mut tables, references(16 * i + i, 64, ENTRIES), u64::MAX)?.iter().cloned());
    }
    let levels = [(0, Level::from(level_0)), (1, base)];
    let source: Arc<dyn TableSource> = Arc::new(Opened(opened));
    let mut names = Renamed((900..970).map(|name| (name, name | 1)).collect());
    let from = env.clock.now_ns();
    for _ in 0..ROUNDS {
        let options = IterOptions { fill_cache: false, readahead_bytes: 512 << 10 };
        let mut sources = Sources::new(Visibility::Snapshots(vec![2 * ENTRIES + 1]), source.clone(), options);
        sources.add(levels.iter().map(|(level, files)| (*level, files)), Bounds::default())?;
        let merged = MergingIterator::over(sources.cursors);
        let outputs = run(&mut tables, merged, 48 << 20, Some(&mut names))?;
        numbers(&outputs).try_for_each(|number| env.fs.remove(&tables.path(number)))?;
    }
    let ns = (env.clock.now_ns() - from) as f64 / ROUNDS as f64;
    let entries: u64 = levels.iter().flat_map(|(_, files)| files.iter()).map(|file| file.entries).sum();
    println!("{:<44} {:7.1} ns/entry", "compact references, a sixteenth of them new", ns / entries as f64);
    let inputs = levels.iter().flat_map(|(_, files)| files.iter());
    inputs.map(|file| file.number).try_for_each(|number| env.fs.remove(&tables.path(number)))
}

fn main() -> Result<()> {
    let env = Env::kernel();
    let mut args = std::env::args().skip(1);
    let dir = args.next().map_or_else(std::env::temp_dir, PathBuf::from).join("lavastore-lsm-speed");
    let part = args.next();
    let is_wanted = |name: &str| part.as_deref().is_none_or(|part| part == name);
    if is_wanted("merging") {
        merging(&env)?;
    }
    if is_wanted("compacting") {
        compacting(&env, &dir)?;
    }
    if is_wanted("references") {
        compacting_references(&env, &dir)?;
    }
    env.fs.remove_dir(&dir)
}
