//! What every handle of a family has in common: the family, and the store that it keeps open.

/// Which store a handle is of; a store keeps it when it is closed and opened again.
pub(crate) type StoreId = [u8; 16];

/// A family of an open store.
#[derive(Clone)]
pub(crate) struct Handle {
    inner: lavakv::ColumnFamily,
    // Dropped last: it may be what keeps the store open.
    db: lavakv::Db,
    store: StoreId,
}

impl Handle {
    pub(crate) fn new(db: &lavakv::Db, inner: lavakv::ColumnFamily, store: StoreId) -> Handle {
        Handle { inner, db: db.clone(), store }
    }

    pub(crate) fn kv(&self) -> &lavakv::Db {
        &self.db
    }

    pub(crate) fn into_kv(self) -> lavakv::Db {
        self.db
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
