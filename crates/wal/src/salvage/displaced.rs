//! Log files under wrong names, exchanged or restored to the wrong places. A page is valid only in
//! the group, and at the place in it, that it names itself. So the first page of a file identifies
//! the file, whatever its name.

use super::LogFile;
use crate::lane::Lane;
use crate::page::{self, Verdict};
use crate::staging::Staging;
use base::{Result, Uid};
use io::{Env, PAGE, ReadFile};
use std::path::Path;

/// A group as its pages describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupFound {
    /// Its number.
    pub ltn: u64,
    /// Its identity.
    pub uid: Option<Uid>,
    /// The store that wrote it.
    pub store: Uid,
}

fn first_page(file: &dyn ReadFile) -> Option<Vec<u8>> {
    let len = file.len().ok()?.min(PAGE as u64);
    let mut page = vec![0; usize::try_from(len).ok()?];
    file.read_at(&mut page, 0).ok().map(|()| page)
}

/// Returns the group of a lane whose first page a file begins with.
pub fn group_in(file: &dyn ReadFile, lane: Lane) -> Option<GroupFound> {
    let page = first_page(file)?;
    let peeked = page::peek(&page).filter(|header| header.lane() == lane)?;
    match page::read_closed(&page, peeked.owner, peeked.ltn) {
        Verdict::Valid(header) if header.offset() == Some(0) => {
            Some(GroupFound { ltn: header.ltn, uid: header.owner.group, store: header.owner.store })
        }
        _ => None,
    }
}

/// Returns the staging file of a lane, with its pages in misnamed log files. For one page the file
/// of that name has precedence.
pub(super) fn staging(
    env: &Env,
    path: &Path,
    (lane, store): (Lane, Uid),
    files: &[LogFile],
) -> Result<Staging> {
    let mut staging = Staging::default();
    for file in files.iter().filter_map(|log| log.file.as_ref()) {
        if is_staging(&**file, lane, store) {
            staging.take(&**file, store)?;
        }
    }
    staging.take_from(env, path, store)?;
    Ok(staging)
}

/// Returns true if a file begins with a page that can only be in the staging file of a lane.
pub(super) fn is_staging(file: &dyn ReadFile, lane: Lane, store: Uid) -> bool {
    let verdict = first_page(file).map(|page| page::read_open(&page, store));
    matches!(verdict, Some(Verdict::Valid(header)) if header.lane() == lane)
}
