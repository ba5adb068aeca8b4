//! The promise of a write.

/// The promise of a write that has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Survives power loss.
    Durable,
    /// Survives the death of the process.
    Buffered,
    /// Survives neither: not logged at all.
    Volatile,
}
