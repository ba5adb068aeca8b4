//! Checks every byte of every table against its checksums, its order and its properties.

use crate::engine::Engine;
use base::{Error, Result};
use lsm::TableSource;

/// What [`crate::Db::verify`] found.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// Tables read.
    pub files: u64,
    /// Bytes read and checked.
    pub bytes: u64,
    /// Entries in the tables.
    pub entries: u64,
    /// One error for each damaged file; empty if the store is sound.
    pub errors: Vec<Error>,
}

pub(crate) fn verify(engine: &Engine) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    for family in engine.all_families() {
        let view = family.view();
        for file in view.version.levels.iter().flat_map(|level| level.iter()) {
            let path = engine.path(&version::names::ksst(file.number));
            let checked = engine.tables.table(file).and_then(|table| {
                let bytes = table.verify()?;
                if table.len() != file.len || table.properties().entries != file.entries {
                    return Err(Error::corruption("length or entries differ from the manifest"));
                }
                Ok(bytes)
            });
            report.files += 1;
            match checked {
                Ok(bytes) => {
                    report.bytes += bytes;
                    report.entries += file.entries;
                }
                Err(e) => report.errors.push(e.at_file(path)),
            }
        }
    }
    if let Err(e) = engine.manifest.state().verify() {
        report.errors.push(e);
    }
    Ok(report)
}
