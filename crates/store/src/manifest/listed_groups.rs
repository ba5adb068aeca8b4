//! The log groups that the manifest lists, in all lanes.

use super::contradiction::{fault, refuse};
use super::record::LogGroupMeta;
use crate::IdMap;
use crate::numbers::NUMBER_MAX;
use crate::volumes::Volume;
use base::Result;
use std::ops::Deref;
use wal::{Lane, LogBegin};

/// The live log groups by number; it dereferences to the map of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedGroups {
    by_ltn: IdMap<u64, LogGroupMeta>,
    /// The log group number of each file that is a log group.
    by_file: IdMap<u64, u64>,
}

impl ListedGroups {
    /// Returns the number of the log group in this file.
    pub fn in_file(&self, file: u64) -> Option<u64> {
        self.by_file.get(&file).copied()
    }

    /// Returns the groups of a lane that recovery replays, oldest first.
    pub fn chain(&self, lane: Lane) -> impl DoubleEndedIterator<Item = &LogGroupMeta> {
        self.by_ltn.values().filter(move |g| g.lane == lane && g.retained_bytes.is_none())
    }

    /// Returns the retained groups of a lane, by number.
    pub fn retained(&self, lane: Lane) -> impl DoubleEndedIterator<Item = &LogGroupMeta> {
        self.by_ltn.values().filter(move |g| g.lane == lane && g.retained_bytes.is_some())
    }

    /// Fails if no group of this number can be added.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub(super) fn check_new(&self, ltn: u64) -> Result<()> {
        match ltn > NUMBER_MAX || self.by_ltn.contains_key(&ltn) {
            true => refuse(format!("log group {ltn} exists already, or its number is over {NUMBER_MAX}")),
            false => Ok(()),
        }
    }

    /// Adds a group with a new number and a file that has no other owner.
    pub(super) fn add(&mut self, group: LogGroupMeta) {
        self.by_ltn.insert(group.ltn, group);
        self.by_file.insert(group.file, group.ltn);
    }

    /// Removes a group.
    ///
    /// # Errors
    /// `InvalidArgument` if there is none.
    pub(super) fn remove(&mut self, ltn: u64) -> Result<()> {
        match self.by_ltn.remove(&ltn) {
            Some(group) => {
                self.by_file.remove(&group.file);
                Ok(())
            }
            None => refuse(format!("there is no log group {ltn}")),
        }
    }

    fn change(&mut self, ltn: u64, change: impl FnOnce(&mut LogGroupMeta) -> Result<()>) -> Result<()> {
        let Some(mut group) = self.by_ltn.get(&ltn).copied() else {
            return refuse(format!("there is no log group {ltn}"));
        };
        change(&mut group)?;
        self.by_ltn.insert(ltn, group);
        Ok(())
    }

    /// Records the end of a group.
    ///
    /// # Errors
    /// `InvalidArgument` if it has another end already. The other changes of a group fail alike.
    pub(super) fn seal(&mut self, ltn: u64, end_lpn: u64) -> Result<()> {
        self.change(ltn, |g| match g.sealed_end {
            Some(end) if end != end_lpn => refuse(format!("log group {ltn} is sealed at page {end}")),
            _ => {
                g.sealed_end = Some(end_lpn);
                Ok(())
            }
        })
    }

    /// Retains a group as storage, with its valid bytes.
    pub(super) fn retain(&mut self, ltn: u64, bytes: u64) -> Result<()> {
        self.change(ltn, |g| {
            let known = g.retained_bytes.is_some_and(|known| known != bytes);
            if !g.lane.retains() || known || g.discarded || bytes > g.len {
                return refuse(format!(
                    "log group {ltn} cannot be kept with {bytes} of {} bytes: its lane keeps none, or it \
                     was discarded, or kept with other bytes",
                    g.len
                ));
            }
            g.retained_bytes = Some(bytes);
            Ok(())
        })
    }

    /// Records that the file of a retained group has other names.
    pub(super) fn share(&mut self, ltn: u64) -> Result<()> {
        self.change(ltn, |g| {
            g.shared = true;
            match g.retained_bytes {
                Some(_) => Ok(()),
                None => refuse(format!("log group {ltn} cannot be shared: it is not kept as storage")),
            }
        })
    }

    /// Records that recovery discarded a group.
    pub(super) fn discard(&mut self, ltn: u64) -> Result<()> {
        self.change(ltn, |g| {
            g.discarded = true;
            Ok(())
        })
    }

    /// Sets the beginning of the log in its oldest group: not before the previous beginning, and
    /// not behind the group's end.
    pub(super) fn begin(&mut self, ltn: u64, begin: LogBegin) -> Result<()> {
        let oldest = self.chain(Lane::FIRST).next().map(|group| group.ltn);
        self.change(ltn, |g| {
            let falls =
                g.begin.is_some_and(|known| known.lpn > begin.lpn || known.first_lpn != begin.first_lpn);
            let is_over = g.sealed_end.is_some_and(|end| end < begin.lpn) || begin.offset(g.lane) > g.len;
            if oldest != Some(ltn) || g.discarded || falls || is_over || begin.lpn < begin.first_lpn {
                return refuse(format!(
                    "the log cannot begin at page {} of log group {ltn}: the group is not the oldest, or \
                     the page is outside of it or before an earlier beginning",
                    begin.lpn
                ));
            }
            g.begin = Some(begin);
            Ok(())
        })
    }

    /// Moves all groups to this volume.
    pub(super) fn move_to(&mut self, volume: Volume) {
        let elsewhere = self.by_ltn.values().filter(|group| group.volume != volume);
        for group in elsewhere.copied().collect::<Vec<_>>() {
            self.by_ltn.insert(group.ltn, LogGroupMeta { volume, ..group });
        }
    }

    /// Checks the groups, and passes the numbers of their files to `occupy`.
    ///
    /// # Errors
    /// `Corruption`; errors of `occupy`.
    pub(super) fn verify(&self, next_ltn: u64, mut occupy: impl FnMut(u64) -> Result<()>) -> Result<()> {
        let mut by_file = IdMap::new();
        for (ltn, group) in self.by_ltn.iter() {
            if ltn != group.ltn || ltn >= next_ltn {
                return fault(format!(
                    "log group {ltn} is out of place: its entry names group {}, the next group is {next_ltn}",
                    group.ltn
                ));
            }
            occupy(group.file)?;
            by_file.insert(group.file, ltn);
        }
        let mut chain = self.chain(Lane::FIRST);
        chain.next();
        if let Some(group) = chain.find(|group| group.begin.is_some()) {
            return fault(format!("the log begins in log group {}, which is not its oldest", group.ltn));
        }
        match by_file == self.by_file {
            true => Ok(()),
            false => fault("the index of log files is not that of the groups"),
        }
    }

    /// Adds a contradiction for tests: a group under another number, or an empty index of files.
    #[cfg(test)]
    pub(super) fn contradict(&mut self, under: Option<(u64, LogGroupMeta)>) {
        match under {
            Some((ltn, group)) => drop(self.by_ltn.insert(ltn, group)),
            None => self.by_file = IdMap::new(),
        }
    }
}

impl Deref for ListedGroups {
    type Target = IdMap<u64, LogGroupMeta>;
    fn deref(&self) -> &IdMap<u64, LogGroupMeta> {
        &self.by_ltn
    }
}
