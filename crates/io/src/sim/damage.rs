//! Damage by worn media or by operators, and direct access to the volume.
//!
//! Damage changes the live and the durable contents, is recorded as a separate operation, costs no
//! time and meets no fault. It is meant for files at rest; a file with unsynced writes counts as
//! synced afterwards.

use super::SimEnv;
use super::content::Content;
use super::disk::{Change, Target};
use super::fault::OpKind;
use super::fs::shown;
use super::world::World;
use base::{Error, Result};
use std::path::{Path, PathBuf};

impl SimEnv {
    /// Returns all files with their lengths, sorted by path. Paths begin with `/`.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let world = self.0.lock();
        let mut files = Vec::new();
        world.disk.walk(false, &mut |path, target| {
            if let Target::File(ino) = target {
                files.push((path.into(), world.disk.file(ino).live.len()));
            }
        });
        files
    }

    /// Returns the bytes of a file; not an operation.
    ///
    /// # Errors
    /// `NotFound` if there is no such file; `InvalidArgument` beyond its end.
    pub fn read_file(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let world = self.0.lock();
        let ino = world.disk.file_at(path.as_ref())?;
        Ok(world.disk.file(ino).live.to_vec())
    }

    /// Sets the contents of a file, also on the media; creates the file if it is missing.
    ///
    /// # Errors
    /// `NotFound` if there is no such file; `InvalidArgument` beyond its end.
    pub fn write_file(&self, path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
        let path = path.as_ref();
        self.damage(path, |world| {
            let ino = match world.disk.look_up(path)? {
                Some(_) => world.disk.file_at(path)?,
                None => {
                    let ino = world.make_file(path)?;
                    let (dir, _) = world.disk.parent(path)?;
                    world.apply(Change::SyncDir { dir });
                    ino
                }
            };
            world.apply(Change::Replace { ino, content: Content::from_bytes(bytes) });
            Ok(())
        })
    }

    /// Flips bit `bit % 8` of one byte.
    ///
    /// # Errors
    /// `NotFound` if there is no such file; `InvalidArgument` beyond its end.
    pub fn flip_bit(&self, path: impl AsRef<Path>, offset: u64, bit: u32) -> Result<()> {
        self.alter(path.as_ref(), |_, content| {
            let mut byte = [0];
            require(offset, 1, content)?;
            content.read(offset, &mut byte);
            content.write(offset, &[byte[0] ^ (1 << (bit % 8))]);
            Ok(())
        })
    }

    /// Overwrites bytes inside a file.
    ///
    /// # Errors
    /// `NotFound` if there is no such file; `InvalidArgument` beyond its end.
    pub fn overwrite(&self, path: impl AsRef<Path>, offset: u64, bytes: &[u8]) -> Result<()> {
        self.alter(path.as_ref(), |_, content| {
            require(offset, bytes.len() as u64, content)?;
            content.write(offset, bytes);
            Ok(())
        })
    }

    /// Truncates a file, or extends it by zeros.
    ///
    /// # Errors
    /// `NotFound` if there is no such file; `InvalidArgument` beyond its end.
    pub fn set_file_len(&self, path: impl AsRef<Path>, len: u64) -> Result<()> {
        self.alter(path.as_ref(), |_, content| {
            content.set_len(len);
            Ok(())
        })
    }

    /// Removes a file's name, also on the media.
    ///
    /// # Errors
    /// `NotFound` if there is no such file; `InvalidArgument` beyond its end.
    pub fn erase(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.damage(path, |world| {
            world.disk.file_at(path)?;
            let (dir, name) = world.disk.parent(path)?;
            world.apply(Change::Erase { dir, name });
            Ok(())
        })
    }

    /// Exchanges the contents of two files.
    ///
    /// # Errors
    /// `NotFound` if there is no such file; `InvalidArgument` beyond its end.
    pub fn swap_files(&self, a: impl AsRef<Path>, b: impl AsRef<Path>) -> Result<()> {
        let (a, b) = (a.as_ref(), b.as_ref());
        self.damage(a, |world| {
            let (a, b) = (world.disk.file_at(a)?, world.disk.file_at(b)?);
            let (of_a, of_b) = (world.disk.file(a).live.clone(), world.disk.file(b).live.clone());
            world.apply(Change::Replace { ino: a, content: of_b });
            world.apply(Change::Replace { ino: b, content: of_a });
            Ok(())
        })
    }

    /// Copies `len` bytes over other bytes of the same or another file: a misdirected write, or a
    /// misdirected read that was written back.
    ///
    /// # Errors
    /// `NotFound` if there is no such file; `InvalidArgument` beyond its end.
    pub fn copy_block(
        &self,
        from: (impl AsRef<Path>, u64),
        to: (impl AsRef<Path>, u64),
        len: usize,
    ) -> Result<()> {
        self.alter(to.0.as_ref(), |world, content| {
            let source = &world.disk.file(world.disk.file_at(from.0.as_ref())?).live;
            transplant((source, from.1), (content, to.1), len)
        })
    }

    /// Restores `len` bytes from `older`, an environment of an earlier moment: a write that the
    /// device lost.
    ///
    /// # Errors
    /// `NotFound` if there is no such file; `InvalidArgument` beyond its end.
    pub fn restore_block(
        &self,
        older: &SimEnv,
        path: impl AsRef<Path>,
        offset: u64,
        len: usize,
    ) -> Result<()> {
        let path = path.as_ref();
        let before = Content::from_bytes(&older.read_file(path)?);
        self.alter(path, |_, content| transplant((&before, offset), (content, offset), len))
    }

    fn alter(&self, path: &Path, edit: impl FnOnce(&World, &mut Content) -> Result<()>) -> Result<()> {
        self.damage(path, |world| {
            let ino = world.disk.file_at(path)?;
            let mut content = world.disk.file(ino).live.clone();
            edit(world, &mut content).map_err(|e| e.at_file(path))?;
            world.apply(Change::Replace { ino, content });
            Ok(())
        })
    }

    fn damage(&self, path: &Path, body: impl FnOnce(&mut World) -> Result<()>) -> Result<()> {
        self.0.op(OpKind::Damage, &shown(path), (0, 0), |world, _| body(world))
    }
}

fn require(offset: u64, len: u64, content: &Content) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= content.len() => Ok(()),
        _ => {
            let why = format!("the file has only {} bytes", content.len());
            Err(Error::invalid(why).at_offset(offset))
        }
    }
}

fn transplant(from: (&Content, u64), to: (&mut Content, u64), len: usize) -> Result<()> {
    require(from.1, len as u64, from.0)?;
    require(to.1, len as u64, to.0)?;
    let mut bytes = vec![0; len];
    from.0.read(from.1, &mut bytes);
    to.0.write(to.1, &bytes);
    Ok(())
}
