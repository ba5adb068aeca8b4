//! Values that are written to files before they are logged.
//!
//! * `segments`: large values, each in a file of its own; `pending_segment`: a segment being
//!   written.
//! * `placed`: values that an earlier release left in files beside its log.

pub(crate) mod pending_segment;
pub(crate) mod placed;
pub(crate) mod segments;

use crate::tree::Tree;
use segments::Segments;
use std::sync::Arc;

/// Large values. See the module.
pub(crate) struct Large {
    pub segments: Arc<Segments>,
}

impl Large {
    pub fn new(tree: &Arc<Tree>) -> Large {
        Large { segments: Arc::new(Segments::new(&tree.space, &tree.files)) }
    }
}
