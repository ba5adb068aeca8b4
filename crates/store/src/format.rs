//! The format of a whole store: one number, and the features that it allows.
//!
//! Every change on disk that an earlier release cannot read needs a new [`StoreFormat`], a new
//! [`Feature`], and a check ([`StoreFormat::allows`]) before the bytes are written. A store keeps
//! its format until an operator raises it (`Manifest::upgrade`), so that the previous release can
//! still open the store. Formats are never lowered.
//!
//! From format 2 on the manifest header carries the number, and a release reads it before anything
//! else. A release that does not know the number refuses the store and names the number.
//!
//! A new format also needs a line in `torture/formats.txt`, a golden store, and a row in
//! `docs/format/manifest.md`.

use base::{Error, ErrorKind, Result};
use std::fmt;

/// Decides which releases can open a store, and which features it may use. Compare formats with
/// `<`: later ones are larger.
///
/// A release opens stores up to [`StoreFormat::NEWEST`]. New stores get [`StoreFormat::DEFAULT`];
/// `upgrade` raises a store for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StoreFormat {
    /// The format of new stores: stay with it while an earlier release may have to open the store.
    /// Every release reads and writes it. Empty keys are refused.
    V1,
    /// Protects a store better: copies of its own description survive damage, at the cost of one
    /// more sync per change of files. Keys may be empty.
    V2,
}

/// A feature that not every format allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// The header of the manifest carries the number of the format.
    FormatNumber,
    /// `CURRENT` and the manifest have copies, which an open reads where the originals are damaged.
    ManifestCopies,
    /// Keys of LavaKV may be empty.
    EmptyKeys,
}

impl Feature {
    /// Returns the first format that allows the feature.
    pub const fn since(self) -> StoreFormat {
        match self {
            Feature::FormatNumber | Feature::ManifestCopies | Feature::EmptyKeys => StoreFormat::V2,
        }
    }
}

impl StoreFormat {
    /// All formats that this release knows, the oldest first, for a list of choices.
    pub const ALL: [StoreFormat; 2] = [StoreFormat::V1, StoreFormat::V2];

    /// The format of stores whose manifest carries no number.
    pub const OLDEST: StoreFormat = StoreFormat::V1;

    /// The newest format that this release knows, the usual target of an upgrade.
    pub const NEWEST: StoreFormat = StoreFormat::V2;

    /// The format of new stores. A later release may raise it.
    pub const DEFAULT: StoreFormat = StoreFormat::V1;

    /// Returns the number of the format, to store or print it; [`StoreFormat::from_number`] is the
    /// reverse. Later formats have larger numbers.
    pub const fn number(self) -> u32 {
        match self {
            StoreFormat::V1 => 1,
            StoreFormat::V2 => 2,
        }
    }

    /// Returns the format of a number, to read it from a configuration, for `Db::upgrade`. This
    /// release knows 1 and 2.
    ///
    /// # Errors
    /// `Unsupported` with the number, if this release does not know it.
    pub fn from_number(number: u32) -> Result<StoreFormat> {
        StoreFormat::ALL.into_iter().find(|format| format.number() == number).ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the store has format {number}, and this release knows formats {} to {}: open it with the release that \
                     raised its format, or a newer one",
                    StoreFormat::OLDEST,
                    StoreFormat::NEWEST
                ),
            )
        })
    }

    /// Returns true if this format allows the feature.
    pub fn allows(self, feature: Feature) -> bool {
        self >= feature.since()
    }
}

impl Default for StoreFormat {
    fn default() -> Self {
        StoreFormat::DEFAULT
    }
}

impl fmt::Display for StoreFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}
