//! The end of a log lane, rewritten for a copy: the batches of the groups that recovery replays.
//!
//! Such groups are still written, and their pages carry the identity of their store. So they are
//! neither linked nor copied. Instead their batches go into groups of the copy, in order and with
//! their sequences, where a replay of the copy finds them. That log is closed before the manifest
//! of the copy exists, which lists its groups with its end.

use super::Copy;
use crate::manifest::{LogGroupMeta, Manifest};
use crate::names;
use base::{ErrorKind, Result, Uid};
use io::Access;
use wal::{Durability, History, Lane, LoggedBatch, PreparedGroup, Wal, WalOptions};

/// Length of the buffer for page writes, bytes.
const STAGING_LEN: usize = 1 << 20;

/// Rewrites the end of a lane: see the module.
pub struct LaneCopy<'a> {
    copy: &'a Copy,
    /// The manifest of the source store, which allocates file numbers.
    manifest: &'a Manifest,
    lane: Lane,
    access: Access,
    group_bytes: u64,
    next_ltn: u64,
    groups: Vec<LogGroupMeta>,
    wal: Option<Wal>,
}

impl std::fmt::Debug for LaneCopy<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LaneCopy({} groups)", self.groups.len())
    }
}

impl<'a> LaneCopy<'a> {
    /// Creates an empty log. `group_bytes`: length of a group; `next_ltn`: number of the first
    /// group, above all groups of the copy.
    pub fn new(
        copy: &'a Copy,
        manifest: &'a Manifest,
        (lane, access): (Lane, Access),
        group_bytes: u64,
        next_ltn: u64,
    ) -> LaneCopy<'a> {
        LaneCopy { copy, manifest, lane, access, group_bytes, next_ltn, groups: Vec::new(), wal: None }
    }

    /// Appends a batch.
    ///
    /// # Errors
    /// `NoSpace`; `Cancelled`; file system errors.
    pub fn append(&mut self, batch: &LoggedBatch<'_>) -> Result<()> {
        self.copy.check()?;
        if self.wal.is_none() {
            let first = self.group(batch.bytes.len())?;
            let (env, dir) = (&self.copy.context.env, &self.copy.dir);
            let options = WalOptions {
                lane: self.lane,
                group_len: self.group_bytes,
                tail_buffer_len: STAGING_LEN,
                ..WalOptions::default()
            };
            let (store, history) = (self.copy.uid, History::default());
            self.wal = Some(Wal::start(env, dir, options, store, 0, first, history)?);
        }
        loop {
            let Some(wal) = &self.wal else { return Ok(()) };
            let seqs = (batch.first_seq, batch.last_seq);
            // The whole copy becomes durable at its end, or there is no copy.
            match wal.append_placed(batch.tenant, &[batch.bytes], seqs, Durability::Durable, 0) {
                Err(e) if e.kind() == ErrorKind::Busy => {
                    let group = self.group(batch.bytes.len())?;
                    self.wal.as_ref().map_or(Ok(()), |wal| wal.content().add_group(group))?;
                }
                appended => return appended.map(drop),
            }
        }
    }

    /// Makes a group with room for a batch of `batch_len` bytes.
    fn group(&mut self, batch_len: usize) -> Result<PreparedGroup> {
        let len = self.group_bytes.max(wal::group_len_needed(batch_len));
        let (number, ltn) = (self.manifest.allocate_file_number(), self.next_ltn);
        let env = &self.copy.context.env;
        let path = io::fs::join(&self.copy.dir, &names::log(number));
        let file = env.fs.create_in_place_unzeroed(&path, len, self.access)?;
        let uid: Uid = env.new_uid();
        let (file_number, lane) = (number, self.lane);
        let meta = LogGroupMeta { ltn, file: file_number, len, uid: Some(uid), lane, ..Default::default() };
        self.groups.push(meta);
        self.next_ltn += 1;
        Ok(PreparedGroup { ltn, uid, file })
    }

    /// Makes the log durable and closes it. Returns its groups for the manifest of the copy, oldest
    /// first.
    ///
    /// # Errors
    /// File system errors.
    pub fn finish(mut self) -> Result<Vec<LogGroupMeta>> {
        let Some(wal) = self.wal else { return Ok(Vec::new()) };
        wal.close()?;
        let end = wal.content().end();
        for group in &mut self.groups {
            group.sealed_end = end.filter(|(ltn, _)| *ltn == group.ltn).map(|(_, end_lpn)| end_lpn);
        }
        Ok(self.groups)
    }
}
