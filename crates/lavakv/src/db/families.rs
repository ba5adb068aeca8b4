//! Calls of the public handle that create, change and drop column families.

use super::Db;
use crate::admin::families;
use crate::batch::DEFAULT_FAMILY;
use crate::context::family_options::FamilyOptions;
#[cfg(doc)]
use crate::context::options::Options;
use crate::tree::family::ColumnFamily;
use base::process::Owned;
use base::{Error, Result};
use io::Env;
use std::path::Path;

impl Db {
    /// Creates a column family.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` for an option out of range or a name over 1024 bytes.
    pub fn create_column_family(&self, name: &str, options: FamilyOptions) -> Result<ColumnFamily> {
        families::check_name(name)?;
        families::check(&self.engine().context.options, name, &options)?;
        let (_entered, jobs) = self.changes()?;
        families::create(jobs, name, options).map(|family| ColumnFamily(Owned::new(family)))
    }

    /// Replaces the options of a column family. Existing data changes only when compaction or
    /// collection rewrites it. (For the family `default` the next open replaces them by
    /// [`Options::family`].)
    ///
    /// # Errors
    /// `InvalidArgument` for an option out of range.
    pub fn set_family_options(&self, family: &ColumnFamily, options: FamilyOptions) -> Result<()> {
        let family = self.own(family)?;
        families::check(&self.engine().context.options, &family.name, &options)?;
        let (_entered, jobs) = self.changes()?;
        families::set_options(jobs, family, options)
    }

    /// Returns the options of each column family by name, in the order of their creation. The store
    /// need not be open: this reads only the manifest and changes nothing.
    ///
    /// # Errors
    /// `NotFound` if there is no store; `Corruption`; `Unsupported`.
    pub fn stored_family_options(path: impl AsRef<Path>) -> Result<Vec<(String, FamilyOptions)>> {
        Self::stored_family_options_in(&Env::kernel(), path)
    }

    /// Returns the stored options like [`Db::stored_family_options`], in an environment.
    pub fn stored_family_options_in(
        env: &Env,
        path: impl AsRef<Path>,
    ) -> Result<Vec<(String, FamilyOptions)>> {
        crate::read_only::family_options(env, path.as_ref())
    }

    /// Returns the names of the secondary engines with data in a store. The store need not be open:
    /// this reads only the manifest and changes nothing.
    ///
    /// # Errors
    /// `NotFound` if there is no store; `Corruption`; `Unsupported`.
    pub fn stored_engines_in(env: &Env, path: impl AsRef<Path>) -> Result<Vec<String>> {
        crate::read_only::other_engines(env, path.as_ref())
    }

    /// Drops a column family with all its data. Its handles then fail, while existing iterators
    /// keep working.
    pub fn drop_column_family(&self, family: &ColumnFamily) -> Result<()> {
        let family = self.own(family)?;
        if family.id == DEFAULT_FAMILY {
            return Err(Error::invalid("column family default cannot be dropped: delete its keys instead"));
        }
        let (_entered, jobs) = self.changes()?;
        families::drop(jobs, family)
    }

    /// Returns the family with this name.
    pub fn column_family(&self, name: &str) -> Option<ColumnFamily> {
        let engine = self.here().ok()?;
        let id = engine.files.manifest.state().family_named(name)?.id;
        engine.tree.families.get(id).map(|family| ColumnFamily(Owned::new(family)))
    }

    /// Returns the names of all families, in the order of their creation.
    pub fn column_families(&self) -> Vec<String> {
        let families = self.here().map_or_else(|_| Vec::new(), |engine| engine.tree.families.all());
        families.iter().map(|f| f.name.clone()).collect()
    }
}
