//! The files of the store, for tests that compare them with the directory.

use crate::files::data_file::DataFile;
use crate::work::jobs::Jobs;

/// The files named by the manifest and the memtables at a moment.
#[derive(Clone, Debug, Default)]
pub struct LiveFiles {
    /// Names of all tables and vSSTs, and of segments referenced by memtables, sorted.
    pub files: Vec<String>,
    /// vSSTs and aliases that no table references. Empty once the store is idle.
    pub unreferenced: Vec<String>,
    /// Number of names pinned by running jobs. 0 once the store is idle.
    pub pinned: usize,
    /// Names of the store's manifests and log groups, spare ones included, sorted.
    pub others: Vec<String>,
    /// Names of obsolete data files, which a job will remove.
    pub obsolete: Vec<String>,
    /// Bytes of all files by the store's accounting, without reading the directory.
    pub counted_bytes: u64,
    /// Bytes granted to running jobs, and bytes that they have written. 0 once the store is idle.
    pub job_sums: (u64, u64),
}

impl LiveFiles {
    pub(crate) fn of(jobs: &Jobs) -> Self {
        let mut live = LiveFiles { pinned: jobs.files.pins.len(), ..Default::default() };
        let manifest = &jobs.files.manifest;
        for (_, family) in manifest.state().families.iter() {
            live.files.extend(DataFile::all_of(&family.version).map(|file| file.kind().to_string()));
            let (aliases, vssts) = family.version.unreferenced();
            live.unreferenced.extend(aliases.iter().map(|name| format!("alias {name}")));
            live.unreferenced.extend(vssts.iter().map(|number| format!("vSST {number}")));
        }
        live.files.extend(jobs.large.segments.live().into_iter().map(version::names::vsst));
        live.files.sort_unstable();
        live.files.dedup();
        live.others = manifest.live_manifest_files();
        live.others.extend(jobs.log.files().file_names());
        live.others.sort_unstable();
        live.obsolete = jobs.files.obsolete.map(|file| file.kind().to_string());
        live.counted_bytes = jobs.space.used_bytes();
        live.job_sums = jobs.space.grants.job_sums();
        live
    }
}
