//! Conversion of paths to a directory and a name on the volume, whose root is `/`.

use crate::op::{DIR_LEN_MAX, is_name};
use base::{Error, ErrorKind, Result};
use std::path::{Component, Path};

/// Returns the directory path as used in operations: components joined by slashes, empty for the
/// root.
pub(crate) fn dir_of(path: &Path) -> Result<String> {
    let mut dir = String::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => {
                let name = name.to_str().filter(|n| is_name(n)).ok_or_else(|| {
                    Error::invalid(
                        "a name in the path is not UTF-8, or longer than 255 bytes: choose another name",
                    )
                    .at_file(path)
                })?;
                if !dir.is_empty() {
                    dir.push('/');
                }
                dir.push_str(name);
            }
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err(
                    Error::invalid("a path on a LavaFS cannot have '..': write it without").at_file(path)
                );
            }
        }
    }
    if dir.len() > DIR_LEN_MAX {
        return Err(Error::invalid(format!(
            "the path on the volume has {} bytes, over the limit of {DIR_LEN_MAX} bytes: shorten it",
            dir.len()
        ))
        .at_file(path));
    }
    Ok(dir)
}

/// Returns the directory and the name of a file.
pub(crate) fn file_of(path: &Path) -> Result<(String, String)> {
    let whole = dir_of(path)?;
    match crate::meta::parent(&whole) {
        Some((dir, name)) => Ok((dir.to_owned(), name.to_owned())),
        None => {
            Err(Error::new(ErrorKind::Io, "the root directory is no file: name a file in it").at_file(path))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_directories_and_names() {
        let file = |path: &str| file_of(Path::new(path)).unwrap();
        let own = |dir: &str, name: &str| (dir.to_owned(), name.to_owned());
        assert_eq!(file("/a"), own("", "a"));
        assert_eq!(file("a"), own("", "a"));
        assert_eq!(file("/db/./x//y"), own("db/x", "y"));
        assert_eq!(dir_of(Path::new("/")).unwrap(), "");
        assert_eq!(dir_of(Path::new("")).unwrap(), "");
        assert!(file_of(Path::new("/")).is_err() && dir_of(Path::new("a/../b")).is_err());
        assert!(
            dir_of(Path::new(&"x".repeat(256))).is_err() && dir_of(Path::new(&"x/".repeat(1000))).is_err()
        );
    }
}
