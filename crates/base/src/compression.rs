//! Names of the block codecs. The numbers are part of the formats.

/// Compression of a block or value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Compression {
    /// Stored as it is.
    #[default]
    None = 0,
    /// LZ4 block format: fast, with a moderate saving of space.
    Lz4 = 1,
    /// Zstandard, at its default level in this store: slower than LZ4, with a larger saving.
    Zstd = 2,
}

impl Compression {
    /// Returns the codec with this number.
    pub fn from_u8(n: u8) -> Option<Self> {
        match n {
            0 => Some(Compression::None),
            1 => Some(Compression::Lz4),
            2 => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// Returns the name used in options and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }
}
