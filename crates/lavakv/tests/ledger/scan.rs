//! A second computation of the ledger from the files alone. It reads the manifest from disk,
//! decodes every table and the keys of every value file, and merges all entries itself. It shares
//! only the file readers with the ledger, and the version's mapping from names to value files.

use crate::common::{DIR, env};
use base::{InternalIterator, MAX_SEQ, SeqNo, ValueKind, key};
use cache::Cache;
use lavastore_lavakv::sim::SimEnv;
use lavastore_lavakv::{Env, io};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use table::{IterOptions, Ksst, Reference, Vsst};
use version::{Manifest, Version, VsstMeta};

/// Figures from the files, in allocated bytes unless stated otherwise.
#[derive(Debug, Default)]
pub struct Scan {
    pub total: u64,
    /// Tables in the manifest.
    pub tables: u64,
    /// Value files in the manifest, garbage included.
    pub vssts: u64,
    /// Tables and value files not in the manifest: of jobs, of memtables, or obsolete.
    pub loose: u64,
    /// Their names and bytes.
    pub loose_files: BTreeMap<String, u64>,
    pub logs: u64,
    pub manifests: u64,
    pub other: u64,
    /// Bytes of records without a reference in any table.
    pub garbage_records: u64,
    /// Bytes of records whose reference is hidden by a newer entry.
    pub hidden_records: u64,
    /// Hidden entries.
    pub hidden: Vec<Hidden>,
    /// Every entry of every table except tombstones.
    pub stored: Vec<Stored>,
    /// Compensated bytes of all tables, and of those in the last level, over all families, from the
    /// manifest.
    pub index: (u64, u64),
}

/// A version of a key in a table.
#[derive(Debug)]
pub struct Stored {
    /// The number of the column family.
    pub family: u32,
    pub user_key: Vec<u8>,
    /// Its sequence; 0 if a compaction zeroed it, which never happens to a reference.
    pub seq: SeqNo,
    /// The value; `None`: a reference.
    pub inline: Option<Vec<u8>>,
    /// Bytes of key and value, uncompressed.
    pub raw_bytes: u64,
    /// Bytes of its record in a value file.
    pub record_bytes: u64,
    /// True if a newer version or tombstone in the same table hides it.
    pub met: bool,
}

/// An entry hidden from present readers.
#[derive(Debug)]
pub struct Hidden {
    pub seq: SeqNo,
    /// The sequence that hides it.
    pub from: SeqNo,
    /// True if it is hidden by an entry in the same table: a compaction retained it.
    pub met: bool,
    /// Bytes of its key and its value in the table.
    pub entry_bytes: u64,
    /// Bytes of its record in a value file.
    pub record_bytes: u64,
}

impl Hidden {
    pub fn bytes(&self) -> u64 {
        self.entry_bytes + self.record_bytes
    }

    /// True if a reader at this snapshot sees it.
    pub fn is_seen_by(&self, snapshot: SeqNo) -> bool {
        self.seq <= snapshot && snapshot < self.from
    }
}

/// A version of a key: its table, its size, and its record.
struct Entry {
    table: u64,
    bytes: u64,
    record: Option<(u64, u64)>,
    /// `None`: a tombstone.
    stored: Option<Stored>,
}

/// A range tombstone: its table, start, end, sequence.
type Tombstone = (u64, Vec<u8>, Vec<u8>, SeqNo);

struct Files {
    env: Env,
    cache: Arc<Cache>,
}

impl Files {
    fn open(&self, name: &str) -> Arc<dyn io::ReadFile> {
        self.env.fs.open(&Path::new(DIR).join(name), io::Access::Buffered).unwrap()
    }

    /// Returns the bytes of the records in a value file by key and sequence.
    fn records(&self, meta: &VsstMeta) -> BTreeMap<(Vec<u8>, SeqNo), u64> {
        if meta.segment {
            let (user_key, trailer) = key::split(&meta.smallest);
            return BTreeMap::from([((user_key.to_vec(), trailer >> 8), meta.len)]);
        }
        let file = self.open(&version::names::vsst(meta.number));
        let vsst = Arc::new(Vsst::open(file, meta.number, meta.uid, self.cache.clone()).unwrap());
        let (mut keys, mut records) = (vsst.keys().unwrap(), BTreeMap::new());
        while keys.valid() {
            let entry = keys.entry();
            records.insert((entry.user_key.to_vec(), entry.seq), entry.stored_len);
            keys.next().unwrap();
        }
        records
    }
}

fn name_of_data(name: &str) -> bool {
    name.contains(".ksst") || name.ends_with(".vsst")
}

/// Returns the tables and value files in the manifest by column family.
pub fn listed(sim: &SimEnv) -> BTreeMap<u32, BTreeSet<String>> {
    let state = Manifest::recover(&env(sim), Path::new(DIR), true).unwrap().state();
    let names = |version: &Version| {
        let tables = version.levels.iter().flat_map(|level| level.iter()).map(|f| f.kind().to_string());
        tables.chain(version.vssts.values().map(|v| version::names::vsst(v.number))).collect()
    };
    state.families.values().map(|family| (family.id, names(&family.version))).collect()
}

/// Scans the directory of a simulated store.
pub fn scan(sim: &SimEnv) -> Scan {
    let (env, dir) = (env(sim), Path::new(DIR));
    let state = Manifest::recover(&env, dir, true).unwrap().state();
    let mut out = Scan::default();
    let versions: Vec<&Version> = state.families.values().map(|f| &*f.version).collect();
    let tables = || versions.iter().flat_map(|v| v.levels.iter().flat_map(|l| l.iter()));
    let listed_tables: BTreeSet<String> = tables().map(|f| f.kind().to_string()).collect();
    let vssts = versions.iter().flat_map(|v| v.vssts.values());
    let listed_vssts: BTreeSet<String> = vssts.map(|v| version::names::vsst(v.number)).collect();
    for file in env.fs.list(dir).unwrap() {
        let part = match &file.name[..] {
            name if listed_tables.contains(name) => &mut out.tables,
            name if listed_vssts.contains(name) => &mut out.vssts,
            name if name_of_data(name) => &mut out.loose,
            name if name.ends_with(".log") || name.ends_with(".tail") || name == "STAGING" => &mut out.logs,
            name if name.starts_with("MANIFEST") || name.starts_with("CURRENT") => &mut out.manifests,
            _ => &mut out.other,
        };
        *part += file.allocated;
        out.total += file.allocated;
        let is_data = name_of_data(&file.name);
        if is_data && !listed_tables.contains(&file.name) && !listed_vssts.contains(&file.name) {
            out.loose_files.insert(file.name, file.allocated);
        }
    }
    let files = Files { env, cache: Arc::new(Cache::new(1 << 20)) };
    versions.iter().for_each(|version| scan_family(&files, version, &mut out));
    out
}

fn scan_family(files: &Files, version: &Version, out: &mut Scan) {
    let mut records: BTreeMap<u64, _> = BTreeMap::new();
    for meta in version.vssts.values() {
        records.insert(meta.number, files.records(meta));
    }
    let (mut entries, tombstones) = entries(files, version, &mut records);
    let unreferenced = records.values().flat_map(|left| left.values());
    out.garbage_records += unreferenced.sum::<u64>();
    for (user_key, versions) in &mut entries {
        // Newest first.
        let mut newer: Option<(SeqNo, u64)> = None;
        for (&seq, entry) in versions.iter_mut().rev() {
            let covers = |t: &&Tombstone| t.1 <= *user_key && *user_key < t.2 && t.3 > seq;
            let covering = tombstones.iter().filter(covers).map(|t| (t.3, t.0));
            if let Some(from) = covering.clone().chain(newer).map(|(seq, _)| seq).min() {
                let met = covering.chain(newer).any(|(_, table)| table == entry.table);
                entry.stored.iter_mut().for_each(|stored| stored.met = met);
                let record_bytes = entry.record.map_or(0, |(_, len)| len);
                out.hidden_records += record_bytes;
                out.hidden.push(Hidden { seq, from, met, entry_bytes: entry.bytes, record_bytes });
            }
            newer = Some((seq, entry.table));
        }
        out.stored.extend(versions.values_mut().filter_map(|entry| entry.stored.take()));
    }
    let bytes = |level: &version::Level| level.iter().map(|f| f.compensated()).sum::<u64>();
    out.index.0 += version.levels.iter().map(bytes).sum::<u64>();
    out.index.1 += version.levels.iter().rev().map(bytes).find(|b| *b > 0).unwrap_or(0);
}

type Entries = BTreeMap<Vec<u8>, BTreeMap<SeqNo, Entry>>;

/// Returns all entries of all tables by key and sequence. Removes their records from `records`.
fn entries(
    files: &Files,
    version: &Version,
    records: &mut BTreeMap<u64, BTreeMap<(Vec<u8>, SeqNo), u64>>,
) -> (Entries, Vec<Tombstone>) {
    let (mut all, mut tombstones) = (Entries::new(), Vec::new());
    for meta in version.levels.iter().flat_map(|l| l.iter()) {
        let file = files.open(&meta.kind().to_string());
        let table =
            Arc::new(Ksst::open(file, meta.number, meta.uid, meta.global_seq, files.cache.clone()).unwrap());
        for t in table.range_tombstones().tombstones() {
            assert!(t.seq < MAX_SEQ);
            tombstones.push((meta.number, t.start, t.end, t.seq));
        }
        let mut cursor = table.iter(IterOptions { fill_cache: false, readahead_bytes: 0 });
        cursor.seek_to_first().unwrap();
        while cursor.valid() {
            let (user_key, trailer) = key::split(cursor.key());
            let (seq, kind) = (trailer >> 8, ValueKind::from_u8(trailer as u8).unwrap());
            let (mut record, mut raw_bytes) = (None, (cursor.key().len() + cursor.value().len()) as u64);
            if kind == ValueKind::Reference {
                let reference = Reference::decode(cursor.value()).unwrap();
                let vsst = version.resolve(reference.blob_id, user_key, seq).unwrap().number;
                let len = records.get_mut(&vsst).unwrap().remove(&(user_key.to_vec(), seq));
                record = Some((vsst, len.expect("every record has one reference")));
                raw_bytes = cursor.key().len() as u64 + reference.raw_len;
            }
            let stored = (!kind.is_tombstone()).then(|| Stored {
                family: version.family,
                user_key: user_key.to_vec(),
                seq,
                inline: record.is_none().then(|| cursor.value().to_vec()),
                raw_bytes,
                record_bytes: record.map_or(0, |(_, len)| len),
                met: false,
            });
            let bytes = (cursor.key().len() + cursor.value().len()) as u64;
            let entry = Entry { table: meta.number, bytes, record, stored };
            all.entry(user_key.to_vec()).or_default().insert(seq, entry);
            cursor.next().unwrap();
        }
    }
    (all, tombstones)
}
