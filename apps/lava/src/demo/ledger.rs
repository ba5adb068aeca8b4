//! The parent's ledger of acknowledged writes, and the check of a store against it.
//!
//! Version 0 of a record is its stanza; version v is the stanza with a line that names v. The next
//! version of a record is written only after the previous one is acknowledged. So the store is
//! correct if every record has the last acknowledged version or the one after it.

use super::data::DataSet;
use super::new_histogram;
use super::writer::ACK_LEN;
use crate::formats::escape::escape;
use crate::{Error, Result, output};
use bench::host::now_ns;
use bench::report::human_count;
use hdrhistogram::Histogram;
use lavastore::Db;

/// Number of versions of a record: the import and three overwrites.
pub const VERSIONS: u32 = 4;
/// Maximum number of wrong records reported individually.
const TOLD_MAX: u64 = 5;

/// The acknowledged writes.
pub struct Ledger {
    /// Last acknowledged version of each record.
    acked: Vec<Option<u32>>,
    /// Records found lost or wrong by any check.
    wrong: Vec<bool>,
    acknowledged: u64,
    sizes: Vec<u64>,
    /// Bytes of keys and values of all acknowledged writes.
    pub user_bytes: u64,
    /// Latency of acknowledged writes.
    pub latency_ns: Histogram<u64>,
}

/// Builds the value of a version.
pub fn value(stanza: &[u8], version: u32, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(stanza);
    if version > 0 {
        if out.last() != Some(&b'\n') {
            out.push(b'\n');
        }
        out.extend_from_slice(format!("Lava-Demo-Version: {version}\n").as_bytes());
    }
}

/// Result of a check.
pub struct Check {
    records: u64,
    newer: u64,
    scanned: u64,
    lost: u64,
}

impl Check {
    /// Formats the result as text.
    pub fn text(&self, ledger: &Ledger) -> String {
        let known = ledger.acked.iter().filter(|a| a.is_some()).count() as u64;
        format!(
            "{} of {} acknowledged records read back right, {} lost ({} hold the write that was under way); a scan saw {}",
            human_count(self.records),
            human_count(known),
            self.lost,
            self.newer,
            human_count(self.scanned),
        )
    }
}

impl Ledger {
    /// Returns an empty ledger.
    pub fn new(data: &DataSet) -> Ledger {
        let count = data.records.len();
        Ledger {
            acked: vec![None; count],
            wrong: vec![false; count],
            acknowledged: 0,
            sizes: data.records.iter().map(|(key, value)| (key.len() + value.len()) as u64).collect(),
            user_bytes: 0,
            latency_ns: new_histogram().expect("the bounds are constant and valid"),
        }
    }

    /// Returns the number of acknowledged writes.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Returns the number of records found lost or wrong.
    pub fn lost(&self) -> u64 {
        self.wrong.iter().filter(|w| **w).count() as u64
    }

    /// Returns the next version of a record.
    pub fn next_version(&self, index: usize) -> u32 {
        self.acked[index].map_or(0, |v| v + 1)
    }

    /// Enters an encoded acknowledgement of the writer.
    pub fn enter(&mut self, ack: &[u8]) -> Result<()> {
        let word = |at: usize| ack.get(at..at + 4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
        match (word(0), word(4), word(8)) {
            (Some(index), Some(version), Some(latency_ns)) if ack.len() == ACK_LEN => {
                self.acknowledge(index as usize, version, u64::from(latency_ns))
            }
            _ => {
                Err("the writer process sent an acknowledgement of the wrong length: run the demo again"
                    .into())
            }
        }
    }

    /// Enters an acknowledgement.
    pub fn acknowledge(&mut self, index: usize, version: u32, latency_ns: u64) -> Result<()> {
        let entry = self
            .acked
            .get_mut(index)
            .ok_or("the writer process acknowledged an unknown record: run the demo again")?;
        if version != entry.map_or(0, |v| v + 1) {
            return Err(Error::from(format!(
                "the writer process acknowledged version {version} of record {index} after version {}: run the demo again",
                entry.map_or("none".to_owned(), |version| version.to_string())
            )));
        }
        *entry = Some(version);
        self.acknowledged += 1;
        self.user_bytes += self.sizes[index];
        self.latency_ns.saturating_record(latency_ns.max(1));
        Ok(())
    }

    /// Checks every acknowledged record by a get, and the whole store by a scan. With `exact` no
    /// write is in flight, so only the acknowledged version is correct. A newer version counts as
    /// acknowledged from now on.
    pub fn verify(
        &mut self,
        store: &Db,
        data: &DataSet,
        exact: bool,
        latency_ns: &mut Histogram<u64>,
    ) -> Result<Check> {
        let mut check = Check { records: 0, newer: 0, scanned: 0, lost: 0 };
        let mut expected = Vec::new();
        for (index, (key, stanza)) in data.records.iter().enumerate() {
            let start_ns = now_ns();
            let found = store.get(key)?;
            latency_ns.saturating_record((now_ns() - start_ns).max(1));
            let mut holds = |version: u32| {
                value(stanza, version, &mut expected);
                found.as_deref() == Some(&expected[..])
            };
            let acked = self.acked[index];
            if acked.is_some_and(&mut holds) || (acked.is_none() && found.is_none()) {
                check.records += u64::from(acked.is_some());
            } else if !exact && holds(self.next_version(index)) {
                // From now on this version counts, whether it was acknowledged before the kill or
                // not.
                check.records += u64::from(acked.is_some());
                check.newer += 1;
                self.acked[index] = Some(self.next_version(index));
            } else {
                self.tell(&mut check, index, key, if found.is_none() { "is lost" } else { "is wrong" });
            }
        }
        self.verify_scan(store, data, &mut check)?;
        Ok(check)
    }

    fn tell(&mut self, check: &mut Check, index: usize, key: &[u8], what: &str) {
        self.wrong[index] = true;
        check.lost += 1;
        if check.lost <= TOLD_MAX {
            output::tell(&format!(
                "record {} {what} (acknowledged version {})",
                escape(key),
                self.acked[index].map_or("none".to_owned(), |version| version.to_string())
            ));
        }
    }

    /// Checks that a scan returns exactly the acknowledged records, in order, with the values of
    /// gets.
    fn verify_scan(&mut self, store: &Db, data: &DataSet, check: &mut Check) -> Result<()> {
        let mut entries = store.iter().cursor()?;
        entries.seek_to_first()?;
        let mut expected = Vec::new();
        for (index, (key, stanza)) in data.records.iter().enumerate() {
            let present = entries.valid() && entries.key() == key;
            match self.acked[index] {
                // Records that failed the get are already reported.
                Some(version) if !self.wrong[index] => {
                    value(stanza, version, &mut expected);
                    if !present {
                        self.tell(check, index, key, "is missing from the scan");
                    } else if entries.value()? != expected {
                        self.tell(check, index, key, "is wrong in the scan");
                    } else {
                        check.scanned += 1;
                    }
                }
                _ => {}
            }
            if present {
                entries.next()?;
            }
        }
        // An unknown key stops the loop above at its position.
        if entries.valid() {
            return Err(
                format!("a scan returned a key that was never written: {}", escape(entries.key())).into()
            );
        }
        Ok(())
    }
}
