//! Output of an export: standard output, or a file that appears only when it is complete.
//!
//! A file is written under a temporary name in the same directory, synced, and renamed at the end.
//! After an error no new file is left, and an existing file is unchanged. A killed process leaves
//! the temporary file, whose name has the process id. Targets that are no files (a pipe, a
//! terminal, `/dev/null`) are written directly.

use crate::output::Named;
use crate::status::{Status, about, failure};
use crate::{Error, Result, output};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Bytes per write.
const BUFFER_LEN: usize = 256 << 10;

type Out = Box<dyn Write>;

/// The output stream, optionally compressed.
enum Packed {
    Plain(Out),
    Gzip(flate2::write::GzEncoder<Out>),
    Lz4(Box<lz4_flex::frame::FrameEncoder<Out>>),
    Zstd(zstd::stream::write::Encoder<'static, Out>),
}

impl Packed {
    /// Chooses the compression by the extension.
    fn by_name(path: &Path, out: Out) -> Result<Packed> {
        Ok(match path.extension().and_then(|end| end.to_str()) {
            Some("gz") => Packed::Gzip(flate2::write::GzEncoder::new(out, flate2::Compression::default())),
            Some("lz4") => Packed::Lz4(Box::new(lz4_flex::frame::FrameEncoder::new(out))),
            Some("zst") => Packed::Zstd(zstd::stream::write::Encoder::new(out, 0)?),
            _ => Packed::Plain(out),
        })
    }

    fn finish(self) -> Result<()> {
        let mut out = match self {
            Packed::Plain(out) => out,
            Packed::Gzip(encoder) => encoder.finish()?,
            Packed::Lz4(encoder) => encoder.finish()?,
            Packed::Zstd(encoder) => encoder.finish()?,
        };
        Ok(out.flush()?)
    }
}

/// A temporary file, removed unless it is renamed to its final name.
#[allow(clippy::disallowed_types, reason = "writes a file of the user, not of a store")]
struct Beside {
    file: std::fs::File,
    partial: PathBuf,
    path: PathBuf,
    force: bool,
}

impl Beside {
    #[allow(clippy::disallowed_methods, reason = "writes a file of the user, not of a store")]
    fn put_in_place(self) -> Result<()> {
        let told = |e| about(format_args!("cannot write {}", self.path.display()), e);
        self.file.sync_all().map_err(told)?;
        if !self.force && self.path.exists() {
            return Err(is_there(&self.path));
        }
        std::fs::rename(&self.partial, &self.path).map_err(told)
    }
}

impl Drop for Beside {
    #[allow(clippy::disallowed_methods, reason = "removes a file of the user, not of a store")]
    fn drop(&mut self) {
        // After the rename this path does not exist.
        let _ = std::fs::remove_file(&self.partial);
    }
}

fn is_there(path: &Path) -> Error {
    failure(Status::Exists, format!("{} exists already: pass --force to replace it", path.display()))
}

/// Output of records.
pub struct ExportTarget {
    packed: Packed,
    beside: Option<Beside>,
}

impl ExportTarget {
    /// Returns standard output as the target.
    pub fn stdout() -> ExportTarget {
        ExportTarget { packed: Packed::Plain(Box::new(output::stdout())), beside: None }
    }

    /// Creates a target file. An existing file is refused unless `force` is set.
    #[allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "writes a file of the user, not of a store"
    )]
    pub fn file(path: &Path, force: bool) -> Result<ExportTarget> {
        let what = || format!("cannot write {}", path.display());
        let found = std::fs::metadata(path).ok();
        if found.as_ref().is_some_and(|found| found.is_dir()) {
            return output::usage(format!("{} is a directory: name a file", path.display()));
        }
        if found.as_ref().is_some_and(|found| !found.is_file()) {
            let file = std::fs::File::options().write(true).open(path).map_err(|e| about(what(), e))?;
            let out = Box::new(BufWriter::with_capacity(BUFFER_LEN, Named::new(what(), file)));
            return Ok(ExportTarget { packed: Packed::by_name(path, out)?, beside: None });
        }
        if found.is_some() && !force {
            return Err(is_there(path));
        }
        // Replaces the target of a symbolic link, not the link.
        let path = if found.is_some() { path.canonicalize()? } else { path.to_owned() };
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".partial-{}", std::process::id()));
        let partial = path.with_file_name(name);
        let file = std::fs::File::create(&partial).map_err(|e| about(what(), e))?;
        let out = file.try_clone()?;
        let beside = Beside { file, partial, path: path.clone(), force };
        let out = Box::new(BufWriter::with_capacity(BUFFER_LEN, Named::new(what(), out)));
        Ok(ExportTarget { packed: Packed::by_name(&path, out)?, beside: Some(beside) })
    }

    /// Returns the writer.
    pub fn as_write(&mut self) -> &mut dyn Write {
        match &mut self.packed {
            Packed::Plain(out) => out,
            Packed::Gzip(encoder) => encoder,
            Packed::Lz4(encoder) => encoder,
            Packed::Zstd(encoder) => encoder,
        }
    }

    /// Completes the output and renames the file to its final name.
    pub fn finish(self) -> Result<()> {
        self.packed.finish()?;
        match self.beside {
            Some(beside) => beside.put_in_place(),
            None => Ok(()),
        }
    }
}
