//! Names of the block codecs. The numbers are part of the formats.

/// Chooses the codec of new blocks and values: space and device time against processor time. Old
/// data keeps its codec until it is rewritten. A build without a codec refuses it with
/// `Unsupported`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Compression {
    /// No compression: for incompressible or small data, and the least processor time.
    #[default]
    None = 0,
    /// LZ4 block format: fast, with a moderate saving of space. For most compressible data.
    Lz4 = 1,
    /// Zstandard, at its default level in this store: slower than LZ4, with a larger saving. For
    /// cold data.
    Zstd = 2,
}

impl Compression {
    /// Returns the codec with this number of the file formats; `None` if there is none. A program
    /// that reads a name from its configuration compares it with [`Compression::name`].
    pub fn from_u8(n: u8) -> Option<Self> {
        match n {
            0 => Some(Compression::None),
            1 => Some(Compression::Lz4),
            2 => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// Returns the name used in options and on the command line, such as `lz4`. It is the same for
    /// a codec that this build lacks.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }
}
