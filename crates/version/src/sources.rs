//! How those who hold a version get at the files behind it: a description goes in, an open file comes out.
//!
//! The caches of open files live with the engine; merge jobs, scans and garbage collection see only these traits, and
//! so run as well on files that a test made by hand.

use crate::meta::{FileMeta, VsstMeta};
use base::Result;
use std::sync::Arc;
use table::{Ksst, Vsst};

/// Opens the tables of files: the table cache.
pub trait TableSource: Send + Sync {
    /// The open table of `file`.
    fn table(&self, file: &FileMeta) -> Result<Arc<Ksst>>;
}

/// Opens vSSTs.
pub trait VsstSource: Send + Sync {
    /// The open vSST of `meta`.
    fn vsst(&self, meta: &VsstMeta) -> Result<Arc<Vsst>>;
}
