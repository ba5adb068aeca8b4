//! The promise of a write.

/// What a write promises when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Survives power loss.
    Durable,
    /// Survives the death of the process.
    Buffered,
    /// Survives neither: not logged at all.
    Volatile,
}
