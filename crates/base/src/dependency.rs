//! References of a table into one value file, as recorded in the table and in the manifest.

/// References of a table into one value file.
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
