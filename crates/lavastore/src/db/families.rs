//! Column families of a store.

use super::Db;
use crate::handle::FamilyHandle;
use crate::{Error, ErrorKind, Family, FamilyOptions, Result};

/// Column families.
impl Db {
    /// Returns the handle of the family `default`.
    pub(crate) fn default_handle(&self) -> &FamilyHandle {
        self.default.handle()
    }

    /// Returns the family with this name, and creates it with default options if it is missing: the
    /// usual way to a family, without a setup step.
    ///
    /// Threads may call this at the same time: one creates the family, all get it. A created family
    /// is durable on return; writers wait for its device write. An existing one is found in memory.
    /// The handle keeps the store open. Use [`Db::open_family`] where a missing family is an error,
    /// and [`Db::create_family`] to choose its options.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.family("users")?.put("7", "ada")?;
    /// assert!(db.family("users")?.get("7")?.is_some());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// These are errors of creating the family; an existing one is returned.
    ///
    /// * `TooLarge`: the store has 65,536 families. Drop unused ones.
    /// * `InvalidArgument`: the name is empty or over 1024 bytes. Choose another.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `NoSpace`: nothing was created. Make room and repeat.
    /// * `Io`, `Poisoned`: a write of the store failed. Close and reopen the store.
    #[doc(alias = "column_family")]
    pub fn family(&self, name: &str) -> Result<Family> {
        loop {
            if let Some(found) = self.kv().column_family(name) {
                return Ok(self.handle(found));
            }
            match self.create_family(name, &FamilyOptions::default()) {
                // Another thread created the family meanwhile (and may have dropped it again).
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
    }

    /// Returns the family `default`, which always exists, for code that takes a [`Family`]. [`Db`]
    /// has the same methods. The call costs nothing and cannot fail; clone the result to keep it
    /// without the `Db`. The clone keeps the store open.
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.put("key", "value")?;
    /// assert!(db.default_family().get("key")?.is_some());
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    pub fn default_family(&self) -> &Family {
        &self.default
    }

    /// Returns an existing family and creates none, so that a misspelled name is an error;
    /// [`Db::family`] creates it. The call reads memory only, also in a read-only store. The handle
    /// keeps the store open.
    ///
    /// ```
    /// # use lavastore::ErrorKind;
    /// # let db = lavastore::testing::store();
    /// assert_eq!(db.open_family("users").unwrap_err().kind(), ErrorKind::NotFound);
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: there is no such family; the message lists the existing names. Check the name,
    ///   or use [`Db::family`]. A closed store answers the same, with no names.
    /// * `Forked`: a parent process opened the store. Open it here.
    pub fn open_family(&self, name: &str) -> Result<Family> {
        self.kv().check_process()?;
        let found = self.kv().column_family(name).map(|found| self.handle(found));
        found.ok_or_else(|| {
            let known = self.family_names().join(", ");
            Error::not_found(format!("there is no column family {name}: there are {known}"))
        })
    }

    /// Creates a family with options of its own, such as compression; [`Db::family`] suffices for
    /// the defaults.
    ///
    /// The family is durable on return; writers wait for its device write. The options are stored
    /// with it: later opens need not repeat them, and [`Family::set_options`] changes them. The
    /// name has 1 to 1024 bytes. A store has at most 65,536 families, each with memtables and files
    /// of its own: for many small groups of keys use prefixes.
    ///
    /// ```
    /// # use lavastore::{Compression, FamilyOptions};
    /// # let db = lavastore::testing::store();
    /// # if cfg!(feature = "lz4") {
    /// let options = FamilyOptions { compression: Compression::Lz4, ..Default::default() };
    /// let texts = db.create_family("texts", &options)?;
    /// assert_eq!(texts.options().compression, options.compression);
    /// # }
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `AlreadyExists`: a family has this name, and keeps its options. Use [`Db::open_family`].
    /// * `TooLarge`: the store has 65,536 families. Drop unused ones.
    /// * `InvalidArgument`: an option is out of range, or the name is empty or over 1024 bytes.
    /// * `Unsupported`: this build lacks the compression or the policy. Choose another.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `NoSpace`: nothing was created. Make room and repeat.
    /// * `Io`, `Poisoned`: a write of the store failed. Close and reopen the store.
    pub fn create_family(&self, name: &str, options: &FamilyOptions) -> Result<Family> {
        Ok(self.handle(self.kv().create_column_family(name, options.clone())?))
    }

    /// Drops a family with all its data at once, at a cost that does not depend on the amount of
    /// data; [`Db::delete_range`] empties a family that must stay.
    ///
    /// The drop is durable on return; writers wait for its device write. All handles of the family
    /// then fail with `NotFound`, snapshots included; open iterators continue. Background work
    /// frees the space, once iterators release it. A family created later under the same name is
    /// another one and empty.
    ///
    /// ```
    /// # use lavastore::ErrorKind;
    /// # let db = lavastore::testing::store();
    /// let users = db.family("users")?;
    /// db.drop_family(&users)?;
    /// assert_eq!(users.get("7").unwrap_err().kind(), ErrorKind::NotFound);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `NotFound`: the family was already dropped.
    /// * `InvalidArgument`: the family is `default`, which cannot be dropped, or belongs to another
    ///   store.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write, and nothing was dropped.
    /// * `NoSpace`: nothing was dropped. Make room and repeat.
    /// * `Io`, `Poisoned`: a write of the store failed. Close and reopen the store.
    pub fn drop_family(&self, family: &Family) -> Result<()> {
        self.kv().drop_column_family(family.handle().inner())
    }

    /// Lists the names of all families of the open store, in order of creation, for tools and for
    /// code that visits all of them.
    ///
    /// The family `default` is always among them. The call reads memory only. The list is empty if
    /// the store was closed. Without an open store use [`Db::stored_family_options`].
    ///
    /// ```
    /// # let db = lavastore::testing::store();
    /// db.family("users")?;
    /// assert_eq!(db.family_names(), ["default", "users"]);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    #[doc(alias = "list_cf")]
    pub fn family_names(&self) -> Vec<String> {
        self.kv().column_families()
    }
}
