//! `fs`: LavaFS volumes, independent of stores.
//!
//! A volume on two devices is named by both: `LARGE+FAST`.
//!
//! In commands for files of the machine and of the volume, a volume path begins with a colon:
//! `:/db/CURRENT`.

#[cfg(feature = "fuse")]
mod mount;

use super::place::{open_devices, open_volume, parts};
use crate::formats::streamed;
use crate::status::{Status, failure, with_message};
use crate::{Result, nearest, output};
use bench::report::{counted, human_bytes};
use clap::{Args, Subcommand, ValueEnum};
use io::kernel::device::{self, DeviceKind, DeviceOptions, ImageRoom};
use io::{Access, AppendFile, BlockDevice, CreateOptions, FileSystem, ReadFile, SyncKind};
use lavastore::lavafs::geometry::SECOND;
use lavastore::lavafs::layout::Extent;
use lavastore::lavafs::superblock::Slots;
use lavastore::lavafs::{self, DeviceStatistics, Devices, FormatOptions, LavaFs, Role};
use lavastore::{Env, ErrorKind};
use serde_json::json;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes per copied piece.
const COPY_LEN: usize = 1 << 20;

/// Commands for a volume.
#[derive(Subcommand)]
pub enum FsCommand {
    /// Create a volume on a device or in a new image file, or on two: a large one and a fast one
    Mkfs(MkfsArgs),
    /// List a directory of a volume: bytes and name of each file
    Ls(LsArgs),
    /// Print a file of a volume as it is
    Cat(FileArgs),
    /// Copy a file to, from or within a volume; a path on the volume begins with a colon
    Cp(CpArgs),
    /// Show the metadata of a file: bytes, allocated bytes, names, blocks
    Stat(FileArgs),
    /// Show the owner of each byte of the volume: files, journal, free
    Df(VolumeArgs),
    /// Extend a volume to the new size of its device, or extend its image; it is never shortened
    Grow(GrowArgs),
    /// Check the metadata of a volume, not the contents of files; exit status 5 if it is damaged
    Fsck(FsckArgs),
    /// Print the superblock and the journal of a volume, to examine damage
    DumpJournal(VolumeArgs),
    /// Mount a volume in a directory, read-only, until umount DIR; no process can write it
    /// meanwhile
    #[cfg(feature = "fuse")]
    Mount(MountArgs),
}

/// Options of `mkfs`.
#[derive(Args)]
pub struct MkfsArgs {
    /// Device, or image (a file): a missing image is created with --size
    path: PathBuf,
    /// Size of the image in bytes: a number, alone or with K, M, G or T (powers of 1024). It is a
    /// multiple of 4096, at least 4M. Required for a new image. Devices and existing images keep
    /// their size; another one is refused
    #[arg(long, value_parser = size)]
    size: Option<u64>,
    /// Second, faster device or image for the journal, logs and manifests. The volume is then named
    /// PATH+FAST, and needs both from then on [default: one device]
    #[arg(long, alias = "speed")]
    fast_tier: Option<PathBuf>,
    /// Size of the second image in bytes, as for --size. Required if that image is new; only with
    /// --fast-tier
    #[arg(long, alias = "speed-size", value_parser = size, requires = "fast_tier")]
    fast_tier_size: Option<u64>,
    /// Allocate the image while it is written instead of writing it once from end to end. It is
    /// created faster and starts small, but file syncs are slower. If the underlying file system
    /// fills up, writes fail although the volume has space, and the store stops until it is
    /// reopened with space. No effect on devices
    #[arg(long)]
    sparse: bool,
    /// Overwrite existing data: another file system, a partition table, a volume, unknown data,
    /// which are lost. A device that is mounted or in use is refused all the same
    #[arg(long)]
    force: bool,
    /// Print JSON instead of text, for programs
    #[arg(long)]
    json: bool,
}

/// Options of `grow`.
#[derive(Args)]
pub struct GrowArgs {
    /// Device or image of the volume; of a volume on two devices both, as LARGE+FAST
    path: PathBuf,
    /// New size of the volume in bytes: a number, alone or with K, M, G or T (powers of 1024), not
    /// below the present size. A shorter image is extended in the way it was created. Default: the
    /// whole device or image
    #[arg(value_parser = size)]
    size: Option<u64>,
    /// Which device of a volume on two has this SIZE. Only with SIZE; no effect on a volume on one
    /// device
    #[arg(long, value_enum, requires = "size", default_value_t = Of::Capacity)]
    device: Of,
    /// Print JSON instead of text, for programs
    #[arg(long)]
    json: bool,
}

/// A device of a volume on two.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Of {
    /// The fast device (FAST)
    Speed,
    /// The large device
    Capacity,
}

/// Options of `ls`.
#[derive(Args)]
pub struct LsArgs {
    /// Device or image of the volume; of a volume on two devices both, as LARGE+FAST
    path: PathBuf,
    /// Directory on the volume to list
    #[arg(default_value = "/")]
    dir: PathBuf,
    /// Print JSON lines: name, bytes, and whether it is a directory
    #[arg(long)]
    json: bool,
}

/// A file on a volume.
#[derive(Args)]
pub struct FileArgs {
    /// Device or image of the volume; of a volume on two devices both, as LARGE+FAST
    path: PathBuf,
    /// File on the volume, from its root: /db/CURRENT
    file: PathBuf,
    /// Print a JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Options of `cp`.
#[derive(Args)]
pub struct CpArgs {
    /// Device or image of the volume; of a volume on two devices both, as LARGE+FAST
    path: PathBuf,
    /// Source file: on the volume if the path begins with a colon, otherwise on this machine. At
    /// least one of the two is on the volume
    from: String,
    /// Target file, which must not exist; a path on the volume begins with a colon. Missing
    /// directories are created
    to: String,
    /// Print a JSON object with the copied file; without it a successful command prints nothing
    #[arg(long)]
    json: bool,
}

/// Options of `mount`.
#[cfg(feature = "fuse")]
#[derive(Args)]
pub struct MountArgs {
    /// Device or image of the volume; of a volume on two devices both, as LARGE+FAST
    path: PathBuf,
    /// Existing empty directory of this machine
    dir: PathBuf,
}

/// A volume.
#[derive(Args)]
pub struct VolumeArgs {
    /// Device or image of the volume; of a volume on two devices both, as LARGE+FAST
    path: PathBuf,
    /// Print JSON instead of text, for programs
    #[arg(long)]
    json: bool,
}

/// Options of `fsck`.
#[derive(Args)]
pub struct FsckArgs {
    /// Device or image of the volume; of a volume on two devices both, as LARGE+FAST
    path: PathBuf,
    /// Repair the damage if possible, by new metadata without the damaged parts; the report lists
    /// each lost part. Copy the device before. Without it nothing is written
    #[arg(long)]
    repair: bool,
    /// Print JSON instead of text, for programs
    #[arg(long)]
    json: bool,
}

/// Parses a number of bytes with a unit.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        "T" | "TIB" => 40,
        "KB" | "MB" | "GB" | "TB" => {
            let unit = text[digits.len()..][..1].to_ascii_uppercase();
            return Err(format!("sizes are powers of two: {digits}{unit}iB, or {digits}{unit} for short"));
        }
        _ => return Err("a size is a number of bytes, or a number with K, M, G or T".to_owned()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "a size is a number of bytes, or a number with K, M, G or T".to_owned())?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "the size exceeds 64 bits: it must be below 16777216T".to_owned())
}

/// Runs a command.
pub fn run(command: FsCommand) -> Result<()> {
    match command {
        FsCommand::Mkfs(args) => mkfs(&args),
        FsCommand::Ls(args) => ls(&args),
        FsCommand::Cat(args) => cat(&args),
        FsCommand::Cp(args) => cp(&args),
        FsCommand::Stat(args) => stat(&args),
        FsCommand::Df(args) => df(&args),
        FsCommand::Grow(args) => grow(&args),
        FsCommand::Fsck(args) => fsck(&args),
        FsCommand::DumpJournal(args) => dump_journal(&args),
        #[cfg(feature = "fuse")]
        FsCommand::Mount(args) => mount::mount(&args.path, &args.dir),
    }
}

/// A device or image for a new volume.
struct Made {
    path: PathBuf,
    kind: DeviceKind,
    device: Arc<dyn BlockDevice>,
    /// The image file was created by this command.
    is_new: bool,
}

/// Opens a device or an image, and creates a missing image.
fn make_device(path: &Path, size: Option<u64>, sparse: bool, option: &str) -> Result<Made> {
    let exists = Env::kernel().fs.exists(path)?;
    match (exists, size) {
        (false, Some(len)) => {
            let room = if sparse { ImageRoom::Sparse } else { ImageRoom::Written };
            device::create_image(path, len, room)?;
        }
        (false, None) => {
            let path = path.display();
            return output::usage(format!(
                "{path} does not exist: pass the size of a new image with {option}"
            ));
        }
        (true, _) => {}
    }
    let kind = device::kind(path)?;
    let device = device::open(path, &DeviceOptions::default())?;
    if let Some(asked) = size.filter(|len| exists && *len != device.len()) {
        let (name, len) = (kind.name(), device.len());
        return output::usage(format!(
            "the {name} {} exists already and has {len} bytes, not {asked}: omit {option}, or name a new image",
            path.display()
        ));
    }
    Ok(Made { path: path.to_owned(), kind, device, is_new: !exists })
}

fn mkfs(args: &MkfsArgs) -> Result<()> {
    let env = Env::kernel();
    let capacity = make_device(&args.path, args.size, args.sparse, "--size")?;
    let speed = args
        .fast_tier
        .as_ref()
        .map(|path| make_device(path, args.fast_tier_size, args.sparse, "--fast-tier-size"));
    let speed = speed.transpose().inspect_err(|_| forget(&env, [&capacity]))?;
    let made: Vec<&Made> = std::iter::once(&capacity).chain(&speed).collect();
    let devices = match &speed {
        Some(speed) => Devices::two(speed.device.clone(), capacity.device.clone()),
        None => Devices::one(capacity.device.clone()),
    };
    let sparse = args.sparse && made.iter().all(|made| made.kind == DeviceKind::Image);
    let options = FormatOptions { sparse, force: args.force, ..FormatOptions::default() };
    if let Err(e) = lavafs::format_on(&env, &devices, &options) {
        forget(&env, made);
        // Translates the library's option name into that of the command line.
        return Err(with_message(e, |e| {
            e.to_string().replace("force the format to overwrite", "--force overwrites")
        }));
    }
    let len = made.iter().map(|made| made.device.len()).sum::<u64>();
    let (kind, path) = (capacity.kind.name(), args.path.display().to_string());
    let mut report = json!({ "path": path, "kind": kind, "total_bytes": len });
    let mut text = format!("made a volume of {} on the {kind} {path}", human_bytes(len));
    if let Some(speed) = &speed {
        let (kind, fast) = (speed.kind.name(), speed.path.display());
        report["speed"] = json!({ "path": fast.to_string(), "kind": kind, "bytes": speed.device.len() });
        let _ = write!(text, " and the {kind} {fast}; name it {path}+{fast} from now on");
    }
    output::report(args.json, &report, || text + "\n")
}

/// Removes new images after a failed mkfs; the caller reports the original error.
fn forget<'a>(env: &Env, made: impl IntoIterator<Item = &'a Made>) {
    for made in made.into_iter().filter(|made| made.is_new) {
        let _ = env.fs.remove(&made.path);
    }
}

fn grow(args: &GrowArgs) -> Result<()> {
    let paths = parts(&args.path);
    // A damaged volume is not extended.
    drop(open_volume(&args.path, true)?);
    let of = if args.device == Of::Capacity { Role::Capacity } else { Role::Fast };
    let mut all = Vec::new();
    for path in &paths {
        let device = device::open(path, &DeviceOptions { read_only: true, ..DeviceOptions::default() })?;
        let (superblock, _) = Slots::read(&*device)?.choose().map_err(|e| e.at_file(path))?;
        let role = superblock.devices.bond.map_or(Role::Fast, |bond| bond.role);
        all.push((*path, role, superblock.sparse, device.len()));
    }
    // A volume on one device has only that; the mount above checked that two devices belong
    // together.
    let nth = all.iter().position(|(_, role, ..)| *role == of).unwrap_or(0);
    let (path, role, sparse, there) = all.swap_remove(nth);
    let kind = device::kind(path)?;
    if let (DeviceKind::Image, Some(len)) = (kind, args.size.filter(|len| *len > there)) {
        let room = if sparse { ImageRoom::Sparse } else { ImageRoom::Written };
        device::extend_image(path, len, room)?;
    }
    let volume = open_volume(&args.path, false)?;
    let before = volume.statistics().total_bytes;
    match args.size {
        Some(_) => drop(volume.grow_device(role, args.size)?),
        None => {
            for device in volume.devices() {
                volume.grow_device(device.role, None)?;
            }
        }
    }
    let after = volume.statistics().total_bytes;
    volume.unmount()?;
    let (kind, path) = (kind.name(), args.path.display().to_string());
    let report = json!({ "path": path, "kind": kind, "total_bytes": after, "grown_bytes": after - before });
    output::report(args.json, &report, || {
        let (has, more) = (human_bytes(after), human_bytes(after - before));
        format!("the volume on the {kind} {path} has {has}, {more} more than before\n")
    })
}

fn ls(args: &LsArgs) -> Result<()> {
    let volume = open_volume(&args.path, true)?;
    let mut out = output::stdout();
    for dir in volume.directories(&args.dir)? {
        if args.json {
            writeln!(out, "{}", json!({ "name": dir, "directory": true }))?;
        } else {
            writeln!(out, "{:>14} {dir}/", "")?;
        }
    }
    for entry in volume.list(&args.dir)? {
        if args.json {
            writeln!(out, "{}", json!({ "name": entry.name, "directory": false, "bytes": entry.len }))?;
        } else {
            writeln!(out, "{:>14} {}", entry.len, entry.name)?;
        }
    }
    Ok(out.flush()?)
}

/// Reads a file from end to end. For an unclosed file this is all data that its writer may have
/// made durable.
fn each_piece(file: &dyn ReadFile, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let len = file.readable_len()?;
    let mut buf = vec![0; COPY_LEN];
    let mut offset = 0;
    while offset < len {
        let n = (len - offset).min(COPY_LEN as u64) as usize;
        file.read_at(&mut buf[..n], offset)?;
        take(&buf[..n])?;
        offset += n as u64;
    }
    Ok(())
}

/// Adds the proposal of a file with a similar name to the error of a missing file.
fn with_tip(fs: &dyn FileSystem, path: &Path, error: lavastore::Error) -> crate::Error {
    match error.kind() {
        ErrorKind::NotFound => with_message(error, |e| format!("{e}{}", nearest::of_file(fs, path))),
        _ => error.into(),
    }
}

fn cat(args: &FileArgs) -> Result<()> {
    let volume = open_volume(&args.path, true)?;
    let file = volume.open(&args.file, Access::Direct).map_err(|e| with_tip(&volume, &args.file, e))?;
    let mut out = output::stdout();
    if args.json {
        write!(out, "{{\"file\":{},", json!(args.file.display().to_string()))?;
        streamed::write_member(&mut out, "content", &mut |take| each_piece(&*file, take))?;
        out.write_all(b"}\n")?;
        return Ok(out.flush()?);
    }
    each_piece(&*file, |bytes| Ok(out.write_all(bytes)?))?;
    Ok(out.flush()?)
}

fn cp(args: &CpArgs) -> Result<()> {
    let (from, to) = (args.from.strip_prefix(':'), args.to.strip_prefix(':'));
    if from.is_none() && to.is_none() {
        return output::usage(
            "neither path is on the volume: begin the one on the volume with a colon, as in :/NAME",
        );
    }
    let volume = Arc::new(open_volume(&args.path, to.is_none())?);
    let machine = Env::kernel().fs;
    let side = |on_volume: Option<&str>, plain: &str| -> (Arc<dyn FileSystem>, PathBuf) {
        match on_volume {
            Some(path) => (volume.clone(), path.into()),
            None => (machine.clone(), plain.into()),
        }
    };
    let ((source, from), (target, to)) = (side(from, &args.from), side(to, &args.to));
    let file = source.open(&from, Access::Buffered).map_err(|e| with_tip(&*source, &from, e))?;
    let dir = to.parent().unwrap_or(Path::new(""));
    target.create_dir_all(dir)?;
    let len = file.readable_len()?;
    let options = CreateOptions { expected_len: len, ..CreateOptions::default() };
    let mut copy: Box<dyn AppendFile> = target.create(&to, &options)?;
    let copied =
        each_piece(&*file, |bytes| Ok(copy.append(bytes)?)).and_then(|()| Ok(copy.sync(SyncKind::Full)?));
    drop(copy);
    if copied.is_err() {
        // A partial file is useless; the first error is reported.
        let _ = target.remove(&to);
    }
    let synced = target.sync_dir(dir);
    copied.and_then(|()| Ok(synced?))?;
    let report = json!({ "from": args.from, "to": args.to, "bytes": len });
    if args.json { output::report(true, &report, String::new) } else { Ok(()) }
}

fn stat(args: &FileArgs) -> Result<()> {
    let volume = open_volume(&args.path, true)?;
    let found = volume.metadata(&args.file).map_err(|e| with_tip(&volume, &args.file, e))?;
    if found.is_dir {
        return output::report(args.json, &json!({ "directory": true }), || "directory\n".to_owned());
    }
    let readable = volume.scan_extent_tail(&args.file)?;
    let is_two = volume.devices().len() == 2;
    let runs: Vec<String> = volume.extents(&args.file)?.into_iter().map(|run| shown(run, is_two)).collect();
    let report = json!({
        "directory": false, "bytes": found.len, "allocated_bytes": found.allocated, "names": found.links,
        "readable_bytes": readable, "blocks": runs,
    });
    output::report(args.json, &report, || {
        let (bytes, allocated, names) = (found.len, found.allocated, found.links);
        let blocks = runs.join(" ");
        format!(
            "bytes      {bytes}\nallocated  {allocated}\nnames      {names}\nreadable   {readable}\nblocks     {blocks}\n"
        )
    })
}

/// Formats a run of blocks; on a volume of two devices with the device and its block numbers.
fn shown(run: Extent, is_two: bool) -> String {
    if !is_two || run.is_hole() {
        return run.to_string();
    }
    match run.start.checked_sub(SECOND) {
        Some(start) => format!("capacity:{}", Extent::new(start, run.blocks)),
        None => format!("speed:{run}"),
    }
}

fn df(args: &VolumeArgs) -> Result<()> {
    let volume: LavaFs = open_volume(&args.path, true)?;
    let s = volume.statistics();
    let devices = volume.devices();
    let mut report = json!({
        "total_bytes": s.total_bytes, "free_bytes": s.free_bytes, "available_bytes": s.available_bytes,
        "file_bytes": s.file_bytes, "journal_bytes": s.journal_bytes, "files": s.files, "free_runs": s.free_runs,
        "longest_free_run_bytes": s.longest_free_run_bytes,
    });
    if devices.len() == 2 {
        let of = |d: &DeviceStatistics| {
            json!({
                "device": d.role.name(), "total_bytes": d.total_bytes, "free_bytes": d.free_bytes,
                "available_bytes": d.available_bytes, "file_bytes": d.file_bytes,
            })
        };
        report["devices"] = devices.iter().map(of).collect();
    }
    output::report(args.json, &report, || {
        let mut text = String::new();
        let parts = [
            ("volume", s.total_bytes),
            ("files", s.file_bytes),
            ("journal", s.journal_bytes),
            ("free", s.free_bytes),
            ("free for files", s.available_bytes),
        ];
        for (name, bytes) in parts {
            let _ = writeln!(text, "{name:<15} {:>12}", human_bytes(bytes));
        }
        let _ =
            writeln!(text, "{}, {} of free blocks", counted(s.files, "file"), counted(s.free_runs, "run"));
        for d in devices.iter().filter(|_| devices.len() == 2) {
            let [total, files, free] = [d.total_bytes, d.file_bytes, d.available_bytes].map(human_bytes);
            let name = d.role.name();
            let _ = writeln!(text, "the {name} device has {total}, {files} of files, {free} free for files");
        }
        text
    })
}

fn fsck(args: &FsckArgs) -> Result<()> {
    let devices = open_devices(&args.path, !args.repair)?;
    let found = lavafs::fsck_on(&Env::kernel(), &devices, args.repair)?;
    let findings: Vec<String> = found
        .findings
        .iter()
        .map(|f| format!("{}{}", output::one_line(&f.what), if f.repaired { " (repaired)" } else { "" }))
        .collect();
    let report = json!({
        "findings": findings, "clean": found.is_clean(), "files": found.files, "directories": found.dirs,
        "file_bytes": found.file_bytes, "journal_bytes": found.journal_bytes, "free_bytes": found.free_bytes,
        "beyond_bytes": found.beyond_bytes, "transactions": found.transactions,
    });
    output::report(args.json, &report, || {
        let mut text: String = findings.iter().map(|f| format!("{f}\n")).collect();
        let _ = writeln!(
            text,
            "{} with {}, {} of journal ({}), {} free",
            counted(found.files, "file"),
            human_bytes(found.file_bytes),
            human_bytes(found.journal_bytes),
            counted(found.transactions, "transaction"),
            human_bytes(found.free_bytes)
        );
        if found.beyond_bytes > 0 {
            let more = human_bytes(found.beyond_bytes);
            let _ =
                writeln!(text, "the device has {more} more than the volume: run lava fs grow to use them");
        }
        text
    })?;
    match found.is_clean() {
        true => Ok(()),
        false => {
            let count = found.findings.len();
            let (things, are) = (counted(count as u64, "thing"), if count == 1 { "is" } else { "are" });
            let what = format!(
                "{things} {are} wrong with the volume, as listed: lava fs fsck --repair repairs what it can; the rest needs a backup"
            );
            Err(failure(Status::Damage, what))
        }
    }
}

fn dump_journal(args: &VolumeArgs) -> Result<()> {
    let devices = open_devices(&args.path, true)?;
    let mut out = output::stdout();
    let mut failed = None;
    lavafs::dump_journal_on(&devices, &mut |line| {
        let text = if args.json { json!({ "text": line }).to_string() } else { line.to_owned() };
        if let (None, Err(e)) = (&failed, writeln!(out, "{text}")) {
            failed = Some(e);
        }
    })?;
    if let Some(e) = failed {
        return Err(e.into());
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in
            [("0", 0), ("512", 512), ("4K", 4096), ("64M", 64 << 20), ("4G", 4 << 30), ("1TiB", 1 << 40)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "4X", "-1", "99999999999T"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
