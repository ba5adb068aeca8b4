//! The pages that a crash left in the staging file, by group (its identity and its tag) and number.
//!
//! After a process crash these are the unwritten pages, each filled up to its last complete
//! fragment. After a power loss each page is some earlier state of its slot, or a torn one. The
//! checksums of the header and of the fragments then leave a prefix of its contents. Nothing here
//! is trusted beyond that: recovery decides whether a page continues the log.
//!
//! The file may be long ([`STAGING_LEN_MAX`]), and is read in pieces. A process that owns the store
//! keeps only the place of each page, some hundred bytes, and reads a page again when recovery
//! reaches it ([`Staging::index`]). A reader beside a writer keeps the pages, since the writer may
//! reuse their slots.

use crate::lane::Lane;
use crate::page::{self, Owner, PageHeader, Unknown, Verdict};
use base::{Error, ErrorKind, Result, Uid};
use io::{Access, Env, PAGE, ReadFile};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Name of the staging file of the first lane, which keeps the open pages for the next process, in
/// the log's directory.
pub const STAGING_NAME: &str = "STAGING";

/// Largest staging file that recovery reads, bytes.
pub const STAGING_LEN_MAX: usize = 64 << 20;

/// Bytes read at a time.
const READ_LEN: usize = 256 << 10;

/// Returns the highest number of a group of `store` that has a page in the staging file of a lane
/// in `dir`. A group has pages only once the manifest durably lists it, so a manifest without this
/// group has lost its end.
///
/// # Errors
/// Those of reading.
pub fn newest_staged_group(env: &Env, dir: &Path, lane: Lane, store: Uid) -> Result<Option<u64>> {
    let mut newest = None;
    if let Some(file) = open(env, &io::fs::join(dir, lane.staging_name()))? {
        each_page(&*file, |bytes, _| {
            if let Verdict::Valid(header) = page::read_open(bytes, store) {
                newest = newest.max(Some(header.ltn));
            }
        })?;
    }
    Ok(newest)
}

/// Opens the staging file, if there is one.
fn open(env: &Env, path: &Path) -> Result<Option<Arc<dyn ReadFile>>> {
    match env.fs.open(path, Access::Buffered) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Reads the slots of a file in order.
fn each_page(file: &dyn ReadFile, mut take: impl FnMut(&[u8], u64)) -> Result<()> {
    // A length that this release does not write is cut, without an error: the file is scratch.
    let len = file.len()?.min(STAGING_LEN_MAX as u64) as usize / PAGE * PAGE;
    let mut buf = vec![0; READ_LEN.min(len)];
    let mut offset = 0;
    while offset < len {
        let n = READ_LEN.min(len - offset);
        buf.truncate(n);
        read(file, &mut buf, offset as u64)?;
        let slots = (offset as u64..).step_by(PAGE);
        buf.chunks_exact(PAGE).zip(slots).for_each(|(bytes, slot)| take(bytes, slot));
        offset += n;
    }
    Ok(())
}

/// Reads a part of the file. It is never synced, so after a power loss any or all pages may be
/// unreadable.
fn read(file: &dyn ReadFile, buf: &mut [u8], offset: u64) -> Result<()> {
    match io::read_around(buf, offset, PAGE, |buf, offset| file.read_at(buf, offset)) {
        Err(e) if io::is_unreadable(&e) => {
            buf.fill(0);
            Ok(())
        }
        read => read,
    }
}

#[derive(Debug)]
pub(crate) struct StagedPage {
    pub header: PageHeader,
    kept: Kept,
}

impl StagedPage {
    /// Returns the bytes of the page, if they were kept.
    pub fn kept(&self) -> &[u8] {
        match &self.kept {
            Kept::Whole(bytes) => bytes,
            Kept::At(_) => &[],
        }
    }
}

#[derive(Debug)]
enum Kept {
    /// The bytes.
    Whole(Box<[u8]>),
    /// The offset in the file.
    At(u64),
}

/// The pages of a staging file.
#[derive(Debug, Default)]
pub struct Staging {
    /// The file, if pages are not kept.
    file: Option<Arc<dyn ReadFile>>,
    pages: BTreeMap<(Owner, u64, u64), StagedPage>,
    /// Groups with a page of a later release in the file, which must not be taken for missing.
    newer: BTreeMap<(Owner, u64), Unknown>,
    /// The highest number of any page, in any group.
    pub(crate) highest_lpn: Option<u64>,
}

impl Staging {
    /// Indexes the staging file of a lane in `dir`. The file must not change while the index is in
    /// use.
    ///
    /// # Errors
    /// Those of reading.
    pub fn of_lane(env: &Env, dir: &Path, lane: Lane, store: Uid) -> Result<Staging> {
        Staging::index(env, &io::fs::join(dir, lane.staging_name()), store)
    }

    /// Returns the highest number of a group that has a page here; see [`newest_staged_group`].
    pub fn newest_group(&self) -> Option<u64> {
        self.groups().map(|(_, ltn)| ltn).max()
    }

    /// Indexes a staging file that does not change while the index is in use.
    ///
    /// # Errors
    /// Those of reading.
    pub(crate) fn index(env: &Env, path: &Path, store: Uid) -> Result<Staging> {
        let mut staging = Staging { file: open(env, path)?, ..Staging::default() };
        if let Some(file) = staging.file.clone() {
            each_page(&*file, |bytes, slot| staging.add(bytes, store, |_| Kept::At(slot)))?;
        }
        Ok(staging)
    }

    /// Reads the staging file; a missing file has no pages.
    pub(crate) fn read(env: &Env, path: &Path, store: Uid) -> Result<Staging> {
        let mut staging = Staging::default();
        staging.take_from(env, path, store)?;
        Ok(staging)
    }

    /// Reads the staging file of the first lane for a reader that continues at the page `begins`
    /// ([`crate::read_on`]). Earlier pages are left out.
    ///
    /// # Errors
    /// Those of reading.
    pub fn to_read_on(env: &Env, dir: &Path, store: Uid, begins: u64) -> Result<Staging> {
        let mut staging = Staging::default();
        if let Some(file) = open(env, &io::fs::join(dir, STAGING_NAME))? {
            each_page(&*file, |bytes, _| {
                if page::peek(bytes).is_none_or(|header| header.lpn >= begins) {
                    staging.add(bytes, store, |bytes| Kept::Whole(bytes.into()));
                }
            })?;
        }
        Ok(staging)
    }

    /// As [`Staging::read`], in addition to the pages already read.
    ///
    /// # Errors
    /// Those of reading.
    pub(crate) fn take_from(&mut self, env: &Env, path: &Path, store: Uid) -> Result<()> {
        open(env, path)?.map_or(Ok(()), |file| self.take(&*file, store))
    }

    /// Adds the pages of a file.
    ///
    /// # Errors
    /// Those of reading.
    pub(crate) fn take(&mut self, file: &dyn ReadFile, store: Uid) -> Result<()> {
        each_page(file, |bytes, _| self.add(bytes, store, |bytes| Kept::Whole(bytes.into())))
    }

    fn add(&mut self, bytes: &[u8], store: Uid, keep: impl FnOnce(&[u8]) -> Kept) {
        match page::read_open(bytes, store) {
            Verdict::Valid(header) => {
                self.highest_lpn = self.highest_lpn.max(Some(header.lpn));
                let page = StagedPage { header, kept: keep(bytes) };
                self.pages.insert((header.owner, header.ltn, header.lpn), page);
            }
            Verdict::Newer(unknown) => {
                let group = page::peek(bytes).map(|header| ((header.owner, header.ltn), unknown));
                self.newer.extend(group);
            }
            Verdict::Invalid => {}
        }
    }

    /// Returns the bytes of a page; zeros where they are no longer readable.
    ///
    /// # Errors
    /// Those of reading.
    pub(crate) fn bytes<'a>(&self, page: &'a StagedPage) -> Result<Cow<'a, [u8]>> {
        let offset = match &page.kept {
            Kept::Whole(bytes) => return Ok(Cow::Borrowed(bytes)),
            Kept::At(offset) => *offset,
        };
        let mut bytes = vec![0; PAGE];
        if let Some(file) = &self.file {
            read(&**file, &mut bytes, offset)?;
        }
        Ok(Cow::Owned(bytes))
    }

    /// Fails if a group of the log has a page here that only a later release can read.
    ///
    /// # Errors
    /// `Unsupported`.
    pub(crate) fn must_know(&self, owner: Owner, ltn: u64) -> Result<()> {
        let Some(unknown) = self.newer.get(&(owner, ltn)) else { return Ok(()) };
        let cure = "open the store with the release that wrote it, or a newer one";
        let error: Error = unknown.error(cure);
        Err(error.at_file(crate::staging::STAGING_NAME))
    }

    pub(crate) fn get(&self, owner: Owner, ltn: u64, lpn: u64) -> Option<&StagedPage> {
        self.pages.get(&(owner, ltn, lpn))
    }

    /// Returns the groups of the pages: owner and tag.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (Owner, u64)> {
        let mut last = None;
        let groups = self.pages.keys().map(|(owner, ltn, _)| (*owner, *ltn));
        groups.filter(move |group| last.replace(*group) != Some(*group))
    }

    /// Returns the pages of one group, by number.
    pub(crate) fn of_group(&self, owner: Owner, ltn: u64) -> impl Iterator<Item = &StagedPage> {
        self.pages.range((owner, ltn, 0)..=(owner, ltn, u64::MAX)).map(|(_, page)| page)
    }
}
