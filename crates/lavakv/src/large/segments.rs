//! Large values: each in a segment of its own, written before the log record of its write.
//!
//! A value above a quarter of a log group would displace all other data from log and memtable, and
//! be written twice. Instead it is streamed into a segment (`table::segment`), which is made
//! durable, name included, **before** the batch that references it is logged. Log and memtable
//! carry the reference. The flush turns it into an ordinary reference of a table, and adds the
//! segment to the manifest as a vSST with one record.
//!
//! This order holds for buffered writes too. A buffered write need not survive a power loss, but
//! its log record may, because pages are written in the background. A record that outlived its
//! segment could not be distinguished from damage.
//!
//! Entries with references are small, so the size of a memtable does not bound the segments that
//! wait for its flush. A memtable is therefore also rotated when its segments exceed
//! `wal_bytes_max`.
//!
//! # Life cycle of a file
//!
//! ```text
//! PendingSegment --logged--> known here --flushed--> in the manifest --no reference left--> obsolete --no reader--> removed
//!   |                   |                                                             ^
//!   +--not logged:      +--dropped by the flush, or with its family: no edit names it-+
//!      removed
//! ```
//!
//! Every segment referenced by a memtable is registered here, with a token. The token is a copy of
//! the file's description ([`VsstMeta::copies`]). So the list of obsolete files keeps the file
//! while the memtable exists: a reader with an old read state may still encounter the reference.
//! [`Segments::sweep`] releases the tokens of deleted memtables.
//!
//! # Recovery
//!
//! A reference is logged only after its file is complete and durable. So a valid reference to a
//! missing, incomplete or different segment is damage, never the result of a crash. The file is set
//! aside, and reads of the key fail ([`check`]). A segment that neither the manifest nor a replayed
//! memtable names belongs to a write that was not logged. The open removes it with the other
//! unnamed files.

use crate::batch::Change;
use crate::context::options::{DamagedFiles, Options};
use crate::files::data_file::DataFile;
use crate::files::{KvFiles, damaged};
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

/// Returns the length from which a value is written to a segment: above a quarter of a log group,
/// or above the maximum value length of log and memtable.
pub(crate) fn threshold(options: &Options) -> usize {
    usize::try_from(options.expert.log_group_bytes / 4).unwrap_or(usize::MAX).min(limits::VALUE_LEN_MAX) + 1
}

/// Segments referenced by memtables.
pub(crate) struct Segments {
    space: Arc<SpaceBudget>,
    files: Arc<KvFiles>,
    /// By number.
    known: Mutex<HashMap<u64, Known>, rank::Segments>,
    /// True if the segments of one memtable exceed `wal_bytes_max`: the memtable must then be
    /// frozen, however small it is.
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
    /// Set while `fate` is `Held`: live bytes that no version counts.
    counted: Option<SegmentBytes>,
}

/// The owner of the file's removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// No owner yet: no edit names the file.
    Held,
    /// An edit names the file, or did: it is removed like any file of a version.
    Listed,
    /// No edit will ever name the file: it is on the list of obsolete files.
    Dropped,
}

impl Segments {
    pub fn new(space: &Arc<SpaceBudget>, files: &Arc<KvFiles>) -> Segments {
        Segments {
            space: space.clone(),
            files: files.clone(),
            known: Mutex::default(),
            over_bound: AtomicBool::default(),
        }
    }

    /// Registers a segment whose reference enters a memtable.
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

    /// Returns whether a memtable references the file.
    pub fn holds(&self, number: u64) -> bool {
        lock(&self.known).contains_key(&number)
    }

    /// Returns the numbers of segments that memtables reference and no edit names.
    pub fn live(&self) -> Vec<u64> {
        let known = lock(&self.known);
        let live = known.iter().filter(|(_, k)| k.fate == Fate::Held && k.memtable.strong_count() > 0);
        live.map(|(&number, _)| number).collect()
    }

    /// Returns the numbers of segments that these memtables reference.
    pub fn of_memtables(&self, memtables: &[u64]) -> Vec<u64> {
        let known = lock(&self.known);
        let of_them = known.iter().filter(|(_, k)| memtables.contains(&k.memtable_id));
        of_them.map(|(&number, _)| number).collect()
    }

    /// Forgets the segments of deleted memtables.
    pub fn sweep(&self) {
        lock(&self.known).retain(|_, known| known.memtable.strong_count() > 0);
    }

    /// Returns the token of a file.
    pub fn token(&self, number: u64) -> Arc<()> {
        lock(&self.known).get(&number).map(|k| k.token.clone()).unwrap_or_default()
    }

    /// Returns the description of a segment for the manifest, once the entry `(user_key, seq)` that
    /// references it is in a table.
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

    /// Records an installed flush of these memtables that adopted some of their files: no edit will
    /// ever name the others. Called while the flush still holds the memtables.
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

    /// Moves files that no edit has named to the list of obsolete files, because no edit will name
    /// them.
    pub fn dropped(&self, numbers: &[u64]) {
        let mut known = lock(&self.known);
        let gone = numbers.iter().filter_map(|number| Some((number, known.get_mut(number)?.drop_token()?)));
        let gone: Vec<DataFile> = gone.map(|(&number, token)| obsolete(number, token)).collect();
        std::mem::drop(known);
        self.files.obsolete.add(gone);
    }

    /// Drops the segments of a dropped family, except those listed in its last version: that
    /// version holds them.
    pub fn family_dropped(&self, family: FamilyId, listed: impl Fn(u64) -> bool) {
        let known = lock(&self.known);
        let of_family = known.iter().filter(|(number, k)| k.family == family && !listed(**number));
        let numbers: Vec<u64> = of_family.map(|(&number, _)| number).collect();
        std::mem::drop(known);
        self.dropped(&numbers);
    }
}

impl Known {
    /// Returns the token if the file must now go on the list of obsolete files.
    fn drop_token(&mut self) -> Option<Arc<()>> {
        if self.fate != Fate::Held {
            return None;
        }
        (self.fate, self.counted) = (Fate::Dropped, None);
        Some(self.token.clone())
    }
}

/// Describes a segment that no version holds, for the list of obsolete files.
fn obsolete(number: u64, copies: Arc<()>) -> DataFile {
    DataFile::Vsst(Arc::new(VsstMeta { number, segment: true, copies, ..VsstMeta::default() }))
}

/// Checks, in recovery, that the segment of a logged entry matches the log. An unreadable segment
/// is set aside, or fails the open if the options say so.
pub(crate) fn check(tree: &Tree, family: &Family, change: &Change<'_>) -> Result<()> {
    match open(&tree.files, change.key, change.value) {
        Err(e) if damaged::is_of_reading(&e) && tree.context.options.damaged_files == DamagedFiles::Serve => {
            let reference = SegmentReference::decode(change.value)?;
            // If another file has its number now, it cannot be set aside.
            if tree.files.manifest.state().place_of(reference.file).is_some() {
                return Err(e);
            }
            tree.set_segment_aside(family, change.key, &reference, &e);
            Ok(())
        }
        other => other.map(drop),
    }
}

/// Opens the segment of a logged entry.
pub(crate) fn open(files: &KvFiles, user_key: &[u8], encoded: &[u8]) -> Result<Arc<SegmentReader>> {
    let reference = SegmentReference::decode(encoded)?;
    let segment = files.tables.segment(reference.file, reference.uid)?;
    let same = (segment.raw_len(), segment.file_len(), segment.checksum(), segment.identity().uid)
        == (reference.raw_len, reference.stored_len, reference.checksum, reference.uid);
    if same && segment.user_key() == user_key {
        return Ok(segment);
    }
    Err(another_value(files, user_key, reference.file))
}

/// Opens a segment that a table references.
pub(crate) fn open_listed(files: &KvFiles, user_key: &[u8], meta: &VsstMeta) -> Result<Arc<SegmentReader>> {
    let segment = files.tables.segment(meta.number, meta.uid)?;
    if (segment.raw_len(), segment.file_len()) == (meta.raw_bytes, meta.len) && segment.user_key() == user_key
    {
        return Ok(segment);
    }
    Err(another_value(files, user_key, meta.number))
}

fn another_value(files: &KvFiles, user_key: &[u8], number: u64) -> Error {
    Error::corruption(format!(
        "the large value file does not hold the value of key \"{}\", but that of another key, length or \
         checksum",
        user_key.escape_ascii()
    ))
    .at_file(files.context.path(&names::vsst(number)))
}

/// Fails for keys and values beyond the limits of a segment.
pub(crate) fn validate(key: &[u8], len: u64) -> Result<()> {
    Change { kind: ValueKind::Value, family: 0, key, value: &[] }.validate()?;
    if len > limits::LARGE_VALUE_LEN_MAX {
        let why = format!(
            "value of {len} bytes is over the limit: at most {} bytes are supported",
            limits::LARGE_VALUE_LEN_MAX
        );
        return Err(Error::new(ErrorKind::TooLarge, why));
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests;
