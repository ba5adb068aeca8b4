//! Values in files beside the log.
//!
//! A release before 0.1.0 had the option `value_placement = log`. It appended the separated values
//! of a family to a file in arrival order while it logged the batch, and logged the position of
//! each value. This release writes no such files. Recovery reads them, and the following flush
//! moves the values into tables.
//!
//! After a clean close every value is complete in its file. After a kill the last values may be in
//! a tail file only, and after a power failure the log ends at the first missing value. This
//! release implements neither rule, so it refuses such a store and names the commit whose binary
//! recovers it.

use crate::context::Context;
use base::{Error, ErrorKind, HashMap, Result, SeqNo};
use io::{Access, ReadFile};
use std::collections::hash_map::Entry;
use std::sync::Arc;
use table::segment::RecordReference;
use table::vsst::record::{LooseRecord, read_loose};
use version::names;

/// The last commit with the option `value_placement = log`.
const LAST_COMMIT: &str = "6e427b33";

/// Files with such values, each opened once.
pub(crate) struct PlacedValues {
    /// True if the store was closed, so that every value must be complete in its file.
    closed: bool,
    open: HashMap<u64, Option<Arc<dyn ReadFile>>>,
}

impl PlacedValues {
    /// `closed`: the store was closed, see [`crate::files::log::Log::was_closed`].
    pub fn new(closed: bool) -> PlacedValues {
        PlacedValues { closed, open: HashMap::default() }
    }

    /// Returns whether a value was read.
    pub fn is_any(&self) -> bool {
        !self.open.is_empty()
    }

    /// Reads the value of an entry in the log.
    ///
    /// # Errors
    /// `Corruption` if a value of a closed store is missing or damaged; `Unsupported` if the store
    /// was not closed.
    pub fn value(&mut self, context: &Context, key: &[u8], seq: SeqNo, value: &[u8]) -> Result<Vec<u8>> {
        let reference = RecordReference::decode(value)?;
        match self.record(context, &reference) {
            Ok(record) if record.user_key == key && record.seq == seq => Ok(record.value),
            Ok(_) => Err(of_another_key(context, &reference)),
            Err(e) if self.closed || !e.is_corruption() => Err(e),
            Err(e) => Err(not_closed().at_file(&context.dir).caused_by(e)),
        }
    }

    fn record(&mut self, context: &Context, reference: &RecordReference) -> Result<LooseRecord> {
        let path = context.path(&names::vsst(reference.file));
        let file = match self.open.entry(reference.file) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(match context.env.fs.open(&path, Access::Buffered) {
                Ok(file) => Some(file),
                Err(e) if e.kind() == ErrorKind::NotFound => None,
                Err(e) => return Err(e),
            }),
        };
        let Some(file) = file else {
            return Err(Error::corruption(
                "a file with values that the log refers to is missing, so these values are lost",
            )
            .at_file(path));
        };
        let read = || read_loose(&**file, reference.uid, reference.offset, reference.stored_len);
        match read() {
            // A second attempt distinguishes transient failures from lost bytes.
            Err(e) if io::is_unreadable(&e) => read(),
            found => found,
        }
    }
}

/// Returns the error for a store that was killed while values were beside its log.
pub fn not_closed() -> Error {
    let why = format!(
        "the store was written with value_placement = log, which this release does not have, and was not closed; open and close it \
         once with a binary of commit {LAST_COMMIT}, then with this one"
    );
    Error::new(ErrorKind::Unsupported, why)
}

fn of_another_key(context: &Context, reference: &RecordReference) -> Error {
    let why = "the value record that the log refers to at this offset belongs to another key";
    Error::corruption(why).at_file(context.path(&names::vsst(reference.file))).at_offset(reference.offset)
}
