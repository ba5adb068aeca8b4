//! The common part of all family handles: the family, the store that the handle keeps open, and its
//! logs.

use crate::log::StoreLogs;
use crate::{Error, Result};
use lavakv::process::Owned;
use std::sync::Arc;
use transactions::PreparedTransactions;

/// Identity of a store, stable across close and open.
pub(crate) type StoreId = [u8; 16];

/// A family of an open store.
#[derive(Clone)]
pub(crate) struct FamilyHandle {
    inner: Owned<lavakv::ColumnFamily>,
    /// The logs of the store, if it was opened with them.
    logs: Option<Owned<StoreLogs>>,
    prepared: Owned<Arc<PreparedTransactions>>,
    // Dropped last: this may be the handle that keeps the store open.
    db: Owned<lavakv::Db>,
    store: StoreId,
}

impl FamilyHandle {
    /// Returns a handle of the family `default` of a newly opened store.
    pub(crate) fn of_default(db: &lavakv::Db, logs: Option<StoreLogs>) -> FamilyHandle {
        let inner = Owned::new(db.default_column_family().clone());
        FamilyHandle {
            inner,
            logs: logs.map(Owned::new),
            prepared: Owned::new(PreparedTransactions::recover(db)),
            db: Owned::new(db.clone()),
            store: db.store_id(),
        }
    }

    /// Returns a handle of another family of the same store.
    pub(crate) fn of_same_store(&self, inner: lavakv::ColumnFamily) -> FamilyHandle {
        FamilyHandle { inner: Owned::new(inner), ..self.clone() }
    }

    pub(crate) fn prepared(&self) -> &Arc<PreparedTransactions> {
        &self.prepared
    }

    pub(crate) fn logs(&self) -> Option<&StoreLogs> {
        self.logs.as_deref()
    }

    pub(crate) fn logs_or_refuse(&self) -> Result<&StoreLogs> {
        let without = "the store was opened without its logs: open it with `Db::open_with_logs`";
        self.logs.as_deref().ok_or_else(|| Error::invalid(without))
    }

    pub(crate) fn kv(&self) -> &lavakv::Db {
        &self.db
    }

    pub(crate) fn into_kv(self) -> lavakv::Db {
        Owned::into_inner(self.db)
    }

    pub(crate) fn inner(&self) -> &lavakv::ColumnFamily {
        &self.inner
    }

    pub(crate) fn store(&self) -> StoreId {
        self.store
    }
}

impl std::fmt::Debug for FamilyHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Family({:?} of {:?})", self.inner.name(), self.db)
    }
}
