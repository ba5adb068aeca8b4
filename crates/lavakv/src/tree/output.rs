//! The SSTs and value files that jobs write: their creation and their metadata for the manifest.

use super::fast_tier_values::{self, Rank};
use super::overwrites::OlderTables;
use super::{Tree, table_placement};
use crate::files::data_file::DataFile;
use crate::tree::family::Family;
use crate::tree::retained::{CountedTable, Counting, TableSync, WrittenTable};
use base::range_del::FragmentedRangeTombstones;
use base::{ErrorKind, Result};
use io::{AppendFile, CreateOptions};
use lsm::{MergeOutput, OutputFile, OutputFiles, TableSource};
use std::path::PathBuf;
use std::sync::Arc;
use store::volumes::Volume;
use table::vsst::{VsstBuilder, VsstOptions};
use table::{KsstBuilder, StoreNotes, TableIdentity, TableOptions};
use values::OutputVsst;
use version::names::FileKind;
use version::{FileMeta, Version, VsstClass, names};

/// Bytes a job buffers before it writes them to a table: large for the device, small for the job.
const WRITE_BUFFER_LEN: usize = 1 << 20;

/// Creates the SSTs of one job.
pub(crate) struct TableFiles<'a> {
    pub tree: &'a Tree,
    pub family: &'a Family,
    pub level: usize,
    pub job: u64,
    pub inputs: &'a [u64],
    pub expected_len: u64,
    pub counting: Option<&'a Arc<Counting>>,
    pub sync: TableSync,
}

impl OutputFiles<CountedTable> for TableFiles<'_> {
    fn create(&mut self) -> Result<OutputFile<CountedTable>> {
        let tree = self.tree;
        let options = self.family.options();
        let number = tree.files.manifest.allocate_file_number();
        let volume = table_placement::of_new_table(
            tree,
            (self.level, number),
            self.expected_len.max(options.expert.file_bytes),
        );
        let kind = |volume| FileKind::of_table(number, volume == Volume::FAST);
        let (volume, path, file) = create(tree, volume, self.expected_len, kind)?;
        table_placement::count_new_table(tree, (self.level, number), volume);
        let identity = identity(tree, self.family, number, self.level, self.job, self.inputs);
        let table_options = TableOptions {
            compression: options.compression,
            block_len: options.expert.block_bytes,
            filter_bits_per_key: options.filter_bits_per_key,
            prefix: options.prefix,
            ..Default::default()
        };
        let mut table =
            KsstBuilder::new(file, &path, identity, &table_options, Some(tree.files.cache.clone()));
        table.set_created(tree.context.env.clock.unix_seconds());
        let table = CountedTable::new(table, self.sync, number, self.counting.cloned());
        Ok(OutputFile { number, path, table })
    }
}

/// Creates the next value file of a job.
pub(crate) type CreateVsst = Box<dyn FnMut() -> Result<OutputVsst> + Send>;

/// Creates the value files of one job.
pub(crate) struct VsstFiles {
    pub tree: Arc<Tree>,
    pub family: Arc<Family>,
    pub level: usize,
    pub job: u64,
    pub inputs: Vec<u64>,
    pub expected_len: u64,
    /// True if no file goes to the fast tier.
    pub goes_down: bool,
}

impl VsstFiles {
    /// Creates a value file. `alignment` 0: chosen from the first record.
    pub fn create(&self, alignment: u32, class: VsstClass) -> Result<OutputVsst> {
        let tree = &*self.tree;
        let number = tree.files.manifest.allocate_file_number();
        let (volume, path, file) = self.begin(number, class)?;
        let identity = identity(tree, &self.family, number, self.level, self.job, &self.inputs);
        let uid = identity.uid;
        let options = VsstOptions { compression: self.family.options().compression, alignment };
        let mut builder = VsstBuilder::new(file, &path, identity, &options, Some(tree.files.cache.clone()));
        builder.set_created(tree.context.env.clock.unix_seconds());
        builder.set_class(class as u8);
        Ok(OutputVsst { number, path, volume, uid, builder })
    }

    /// Creates the file on the tier for its class.
    fn begin(&self, number: u64, class: VsstClass) -> Result<(Volume, PathBuf, Box<dyn AppendFile>)> {
        let (tree, stats) = (&*self.tree, &self.tree.context.stats);
        let options = self.family.options();
        let expected_len = self.expected_len.min(options.expert.vsst_bytes);
        // A flush has no inputs.
        let rank = match self.goes_down {
            true => Rank::Elsewhere,
            false => fast_tier_values::rank(&tree.context.options, class, self.inputs.is_empty()),
        };
        let volume = fast_tier_values::of_new_file(tree, rank, expected_len, options.expert.file_bytes);
        let kind = |volume| FileKind::of_values(number, volume == Volume::FAST);
        let created = create(tree, volume, self.expected_len, kind)?;
        if created.0 == Volume::FAST {
            stats.fast_tier_values.add(1);
        } else if matches!(rank, Rank::Hot | Rank::Fresh) {
            stats.fast_tier_values_elsewhere.add(1);
        }
        Ok(created)
    }
}

/// Creates a data file on a volume. Falls back to the capacity tier where the fast tier is full.
fn create(
    tree: &Tree,
    volume: Volume,
    expected_len: u64,
    kind: impl Fn(Volume) -> FileKind,
) -> Result<(Volume, PathBuf, Box<dyn AppendFile>)> {
    let on = |volume| -> Result<_> {
        let path = tree.context.path(&kind(volume).to_string());
        let file = tree.context.env.fs.create(&path, &create_options(tree, expected_len))?;
        Ok((volume, path, file))
    };
    match on(volume) {
        Err(e) if e.kind() == ErrorKind::NoSpace && volume == Volume::FAST => {
            tree.speed.refused(&tree.context);
            on(Volume::DIRECTORY)
        }
        created => created,
    }
}

fn create_options(tree: &Tree, expected_len: u64) -> CreateOptions {
    CreateOptions {
        access: tree.context.options.access,
        // Reserved bytes count against the limit, and most outputs are shorter than expected.
        expected_len: if tree.space.is_limited() { 0 } else { expected_len },
        write_buffer_len: WRITE_BUFFER_LEN
            .min((expected_len as usize).next_multiple_of(io::PAGE).max(64 << 10)),
        sync_every: 1 << 20,
        ..CreateOptions::default()
    }
}

/// Returns the identity of a file: its number, its job and inputs, and notes for repair.
pub(crate) fn identity(
    tree: &Tree,
    family: &Family,
    number: u64,
    level: usize,
    job: u64,
    inputs: &[u64],
) -> TableIdentity {
    TableIdentity {
        number,
        uid: tree.context.env.new_uid(),
        family: family.id,
        level: level as u32,
        job,
        inputs: inputs.to_vec(),
        edit: tree.files.manifest.durable_edit(),
        store: StoreNotes {
            family_name: family.name.clone(),
            family_options: family.settings.given().encode(),
            log_floor: family.read_state().version.log_floor,
            gone: gone(tree),
        },
    }
}

/// Returns the tables that became obsolete last and still have readers, ascending.
fn gone(tree: &Tree) -> Vec<u64> {
    // A table that moved to the other tier is not gone.
    let living = tree.files.manifest.state();
    let is_gone =
        |file: &DataFile| matches!(file, DataFile::Table(_)) && living.table(file.number()).is_none();
    let table = |file: &DataFile| is_gone(file).then(|| file.number());
    let mut numbers = tree.files.obsolete.latest(NOTED_GONE_MAX, table);
    numbers.sort_unstable();
    numbers
}

/// Upper bound of obsolete tables noted in a file. There are more only where readers hold
/// thousands.
const NOTED_GONE_MAX: usize = 4096;

/// Returns the manifest's metadata of a finished table of `family`, with estimates kept in memory.
/// `inputs`: the tables that it replaces.
pub(crate) fn file_meta(
    (tree, family): (&Tree, &Family),
    version: &Version,
    (level, inputs): (usize, &[u64]),
    output: &MergeOutput<WrittenTable>,
) -> Result<FileMeta> {
    let mut meta = lsm::file_meta(&output.table.table);
    let name = output.path.file_name().and_then(|name| names::parse(name.to_str()?));
    if matches!(name, Some(FileKind::FastKsst(_))) {
        meta.volume = Volume::FAST;
    }
    meta.hidden_bytes = match meta.range_tombstones {
        0 if meta.tombstones == 0 => 0,
        0 => hidden_bytes(version, level, &meta, &FragmentedRangeTombstones::new(&[])),
        _ => hidden_bytes(version, level, &meta, tree.files.tables.table(&meta)?.range_tombstones()),
    };
    // Some tables of the job's version may be gone. This read state is pinned.
    let now = family.read_state();
    let older = OlderTables::than_table(&now.version, level, &meta, |number| inputs.contains(&number));
    let hides = older.hidden_by(&meta, &output.table.table.notes);
    meta.known = std::mem::take(&mut meta.known).with_hides(hides);
    Ok(meta)
}

/// Estimates the bytes hidden by the tombstones of a table at `level`. A point tombstone hides one
/// entry of the mean size of those underneath. A range tombstone hides the files it covers, half of
/// a file at its border. The sum is at most the bytes under the table: at the bottom tombstones
/// hide nothing.
fn hidden_bytes(
    version: &Version,
    level: usize,
    meta: &FileMeta,
    tombstones: &FragmentedRangeTombstones,
) -> u64 {
    let from = if level == 0 { 0 } else { level + 1 };
    let older = |low: &[u8], high: &[u8]| {
        let all = (from..version.levels.len())
            .flat_map(|l| version.overlapping(l, Some(low), Some(high)).into_iter().map(move |f| (l, f)));
        // Level 0 is ordered by age.
        all.filter(|(l, f)| *l > 0 || f.seq_range().1 < meta.min_seq).map(|(_, f)| f).collect::<Vec<_>>()
    };
    let under = older(meta.smallest_user_key(), meta.largest_user_key());
    let sum = |of: fn(&FileMeta) -> u64| under.iter().fold(0u64, |sum, f| sum.saturating_add(of(f)));
    let (bytes, values) = (sum(|f| f.raw_bytes), sum(|f| f.entries.saturating_sub(f.tombstones)));
    let mut hidden = meta.tombstones.saturating_mul(bytes / values.max(1));
    for fragment in tombstones.fragments() {
        for file in older(&fragment.start, &fragment.end) {
            let inside = file.smallest_user_key() >= fragment.start.as_slice()
                && file.largest_user_key() < fragment.end.as_slice();
            // Only the exclusive end of the fragment touches this file, which it does not cover.
            let beside = file.smallest_user_key() >= fragment.end.as_slice();
            let covered = if inside { file.raw_bytes } else { file.raw_bytes / 2 };
            hidden = hidden.saturating_add(if beside { 0 } else { covered });
        }
    }
    hidden.min(bytes)
}

#[cfg(test)]
mod tests;
