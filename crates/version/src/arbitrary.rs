//! Random contents for tests: records of any kind, and edits that are valid for a given state.

use crate::edit::{Edit, Record};
use crate::manifest::State;
use crate::meta::{Dependency, FamilyId, FileMeta, VsstClass, VsstMeta};
use crate::state::FamilyState;
use crate::uses::ReferenceChange;
use crate::version::AliasTarget;
use base::{SeqNo, Uid, ValueKind, key};
use io::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::manifest::{LogGroupMeta, Record as StoreRecord};
use store::volumes::Volume;

fn bytes(rng: &mut Rng, len_max: u64) -> Vec<u8> {
    let mut out = vec![0; rng.below(len_max + 1) as usize];
    rng.fill(&mut out);
    out
}

/// Returns small and large numbers alike.
fn number(rng: &mut Rng) -> u64 {
    (rng.next_u64() >> rng.range(8, 64)).max(1)
}

fn uid(rng: &mut Rng) -> Uid {
    Uid::from_words(rng.next_u64(), rng.next_u64())
}

/// Returns a table with random contents that pass validation.
pub(crate) fn any_file(rng: &mut Rng) -> FileMeta {
    let mut keys = [[vec![1], bytes(rng, 20)].concat(), [vec![1], bytes(rng, 20)].concat()];
    keys.sort();
    let [smallest, largest] = keys;
    let (a, b) = (number(rng), number(rng));
    let mut ids: Vec<u64> = (0..rng.below(4)).map(|_| number(rng)).collect();
    ids.sort_unstable();
    ids.dedup();
    let dependency = |blob_id| Dependency { blob_id, count: a, raw_bytes: b, stored_bytes: a ^ b };
    FileMeta {
        number: number(rng),
        uid: uid(rng),
        volume: Volume(rng.next_u64() as u8),
        len: number(rng),
        smallest: key::encode(&smallest, a.max(b), ValueKind::Value),
        largest: key::encode(&largest, 0, ValueKind::Deletion),
        min_seq: a.min(b),
        max_seq: a.max(b),
        entries: number(rng),
        tombstones: rng.below(100),
        range_tombstones: rng.below(3),
        raw_bytes: number(rng),
        hidden_bytes: number(rng),
        global_seq: rng.one_in(4).then(|| number(rng)),
        shared: rng.one_in(2),
        uses: ids.into_iter().map(dependency).collect(),
        ..FileMeta::default()
    }
}

/// Returns a vSST with random contents that pass validation.
pub(crate) fn any_vsst(rng: &mut Rng) -> VsstMeta {
    let like = any_file(rng);
    let mut blob_ids: Vec<u64> =
        (0..rng.below(4)).map(|_| number(rng)).filter(|n| *n != like.number).collect();
    blob_ids.sort_unstable();
    blob_ids.dedup();
    VsstMeta {
        number: like.number,
        uid: like.uid,
        volume: like.volume,
        len: like.len,
        record_bytes: number(rng),
        raw_bytes: like.raw_bytes,
        entries: like.entries,
        smallest: like.smallest,
        largest: like.largest,
        min_seq: like.min_seq,
        max_seq: like.max_seq,
        global_seq: like.global_seq,
        class: [VsstClass::Mixed, VsstClass::Hot, VsstClass::Cold][rng.below(3) as usize],
        shared: like.shared,
        segment: rng.one_in(3),
        blob_ids,
        copies: Default::default(),
    }
}

/// Number of kinds of records.
pub(crate) const KINDS: u64 = 22;
/// Number of kinds of records when the older golden records were written.
pub(crate) const KINDS_BEFORE: u64 = 20;

/// Returns a record of the given kind with random contents, valid in itself.
pub(crate) fn any_record(rng: &mut Rng, kind: u64) -> Record {
    let (family, level) = (rng.next_u64() as u32, rng.below(7) as u32);
    let n = number(rng);
    let list = |rng: &mut Rng| (0..rng.below(4)).map(|_| number(rng)).collect::<Vec<u64>>();
    match kind {
        0 => Record::AddFile { family, level, meta: any_file(rng) },
        1 => Record::RemoveFile { family, level, number: n },
        2 => Record::LogFloor { family, seq: n },
        3 => {
            let name = String::from_utf8_lossy(&bytes(rng, 30)).into_owned();
            Record::CreateFamily { id: family, name, options: bytes(rng, 300) }
        }
        4 => Record::UpdateFamily { id: family, options: bytes(rng, 300) },
        5 => Record::DropFamily { id: family },
        6 => Record::AddVsst { family, meta: any_vsst(rng) },
        7 => Record::RemoveVsst { family, number: n },
        8 => {
            let outputs = (0..rng.below(3)).map(|_| any_vsst(rng)).collect();
            Record::ReplaceVsst { family, inputs: list(rng), outputs }
        }
        9 => {
            let target = |file| AliasTarget { first_key: vec![file as u8; (file % 9) as usize], file };
            Record::SetAlias { family, blob_id: n, targets: list(rng).into_iter().map(target).collect() }
        }
        10 => Record::DropAlias { family, blob_id: n },
        11 => {
            let sealed_end = rng.one_in(2).then(|| number(rng));
            let (len, file) = (number(rng), number(rng));
            let discarded = rng.one_in(2);
            let uid = rng.one_in(2).then(|| Uid::from_words(rng.next_u64(), rng.next_u64()));
            let volume = Volume(7);
            // Groups of other lanes are tested in the crate of the store.
            let group =
                LogGroupMeta { ltn: n, file, len, volume, sealed_end, discarded, uid, ..Default::default() };
            Record::Store(StoreRecord::AddLogGroup { group })
        }
        12 => Record::Store(StoreRecord::SealLogGroup { ltn: n, end_lpn: number(rng) }),
        13 => Record::Store(StoreRecord::DiscardLogGroup { ltn: n }),
        14 => Record::Store(StoreRecord::RemoveLogGroup { ltn: n }),
        15 => Record::Store(StoreRecord::NextFileNumber(n)),
        16 => Record::Store(StoreRecord::LastSeq(n)),
        17 => Record::Store(StoreRecord::NextLtn(n)),
        18 => Record::NextFamily(family),
        19 => Record::ShareFile { number: n },
        20 => {
            let mut meta = any_file(rng);
            meta.uses = vec![Dependency { blob_id: n, count: 3, raw_bytes: 7, stored_bytes: 9 }].into();
            meta.uses = meta.uses.without_list();
            Record::AddFile { family, level, meta }
        }
        _ => {
            let mut names = list(rng);
            names.sort_unstable();
            names.dedup();
            let mut signed = || (rng.next_u64() as i64) >> rng.below(64);
            let change = |blob_id| ReferenceChange {
                blob_id,
                tables: signed(),
                count: signed(),
                raw_bytes: signed(),
                stored_bytes: signed(),
            };
            Record::References { family, changes: names.into_iter().map(change).collect() }
        }
    }
}

/// Makes edits that are valid for the given state, like those of a store.
pub(crate) struct Editor {
    pub(crate) rng: Rng,
    /// Dependency list of each table, by its uid. `None`: the manifest has the lists, in the older
    /// encoding.
    lists: Option<BTreeMap<Uid, Vec<Dependency>>>,
}

/// Returns a user key of the tests.
pub(crate) fn user_key(n: u64) -> Vec<u8> {
    format!("key{n:04}").into_bytes()
}

impl Editor {
    pub(crate) fn new(seed: u64) -> Self {
        Editor { rng: Rng::new(seed), lists: Some(BTreeMap::new()) }
    }

    /// Returns an editor that writes the lists of tables into the manifest.
    pub(crate) fn of_before(seed: u64) -> Self {
        Editor { lists: None, ..Editor::new(seed) }
    }

    /// Returns the dependency list of a table. `None`: another editor wrote it.
    fn list(&self, file: &FileMeta) -> Option<Vec<Dependency>> {
        let own = || self.lists.as_ref()?.get(&file.uid).cloned();
        file.uses.list().map(<[Dependency]>::to_vec).or_else(own)
    }

    /// Removes the dependency lists from the tables, and adds a record of the changes of the sums
    /// under blob ids.
    fn tell(&mut self, state: &State, family: FamilyId, mut records: Vec<Record>) -> Vec<Record> {
        if self.lists.is_none() {
            return records;
        }
        let (mut come, mut go) = (Vec::new(), Vec::new());
        let mut moved = Vec::new();
        for record in &mut records {
            match record {
                Record::AddFile { meta, .. } => match meta.uses.list() {
                    Some(list) => {
                        self.lists.iter_mut().for_each(|lists| drop(lists.insert(meta.uid, list.to_vec())));
                        come.push(meta.clone());
                        meta.uses = meta.uses.without_list();
                    }
                    None => moved.push(meta.number),
                },
                Record::RemoveFile { number, .. } => go.extend(state.table(*number).cloned()),
                _ => {}
            }
        }
        let lists = go.iter().filter(|f| !moved.contains(&f.number)).filter_map(|f| self.list(f));
        let lists: Vec<_> = lists.collect();
        records.extend(Record::references(family, &mut come, lists.iter().map(Vec::as_slice)));
        records
    }

    /// Returns a table over `[low, high]`.
    fn file(&mut self, number: u64, (low, high): (u64, u64), (min_seq, max_seq): (SeqNo, SeqNo)) -> FileMeta {
        FileMeta {
            number,
            uid: uid(&mut self.rng),
            len: self.rng.range(100, 1000),
            smallest: key::encode(&user_key(low), max_seq, ValueKind::Value),
            largest: key::encode(&user_key(high), min_seq, ValueKind::Value),
            min_seq,
            max_seq,
            entries: 10,
            raw_bytes: self.rng.range(100, 5000),
            ..FileMeta::default()
        }
    }

    fn vsst(&mut self, number: u64, (low, high): (u64, u64)) -> VsstMeta {
        VsstMeta {
            number,
            uid: uid(&mut self.rng),
            len: 5000,
            record_bytes: 4000,
            raw_bytes: 3800,
            entries: 4,
            smallest: key::encode(&user_key(low), 9, ValueKind::Value),
            largest: key::encode(&user_key(high), 9, ValueKind::Value),
            min_seq: 1,
            max_seq: 9,
            ..VsstMeta::default()
        }
    }

    /// Returns a valid edit; empty if the chosen kind of change has nothing to change.
    pub(crate) fn edit(&mut self, state: &State) -> Edit {
        let families: Vec<&Arc<FamilyState>> = state.families.values().collect();
        let pick = self.rng.below(families.len() as u64 + 1) as usize;
        let Some(family) = families.get(pick) else {
            return Edit(if families.len() < 3 { self.create_family(state) } else { self.log_groups(state) });
        };
        let records = match self.rng.below(16) {
            0..5 => self.flush(state, family),
            5..10 => self.compact(state, family),
            10..12 => self.collect(state, family),
            12 => self.tidy(family),
            13 => self.log_groups(state),
            14 if self.rng.one_in(8) => vec![Record::DropFamily { id: family.id }],
            14 => vec![Record::UpdateFamily { id: family.id, options: bytes(&mut self.rng, 20) }],
            _ => {
                let next = state.store.next_file_number + self.rng.below(3);
                let numbers: Vec<u64> = family.version.file_numbers().collect();
                let mut records = vec![
                    Record::Store(StoreRecord::LastSeq(state.store.last_seq + 1)),
                    Record::Store(StoreRecord::NextFileNumber(next)),
                ];
                if !numbers.is_empty() {
                    let number = numbers[self.rng.below(numbers.len() as u64) as usize];
                    records.push(Record::ShareFile { number });
                }
                records
            }
        };
        Edit(self.tell(state, family.id, records))
    }

    fn create_family(&mut self, state: &State) -> Vec<Record> {
        let id = state.next_family + self.rng.below(3) as u32;
        vec![Record::CreateFamily { id, name: format!("family {id}"), options: bytes(&mut self.rng, 20) }]
    }

    fn flush(&mut self, state: &State, family: &FamilyState) -> Vec<Record> {
        let id = family.id;
        let low = self.rng.below(900);
        let range = (low, low + self.rng.below(100));
        let mut number = state.store.next_file_number + self.rng.below(2);
        let seqs = (state.store.last_seq + 1, state.store.last_seq + 1 + self.rng.below(50));
        let mut records = Vec::new();
        let mut dependencies = Vec::new();
        if self.rng.one_in(2) {
            records.push(Record::AddVsst { family: id, meta: self.vsst(number, range) });
            let (raw_bytes, stored_bytes) = (3800, 4000);
            dependencies.push(Dependency { blob_id: number, count: 4, raw_bytes, stored_bytes });
            number += 1;
        }
        let meta = FileMeta { uses: dependencies.into(), ..self.file(number, range, seqs) };
        records.push(Record::AddFile { family: id, level: 0, meta });
        records.push(Record::LogFloor { family: id, seq: seqs.1 + 1 });
        records
    }

    /// Compacts all of level 0, or one file of a deeper level, into the next level; often moves the
    /// file unchanged.
    fn compact(&mut self, state: &State, family: &FamilyState) -> Vec<Record> {
        let (id, version) = (family.id, &family.version);
        let level = self.rng.below(4) as usize;
        let mut inputs = version.files(level).to_vec();
        if level > 0 && !inputs.is_empty() {
            inputs = vec![inputs[self.rng.below(inputs.len() as u64) as usize].clone()];
        }
        let Some(low) = inputs.iter().map(|f| f.smallest_user_key().to_vec()).min() else {
            return Vec::new();
        };
        let high = inputs.iter().map(|f| f.largest_user_key().to_vec()).max().unwrap_or_default();
        let below = version.overlapping(level + 1, Some(&low), Some(&high));
        let mut records = Vec::new();
        let remove = |level: usize, f: &FileMeta| Record::RemoveFile {
            family: id,
            level: level as u32,
            number: f.number,
        };
        let add = |meta: FileMeta| Record::AddFile { family: id, level: level as u32 + 1, meta };
        if below.is_empty() && inputs.len() == 1 && self.rng.one_in(2) {
            // A trivial move, with the records in either order.
            records = vec![remove(level, &inputs[0]), add(inputs[0].as_ref().clone())];
            if self.rng.one_in(2) {
                records.reverse();
            }
            return records;
        }
        records.extend(inputs.iter().map(|f| remove(level, f)));
        records.extend(below.iter().map(|f| remove(level + 1, f)));
        let all: Vec<&Arc<FileMeta>> = inputs.iter().chain(&below).collect();
        let Some(lists) = all.iter().map(|f| self.list(f)).collect::<Option<Vec<_>>>() else {
            return Vec::new();
        };
        let place = |key: &[u8]| String::from_utf8_lossy(&key[3..]).parse::<u64>().unwrap();
        let mut low = all.iter().map(|f| place(f.smallest_user_key())).min().unwrap_or(0);
        let high = all.iter().map(|f| place(f.largest_user_key())).max().unwrap_or(0);
        let seqs = (all.iter().map(|f| f.min_seq).min(), all.iter().map(|f| f.max_seq).max());
        let seqs = (seqs.0.unwrap_or(0), seqs.1.unwrap_or(0));
        let mut sums: BTreeMap<u64, Dependency> = BTreeMap::new();
        for d in lists.iter().flatten() {
            let sum = sums.entry(d.blob_id).or_insert(Dependency { blob_id: d.blob_id, ..*d });
            sum.count = sum.count.max(d.count);
        }
        let mut number = state.store.next_file_number;
        while low <= high {
            let end = (low + self.rng.below(150)).min(high);
            let mut meta = self.file(number, (low, end), seqs);
            meta.uses = sums.values().filter(|_| self.rng.below(3) > 0).copied().collect();
            records.push(add(meta));
            (low, number) = (end + 1, number + 1);
        }
        records
    }

    /// Garbage collection of one or two vSSTs into none, one or two.
    fn collect(&mut self, state: &State, family: &FamilyState) -> Vec<Record> {
        let (id, version) = (family.id, &family.version);
        let mut inputs: Vec<u64> = version.vssts.keys().filter(|_| self.rng.one_in(3)).collect();
        inputs.truncate(2);
        let mut names: Vec<u64> = inputs.iter().flat_map(|&n| version.names_of(n)).collect();
        names.sort_unstable();
        names.dedup();
        let alive = names.iter().any(|n| version.references.contains_key(n));
        let count = if alive { self.rng.range(1, 3) } else { self.rng.below(3) };
        let outputs = (0..count).map(|i| VsstMeta {
            blob_ids: names.clone(),
            ..self.vsst(state.store.next_file_number + i, (i * 500, i * 500 + 499))
        });
        let outputs: Vec<VsstMeta> = outputs.collect();
        if inputs.is_empty() { Vec::new() } else { vec![Record::ReplaceVsst { family: id, inputs, outputs }] }
    }

    /// Drops unreferenced blob ids and files.
    fn tidy(&mut self, family: &FamilyState) -> Vec<Record> {
        let id = family.id;
        let (aliases, vssts) = family.version.unreferenced();
        let aliases = aliases.into_iter().map(|blob_id| Record::DropAlias { family: id, blob_id });
        aliases.chain(vssts.into_iter().map(|number| Record::RemoveVsst { family: id, number })).collect()
    }

    fn log_groups(&mut self, state: &State) -> Vec<Record> {
        let groups: Vec<LogGroupMeta> = state.store.log_groups.values().copied().collect();
        let new = LogGroupMeta {
            ltn: state.store.next_ltn,
            file: state.store.next_file_number,
            len: 1 << 20,
            uid: Some(Uid::from_words(self.rng.next_u64(), self.rng.next_u64())),
            ..LogGroupMeta::default()
        };
        match groups.first() {
            Some(first) if self.rng.one_in(2) => match self.rng.below(4) {
                0 => vec![
                    Record::Store(StoreRecord::SealLogGroup {
                        ltn: first.ltn,
                        end_lpn: first.sealed_end.unwrap_or(77),
                    }),
                    Record::Store(StoreRecord::AddLogGroup { group: new }),
                ],
                1 => vec![Record::Store(StoreRecord::DiscardLogGroup { ltn: first.ltn })],
                2 => vec![Record::Store(StoreRecord::RemoveLogGroup { ltn: first.ltn })],
                // Recycled: the same file under a new segment number.
                _ => vec![
                    Record::Store(StoreRecord::AddLogGroup {
                        group: LogGroupMeta { file: first.file, ..new },
                    }),
                    Record::Store(StoreRecord::RemoveLogGroup { ltn: first.ltn }),
                ],
            },
            _ => vec![Record::Store(StoreRecord::AddLogGroup { group: new })],
        }
    }
}
