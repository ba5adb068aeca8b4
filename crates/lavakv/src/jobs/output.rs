//! The tables and vSSTs that jobs write: how they are created, described to the manifest, and removed after a failure.

use crate::engine::Engine;
use crate::family::Family;
use base::Result;
use base::range_del::FragmentedRangeTombstones;
use io::CreateOptions;
use lsm::{MergeOutput, OutputFile, OutputFiles, TableSource};
use std::path::PathBuf;
use std::sync::Arc;
use table::vsst::{VsstBuilder, VsstOptions};
use table::{FinishedTable, KsstBuilder, TableIdentity, TableOptions};
use values::OutputVsst;
use version::{FileMeta, State, Version, VsstClass, names};

/// Bytes a job collects before it writes them to a table: large enough for the device, small beside a step.
const WRITE_BUFFER_LEN: usize = 1 << 20;

/// Makes the output files of one job.
pub(crate) struct TableFiles<'a> {
    pub engine: &'a Engine,
    pub family: &'a Family,
    pub level: usize,
    pub job: u64,
    pub inputs: &'a [u64],
    pub expected_len: u64,
}

impl OutputFiles<KsstBuilder> for TableFiles<'_> {
    fn create(&mut self) -> Result<OutputFile<KsstBuilder>> {
        let engine = self.engine;
        let options = self.family.options();
        let number = engine.manifest.allocate_file_number();
        let path = engine.path(&names::ksst(number));
        let file = engine.env.fs.create(&path, &create_options(engine, self.expected_len))?;
        let identity = identity(engine, self.family, number, self.level, self.job, self.inputs);
        let table_options = TableOptions {
            compression: options.compression,
            block_len: options.block_bytes,
            filter_bits_per_key: options.filter_bits_per_key,
            ..Default::default()
        };
        let mut table = KsstBuilder::new(file, &path, identity, &table_options, Some(engine.cache.clone()));
        table.set_created(engine.env.clock.unix_seconds());
        Ok(OutputFile { number, path, table })
    }
}

/// Makes the vSSTs of one job.
pub(crate) struct VsstFiles {
    pub engine: Arc<Engine>,
    pub family: Arc<Family>,
    pub level: usize,
    pub job: u64,
    pub inputs: Vec<u64>,
    pub expected_len: u64,
}

impl VsstFiles {
    /// A new vSST. `alignment` 0: chosen from the first record.
    pub fn create(&self, alignment: u32, class: VsstClass) -> Result<OutputVsst> {
        let engine = &*self.engine;
        let number = engine.manifest.allocate_file_number();
        let path = engine.path(&names::vsst(number));
        let file = engine.env.fs.create(&path, &create_options(engine, self.expected_len))?;
        let identity = identity(engine, &self.family, number, self.level, self.job, &self.inputs);
        let uid = identity.uid;
        let options = VsstOptions { compression: self.family.options().compression, alignment };
        let mut builder = VsstBuilder::new(file, &path, identity, &options, Some(engine.cache.clone()));
        builder.set_created(engine.env.clock.unix_seconds());
        builder.set_class(class as u8);
        Ok(OutputVsst { number, path, uid, builder })
    }
}

fn create_options(engine: &Engine, expected_len: u64) -> CreateOptions {
    CreateOptions {
        access: engine.options.access,
        expected_len,
        write_buffer_len: WRITE_BUFFER_LEN
            .min((expected_len as usize).next_multiple_of(io::PAGE).max(64 << 10)),
        sync_every: 1 << 20,
    }
}

/// Who writes a file.
pub(crate) fn identity(
    engine: &Engine,
    family: &Family,
    number: u64,
    level: usize,
    job: u64,
    inputs: &[u64],
) -> TableIdentity {
    TableIdentity {
        number,
        uid: engine.env.new_uid(),
        family: family.id,
        level: level as u32,
        job,
        inputs: inputs.to_vec(),
        edit: engine.manifest.durable_edit(),
    }
}

/// What the manifest says of a finished table.
pub(crate) fn file_meta(
    engine: &Engine,
    version: &Version,
    level: usize,
    output: &MergeOutput<FinishedTable>,
) -> Result<FileMeta> {
    let mut meta = lsm::file_meta(&output.table);
    meta.hidden_bytes = meta.tombstones * mean_entry_bytes(version);
    if meta.range_tombstones > 0 {
        let table = engine.tables.table(&meta)?;
        meta.hidden_bytes += covered_bytes(version, level, table.range_tombstones());
    }
    Ok(meta)
}

/// What a tombstone hides, on average: the mean raw size of an entry of the family.
fn mean_entry_bytes(version: &Version) -> u64 {
    let files = || version.levels.iter().flat_map(|level| level.iter());
    let entries: u64 = files().map(|f| f.entries).sum();
    files().map(|f| f.raw_bytes).sum::<u64>() / entries.max(1)
}

/// What range tombstones hide, estimated: deeper files that lie inside count whole, those at a border half.
fn covered_bytes(version: &Version, level: usize, tombstones: &Arc<FragmentedRangeTombstones>) -> u64 {
    let mut bytes = 0;
    for fragment in tombstones.fragments() {
        for deeper in (level + 1).max(1)..version.levels.len() {
            for file in version.overlapping(deeper, Some(&fragment.start), Some(&fragment.end)) {
                let inside = !file.smallest_user_key().lt(fragment.start.as_slice())
                    && file.largest_user_key() < fragment.end.as_slice();
                bytes += if inside { file.raw_bytes } else { file.raw_bytes / 2 };
            }
        }
    }
    bytes
}

/// Removes the outputs of a job that was given up. What cannot be removed now is removed at the next open.
pub(crate) fn remove_outputs(engine: &Engine, created: &[(u64, PathBuf)]) {
    for (number, path) in created {
        engine.tables.forget(*number);
        let _ = engine.env.fs.remove(path);
    }
}

/// After an edit that changed tables without a flush or compaction: gives every family its version.
pub(crate) fn publish(engine: &Engine, state: &State) {
    for family in state.families.values() {
        if let Some(own) = engine.family(family.id) {
            own.install(family.version.clone(), &[]);
        }
    }
}
