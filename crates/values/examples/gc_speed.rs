//! Speed of garbage collection on one core: `cargo run --release --example gc_speed --
//! [directory]`.
//!
//! The default directory is a new one in the system's place for temporary files; give one on a
//! memory file system to exclude the device. Times are processor times, to a few milliseconds. One
//! vSST of 64 MiB of records is collected, of which half are live, in a store with a given number
//! of references. The first collection finds the blocks of its lookups in the cache; the second has
//! an empty cache, but the kernel's cache stays warm. The fastest of several runs counts.

use base::key::encode;
use base::{Result, Uid, ValueKind};
use cache::Cache;
use io::{Access, CreateOptions, Env, ReadQueue, Rng};
use lavastore_values::*;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use table::{Ksst, KsstBuilder, Reference, TableIdentity, TableOptions, Vsst, VsstBuilder, VsstOptions};
use version::{Dependency, FileMeta, Version, VsstClass, VsstMeta};

const RECORD_BYTES: u64 = 64 << 20;
/// Blob id of the references that do not concern the file.
const ELSEWHERE: u64 = 1;
const TABLE_REFERENCES: u64 = 128 << 10;
const RUNS: usize = 12;

struct World {
    env: Env,
    dir: PathBuf,
    cache: Arc<Cache>,
    next: u64,
    tables: Mutex<Vec<(u64, Arc<Ksst>)>>,
}

impl World {
    fn path(&self, number: u64) -> PathBuf {
        io::fs::join(&self.dir, &format!("{number:012}"))
    }

    fn identity(&mut self) -> TableIdentity {
        self.next += 1;
        TableIdentity { number: self.next, uid: Uid::from_words(self.next, 1), ..TableIdentity::default() }
    }

    fn begin(&mut self, alignment: u32) -> Result<OutputVsst> {
        let identity = self.identity();
        let (number, uid) = (identity.number, identity.uid);
        let path = self.path(number);
        let options = CreateOptions { write_buffer_len: 1 << 20, ..CreateOptions::default() };
        let file = self.env.fs.create(&path, &options)?;
        let options = VsstOptions { alignment, ..VsstOptions::default() };
        Ok(OutputVsst {
            volume: Default::default(),
            number,
            path: path.clone(),
            uid,
            builder: VsstBuilder::new(file, &path, identity, &options, None),
        })
    }

    /// Reopens everything with an empty cache.
    fn forget(&mut self) {
        self.tables.lock().expect("one thread").clear();
        self.cache = Arc::new(Cache::new(1 << 30));
    }
}

impl GcEnv for World {
    fn table(&self, file: &FileMeta) -> Result<Arc<Ksst>> {
        let mut tables = self.tables.lock().expect("one thread");
        if let Some((_, table)) = tables.iter().find(|(n, _)| *n == file.number) {
            return Ok(table.clone());
        }
        let handle = self.env.fs.open(&self.path(file.number), Access::Buffered)?;
        let table = Arc::new(Ksst::open(handle, file.number, file.uid, None, self.cache.clone())?);
        tables.push((file.number, table.clone()));
        Ok(table)
    }
    fn vsst(&self, meta: &VsstMeta) -> Result<Arc<Vsst>> {
        let handle = self.env.fs.open(&self.path(meta.number), Access::Buffered)?;
        Ok(Arc::new(Vsst::open(handle, meta.number, meta.uid, self.cache.clone())?))
    }
    fn create(&mut self, alignment: u32, _class: VsstClass) -> Result<OutputVsst> {
        self.begin(alignment)
    }
    fn now_ns(&self) -> Option<u64> {
        Some(self.env.clock.now_ns())
    }
    fn reads(&self) -> Option<ReadQueue> {
        Some(ReadQueue::of_background(&self.env))
    }
}

/// Returns the processor time of this thread, if the system provides it (the machine may be
/// shared), else the clock.
fn now_ns(env: &Env) -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = stat.split_whitespace().next().and_then(|word| word.parse().ok());
    ns.unwrap_or_else(|| env.clock.now_ns())
}

fn user_key(i: u64) -> Vec<u8> {
    format!("user{i:020}").into_bytes()
}

/// Returns a table at some level with these references, ascending.
fn table(world: &mut World, references: &[(u64, u64, Reference)]) -> Result<Arc<FileMeta>> {
    let identity = world.identity();
    let path = world.path(identity.number);
    let file = world.env.fs.create(&path, &CreateOptions::default())?;
    let mut builder = KsstBuilder::new(file, &path, identity, &TableOptions::default(), None);
    for (key, seq, reference) in references {
        builder.add(&encode(&user_key(*key), *seq, ValueKind::Reference), &reference.encode())?;
    }
    Ok(Arc::new(lsm::file_meta(&builder.finish()?)))
}

/// Returns a version with one vSST of values of `value_len` bytes, spread over `references` keys.
/// The last level references all keys, and the level above it a twentieth as many.
fn build(world: &mut World, value_len: usize, references: u64) -> Result<Version> {
    let mut rng = Rng::new(1);
    let records = RECORD_BYTES / value_len as u64;
    let spread = (references / records).max(1);
    let OutputVsst { number, mut builder, .. } = world.begin(0)?;
    let mut value = vec![0; value_len];
    let (mut bottom, mut upper) = (Vec::new(), Vec::new());
    for key in 0..references.max(records) {
        let seq = 1000 + key;
        let elsewhere =
            Reference { blob_id: ELSEWHERE, raw_len: value_len as u64, stored_len: value_len as u64 };
        let mut reference = elsewhere;
        if key % spread == 0 && key / spread < records {
            rng.fill(&mut value);
            let lens = builder.add(&user_key(key), seq, &value)?;
            if rng.one_in(2) {
                reference = Reference { blob_id: number, raw_len: lens.raw_len, stored_len: lens.stored_len };
            }
        }
        // Records that are not live here were overwritten, and are elsewhere under a later
        // sequence.
        let seq = if reference.blob_id == number { seq } else { seq + (1 << 40) };
        bottom.push((key, seq, reference));
        if rng.one_in(20) {
            upper.push((key, seq + (1 << 41), elsewhere));
        }
    }
    let meta = vsst_meta(&builder.finish(Vec::new())?)?;
    let mut levels = vec![Vec::new(); 4];
    for part in bottom.chunks(TABLE_REFERENCES as usize) {
        levels[3].push(table(world, part)?);
    }
    for part in upper.chunks(TABLE_REFERENCES as usize) {
        let mut file = FileMeta::clone(&*table(world, part)?);
        // Pretend that the table uses the blob id, so that it is searched for every key.
        let mut list = file.uses.list().unwrap_or_default().to_vec();
        list.push(Dependency { blob_id: number, count: 1, ..Dependency::default() });
        file.uses = list.into();
        levels[2].push(Arc::new(file));
    }
    let mut version = Version::with_files(1, levels);
    for file in version.levels.iter().flatten().cloned().collect::<Vec<_>>() {
        let list = file.uses.list().unwrap_or_default();
        for d in list.iter().filter(|d| d.blob_id == number && d.stored_bytes > 0) {
            let mut totals = version.references.get(&number).copied().unwrap_or_default();
            totals.count += d.count;
            totals.stored_bytes += d.stored_bytes;
            totals.raw_bytes += d.raw_bytes;
            totals.tables += 1;
            version.references.insert(number, totals);
        }
    }
    version.vssts.insert(number, Arc::new(meta));
    Ok(version)
}

/// Runs one collection. Returns the time up to the first byte of a record read, the total time, and
/// the longest step.
fn collect(world: &mut World, version: &Arc<Version>) -> Result<(u64, u64, u64, GcStats)> {
    let options = GcOptions::default();
    let gc = pick(version, &Ledger::of(version), &options, &|_| false).expect("there is garbage");
    let mut job = GcJob::new(gc, version, options);
    let start = now_ns(&world.env);
    let (mut judged, mut longest, mut last) = (0, 0, start);
    loop {
        let step = job.step(world)?;
        let now = now_ns(&world.env);
        let finished = matches!(step, GcStep::Done(_));
        // The last step waits for the device.
        longest = if finished { longest } else { longest.max(now - last) };
        last = now;
        if job.stats().record_reads == 0 {
            judged = now - start;
        }
        if let GcStep::Done(outcome) = step {
            assert!(matches!(outcome, GcOutcome::Replace { .. }));
            for (_, path) in job.created() {
                world.env.fs.remove(path)?;
            }
            return Ok((judged, now - start, longest, job.stats()));
        }
    }
}

fn measure(env: &Env, dir: &Path, value_len: usize, references: u64) -> Result<()> {
    let mut world = World {
        env: env.clone(),
        dir: dir.to_owned(),
        cache: Arc::new(Cache::new(1 << 30)),
        next: 10,
        tables: Mutex::default(),
    };
    let version = Arc::new(build(&mut world, value_len, references)?);
    for cached in [true, false] {
        let mut best: Option<(u64, u64, u64, GcStats)> = None;
        for _ in 0..RUNS {
            if !cached {
                world.forget();
            }
            let run = collect(&mut world, &version)?;
            let (judged, all, longest, stats) = best.unwrap_or(run);
            best = Some((judged.min(run.0), all.min(run.1), longest.min(run.2), stats));
        }
        let (judged, all, longest, stats) = best.expect("runs");
        println!(
            "{value_len:>6} B values, {references:>9} references, {}: {:>5.0} MB/s, {:>4.0} MB/s copied; \
             keys and lookups {:>6.1} ms = {:>5.0} ns/key ({} points, {} joined); {} reads of {:.0} KB; longest step {:.1} ms",
            if cached { "cached  " } else { "uncached" },
            stats.judged_bytes as f64 * 1e3 / all as f64,
            stats.live_bytes as f64 * 1e3 / (all - judged) as f64,
            judged as f64 / 1e6,
            judged as f64 / stats.keys as f64,
            stats.point_lookups,
            stats.joined_references,
            stats.record_reads,
            stats.record_read_bytes as f64 / 1e3 / stats.record_reads as f64,
            longest as f64 / 1e6,
        );
    }
    for entry in env.fs.list(dir)? {
        env.fs.remove(&io::fs::join(dir, &entry.name))?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let env = Env::kernel();
    let dir = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = io::fs::join(&dir, &format!("lavastore-gc-speed-{}", env.clock.unix_seconds()));
    env.fs.create_dir_all(&dir)?;
    for (value_len, references) in
        [(1 << 10, 1 << 16), (1 << 10, 1 << 20), (1 << 10, 1 << 23), (16 << 10, 1 << 16), (16 << 10, 1 << 20)]
    {
        measure(&env, &dir, value_len, references)?;
    }
    env.fs.remove_dir(&dir)
}
