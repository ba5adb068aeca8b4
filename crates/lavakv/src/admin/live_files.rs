//! What is the store's, for tests that compare it with the directory.

use crate::files::data_file::DataFile;
use crate::work::jobs::Jobs;

/// What the manifest and the memtables name at a moment.
#[derive(Clone, Debug, Default)]
pub struct LiveFiles {
    /// Names of all tables and vSSTs, and of the segments that memtables refer to, sorted.
    pub files: Vec<String>,
    /// vSSTs and aliases that no table references. None, once the store is idle.
    pub unreferenced: Vec<String>,
    /// Names that running jobs have pinned. None, once the store is idle.
    pub pinned: usize,
    /// Names of the manifests and log groups that are the store's, those included that wait to be used; sorted.
    pub others: Vec<String>,
    /// Names of the files of data that nothing refers to any more and a job will remove.
    pub obsolete: Vec<String>,
    /// Bytes that all files occupy, as they are counted without looking at the directory.
    pub counted_bytes: u64,
    /// Bytes that running jobs are granted, and bytes that they have written. None, once the store is idle.
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
