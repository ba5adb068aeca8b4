//! Merge operands: changes of a value by a delta, without reading it.

use crate::{Db, Family, Result, WriteOptions};

impl Db {
    /// Adds a merge operand to a key of the family `default`, to change a value without reading it:
    /// for counters, lists and sets. The family has a
    /// [`FamilyOptions::merge_operator`](crate::FamilyOptions::merge_operator), and reads return the
    /// folded value. To see the old value use [`Db::fetch_and_update`].
    ///
    /// The call costs a put of the operand. Reads of the key fold all its operands until background
    /// work has folded them. Durability is as in [`Db::put`].
    ///
    /// ```
    /// use lavastore::{FamilyOptions, MergeChoice, Options};
    /// # let machine = lavastore::testing::SimEnv::new(1);
    /// let operator = Some(MergeChoice::counter());
    /// let family = FamilyOptions { merge_operator: operator, ..Default::default() };
    /// let options = Options { family, ..Default::default() };
    /// # let db = lavastore::Db::open_in(&machine.env(), "/store", &options)?;
    /// db.merge("visits", 1i64.to_le_bytes())?;
    /// db.merge("visits", 2i64.to_le_bytes())?;
    /// assert_eq!(db.get("visits")?.as_deref(), Some(&3i64.to_le_bytes()[..]));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: the family has no merge operator, or it refuses the operand.
    /// * `Unsupported`: the program has not added the operator to
    ///   [`ExpertOptions::merge_operators`](crate::ExpertOptions::merge_operators).
    /// * `TooLarge`: the operand is above a quarter of a log group (default: 4 MiB).
    ///
    /// Those of [`Db::put`].
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.writing(&WriteOptions::default()).merge(key, operand)
    }
}

impl Family {
    /// Adds a merge operand to a key of the family, to change a value without reading it: see
    /// [`Db::merge`].
    ///
    /// ```
    /// use lavastore::{FamilyOptions, MergeChoice};
    /// # let db = lavastore::testing::store();
    /// let operator = Some(MergeChoice::append(b","));
    /// let options = FamilyOptions { merge_operator: operator, ..Default::default() };
    /// let logins = db.create_family("logins", &options)?;
    /// logins.merge("ada", "monday")?;
    /// logins.merge("ada", "friday")?;
    /// assert_eq!(logins.get("ada")?.as_deref(), Some(&b"monday,friday"[..]));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::merge`]; `NotFound`: the family was dropped.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.writing(&WriteOptions::default()).merge(key, operand)
    }
}
