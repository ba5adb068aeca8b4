//! Values that are in files before they are in the log.
//!
//! * `segments`: large values, each in a file of its own; `draft`: one that is being written.
//! * `placement`: separated values of families with `value_placement = log`, in the file of their memtable.

pub(crate) mod draft;
pub(crate) mod placement;
pub(crate) mod segments;

use crate::tree::Tree;
use placement::Placement;
use segments::Segments;
use std::sync::Arc;

/// See the module.
pub(crate) struct Large {
    pub tree: Arc<Tree>,
    pub segments: Arc<Segments>,
    pub placement: Placement,
}

impl Large {
    pub fn new(tree: &Arc<Tree>) -> Large {
        let segments = Arc::new(Segments::new(&tree.space, &tree.files));
        Large { tree: tree.clone(), placement: Placement::new(tree, &segments), segments }
    }
}
