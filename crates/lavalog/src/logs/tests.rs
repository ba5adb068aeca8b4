//! Single operations on logs.

use super::*;
use crate::disk::directory::{Block, LogRows};
use crate::index::RecordLocation;
use crate::lsn_set::{Builder, Size};
use base::HashMap;

mod model;
mod script;

/// Installs an index file of a group with these parts.
fn install(logs: &mut Logs, ltn: u64, parts: impl IntoIterator<Item = (LogId, RecordsInFile)>) {
    let mut parts: HashMap<LogId, RecordsInFile> = parts.into_iter().collect();
    let ids = logs.groups().logs_in(ltn, 0, usize::MAX).to_vec();
    ids.chunks(2).for_each(|some| {
        let some: Vec<_> = some.iter().map(|id| (*id, parts.remove(id))).collect();
        logs.install(ltn, some);
    });
    logs.installed(ltn);
    assert_eq!((parts.len(), logs.groups().logs_in(ltn, 0, 1).len()), (0, 0));
}

/// Makes the part of a file with one block.
fn part_of(source: Source, last_seq: SeqNo, set: Builder) -> RecordsInFile {
    let lsns = set.build();
    let blocks = vec![Block { first: lsns.first().unwrap(), offset: 64, len: 50 }];
    RecordsInFile::of(source, &LogRows { log: 5, seqs: (1, last_seq), lsns, blocks }).unwrap()
}
