//! Large values: each in a segment of its own, written before the write it belongs to.
//!
//! A value above a quarter of a log group would push everything else out of log and memtable, and be written twice.
//! Instead it is streamed into a segment (`table::segment`), which is made durable, name included, **before** the batch
//! that refers to it is logged. Log and memtable carry the reference; at flush it becomes an ordinary reference of a
//! table, and the manifest takes the segment in as a vSST with one record.
//!
//! # The life of a file
//!
//! ```text
//! Draft --logged--> known here --flushed--> in the manifest --no reference left--> obsolete --no reader--> removed
//!   |                   |                                                             ^
//!   +--not logged:      +--dropped by the flush, or with its family: no edit names it-+
//!      removed
//! ```
//!
//! Every segment that a memtable refers to is known here, with a token. The token is a copy of the description of the
//! file ([`VsstMeta::copies`]), so the list of obsolete files keeps the file as long as the memtable is alive, that is,
//! as long as a reader with an old read state may come across the reference. [`Segments::sweep`] lets go of the tokens of
//! memtables that are gone.
//!
//! # Recovery
//!
//! A reference in the log is only written once its file is complete and durable. So a valid reference whose segment is
//! missing, incomplete or another file is damage, never the trace of a crash: the file is set aside, and reads of the key
//! fail ([`check`]). A segment that neither the manifest nor a replayed memtable names is one whose write was not
//! logged: open removes it with the other files that nothing names.

use crate::batch::Change;
use crate::context::options::{DamagedFiles, Options};
use crate::files::data_file::DataFile;
use crate::files::{Files, damaged};
use crate::tree::Tree;
use crate::tree::family::Family;
use base::key::encode;
use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, HashMap, Result, SeqNo, ValueKind, limits};
use memtable::MemTable;
use std::sync::{Arc, Weak};
use store::space::SegmentBytes;
use store::space::SpaceBudget;
use table::{SegmentReader, SegmentReference};
use version::{FamilyId, VsstMeta, names};

/// From so many bytes on a value is written to a segment: above a quarter of a log group, and above what log and
/// memtable take.
pub(crate) fn threshold(options: &Options) -> usize {
    usize::try_from(options.expert.log_group_bytes / 4).unwrap_or(usize::MAX).min(limits::VALUE_LEN_MAX) + 1
}

/// The segments that memtables refer to.
pub(crate) struct Segments {
    space: Arc<SpaceBudget>,
    files: Arc<Files>,
    /// By number.
    known: Mutex<HashMap<u64, Known>, rank::Segments>,
    /// The segments of one memtable exceed `wal_bytes_max`: it is to be frozen, however small it is.
    pub over_bound: AtomicBool,
}

#[derive(Debug)]
struct Known {
    memtable: Weak<MemTable>,
    memtable_id: u64,
    family: FamilyId,
    stored_len: u64,
    /// See the module.
    token: Arc<()>,
    fate: Fate,
    /// While it is held: live bytes that no version has.
    counted: Option<SegmentBytes>,
}

/// Who sees to the file's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Nobody yet: no edit names it.
    Held,
    /// An edit names it, or one did: it goes as any file of a version does.
    Listed,
    /// No edit will ever name it: it is on the list of obsolete files.
    Dropped,
}

impl Segments {
    pub fn new(space: &Arc<SpaceBudget>, files: &Arc<Files>) -> Segments {
        Segments {
            space: space.clone(),
            files: files.clone(),
            known: Mutex::default(),
            over_bound: AtomicBool::default(),
        }
    }

    /// An entry that refers to a file goes into a memtable, or into the log with it.
    pub fn hold(&self, number: u64, family: FamilyId, memtable: &Arc<MemTable>, stored_len: u64) {
        let mut known = lock(&self.known);
        let one = Known {
            memtable: Arc::downgrade(memtable),
            memtable_id: memtable.id(),
            family,
            stored_len,
            token: Arc::new(()),
            fate: Fate::Held,
            counted: Some(SegmentBytes::count(&self.space.gauges, stored_len)),
        };
        known.insert(number, one);
        let of_memtable = known.values().filter(|k| k.memtable_id == memtable.id());
        if of_memtable.map(|k| k.stored_len).sum::<u64>() > self.files.context.options.expert.wal_bytes_max {
            self.over_bound.store(true, Ordering::Release);
        }
    }

    /// True if a memtable refers to the file.
    pub fn holds(&self, number: u64) -> bool {
        lock(&self.known).contains_key(&number)
    }

    /// Numbers of the segments that memtables refer to and no edit names.
    pub fn live(&self) -> Vec<u64> {
        let known = lock(&self.known);
        let live = known.iter().filter(|(_, k)| k.fate == Fate::Held && k.memtable.strong_count() > 0);
        live.map(|(&number, _)| number).collect()
    }

    /// Numbers of the segments that one of these memtables refers to.
    pub fn of_memtables(&self, memtables: &[u64]) -> Vec<u64> {
        let known = lock(&self.known);
        let of_them = known.iter().filter(|(_, k)| memtables.contains(&k.memtable_id));
        of_them.map(|(&number, _)| number).collect()
    }

    /// Forgets the segments of memtables that nobody holds any more.
    pub fn sweep(&self) {
        lock(&self.known).retain(|_, known| known.memtable.strong_count() > 0);
    }

    /// The token of a file.
    pub fn token(&self, number: u64) -> Arc<()> {
        lock(&self.known).get(&number).map(|k| k.token.clone()).unwrap_or_default()
    }

    /// What the manifest says of a segment once the entry `(user_key, seq)` that refers to it is in a table.
    pub fn meta(&self, user_key: &[u8], seq: SeqNo, reference: &SegmentReference) -> VsstMeta {
        let ikey = encode(user_key, seq, ValueKind::Value);
        VsstMeta {
            number: reference.file,
            uid: reference.uid,
            len: reference.stored_len,
            record_bytes: reference.stored_len,
            raw_bytes: reference.raw_len,
            entries: 1,
            smallest: ikey.clone(),
            largest: ikey,
            min_seq: seq,
            max_seq: seq,
            segment: true,
            copies: self.token(reference.file),
            ..VsstMeta::default()
        }
    }

    /// A flush of these memtables was installed that took in some of their files: no edit will ever name the others.
    /// Called while the flush still holds the memtables.
    pub fn flushed(&self, memtables: &[Arc<MemTable>], taken: impl Fn(u64) -> bool) {
        let mut known = lock(&self.known);
        let mut left = Vec::new();
        for (&number, known) in known.iter_mut() {
            if !memtables.iter().any(|m| m.id() == known.memtable_id) {
                continue;
            }
            match known.fate {
                Fate::Held if taken(number) => (known.fate, known.counted) = (Fate::Listed, None),
                Fate::Held => left.push(number),
                Fate::Listed | Fate::Dropped => {}
            }
        }
        std::mem::drop(known);
        self.dropped(&left);
    }

    /// No edit will ever name these files, if none has.
    pub fn dropped(&self, numbers: &[u64]) {
        let mut known = lock(&self.known);
        let gone = numbers.iter().filter_map(|number| Some((number, known.get_mut(number)?.drop_token()?)));
        let gone: Vec<DataFile> = gone.map(|(&number, token)| obsolete(number, token)).collect();
        std::mem::drop(known);
        self.files.obsolete.add(gone);
    }

    /// A family was dropped: its segments go, except those that its last version lists (they go with the version).
    pub fn family_dropped(&self, family: FamilyId, listed: impl Fn(u64) -> bool) {
        let known = lock(&self.known);
        let of_family = known.iter().filter(|(number, k)| k.family == family && !listed(**number));
        let numbers: Vec<u64> = of_family.map(|(&number, _)| number).collect();
        std::mem::drop(known);
        self.dropped(&numbers);
    }
}

impl Known {
    /// The token, if the file is to go on the list of obsolete files now.
    fn drop_token(&mut self) -> Option<Arc<()>> {
        if self.fate != Fate::Held {
            return None;
        }
        (self.fate, self.counted) = (Fate::Dropped, None);
        Some(self.token.clone())
    }
}

/// A segment that no version holds, for the list of obsolete files.
fn obsolete(number: u64, copies: Arc<()>) -> DataFile {
    DataFile::Vsst(Arc::new(VsstMeta { number, segment: true, copies, ..VsstMeta::default() }))
}

/// Checks, in recovery, that the segment of a logged entry is what the log says. One that cannot be read is told, unless it
/// is to refuse the open.
pub(crate) fn check(tree: &Tree, family: &Family, change: &Change<'_>) -> Result<()> {
    match open(&tree.files, change.key, change.value) {
        Err(e) if damaged::is_of_reading(&e) && tree.context.options.damaged_files == DamagedFiles::Serve => {
            let reference = SegmentReference::decode(change.value)?;
            // Where it was given away it cannot be listed any more.
            if tree.files.manifest.state().place_of(reference.file).is_some() {
                return Err(e);
            }
            tree.set_segment_aside(family, change.key, &reference, &e);
            Ok(())
        }
        other => other.map(drop),
    }
}

/// Opens the segment of an entry of kind `SegmentReference`.
pub(crate) fn open(files: &Files, user_key: &[u8], encoded: &[u8]) -> Result<Arc<SegmentReader>> {
    let reference = SegmentReference::decode(encoded)?;
    let segment = files.tables.segment(reference.file, reference.uid)?;
    let same = (segment.raw_len(), segment.file_len(), segment.checksum(), segment.identity().uid)
        == (reference.raw_len, reference.stored_len, reference.checksum, reference.uid);
    if same && segment.user_key() == user_key {
        return Ok(segment);
    }
    Err(another_value(files, user_key, reference.file))
}

/// Opens the segment that a table refers to.
pub(crate) fn open_listed(files: &Files, user_key: &[u8], meta: &VsstMeta) -> Result<Arc<SegmentReader>> {
    let segment = files.tables.segment(meta.number, meta.uid)?;
    if (segment.raw_len(), segment.file_len()) == (meta.raw_bytes, meta.len) && segment.user_key() == user_key
    {
        return Ok(segment);
    }
    Err(another_value(files, user_key, meta.number))
}

fn another_value(files: &Files, user_key: &[u8], number: u64) -> Error {
    Error::corruption(format!(
        "the segment holds another value than the one of key \"{}\": restore it from a checkpoint or backup, or run `lava repair`",
        user_key.escape_ascii()
    ))
    .at_file(files.context.path(&names::vsst(number)))
}

/// Refuses keys and values over the limits of what a segment takes.
pub(crate) fn validate(key: &[u8], len: u64) -> Result<()> {
    Change { kind: ValueKind::Value, family: 0, key, value: &[] }.validate()?;
    if len > limits::LARGE_VALUE_LEN_MAX {
        let why = format!("value of {len} bytes: at most {} are supported", limits::LARGE_VALUE_LEN_MAX);
        return Err(Error::new(ErrorKind::TooLarge, why));
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests;
