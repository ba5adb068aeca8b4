//! Measures the mount time and the memory per file of a volume with many files.
//!
//! ```text
//! cargo run --release -p lavastore-lavafs --example many_files -- make IMAGE [FILES]
//! cargo run --release -p lavastore-lavafs --example many_files -- mount IMAGE
//! ```
//!
//! `make` creates a sparse image with many files (100,000) of one block each in one directory, with
//! names of 20 bytes. `mount` runs as a separate process, so that its memory growth equals the
//! memory of the mounted volume. It prints the mount time and the bytes of memory per file, with
//! and without its name.

use io::kernel::device::{self, DeviceOptions};
use io::kernel::usage;
use io::{CreateOptions, Env, FileSystem};
use lavastore_lavafs::{FormatOptions, LavaFs, MountOptions, format, mount};
use std::path::Path;

const FILES: u64 = 100_000;
const DIRECTORY: &str = "/db";
/// Image size per file, including metadata.
const BYTES_PER_FILE: u64 = 16 << 10;

fn main() -> base::Result<()> {
    let mut args = std::env::args().skip(1);
    let (mode, image) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let files = args.next().and_then(|n| n.parse().ok()).unwrap_or(FILES);
    match (mode.as_str(), image.is_empty()) {
        ("make", false) => make(Path::new(&image), files),
        ("mount", false) => show(Path::new(&image)),
        _ => Err(base::Error::invalid("usage: many_files make|mount IMAGE [FILES]")),
    }
}

fn make(image: &Path, files: u64) -> base::Result<()> {
    let env = Env::kernel();
    let len = (64 << 20) + files * BYTES_PER_FILE;
    device::create_image(image, len.next_multiple_of(4096), device::ImageRoom::Sparse)?;
    let options = FormatOptions { sparse: true, small_unit_len: 4096, ..FormatOptions::default() };
    format(&env, &*device::open(image, &DeviceOptions::default())?, &options)?;
    let fs = mounted(image)?;
    fs.create_dir_all(Path::new(DIRECTORY))?;
    for n in 0..files {
        let path = format!("{DIRECTORY}/{n:015}.file");
        let mut file = fs.create(Path::new(&path), &CreateOptions::default())?;
        file.append(&n.to_le_bytes())?;
        file.flush()?;
    }
    fs.unmount()
}

fn mounted(image: &Path) -> base::Result<LavaFs> {
    let env = Env::kernel();
    mount(&env, device::open(image, &DeviceOptions::default())?, MountOptions::default())
}

fn show(image: &Path) -> base::Result<()> {
    let env = Env::kernel();
    // Mount an empty image first, so that the program code is loaded and not charged to the files.
    let small = image.with_extension("empty");
    make(&small, 0)?;
    drop(mounted(&small)?);
    env.fs.remove(&small)?;
    for what in ["as it was left", "with its journal compacted"] {
        let before = usage::process()?.rss_bytes;
        let start_ns = env.clock.now_ns();
        let fs = mounted(image)?;
        let seconds = (env.clock.now_ns() - start_ns) as f64 / 1e9;
        let grown = usage::process()?.rss_bytes.saturating_sub(before);
        let names = fs.list(Path::new(DIRECTORY))?;
        let name_bytes: u64 = names.iter().map(|entry| entry.name.len() as u64).sum();
        let each = |bytes: u64| bytes as f64 / names.len().max(1) as f64;
        let journal = fs.statistics().journal_bytes as f64 / 1e6;
        println!("{} files, {journal:.1} MB of journal, {what}: mounted in {seconds:.3} s", names.len());
        if what == "as it was left" {
            // The second mount would reuse the memory of the first.
            println!(
                "{:.1} MB of memory more, {:.1} B a file, {:.1} B without the name",
                grown as f64 / 1e6,
                each(grown),
                each(grown.saturating_sub(name_bytes))
            );
        }
        fs.compact_journal()?;
        fs.unmount()?;
    }
    Ok(())
}
