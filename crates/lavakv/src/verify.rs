//! Checks every byte of every table and vSST against its checksums, its order and its properties.

use crate::damaged;
use crate::engine::Engine;
use crate::obsolete::DataFile;
use base::{Error, Result};
use version::{FileMeta, TableSource, VsstMeta, VsstSource};

/// What [`crate::Db::verify`] found.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// Tables and vSSTs read.
    pub files: u64,
    /// Bytes read and checked.
    pub bytes: u64,
    /// Entries in them: a separated value counts in its table and in its vSST.
    pub entries: u64,
    /// One error for each damaged file; empty if the store is sound.
    pub errors: Vec<Error>,
}

pub(crate) fn verify(engine: &Engine) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    for family in engine.all_families() {
        let view = family.view();
        for file in DataFile::all_of(&view.version) {
            let checked = match &file {
                DataFile::Table(meta) => check_table(engine, meta),
                DataFile::Vsst(meta) => check_vsst(engine, meta),
            };
            report.files += 1;
            match checked {
                Ok((bytes, entries)) => {
                    report.bytes += bytes;
                    report.entries += entries;
                }
                Err(e) => {
                    let error = e.at_file(engine.path(&file.kind().to_string()));
                    if damaged::is_of_reading(&error) && !error.is_passing() {
                        damaged::set_aside(engine, file.number(), &error);
                    }
                    report.errors.push(error);
                }
            }
        }
    }
    if let Err(e) = engine.manifest.state().verify() {
        report.errors.push(e);
    }
    Ok(report)
}

fn differs() -> Error {
    Error::corruption("length or entries differ from the manifest")
}

/// Bytes and entries of a sound table.
fn check_table(engine: &Engine, meta: &FileMeta) -> Result<(u64, u64)> {
    let table = engine.tables.table(meta)?;
    let bytes = table.verify()?;
    if table.len() != meta.len || table.properties().entries != meta.entries {
        return Err(differs());
    }
    Ok((bytes, meta.entries))
}

/// Bytes and entries of a sound vSST.
fn check_vsst(engine: &Engine, meta: &VsstMeta) -> Result<(u64, u64)> {
    if meta.segment {
        let segment = engine.tables.segment(meta.number, meta.uid)?;
        let bytes = segment.verify()?;
        let same = (segment.file_len(), segment.raw_len()) == (meta.len, meta.raw_bytes);
        return if same { Ok((bytes, 1)) } else { Err(differs()) };
    }
    let vsst = engine.tables.vsst(meta)?;
    let bytes = vsst.verify()?;
    let own = vsst.properties();
    if vsst.len() != meta.len || (own.entries, own.record_bytes) != (meta.entries, meta.record_bytes) {
        return Err(differs());
    }
    Ok((bytes, meta.entries))
}
