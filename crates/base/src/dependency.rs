//! What the references of a table need of one vSST: the table says it of itself, the manifest of the table.

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dependency {
    /// The logical name of the vSST.
    pub blob_id: u64,
    /// References to it.
    pub count: u64,
    /// Raw bytes of the values.
    pub raw_bytes: u64,
    /// Bytes of their records.
    pub stored_bytes: u64,
}
