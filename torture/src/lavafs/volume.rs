//! A small volume under test: random calls, and the check after a crash.

use super::files::{
    BlockVersion, Durable, FileContents, FileId, Moment, Names, SECTOR, Span, VolumeFiles, own_bytes,
    version_bytes,
};
use crate::check::{Check, Doing, ensure};
use crate::crash::TRACE;
use io::{
    Access, AlignedBuf, AppendFile, BlockDevice, CreateOptions, FileSystem, InPlaceFile, Placement, Rng,
    ScratchFile, SyncKind,
};
use lavastore::lavafs::superblock::{Slots, Superblock};
use lavastore::lavafs::{
    Devices, FormatOptions, LavaFs, MountOptions, Role, Statistics, format_on, mount_on,
};
use lavastore::testing::{CrashKind, SimEnv};
use lavastore::{Error, ErrorKind};
use std::path::Path;
use std::sync::Arc;

const DEVICE: &str = "/device";
/// The capacity device of a volume on two devices.
const SECOND: &str = "/second";
const BLOCK: u64 = 4096;
const DIRS: [&str; 3] = ["/", "/a", "/b"];

/// Returns the one or two devices of an existing volume.
pub(crate) fn devices(sim: &SimEnv) -> Result<Devices, Error> {
    let first = sim.device(DEVICE, 0)?;
    Ok(match superblock(&*first)?.devices.bond {
        None => Devices::one(first),
        Some(_) => Devices::two(first, sim.device(SECOND, 0)?),
    })
}

fn superblock(device: &dyn BlockDevice) -> Result<Superblock, Error> {
    Ok(Slots::read(device)?.choose()?.0)
}

pub(crate) enum Handle {
    Append(Box<dyn AppendFile>),
    InPlace(Arc<dyn InPlaceFile>),
    Scratch(Arc<dyn ScratchFile>),
}

pub(crate) struct Volume {
    pub sim: SimEnv,
    pub fs: LavaFs,
    pub files: VolumeFiles,
    pub open: Vec<(FileId, Handle)>,
    /// Calls that found the volume full.
    pub full: u64,
    /// Number of growths.
    pub grown: u64,
    /// Size before the mount, the part on the first device, and the span of the mount, which may
    /// have grown the volume.
    mounted: (u64, u64, Span),
    rng: Rng,
    /// Generator of growths, separate so that other draws are unchanged.
    growth: Rng,
    /// Generator of other later additions, such as the device of a file.
    aside: Rng,
    is_two: bool,
}

impl Volume {
    /// Creates a volume and mounts it.
    pub fn make(seed: u64, rng: &mut Rng) -> Check<Volume> {
        let sim = SimEnv::new(seed);
        let blocks = [192, 400, 1500][rng.below(3) as usize];
        let device =
            |name: &str, blocks: u64| sim.device(name, blocks * BLOCK).doing(|| "make a device".into());
        let mut aside = Rng::new(seed ^ 0x7477_6f00);
        let on = match aside.one_in(2) {
            true => {
                let second = [192, 400, 1500][aside.below(3) as usize];
                Devices::two(device(DEVICE, blocks)?, device(SECOND, second)?)
            }
            false => Devices::one(device(DEVICE, blocks)?),
        };
        let options = FormatOptions {
            unit_len: 8 * BLOCK,
            small_unit_len: 2 * BLOCK,
            journal_len: [4, 8][rng.below(2) as usize] * BLOCK,
            ..FormatOptions::default()
        };
        format_on(&sim.env(), &on, &options).doing(|| "format".into())?;
        drop(on);
        // The record begins after the creation of the volume.
        let sim = sim.fork(rng.next_u64());
        let mut volume = Volume::mount(&sim, rng.next_u64(), rng).doing(|| "the first mount".into())?;
        volume.files = VolumeFiles::new(Names::from([("/".to_owned(), None)]));
        let (bytes, made) = (volume.statistics().total_bytes, Span { begin: 0, end: 0 });
        volume.files.sizes.push((made, bytes));
        Ok(volume)
    }

    /// Mounts a volume without any expected state.
    pub fn mount(sim: &SimEnv, seed: u64, rng: &mut Rng) -> Result<Volume, Error> {
        let options = MountOptions {
            write_buffer_len: [1, 4, 32][rng.below(3) as usize] * BLOCK as usize,
            compact_journal_at: [2, 6, 20][rng.below(3) as usize] * BLOCK,
            discard: rng.one_in(2),
            grow: Rng::new(seed).one_in(3),
            page_cache_bytes: [0, 64 << 10, 1 << 20][Rng::new(seed ^ 0x7061_6765).below(3) as usize],
            ..MountOptions::default()
        };
        let found = superblock(&*sim.device(DEVICE, 0)?)?;
        let (had, is_two) = (found.blocks() * BLOCK, found.devices.bond.is_some());
        let on = devices(sim)?;
        let begin = sim.op_count();
        let fs = mount_on(&sim.env(), on, options)?;
        let first = found.blocks_of(Role::Fast) * BLOCK;
        let mounted = (had, first, Span { begin, end: sim.op_count() });
        Ok(Volume {
            sim: sim.clone(),
            fs,
            files: VolumeFiles::default(),
            open: Vec::new(),
            full: 0,
            grown: 0,
            mounted,
            rng: Rng::new(seed),
            growth: Rng::new(seed ^ 0x6772_6f77),
            aside: Rng::new(seed ^ 0x6173_6964),
            is_two,
        })
    }

    pub fn statistics(&self) -> Statistics {
        self.fs.statistics()
    }

    // Calls.

    /// Runs a call; `None` if it found the volume full.
    fn call<T>(
        &mut self,
        what: &str,
        body: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Check<Option<(T, Span)>> {
        let begin = self.sim.op_count();
        let result = body(self);
        let span = Span { begin, end: self.sim.op_count() };
        match result {
            Ok(value) => Ok(Some((value, span))),
            Err(e) if e.kind() == ErrorKind::NoSpace => {
                self.full += 1;
                if std::env::var_os(TRACE).is_some() {
                    println!("{what}: {e}");
                }
                Ok(None)
            }
            Err(e) => Err(format!("{what}: {e}")),
        }
    }

    fn change_names(&mut self, span: Span, change: impl FnOnce(&mut Names)) {
        let mut names = self.files.names().clone();
        change(&mut names);
        self.files.changed(span, names);
    }

    /// Marks all names as durable.
    fn settle_all(&mut self) {
        let (now, last) = (self.sim.op_count(), self.files.moments.len() - 1);
        self.files.settle(now, last);
    }

    fn free_path(&mut self) -> Option<String> {
        let dir = DIRS[self.rng.below(3) as usize];
        let nth = self.rng.below(6);
        // Half of the names are those of logs.
        let ending = if self.is_two && nth % 2 == 1 { ".log" } else { "" };
        let path = format!("{}/f{nth}{ending}", dir.trim_end_matches('/'));
        let names = self.files.names();
        (names.contains_key(dir) && !names.contains_key(&path)).then_some(path)
    }

    fn some_file(&mut self) -> Option<(String, FileId)> {
        let files: Vec<_> =
            self.files.names().iter().filter_map(|(p, id)| Some((p.clone(), (*id)?))).collect();
        let nth = self.rng.below(files.len().max(1) as u64) as usize;
        files.get(nth).cloned()
    }

    /// Makes a random call.
    pub fn step(&mut self) -> Check {
        if self.growth.one_in(10) {
            return self.grow();
        }
        match self.rng.below(20) {
            0 | 1 => self.create(),
            2..=7 => self.append(),
            8 => self.create_fixed(),
            9 | 10 => self.write_fixed(),
            11 => self.rename(),
            12 | 13 => self.remove(),
            14 => self.link(),
            15 => self.close_or_punch(),
            16 => self.change_dirs(),
            _ => self.sync_dir(),
        }
    }

    /// Extends a device, and grows the volume by all of that, a part, or nothing yet.
    fn grow(&mut self) -> Check {
        let devices = self.fs.devices();
        let nth = self.aside.below(devices.len() as u64) as usize;
        let (has, role, name) = (devices[nth].total_bytes, devices[nth].role, [DEVICE, SECOND][nth]);
        let more = self.growth.range(1, 60);
        self.sim.lengthen_device(name, has + more * BLOCK).doing(|| "make the device longer".into())?;
        let len = match self.growth.below(4) {
            0 => return Ok(()),
            1 => Some(has + self.growth.below(more + 1) * BLOCK),
            _ => None,
        };
        let grown = self.call("grow", |v| v.fs.grow_device(role, len))?;
        let Some((bytes, span)) = grown else { return Ok(()) };
        self.grown += u64::from(bytes > has);
        self.files.sizes.push((span, self.statistics().total_bytes));
        Ok(())
    }

    fn create(&mut self) -> Check {
        let Some(path) = self.free_path() else { return Ok(()) };
        let expected_len = [0, 50_000][self.rng.below(2) as usize];
        let placement =
            [Placement::ByName, Placement::Fast, Placement::Capacity][self.aside.below(3) as usize];
        let options = CreateOptions { expected_len, placement, ..CreateOptions::default() };
        let made = self.call("create", |v| v.fs.create(Path::new(&path), &options))?;
        let Some((file, span)) = made else { return Ok(()) };
        let id = self.new_file(FileContents::Appended {
            len: 0,
            full: Vec::new(),
            data: Vec::new(),
            punched: Vec::new(),
        });
        self.change_names(span, |names| {
            names.insert(path, Some(id));
        });
        self.open.push((id, Handle::Append(file)));
        Ok(())
    }

    fn new_file(&mut self, contents: FileContents) -> FileId {
        let id = self.files.next_id;
        self.files.next_id += 1;
        self.files.contents.insert(id, contents);
        id
    }

    fn append(&mut self) -> Check {
        let appenders: Vec<usize> =
            (0..self.open.len()).filter(|&n| matches!(self.open[n].1, Handle::Append(_))).collect();
        let Some(&nth) = appenders.get(self.rng.below(appenders.len().max(1) as u64) as usize) else {
            return Ok(());
        };
        let (id, Handle::Append(mut file)) = self.open.swap_remove(nth) else { return Ok(()) };
        let most = [600, 5000, 60_000, 600_000][[0, 1, 1, 2, 2, 3][self.rng.below(6) as usize]];
        let more = self.rng.below(most);
        let bytes = own_bytes(id, file.len(), more as usize);
        if let Some(FileContents::Appended { len, .. }) = self.files.contents.get_mut(&id) {
            *len = file.len() + more;
        }
        let sync = [None, Some(SyncKind::Data), Some(SyncKind::Data), Some(SyncKind::Full)]
            [self.rng.below(4) as usize];
        let moment = self.files.made(id);
        let done = self.call("append", |_| {
            file.append(&bytes)?;
            match sync {
                Some(kind) => file.sync(kind),
                None => file.flush(),
            }
        })?;
        // A file that found the volume full accepts no more data.
        if done.is_none() {
            return Ok(());
        }
        let durable = Durable { since: self.sim.op_count(), what: file.len() };
        if let Some(FileContents::Appended { full, data, .. }) = self.files.contents.get_mut(&id) {
            match sync {
                Some(SyncKind::Full) => full.push(durable),
                Some(SyncKind::Data) => data.push(durable),
                None => {}
            }
        }
        if sync.is_some() {
            self.files.settle(durable.since, moment);
        }
        self.open.push((id, Handle::Append(file)));
        Ok(())
    }

    fn create_fixed(&mut self) -> Check {
        let Some(path) = self.free_path() else { return Ok(()) };
        let blocks = self.rng.range(1, 12);
        let scratch = self.rng.one_in(3);
        let len = blocks * BLOCK;
        let made = self.call("create a fixed file", |v| match scratch {
            true => v.fs.create_scratch(Path::new(&path), len as usize).map(Handle::Scratch),
            false => v.fs.create_in_place(Path::new(&path), len, Access::Direct).map(Handle::InPlace),
        })?;
        let Some((handle, span)) = made else { return Ok(()) };
        let zeros = BlockVersion { number: 0, span, durable: Some(span.begin) };
        let id = self.new_file(FileContents::InPlace { blocks: vec![vec![zeros]; blocks as usize] });
        self.change_names(span, |names| {
            names.insert(path, Some(id));
        });
        self.settle_all();
        self.open.push((id, handle));
        Ok(())
    }

    fn write_fixed(&mut self) -> Check {
        let nth = self.rng.below(self.open.len().max(1) as u64) as usize;
        let Some((id, handle)) = self.open.get(nth) else { return Ok(()) };
        let id = *id;
        let Some(FileContents::InPlace { blocks }) = self.files.contents.get(&id) else { return Ok(()) };
        let first = self.rng.below(blocks.len() as u64) as usize;
        let count = self.rng.range(1, (blocks.len() - first) as u64 + 1) as usize;
        let number = blocks.iter().flatten().map(|v| v.number).max().unwrap_or(0) + 1;
        let mut data = AlignedBuf::zeroed(count * BLOCK as usize);
        for (n, sector) in data.as_mut_slice().chunks_mut(SECTOR).enumerate() {
            let (block, sector_in) = ((first + n / 8) as u64, n % 8);
            sector.copy_from_slice(&version_bytes(id, block, number, sector_in));
        }
        let offset = first as u64 * BLOCK;
        let begin = self.sim.op_count();
        let how = self.rng.below(3);
        let written = match handle {
            Handle::InPlace(file) if how == 0 => file.write_durable(&data, offset),
            Handle::InPlace(file) => {
                file.write_at(&data, offset).and_then(|()| if how == 1 { file.sync_data() } else { Ok(()) })
            }
            Handle::Scratch(file) => file.write(offset as usize, data.as_slice()).map_err(Into::into),
            Handle::Append(_) => Ok(()),
        };
        written.doing(|| "write in place".into())?;
        let span = Span { begin, end: self.sim.op_count() };
        let in_place = matches!(self.open[nth].1, Handle::InPlace(_));
        let durable = (in_place && how < 2).then_some(span.end);
        if let Some(FileContents::InPlace { blocks }) = self.files.contents.get_mut(&id) {
            for versions in &mut blocks[first..first + count] {
                versions.push(BlockVersion { number, span, durable });
            }
            if in_place && how == 1 {
                let all = blocks.iter_mut().flatten();
                all.for_each(|v| v.durable = v.durable.or(Some(span.end)));
            }
        }
        Ok(())
    }

    fn rename(&mut self) -> Check {
        let (Some((from, id)), Some((over, other))) = (self.some_file(), self.some_file()) else {
            return Ok(());
        };
        let to = match self.free_path() {
            Some(path) if self.rng.one_in(2) => path,
            _ => over.clone(),
        };
        let done = self.call("rename", |v| v.fs.rename(Path::new(&from), Path::new(&to)))?;
        if let Some(((), span)) = done
            && !(to == over && id == other)
        {
            self.change_names(span, |names| {
                names.remove(&from);
                names.insert(to, Some(id));
            });
        }
        Ok(())
    }

    fn remove(&mut self) -> Check {
        let Some((path, _)) = self.some_file() else { return Ok(()) };
        let before = self.full;
        let done = self.call("remove", |v| v.fs.remove(Path::new(&path)))?;
        ensure!(self.full == before, "a full volume did not let a file be removed");
        if let Some(((), span)) = done {
            self.change_names(span, |names| {
                names.remove(&path);
            });
        }
        Ok(())
    }

    fn link(&mut self) -> Check {
        let (Some((from, id)), Some(to)) = (self.some_file(), self.free_path()) else { return Ok(()) };
        let done = self.call("link", |v| v.fs.link(Path::new(&from), Path::new(&to)))?;
        if let Some(((), span)) = done {
            self.change_names(span, |names| {
                names.insert(to, Some(id));
            });
        }
        Ok(())
    }

    fn close_or_punch(&mut self) -> Check {
        if self.rng.one_in(2) {
            let nth = self.rng.below(self.open.len().max(1) as u64) as usize;
            if nth < self.open.len() {
                self.open.swap_remove(nth);
            }
            return Ok(());
        }
        let Some((path, id)) = self.some_file() else { return Ok(()) };
        let is_open = self.open.iter().any(|(open, _)| *open == id);
        let Some(FileContents::Appended { len, punched, .. }) = self.files.contents.get_mut(&id) else {
            return Ok(());
        };
        if is_open || *len == 0 {
            return Ok(());
        }
        let offset = self.rng.below(*len);
        let count = self.rng.below(*len - offset + 1);
        punched.push((offset, offset + count));
        self.call("punch_hole", |v| v.fs.punch_hole(Path::new(&path), offset, count)).map(|_| ())
    }

    fn change_dirs(&mut self) -> Check {
        let dir = DIRS[1 + self.rng.below(2) as usize];
        let names = self.files.names();
        let below = format!("{dir}/");
        if !names.contains_key(dir) {
            let done = self.call("create_dir_all", |v| v.fs.create_dir_all(Path::new(dir)))?;
            if let Some(((), span)) = done {
                self.change_names(span, |names| {
                    names.insert(dir.to_owned(), None);
                });
            }
        } else if !names.keys().any(|path| path.starts_with(&below)) {
            let done = self.call("remove_dir", |v| v.fs.remove_dir(Path::new(dir)))?;
            if let Some(((), span)) = done {
                self.change_names(span, |names| {
                    names.remove(dir);
                });
            }
        }
        Ok(())
    }

    fn sync_dir(&mut self) -> Check {
        if self.call("sync_dir", |v| v.fs.sync_dir(Path::new("/")))?.is_some() {
            self.settle_all();
        }
        Ok(())
    }

    // After a crash.

    fn found_names(&self, ids: &dyn Fn(&str, &Names) -> Option<FileId>, like: &Names) -> Check<Names> {
        let mut found = Names::from([("/".to_owned(), None)]);
        for dir in DIRS {
            let listed = match self.fs.list(Path::new(dir)) {
                Ok(listed) => listed,
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(e) => return Err(format!("list {dir}: {e}")),
            };
            found.insert(dir.to_owned(), None);
            for entry in listed {
                let path = format!("{}/{}", dir.trim_end_matches('/'), entry.name);
                let id = ids(&path, like);
                found.insert(path, Some(id.unwrap_or(FileId::MAX)));
            }
        }
        Ok(found)
    }

    /// Finds the moment with the found names and matching contents, and returns the new expected
    /// state.
    pub fn check(&self, files: &VolumeFiles, op: u64, kind: CrashKind) -> Check<VolumeFiles> {
        let had = self.mounted.0;
        ensure!(files.may_have(had, op), "a volume of {had} bytes, which grew at {:?}", files.sizes);
        let mut why_not = Vec::new();
        for (nth, moment) in files.possible(op).iter().enumerate().rev() {
            let of = |path: &str, names: &Names| names.get(path).copied().flatten();
            let found = self.found_names(&of, &moment.names)?;
            if found != *moment.names {
                continue;
            }
            match self.check_contents(files, &moment.names, op, kind) {
                Ok(()) => return self.known_from_now_on(files, nth, op, kind),
                Err(why) => why_not.push(why),
            }
        }
        why_not.sort();
        why_not.dedup();
        let found = self.found_names(&|_, _| None, &Names::new())?;
        let possible: Vec<_> =
            files.possible(op).iter().map(|m| m.names.keys().collect::<Vec<_>>()).collect();
        Err(format!(
            "the names {:?} are those of no moment that may be left ({possible:?}), or the contents do not fit: {}",
            found.keys().collect::<Vec<_>>(),
            why_not.join("; ")
        ))
    }

    /// Checks the volume against its last expected state.
    pub fn check_all(&self, files: &VolumeFiles) -> Check {
        let of = |path: &str, names: &Names| names.get(path).copied().flatten();
        let found = self.found_names(&of, files.names())?;
        ensure!(found == *files.names(), "names {found:?} instead of {:?}", files.names());
        self.check_contents(files, files.names(), u64::MAX, CrashKind::PowerLoss)
    }

    fn check_contents(&self, files: &VolumeFiles, names: &Names, op: u64, kind: CrashKind) -> Check {
        for (path, id) in names.iter().filter_map(|(path, id)| Some((path, (*id)?))) {
            let links = names.values().filter(|named| **named == Some(id)).count() as u64;
            let found = self.fs.metadata(Path::new(path)).doing(|| "metadata".into())?.links;
            ensure!(found == links, "{path} is one of {found} names instead of {links}");
            match &files.contents[&id] {
                FileContents::Appended { len, full, data, punched } => {
                    let least = |durable: &[Durable<u64>]| {
                        durable.iter().filter(|d| d.since <= op).map(|d| d.what).max().unwrap_or(0)
                    };
                    let sizes = (least(full), least(data).max(least(full)), *len);
                    self.check_appended(path, id, sizes, punched)?;
                }
                FileContents::InPlace { blocks } => self.check_in_place(path, id, blocks, op, kind)?,
                FileContents::Unknown => {}
            }
        }
        Ok(())
    }

    /// `sizes`: minimum file size, minimum and maximum number of bytes with data.
    fn check_appended(
        &self,
        path: &str,
        id: FileId,
        (size_min, there, max): (u64, u64, u64),
        punched: &[(u64, u64)],
    ) -> Check {
        let file = self.fs.open(Path::new(path), Access::Direct).doing(|| format!("open {path}"))?;
        let size = file.len().doing(|| "len".into())?;
        let tail = self.fs.scan_extent_tail(Path::new(path)).doing(|| "scan_extent_tail".into())?;
        ensure!(
            size_min <= size && size <= max && tail >= there.max(size),
            "{path} has {size} bytes, and blocks for {tail}: {size_min} to {max} were expected, {there} of them synced"
        );
        let len = size.max(there);
        let mut found = vec![0; len as usize];
        file.read_at(&mut found, 0).doing(|| format!("read {path}"))?;
        let own = own_bytes(id, 0, len as usize);
        let differs = |at: usize| {
            let hole = punched.iter().any(|(from, to)| (*from..*to).contains(&(at as u64)));
            found[at] != own[at] && !(hole && found[at] == 0)
        };
        match (0..found.len()).find(|&at| differs(at)) {
            None => Ok(()),
            Some(at) => Err(format!(
                "{path} of {size} bytes ({there} synced) has a byte at {at} that was never written there"
            )),
        }
    }

    fn check_in_place(
        &self,
        path: &str,
        id: FileId,
        blocks: &[Vec<BlockVersion>],
        op: u64,
        kind: CrashKind,
    ) -> Check {
        let file = self.fs.open_in_place(Path::new(path), Access::Direct).doing(|| format!("open {path}"))?;
        ensure!(file.len() == blocks.len() as u64 * BLOCK, "{path} has {} bytes", file.len());
        let mut found = vec![0; file.len() as usize];
        file.read_at(&mut found, 0).doing(|| format!("read {path}"))?;
        for (n, sector) in found.chunks(SECTOR).enumerate() {
            let versions = &blocks[n / 8];
            let settled = |v: &BlockVersion| {
                let killed = kind == CrashKind::ProcessKill && v.span.end <= op;
                killed || v.durable.is_some_and(|since| since <= op)
            };
            let oldest = versions.iter().rposition(settled).unwrap_or(0);
            let mut possible = versions[oldest..].iter().filter(|v| v.span.begin <= op || v.number == 0);
            let block = (n / 8) as u64;
            // A killed process leaves any part of the write in flight.
            let torn = kind == CrashKind::ProcessKill && versions.iter().any(|v| v.is_under_way(op));
            ensure!(
                torn || possible.any(|v| version_bytes(id, block, v.number, n % 8) == sector),
                "{path} (file {id}): sector {n} begins with {:?} and is none of {:?}",
                &sector[..8],
                versions
            );
        }
        Ok(())
    }

    /// Returns the expected state after a mount, which starts a new record. After a loss of power
    /// only durable data is left. After a kill, data that was not durable still is not, and another
    /// crash may take it.
    fn known_from_now_on(
        &self,
        files: &VolumeFiles,
        found: usize,
        op: u64,
        kind: CrashKind,
    ) -> Check<VolumeFiles> {
        let possible = files.possible(op);
        let killed = kind == CrashKind::ProcessKill;
        let kept = if killed { &possible[..=found] } else { &possible[found..=found] };
        let span = Span { begin: 0, end: 0 };
        let moments: Vec<Moment> = kept.iter().map(|m| Moment { span, names: m.names.clone() }).collect();
        let mut known = VolumeFiles { next_id: files.next_id, ..VolumeFiles::new(Names::new()) };
        for (path, id) in
            kept.iter().flat_map(|m| m.names.iter()).filter_map(|(path, id)| Some((path, (*id)?)))
        {
            let there = kept.last().is_some_and(|m| m.names.get(path) == Some(&Some(id)));
            let old = &files.contents[&id];
            let contents = match old {
                FileContents::Appended { punched, .. } if there && !killed => {
                    let size = self.fs.metadata(Path::new(path)).doing(|| "metadata".into())?.len;
                    let full = vec![Durable { since: 0, what: size }];
                    FileContents::Appended { len: size, full, data: Vec::new(), punched: punched.clone() }
                }
                old => old.after_a_crash(op, killed),
            };
            if there || !known.contents.contains_key(&id) {
                known.contents.insert(id, contents);
            }
        }
        known.moments = moments;
        let (had, first, mounted) = self.mounted;
        known.sizes = if killed { files.sizes_after_a_kill(op) } else { vec![(span, had)] };
        // Two devices grow one after the other.
        known.sizes.push((mounted, had + self.fs.devices()[0].total_bytes - first));
        known.sizes.push((mounted, self.statistics().total_bytes));
        Ok(known)
    }
}
