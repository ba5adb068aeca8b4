//! Finds the values that references point to.
//!
//! A blob id resolves to the file with that number, and to every file that records that it took the
//! id over. If there are several, the key decides. A file with a damaged index is searched for its
//! records once. So is a file without a sound footer, if a manifest gives its uid. Files that no
//! version names any more are tried last: a record with the same key and sequence is the same
//! record.

use super::files::{DataFilePath, DataFiles};
use base::{Error, HashMap, Result, SeqNo, Uid};
use cache::{BlockSlice, Cache};
use io::{Access, Env, ReadFile};
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use table::salvage::Kind;
use table::segment::RecordReference;
use table::vsst::record::{LooseRecord, read_loose};
use table::vsst::salvage::find_records;
use table::{ReadCounters, Reference, SegmentReader, SegmentReference, Vsst};
use version::names::{self, FileKind};
use version::{BlobId, State, VsstMeta};

/// Maximum number of open files.
const OPEN_MAX: usize = 512;

/// A value that was found.
pub(super) enum SalvagedValue {
    /// The bytes of the value.
    Bytes(BlockSlice),
    /// A segment, whose bytes are verified as they are read.
    Segment(Arc<SegmentReader>),
}

/// A value file.
#[derive(Clone, Debug)]
struct ValueFile {
    number: u64,
    uid: Uid,
    kind: Kind,
    place: DataFilePath,
}

/// Outcome of opening a value file.
enum Opened {
    Vsst(Arc<Vsst>),
    Segment(Arc<SegmentReader>),
    No(Error),
}

/// Files that the manifest lists but that do not exist.
#[derive(Default)]
struct MissingFiles {
    errors: Vec<Error>,
    /// Blob ids that resolve to a missing file, with the index in `errors`.
    names: HashMap<BlobId, usize>,
}

impl MissingFiles {
    fn add(&mut self, names: &[BlobId], error: Error) {
        self.names.extend(names.iter().map(|&name| (name, self.errors.len())));
        self.errors.push(error);
    }

    fn of(&self, name: BlobId) -> Option<Error> {
        self.errors.get(*self.names.get(&name)?).cloned()
    }
}

/// Offset and length of each record of a file, by user key and sequence.
type Records = HashMap<(Vec<u8>, SeqNo), (u64, u64)>;

/// Value files of the damaged store: see the module.
pub(super) struct Values {
    env: Env,
    dir: PathBuf,
    cache: Arc<Cache>,
    files: Vec<ValueFile>,
    /// Index in `files` of the first file with a uid.
    by_uid: HashMap<Uid, usize>,
    /// Indexes of the files that a blob id may resolve to, the likeliest first.
    names: HashMap<BlobId, Vec<usize>>,
    missing: MissingFiles,
    opened: HashMap<usize, Opened>,
    searched: HashMap<usize, Records>,
    placed: HashMap<u64, Option<Arc<dyn ReadFile>>>,
    pub bytes_read: u64,
}

impl Values {
    /// Collects the value files in the directory, guided by the manifest state if there is one.
    pub fn new(
        env: &Env,
        dir: &Path,
        cache: &Arc<Cache>,
        files: &DataFiles,
        state: Option<&State>,
    ) -> Values {
        let mut values = Values {
            env: env.clone(),
            dir: dir.to_owned(),
            cache: cache.clone(),
            files: Vec::new(),
            by_uid: HashMap::default(),
            names: HashMap::default(),
            missing: MissingFiles::default(),
            opened: HashMap::default(),
            searched: HashMap::default(),
            placed: HashMap::default(),
            bytes_read: 0,
        };
        for family in state.into_iter().flat_map(|state| state.families.values()) {
            for (number, meta) in family.version.vssts.iter() {
                values.take_listed(files, meta, &family.version.names_of(number));
            }
        }
        let mut others: Vec<_> = files.known.iter().filter(|(_, (kind, _))| *kind != Kind::Ksst).collect();
        others.sort_by(|(_, (_, a)), (_, (_, b))| b.path.cmp(&a.path));
        for (uid, (kind, place)) in others {
            values.take_as_it_is(*uid, *kind, place);
        }
        values
    }

    /// Returns an error for each file that the manifest lists but that does not exist.
    pub fn missing(&self) -> &[Error] {
        &self.missing.errors
    }

    /// Adds a file that the manifest names.
    fn take_listed(&mut self, files: &DataFiles, meta: &VsstMeta, names: &[BlobId]) {
        let (number, uid) = (meta.number, meta.uid);
        let expected = if meta.segment { Kind::Segment } else { Kind::Vsst };
        let (kind, place) = match files.known.get(&uid) {
            Some((kind, place)) => (*kind, place.clone()),
            None => match files.named.get(&meta.kind()) {
                // The file has no readable footer: search the file with the expected name.
                Some(place) => (expected, DataFilePath { len: place.len.min(meta.len), ..place.clone() }),
                None => {
                    let why = "a value file that the manifest lists is missing, and its values with it";
                    let error = Error::corruption(why).at_file(self.dir.join(meta.kind().to_string()));
                    self.missing.add(names, error);
                    return;
                }
            },
        };
        self.add(ValueFile { number, uid, kind, place }, names.iter().copied());
    }

    /// Adds a file by its own footer, unless the manifest named it.
    fn take_as_it_is(&mut self, uid: Uid, kind: Kind, place: &DataFilePath) {
        if self.by_uid.contains_key(&uid) {
            return;
        }
        let Ok(file) = place.open(&self.env) else { return };
        let (number, names) = match kind {
            Kind::Segment => match SegmentReader::open_as_it_is(file, uid) {
                Ok(segment) => (segment.identity().number, Vec::new()),
                Err(_) => return,
            },
            _ => match Vsst::open(file, 0, uid, self.cache.clone()) {
                Ok(vsst) => (vsst.properties().identity.number, vsst.properties().took_over.clone()),
                // Without readable properties, only the file name gives the number.
                Err(_) => {
                    let named = place.path.file_name().and_then(|n| names::parse(&n.to_string_lossy()));
                    let Some(number) = named.and_then(FileKind::values) else { return };
                    (number, Vec::new())
                }
            },
        };
        self.add(ValueFile { number, uid, kind, place: place.clone() }, std::iter::once(number).chain(names));
    }

    fn add(&mut self, file: ValueFile, names: impl IntoIterator<Item = BlobId>) {
        let index = self.files.len();
        self.by_uid.entry(file.uid).or_insert(index);
        self.files.push(file);
        for name in names {
            let all = self.names.entry(name).or_default();
            // A file may list an id twice. All its ids are added in one go, so the last index
            // detects the repeat.
            if all.last() != Some(&index) {
                all.push(index);
            }
        }
    }

    /// Returns the number of value files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns the value of an entry of a table.
    ///
    /// # Errors
    /// The reason for the loss, with the file if there is one.
    pub fn get(&mut self, key: &[u8], seq: SeqNo, reference: &[u8]) -> Result<SalvagedValue> {
        let reference = Reference::decode(reference)?;
        let name = reference.blob_id;
        let candidates = self.names.get(&name).cloned().unwrap_or_default();
        let mut first = None;
        // First try the indexes of all candidates; only then search whole files.
        for &index in &candidates {
            match self.get_from(index, key, seq, &reference) {
                Ok(found) => {
                    self.bytes_read += reference.stored_len;
                    return Ok(found);
                }
                Err(e) => drop(first.get_or_insert(e)),
            }
        }
        for &index in &candidates {
            if let Some(found) = self.search(index, key, seq, &reference) {
                self.bytes_read += reference.stored_len;
                return Ok(SalvagedValue::Bytes(found));
            }
        }
        Err(first.or_else(|| self.missing.of(name)).unwrap_or_else(|| {
            let why = "the value file of this value is missing, or its header is damaged";
            Error::corruption(why).at_file(self.dir.join(names::vsst(name)))
        }))
    }

    fn get_from(
        &mut self,
        index: usize,
        key: &[u8],
        seq: SeqNo,
        reference: &Reference,
    ) -> Result<SalvagedValue> {
        match self.open(index) {
            Opened::Vsst(vsst) => {
                let found = vsst.get(key, seq, reference, false, &mut ReadCounters::default());
                found.map(SalvagedValue::Bytes)
            }
            Opened::Segment(segment) => {
                let is_it = segment.user_key() == key && segment.raw_len() == reference.raw_len;
                let why = "a large value file (segment) holds the value of another key";
                match is_it {
                    true => Ok(SalvagedValue::Segment(segment.clone())),
                    false => Err(Error::corruption(why).at_file(self.place_of(index))),
                }
            }
            Opened::No(e) => Err(e.clone()),
        }
    }

    fn place_of(&self, index: usize) -> PathBuf {
        self.files.get(index).map(|file| file.place.path.clone()).unwrap_or_default()
    }

    fn open(&mut self, index: usize) -> &Opened {
        if self.opened.len() >= OPEN_MAX && !self.opened.contains_key(&index) {
            self.opened.clear();
        }
        let ValueFile { uid, kind, place, number } = &self.files[index];
        let (env, cache) = (&self.env, &self.cache);
        self.opened.entry(index).or_insert_with(|| {
            let opened = place.open(env).and_then(|file| match kind {
                Kind::Segment => {
                    SegmentReader::open(file, *number, *uid).map(|s| Opened::Segment(Arc::new(s)))
                }
                _ => Vsst::open(file, *number, *uid, cache.clone()).map(|v| Opened::Vsst(Arc::new(v))),
            });
            opened.unwrap_or_else(|e| Opened::No(e.at_file(&place.path)))
        })
    }

    /// Finds the record anywhere in the file, intact and as long as the reference says. Returns no
    /// error: the index lookup has already reported one.
    fn search(&mut self, index: usize, key: &[u8], seq: SeqNo, reference: &Reference) -> Option<BlockSlice> {
        let file = self.files.get(index).filter(|file| file.kind == Kind::Vsst)?;
        let open = file.place.open(&self.env).ok()?;
        let records = match self.searched.entry(index) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let found = find_records(&*open, file.uid, file.place.len);
                self.bytes_read += file.place.len;
                new.insert(
                    found.into_iter().map(|r| ((r.user_key, r.seq), (r.offset, r.stored_len))).collect(),
                )
            }
        };
        let (offset, stored_len) = records.get(&(key.to_vec(), seq)).copied()?;
        let record = read_loose(&*open, file.uid, offset, stored_len).ok()?;
        (record.value.len() as u64 == reference.raw_len).then(|| BlockSlice::from(record.value))
    }

    /// Returns the segment that the log refers to.
    pub fn segment(&mut self, key: &[u8], reference: &SegmentReference) -> Result<Arc<SegmentReader>> {
        let index = self.by_uid.get(&reference.uid).copied();
        let missing = || {
            let why =
                "a large value file (segment) that the log refers to is missing, or its header is damaged";
            Error::corruption(why).at_file(self.dir.join(names::vsst(reference.file)))
        };
        let index = index.ok_or_else(missing)?;
        match self.open(index) {
            Opened::Segment(segment)
                if segment.user_key() == key && segment.checksum() == reference.checksum =>
            {
                Ok(segment.clone())
            }
            Opened::No(e) => Err(e.clone()),
            _ => Err(Error::corruption("a large value file (segment) holds the value of another key")
                .at_file(self.place_of(index))),
        }
    }

    /// Returns a record to which the log refers, if it is complete. Its file may be unfinished.
    pub fn placed(&mut self, key: &[u8], seq: SeqNo, reference: &RecordReference) -> Option<LooseRecord> {
        let known = self.by_uid.get(&reference.uid).and_then(|&index| self.files.get(index));
        let known = known.map(|file| &file.place.path);
        let path = known.cloned().unwrap_or_else(|| self.dir.join(names::vsst(reference.file)));
        let env = &self.env;
        let file =
            self.placed.entry(reference.file).or_insert_with(|| env.fs.open(&path, Access::Buffered).ok());
        let in_file = file
            .as_ref()
            .and_then(|file| read_loose(&**file, reference.uid, reference.offset, reference.stored_len).ok());
        in_file.filter(|record| record.user_key == key && record.seq == seq)
    }
}
