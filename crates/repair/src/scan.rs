//! Lists the directory: the manifests, the tables with their recorded identities, the value files.

use super::copies;
use super::files::{self, DataFilePath, DataFiles};
use super::report::{LostRange, RepairReport};
use super::values::Values;
use base::range_del::FragmentedRangeTombstones;
use base::{Error, Result, SeqNo, Uid, key};
use cache::Cache;
use io::Env;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use store::commit::read::newest_group;
use table::TableIdentity;
use table::salvage::{self, Kind, Missing};
use version::names::{self, FileKind};
use version::{FamilyId, FileMeta, ManifestWitness, State, TableWitness};

/// Size of the repair cache, which holds index frames of vSSTs. Data bypasses the cache.
const CACHE_LEN: usize = 32 << 20;

/// A table that can be opened.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub number: u64,
    pub uid: Uid,
    pub family: FamilyId,
    pub place: DataFilePath,
    /// First user key. `largest` is the last.
    pub smallest: Vec<u8>,
    pub largest: Vec<u8>,
    pub max_seq: SeqNo,
    pub identity: TableIdentity,
    pub tombstones: Arc<FragmentedRangeTombstones>,
    /// True if it has merge operands.
    pub has_operands: bool,
    pub missing: Vec<Missing>,
}

/// Results of a scan.
pub(super) struct RepairScan {
    pub cache: Arc<Cache>,
    pub witness: ManifestWitness,
    pub files: DataFiles,
    /// Tables that can be opened. With a manifest state, those that it names.
    pub tables: Vec<Table>,
    pub values: Values,
    pub report: RepairReport,
    /// True if the manifest or a file shows that the store has logs, apart from the log itself.
    pub has_records: bool,
}

/// Scans the manifests and the data files.
pub(super) fn scan(env: &Env, dir: &Path) -> Result<RepairScan> {
    let witness = version::look_through(env, dir)?;
    let mut report = RepairReport::default();
    witness.damage.iter().for_each(|e| report.damage(e));
    scan_with(env, dir, witness, report)
}

/// Scans the data files, with evidence already read from the manifests.
pub(super) fn scan_with(
    env: &Env,
    dir: &Path,
    mut witness: ManifestWitness,
    mut report: RepairReport,
) -> Result<RepairScan> {
    let mut files = files::look(env, dir)?;
    copies::settle(env, &mut files);
    let cache = Arc::new(Cache::new(CACHE_LEN));
    if let Some(state) = &witness.state
        && let Some(e) = lost_end(env, dir, state, &files, &cache)
    {
        report.damage(&e);
        demote(&mut witness);
    }
    let values = Values::new(env, dir, &cache, &files, witness.state.as_ref());
    values.missing().iter().for_each(|e| report.damage(e));
    let mut found =
        RepairScan { cache, witness, files, tables: Vec::new(), values, report, has_records: false };
    match found.witness.state.clone() {
        Some(state) => {
            found.report.from_manifest = true;
            for family in state.families.values() {
                for meta in family.version.levels.iter().flatten() {
                    found.take_listed(env, dir, family.id, meta);
                }
            }
        }
        None => found.take_all(env, dir),
    }
    Ok(found)
}

/// Returns an error if the manifest has lost its end. An open rejects the store by the same
/// evidence.
fn lost_end(env: &Env, dir: &Path, state: &State, files: &DataFiles, cache: &Arc<Cache>) -> Option<Error> {
    let last = state.store.edit_number;
    let seen = newest_edit_seen(env, files, cache);
    if seen > last {
        let why = format!(
            "the manifest ends at edit {last}, but a table confirms edit {seen}: the end of the manifest \
             is missing, and the repair goes by the files themselves"
        );
        return Some(Error::corruption(why).at_file(dir.join("MANIFEST")));
    }
    // If a log file is unreadable, the groups tell nothing; the edits in the log pages then serve
    // as evidence.
    let newest = env.fs.list(dir).and_then(|listing| newest_group(env, dir, &listing, state.store.uid));
    let (file, ltn) = newest.ok()?.filter(|(_, ltn)| *ltn >= state.store.next_ltn)?;
    let why = format!(
        "{file} has log group {ltn}, which the manifest lacks: the end of the manifest is missing, and the \
         repair goes by the files themselves"
    );
    Some(Error::corruption(why).at_file(dir.join("MANIFEST")))
}

/// Returns the highest manifest edit that a table recorded as durable when it was begun.
fn newest_edit_seen(env: &Env, files: &DataFiles, cache: &Arc<Cache>) -> u64 {
    let tables = files.known.iter().filter(|(_, (kind, _))| *kind == Kind::Ksst);
    let edit_of = |(uid, (_, place)): (&Uid, &(Kind, DataFilePath))| {
        let (table, _) = salvage::open(place.open(env).ok()?, 0, *uid, cache.clone()).ok()?;
        Some(table.properties().identity.edit)
    };
    tables.filter_map(edit_of).max().unwrap_or(0)
}

/// Turns a state that has lost its end into mere evidence about families and tables.
pub(super) fn demote(witness: &mut ManifestWitness) {
    let Some(state) = witness.state.take() else { return };
    for family in state.families.values() {
        let known = witness.families.entry(family.id).or_default();
        known.name = Some(family.name.clone());
        known.options = Some(family.options.clone());
        known.log_floor = family.version.log_floor;
        for meta in family.version.levels.iter().flatten() {
            let added = TableWitness::Added(family.id, Box::new((**meta).clone()));
            witness.tables.insert(meta.number, added);
        }
    }
}

impl RepairScan {
    /// Adds a table that the manifest names.
    fn take_listed(&mut self, env: &Env, dir: &Path, family: FamilyId, meta: &FileMeta) {
        let path = dir.join(meta.kind().to_string());
        let place = match self.files.place_of(meta.uid, meta.kind()) {
            Some(place) => Ok(place.clone()),
            None => match self.files.named.get(&meta.kind()) {
                Some(place) => Ok(DataFilePath { len: place.len.min(meta.len), ..place.clone() }),
                None => Err(Error::corruption(
                    "a key table that the manifest lists is missing, and its entries with it",
                )
                .at_file(&path)),
            },
        };
        let opened = place.and_then(|place| {
            let table = salvage::open(place.open(env)?, meta.number, meta.uid, self.cache.clone())?;
            Ok((place, table))
        });
        match opened {
            Ok((place, (table, missing))) => {
                let is_moved = place.path != path;
                if is_moved {
                    let why = "the file has the contents of another table: names were swapped, and the \
                               repair uses the contents";
                    self.report.damage(&Error::corruption(why).at_file(&place.path));
                } else if let Some(found) = self.files.named.get(&meta.kind()).filter(|p| p.len != meta.len) {
                    let why = format!(
                        "the file has {} bytes, not the {} that the manifest lists: the repair uses the \
                         readable part",
                        found.len, meta.len
                    );
                    self.report.damage(&Error::corruption(why).at_file(&place.path));
                }
                self.tables.push(Table {
                    number: meta.number,
                    uid: meta.uid,
                    family,
                    place,
                    smallest: meta.smallest_user_key().to_vec(),
                    largest: meta.largest_user_key().to_vec(),
                    max_seq: meta.max_seq,
                    identity: table.properties().identity.clone(),
                    has_operands: table.properties().merge_operands > 0,
                    tombstones: table.range_tombstones().clone(),
                    missing,
                });
            }
            Err(e) => self.lose_table(&e, Some((family, meta))),
        }
    }

    /// Adds every table with a readable footer; used without a manifest state.
    fn take_all(&mut self, env: &Env, dir: &Path) {
        let mut there = BTreeSet::new();
        let tables = self.files.known.iter().filter(|(_, (kind, _))| *kind == Kind::Ksst);
        let mut tables: Vec<(Uid, DataFilePath)> =
            tables.map(|(uid, (_, place))| (*uid, place.clone())).collect();
        tables.sort_by(|(_, a), (_, b)| a.path.cmp(&b.path));
        for (uid, place) in tables {
            let named = place.path.file_name().and_then(|name| names::parse(&name.to_string_lossy()));
            let Some(number) = named.and_then(FileKind::number) else { continue };
            let opened =
                place.open(env).and_then(|file| salvage::open(file, number, uid, self.cache.clone()));
            let (table, missing) = match opened {
                Ok(opened) => opened,
                Err(e) => {
                    there.insert(number);
                    self.lose_unlisted(&e.at_file(&place.path), number);
                    continue;
                }
            };
            let properties = table.properties();
            let known = match self.witness.tables.get(&number) {
                Some(TableWitness::Added(family, meta)) => Some((*family, &**meta)),
                _ => None,
            };
            let (smallest, largest) =
                (key::user_key(&properties.smallest).to_vec(), key::user_key(&properties.largest).to_vec());
            let own = (properties.identity.number, properties.identity.family);
            // A table with damaged properties tells neither its family nor its key range.
            let is_silent = missing.iter().any(|m| matches!(m, Missing::Properties(_)));
            let ((number, family), (smallest, largest), max_seq) = match (is_silent, known) {
                (false, _) => (own, (smallest, largest), properties.max_seq),
                (true, Some((family, meta))) => {
                    let keys = (meta.smallest_user_key().to_vec(), meta.largest_user_key().to_vec());
                    ((number, family), keys, meta.max_seq)
                }
                (true, None) => {
                    there.insert(number);
                    missing.iter().for_each(|m| self.lose_unlisted(m.error(), number));
                    continue;
                }
            };
            there.insert(number);
            self.tables.push(Table {
                number,
                uid,
                family,
                place,
                smallest,
                largest,
                max_seq,
                identity: properties.identity.clone(),
                // A table with damaged properties may have some.
                has_operands: properties.merge_operands > 0 || !missing.is_empty(),
                tombstones: table.range_tombstones().clone(),
                missing,
            });
        }
        self.lose_the_others(dir, there);
    }

    /// Reports tables without a readable footer, and missing tables that the manifest records name.
    fn lose_the_others(&mut self, dir: &Path, mut there: BTreeSet<u64>) {
        for kind in self.files.silent.clone() {
            if let Some(number) = kind.table()
                && there.insert(number)
            {
                let why = "the footer of a table is damaged: without a manifest its level and keys are \
                           unknown, and the repair leaves it out";
                self.lose_unlisted(&Error::corruption(why).at_file(dir.join(kind.to_string())), number);
            }
        }
        let missing =
            self.witness.tables.iter().filter(|(number, table)| {
                matches!(table, TableWitness::Added(..)) && !there.contains(number)
            });
        let missing: Vec<u64> = missing.map(|(number, _)| *number).collect();
        let replaced = |number: &u64| {
            let by = |table: &Table| {
                table.identity.inputs.contains(number) || table.identity.store.gone.contains(number)
            };
            self.tables.iter().any(by)
        };
        let missing: Vec<u64> = missing.into_iter().filter(|number| !replaced(number)).collect();
        for number in missing {
            let why = "a key table that the manifest lists is missing, and its entries with it";
            let kind = match self.witness.tables.get(&number) {
                Some(TableWitness::Added(_, meta)) => meta.kind(),
                _ => FileKind::Ksst(number),
            };
            self.lose_unlisted(&Error::corruption(why).at_file(dir.join(kind.to_string())), number);
        }
    }

    fn lose_unlisted(&mut self, e: &Error, number: u64) {
        match self.witness.tables.get(&number).cloned() {
            Some(TableWitness::Added(family, meta)) => self.lose_table(e, Some((family, &meta))),
            Some(TableWitness::Removed) => self.report.damage(e),
            None => self.lose_table(e, None),
        }
    }

    /// Reports a whole table as lost.
    fn lose_table(&mut self, e: &Error, of: Option<(FamilyId, &FileMeta)>) {
        self.report.damage(e);
        let range = LostRange { may_come_back: true, ..LostRange::at(e) };
        self.report.lose(match of {
            None => range,
            Some((family, meta)) => LostRange {
                family: Some(family),
                from: Some(meta.smallest_user_key().to_vec()),
                to: Some(meta.largest_user_key().to_vec()),
                ..range
            },
        });
    }
}
