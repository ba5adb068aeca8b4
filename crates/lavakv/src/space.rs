//! The space ledger: every byte of the store's directory has an owner.

use crate::engine::Engine;
use base::Result;
use version::names::{self, FileKind};

/// Who owns the bytes on disk. The parts sum to `total_bytes`, which is what the file system reports for the files of
/// the store (allocated, not logical, bytes).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Tables (kSSTs) of the current state.
    pub table_bytes: u64,
    /// vSSTs of the current state, without the garbage in them.
    pub value_bytes: u64,
    /// Exposed garbage: records of vSSTs that no table references any more.
    pub garbage_bytes: u64,
    /// Tables no longer in the current state that iterators, snapshots' readers or pending removal hold.
    pub pinned_bytes: u64,
    /// Outputs of jobs under way.
    pub job_bytes: u64,
    /// Log groups: live, spare and free, and the log's open pages.
    pub wal_bytes: u64,
    /// Manifests and the pointer to the current one.
    pub manifest_bytes: u64,
    /// Files the store does not know.
    pub other_bytes: u64,
    /// All of the above.
    pub total_bytes: u64,
    /// Hidden garbage, inside `table_bytes` and `value_bytes`: what newer entries shadow and compaction has not dropped
    /// yet. An estimate; the bounds are `hidden_bytes_min` and `hidden_bytes_max`.
    pub hidden_bytes: u64,
    /// Lower bound of `hidden_bytes`.
    pub hidden_bytes_min: u64,
    /// Upper bound of `hidden_bytes`.
    pub hidden_bytes_max: u64,
    /// Lower bound of live data inside `table_bytes` and `value_bytes`: logical bytes of the last level of each family, or of all
    /// levels where there is only one.
    pub live_bytes_min: u64,
    /// Memtables, in memory only.
    pub memtable_bytes: u64,
    /// Number of snapshots held.
    pub snapshots: u64,
    /// Age of the oldest snapshot, nanoseconds.
    pub oldest_snapshot_ns: u64,
    /// Bytes still free on the volume.
    pub available_bytes: u64,
}

impl Space {
    /// Name and value of each part that belongs to the sum.
    pub fn parts(&self) -> [(&'static str, u64); 8] {
        [
            ("tables", self.table_bytes),
            ("values", self.value_bytes),
            ("garbage", self.garbage_bytes),
            ("pinned", self.pinned_bytes),
            ("jobs", self.job_bytes),
            ("wal", self.wal_bytes),
            ("manifest", self.manifest_bytes),
            ("other", self.other_bytes),
        ]
    }
}

/// Takes the ledger: one directory listing, attributed by the manifest's state.
pub(crate) fn space(engine: &Engine) -> Result<Space> {
    let entries = engine.env.fs.list(&engine.dir)?;
    let state = engine.manifest.state();
    let mut out = Space { memtable_bytes: engine.memory.used(), ..Default::default() };
    let obsolete = engine.obsolete.numbers();
    for entry in &entries {
        let bytes = entry.allocated;
        let owner = match names::parse(&entry.name) {
            Some(FileKind::Ksst(n)) if state.place_of(n).is_some() => &mut out.table_bytes,
            Some(FileKind::Vsst(n)) if state.place_of(n).is_some() => &mut out.value_bytes,
            Some(FileKind::Ksst(n) | FileKind::Vsst(n)) if obsolete.contains(&n) => &mut out.pinned_bytes,
            Some(FileKind::Ksst(_) | FileKind::Vsst(_)) => &mut out.job_bytes,
            Some(FileKind::Log(_) | FileKind::Staging) => &mut out.wal_bytes,
            Some(FileKind::Manifest(_) | FileKind::Current | FileKind::CurrentTemp) => {
                &mut out.manifest_bytes
            }
            Some(FileKind::Lock) | None => &mut out.other_bytes,
        };
        *owner += bytes;
        out.total_bytes += bytes;
    }
    for family in engine.all_families() {
        let view = family.view();
        let (version, ledger) = (&view.version, &view.ledger);
        let garbage = ledger.exposed_bytes().min(out.value_bytes);
        out.value_bytes -= garbage;
        out.garbage_bytes += garbage;
        let hidden = ledger.hidden(version);
        out.hidden_bytes += hidden.likely;
        out.hidden_bytes_min += hidden.low;
        out.hidden_bytes_max += hidden.high;
        if let Some(last) = version.deepest_level() {
            out.live_bytes_min += version.files(last).iter().map(|f| f.raw_bytes).sum::<u64>();
        }
    }
    let (count, age_ns) = engine.snapshots.pressure(engine.env.clock.now_ns());
    (out.snapshots, out.oldest_snapshot_ns) = (count as u64, age_ns);
    out.available_bytes = engine.env.fs.space(&engine.dir)?.available;
    debug_assert_eq!(out.parts().iter().map(|(_, n)| n).sum::<u64>(), out.total_bytes);
    Ok(out)
}
