//! Where files are: the volumes of a store.
//!
//! Every file that the manifest lists says in one byte on which volume it is, so that a store can spread over several disks
//! one day without a change of the format. Today there is one, the store's directory, and a history that names another is
//! refused when it is opened (see [`crate::manifest`]) instead of being looked for where it is not.

/// Which volume holds a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Volume(pub u8);

impl Volume {
    /// The store's own directory.
    pub const DIRECTORY: Volume = Volume(0);
}

impl std::fmt::Display for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
