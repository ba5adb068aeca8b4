//! What every handle of a family has in common: the family, and the store that it keeps open, with its logs if it was opened with them.

use crate::log::LogsBeside;
use crate::{Error, Result};
use lavakv::process::Owned;

/// Which store a handle is of; a store keeps it when it is closed and opened again.
pub(crate) type StoreId = [u8; 16];

/// A family of an open store.
#[derive(Clone)]
pub(crate) struct Handle {
    inner: Owned<lavakv::ColumnFamily>,
    /// The logs of the store, if it was opened with them.
    logs: Option<Owned<LogsBeside>>,
    // Dropped last: it may be what keeps the store open.
    db: Owned<lavakv::Db>,
    store: StoreId,
}

impl Handle {
    /// The family `default` of a store that was just opened.
    pub(crate) fn of_default(db: &lavakv::Db, logs: Option<LogsBeside>) -> Handle {
        let inner = Owned::new(db.default_column_family().clone());
        Handle { inner, logs: logs.map(Owned::new), db: Owned::new(db.clone()), store: db.store_id() }
    }

    /// Another family of the same store.
    pub(crate) fn of_same_store(&self, inner: lavakv::ColumnFamily) -> Handle {
        Handle { inner: Owned::new(inner), ..self.clone() }
    }

    pub(crate) fn logs(&self) -> Option<&LogsBeside> {
        self.logs.as_deref()
    }

    pub(crate) fn logs_or_refuse(&self) -> Result<&LogsBeside> {
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

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Family({:?} of {:?})", self.inner.name(), self.db)
    }
}
