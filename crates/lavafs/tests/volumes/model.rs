//! Random operations on a volume and on a model of it, compared after every operation.
//!
//! The volume is small, so that it fills up, and its journal is compacted frequently. Half of the
//! volumes use two devices, and two thirds have a page cache. `LAVAFS_LISTS` sets the number of
//! operation lists (10,000 in the test campaign).

use base::ErrorKind;
use io::sim::SimEnv;
use io::{
    Access, AlignedBuf, AppendFile, CreateOptions, Env, InPlaceFile, Placement, ReadFile, Rng, SyncKind,
};
use lavastore_lavafs::{Devices, FormatOptions, LavaFs, MountOptions, format_on, fsck_on, mount_on};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Weak};

const BLOCK: usize = 4096;
const DIRS: [&str; 4] = ["/", "/a", "/a/b", "/c"];

/// Contents of a file as readers see them, shared by its names.
type Bytes = std::rc::Rc<std::cell::RefCell<Vec<u8>>>;

struct Appender {
    file: Box<dyn AppendFile>,
    /// All appended bytes.
    all: Vec<u8>,
    bytes: Bytes,
}

struct World {
    sim: SimEnv,
    env: Env,
    /// File system of `env`.
    volume: Weak<LavaFs>,
    rng: Rng,
    /// Separate random numbers for two-device volumes. They keep the other lists unchanged.
    aside: Rng,
    /// Names of the devices.
    devices: &'static [&'static str],
    options: MountOptions,
    names: BTreeMap<String, Bytes>,
    dirs: BTreeMap<String, ()>,
    appenders: Vec<Appender>,
    readers: Vec<(Arc<dyn ReadFile>, Bytes)>,
    in_place: Vec<(Arc<dyn InPlaceFile>, Bytes)>,
}

fn devices(sim: &SimEnv, names: &[&str], len: u64) -> Devices {
    let device = |name: &str| sim.device(name, len).unwrap();
    match names {
        [one] => Devices::one(device(one)),
        _ => Devices::two(device(names[0]), device(names[1])),
    }
}

fn open(sim: &SimEnv, names: &[&str], options: MountOptions) -> (Weak<LavaFs>, Env) {
    let env = sim.env();
    let volume = Arc::new(mount_on(&env, devices(sim, names, 0), options).unwrap());
    (Arc::downgrade(&volume), Env { fs: volume, ..env })
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let sim = SimEnv::new(seed);
        let mut aside = Rng::new(seed ^ 0x7477_6f00);
        let names: &[&str] = if aside.one_in(2) { &["/device", "/second"] } else { &["/device"] };
        let on = devices(&sim, names, [160, 400, 2000][rng.below(3) as usize] * BLOCK as u64);
        let format_options = FormatOptions {
            unit_len: 8 * BLOCK as u64,
            small_unit_len: 2 * BLOCK as u64,
            journal_len: 4 * BLOCK as u64,
            ..FormatOptions::default()
        };
        format_on(&sim.env(), &on, &format_options).unwrap();
        let options = MountOptions {
            write_buffer_len: [BLOCK, 4 * BLOCK, 64 * BLOCK][rng.below(3) as usize],
            compact_journal_at: [4, 16, 64][rng.below(3) as usize] * BLOCK as u64,
            discard: rng.one_in(2),
            page_cache_bytes: [0, 64 << 10, 1 << 20][aside.below(3) as usize],
            ..MountOptions::default()
        };
        let (volume, env) = open(&sim, names, options);
        let (dirs, devices) = (BTreeMap::from([("/".to_owned(), ())]), names);
        let (names, appenders, readers, in_place) = Default::default();
        World { sim, env, volume, rng, aside, devices, options, names, dirs, appenders, readers, in_place }
    }

    fn volume(&self) -> Arc<LavaFs> {
        self.volume.upgrade().unwrap()
    }

    fn some_path(&mut self) -> String {
        let dir = DIRS[self.rng.below(4) as usize];
        let name = self.rng.below(6);
        if dir == "/" { format!("/f{name}") } else { format!("{dir}/f{name}") }
    }

    fn some_name(&mut self) -> Option<String> {
        let nth = self.rng.below(self.names.len().max(1) as u64) as usize;
        self.names.keys().nth(nth).cloned()
    }

    fn parent_exists(&self, path: &str) -> bool {
        let parent = Path::new(path).parent().unwrap().to_str().unwrap();
        self.dirs.contains_key(parent)
    }

    /// Returns the expected error kind of creating `path`. With `None`, it must succeed or find the
    /// volume full.
    fn obstacle(&self, path: &str) -> Option<ErrorKind> {
        match (self.parent_exists(path), self.names.contains_key(path) || self.dirs.contains_key(path)) {
            (false, _) => Some(ErrorKind::NotFound),
            (true, true) => Some(ErrorKind::AlreadyExists),
            (true, false) => None,
        }
    }

    /// Returns the result if the operation succeeded. A full volume is an accepted error.
    fn agree<T>(&self, result: Result<T, base::Error>, obstacle: Option<ErrorKind>, what: &str) -> Option<T> {
        match (result, obstacle) {
            (Ok(value), None) => Some(value),
            (Ok(_), Some(kind)) => panic!("{what} worked instead of failing with {kind:?}"),
            (Err(e), _) if e.kind() == ErrorKind::NoSpace => {
                if std::env::var_os("LAVAFS_SEED").is_some() {
                    println!("{what}: {e}");
                }
                None
            }
            (Err(e), Some(kind)) => {
                assert_eq!(e.kind(), kind, "{what}: {e}");
                None
            }
            (Err(e), None) => panic!("{what}: {e}"),
        }
    }

    fn step(&mut self) {
        match self.rng.below(24) {
            0..=2 => self.create(),
            3..=8 => self.append(),
            9 => self.close(),
            10 => self.create_in_place(),
            11 | 12 => self.write_in_place(),
            13 => self.rename(),
            14 | 15 => self.remove(),
            16 => self.link(),
            17 => self.punch(),
            18 => self.change_dirs(),
            19 => self.open_reader(),
            20 if self.rng.one_in(3) => self.remount(),
            21 => self.scratch(),
            22 if self.rng.one_in(4) => self.grow(),
            _ => self.sync_dir(),
        }
    }

    fn create(&mut self) {
        let path = self.some_path();
        let options = CreateOptions {
            expected_len: [0, 0, 30_000, 1 << 40][self.rng.below(4) as usize],
            write_buffer_len: BLOCK,
            exact: self.rng.one_in(3),
            placement: [Placement::ByName, Placement::Fast, Placement::Capacity]
                [self.aside.below(3) as usize],
            ..CreateOptions::default()
        };
        let made = self.env.fs.create(Path::new(&path), &options);
        if let Some(file) = self.agree(made, self.obstacle(&path), "create") {
            let bytes = Bytes::default();
            self.names.insert(path, bytes.clone());
            self.appenders.push(Appender { file, all: Vec::new(), bytes });
        }
    }

    fn append(&mut self) {
        if self.appenders.is_empty() {
            return;
        }
        let nth = self.rng.below(self.appenders.len() as u64) as usize;
        let len =
            [self.rng.below(100), self.rng.below(9000), self.rng.below(90_000)][self.rng.below(3) as usize];
        let mut data = vec![0; len as usize];
        self.rng.fill(&mut data);
        let appender = &mut self.appenders[nth];
        let appended = appender.file.append(&data);
        appender.all.extend_from_slice(&data);
        let finished = appended.and_then(|()| match self.rng.below(4) {
            0 => appender.file.flush(),
            1 => appender.file.sync(SyncKind::Data),
            2 => appender.file.sync(SyncKind::Full),
            _ => Ok(()),
        });
        match finished {
            Ok(()) => {
                assert_eq!(appender.file.len(), appender.all.len() as u64);
                self.catch_up(nth);
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
                self.catch_up(nth);
                let again = self.appenders[nth].file.append(b"x").unwrap_err();
                assert_eq!(again.kind(), ErrorKind::Poisoned);
                self.appenders.swap_remove(nth);
            }
        }
    }

    /// Updates the model with the visible length of an append file. Readers see a prefix of the
    /// appended bytes, and all of them after a flush.
    fn catch_up(&mut self, nth: usize) {
        let appender = &self.appenders[nth];
        let found = self.names.iter().find(|(_, b)| std::rc::Rc::ptr_eq(b, &appender.bytes));
        if let Some((path, _)) = found {
            let len = self.env.fs.metadata(Path::new(path)).unwrap().len as usize;
            assert!(len >= appender.bytes.borrow().len() && len <= appender.all.len());
            *appender.bytes.borrow_mut() = appender.all[..len].to_vec();
        } else {
            // If the file has no name, an open reader shows its length.
            let reader = self.readers.iter().find(|(_, b)| std::rc::Rc::ptr_eq(b, &appender.bytes));
            let len = reader.map_or(0, |(r, _)| r.len().unwrap() as usize);
            let len = len.max(appender.bytes.borrow().len());
            *appender.bytes.borrow_mut() = appender.all[..len].to_vec();
        }
    }

    fn close(&mut self) {
        if !self.appenders.is_empty() {
            let nth = self.rng.below(self.appenders.len() as u64) as usize;
            self.appenders.swap_remove(nth);
        }
    }

    fn create_in_place(&mut self) {
        let (path, blocks) = (self.some_path(), self.rng.below(20));
        let made = self.env.fs.create_in_place(Path::new(&path), blocks * BLOCK as u64, Access::Direct);
        if let Some(file) = self.agree(made, self.obstacle(&path), "create_in_place") {
            let bytes = Bytes::new(vec![0; blocks as usize * BLOCK].into());
            self.names.insert(path, bytes.clone());
            self.in_place.push((file, bytes));
        }
    }

    fn write_in_place(&mut self) {
        if self.in_place.is_empty() {
            return;
        }
        let nth = self.rng.below(self.in_place.len() as u64) as usize;
        let (file, bytes) = &self.in_place[nth];
        let blocks = bytes.borrow().len() / BLOCK;
        if blocks == 0 {
            return;
        }
        let first = self.rng.below(blocks as u64) as usize;
        let count = self.rng.range(1, (blocks - first) as u64 + 1) as usize;
        let mut data = AlignedBuf::zeroed(count * BLOCK);
        self.rng.fill(data.as_mut_slice());
        let offset = (first * BLOCK) as u64;
        let written = match self.rng.below(3) {
            0 => file.write_at(&data, offset),
            1 => file.write_durable(&data, offset),
            _ => file.write_at(&data, offset).and_then(|()| file.sync_data()),
        };
        match written {
            Ok(()) => {
                bytes.borrow_mut()[first * BLOCK..][..count * BLOCK].copy_from_slice(data.as_slice());
                let mut found = vec![1; count * BLOCK];
                file.read_at(&mut found, offset).unwrap();
                assert_eq!(found, data.as_slice());
            }
            Err(e) => {
                assert!(
                    [ErrorKind::InvalidArgument, ErrorKind::Poisoned].contains(&e.kind()),
                    "punched: {e}"
                );
                let (file, bytes) = self.in_place.swap_remove(nth);
                let mut now = bytes.borrow_mut();
                file.read_at(&mut now, 0).unwrap();
            }
        }
    }

    fn rename(&mut self) {
        let (Some(from), to) = (self.some_name(), self.some_path()) else { return };
        let obstacle = match self.obstacle(&to) {
            Some(ErrorKind::AlreadyExists) if self.dirs.contains_key(&to) => Some(ErrorKind::Io),
            Some(ErrorKind::AlreadyExists) => None,
            other => other,
        };
        let renamed = self.env.fs.rename(Path::new(&from), Path::new(&to));
        if self.agree(renamed, obstacle, "rename").is_some() {
            let same = self.names.get(&to).is_some_and(|b| std::rc::Rc::ptr_eq(b, &self.names[&from]));
            if !same {
                let bytes = self.names.remove(&from).unwrap();
                self.names.insert(to, bytes);
            }
        }
    }

    fn remove(&mut self) {
        let path = self.some_path();
        let obstacle = (!self.names.contains_key(&path)).then_some(ErrorKind::NotFound);
        let removed = self.env.fs.remove(Path::new(&path));
        match removed {
            Ok(()) => assert!(self.names.remove(&path).is_some(), "removed {path}, which is not there"),
            Err(e) => assert_eq!(Some(e.kind()), obstacle, "a full volume is no excuse: {e}"),
        }
    }

    fn link(&mut self) {
        let (Some(from), to) = (self.some_name(), self.some_path()) else { return };
        let linked = self.env.fs.link(Path::new(&from), Path::new(&to));
        if self.agree(linked, self.obstacle(&to), "link").is_some() {
            let bytes = self.names[&from].clone();
            self.names.insert(to, bytes);
        }
    }

    fn punch(&mut self) {
        let Some(path) = self.some_name() else { return };
        let bytes = self.names[&path].clone();
        // Growing files are skipped, as in the engine.
        if self.appenders.iter().any(|a| std::rc::Rc::ptr_eq(&a.bytes, &bytes)) {
            return;
        }
        let len = bytes.borrow().len();
        let offset = self.rng.below(len as u64 + 10) as usize;
        let count = self.rng.below(60_000) as usize;
        self.env.fs.punch_hole(Path::new(&path), offset as u64, count as u64).unwrap();
        let (first, end) = (offset.next_multiple_of(BLOCK), (offset + count) / BLOCK * BLOCK);
        if first < end {
            bytes.borrow_mut()[first.min(len)..end.min(len)].fill(0);
        }
    }

    fn change_dirs(&mut self) {
        let dir = DIRS[1 + self.rng.below(3) as usize];
        let path = Path::new(dir);
        if self.rng.one_in(2) {
            if self.agree(self.env.fs.create_dir_all(path), None, "create_dir_all").is_some() {
                for above in path.ancestors() {
                    self.dirs.insert(above.to_str().unwrap().to_owned(), ());
                }
            }
            return;
        }
        let below = format!("{dir}/");
        let full = self.names.keys().chain(self.dirs.keys()).any(|name| name.starts_with(&below));
        let obstacle = match self.dirs.contains_key(dir) {
            false => Some(ErrorKind::NotFound),
            true => full.then_some(ErrorKind::Io),
        };
        match self.env.fs.remove_dir(path) {
            Ok(()) => assert!(obstacle.is_none() && self.dirs.remove(dir).is_some()),
            Err(e) => assert_eq!(Some(e.kind()), obstacle, "remove_dir: {e}"),
        }
    }

    fn open_reader(&mut self) {
        let path = self.some_path();
        match self.env.fs.open(Path::new(&path), Access::Direct) {
            Ok(file) => self.readers.push((file, self.names[&path].clone())),
            Err(e) => assert!(e.kind() == ErrorKind::NotFound && !self.names.contains_key(&path)),
        }
        if self.readers.len() > 4 {
            self.readers.remove(0);
        }
    }

    fn scratch(&mut self) {
        let (path, len) = (self.some_path(), self.rng.range(1, 40_000) as usize);
        let taken = self.names.contains_key(&path);
        // Scratch files do not replace files with other names.
        if taken && self.env.fs.metadata(Path::new(&path)).unwrap().links > 1 {
            return;
        }
        let obstacle = if self.parent_exists(&path) { None } else { Some(ErrorKind::NotFound) };
        let made = self.env.fs.create_scratch(Path::new(&path), len);
        let Some(file) = self.agree(made, obstacle, "create_scratch") else { return };
        let mut bytes = vec![0; len];
        let at = self.rng.below(len as u64) as usize;
        let data = vec![self.rng.next_u64() as u8; (len - at).min(9000)];
        file.write(at, &data).unwrap();
        bytes[at..at + data.len()].copy_from_slice(&data);
        let mut found = vec![1; len];
        self.env.fs.open(Path::new(&path), Access::Buffered).unwrap().read_at(&mut found, 0).unwrap();
        assert_eq!(found, bytes);
        if let Some(old) = self.names.insert(path, Bytes::new(bytes.into())) {
            // The scratch file replaces or reuses the old file, so the old handles are dropped.
            self.readers.retain(|(_, b)| !std::rc::Rc::ptr_eq(b, &old));
            self.in_place.retain(|(_, b)| !std::rc::Rc::ptr_eq(b, &old));
            self.appenders.retain(|a| !std::rc::Rc::ptr_eq(&a.bytes, &old));
        }
    }

    fn sync_dir(&mut self) {
        let dir = DIRS[self.rng.below(4) as usize];
        let obstacle = (!self.dirs.contains_key(dir)).then_some(ErrorKind::NotFound);
        self.agree(self.env.fs.sync_dir(Path::new(dir)), obstacle, "sync_dir");
    }

    fn remount(&mut self) {
        self.appenders.clear();
        self.readers.clear();
        self.in_place.clear();
        let before = self.volume().devices();
        self.env = self.sim.env();
        let report = fsck_on(&self.env, &devices(&self.sim, self.devices, 0), false).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        assert_eq!(report.dirs, self.dirs.len() as u64);
        let grows = self.rng.one_in(2);
        let nth = self.aside.below(self.devices.len() as u64) as usize;
        if grows && self.rng.one_in(2) {
            let len = before[nth].total_bytes + self.rng.range(1, 50) * BLOCK as u64;
            self.sim.lengthen_device(self.devices[nth], len).unwrap();
        }
        let options = MountOptions { grow: grows, ..self.options };
        (self.volume, self.env) = open(&self.sim, self.devices, options);
        for (nth, now) in self.volume().devices().iter().enumerate() {
            let there = self.sim.device(self.devices[nth], 0).unwrap().len();
            assert_eq!(now.total_bytes, if grows { there } else { before[nth].total_bytes });
        }
        self.check();
    }

    /// Lengthens a device, and grows the volume by all or part of it, while its files are open.
    fn grow(&mut self) {
        let nth = self.aside.below(self.devices.len() as u64) as usize;
        let len = self.volume().devices()[nth];
        let more = self.rng.range(1, 50);
        self.sim.lengthen_device(self.devices[nth], len.total_bytes + more * BLOCK as u64).unwrap();
        let there = self.sim.device(self.devices[nth], 0).unwrap().len();
        let wanted = len.total_bytes + self.rng.range(0, more + 1) * BLOCK as u64;
        let part = self.rng.one_in(2);
        let grown = self.volume().grow_device(len.role, part.then_some(wanted)).unwrap();
        assert_eq!(grown, if part { wanted } else { there });
        let after = self.volume().devices()[nth];
        assert_eq!(after.free_bytes - len.free_bytes, after.total_bytes - len.total_bytes);
    }

    /// Compares the whole volume with the model.
    fn check(&self) {
        for dir in DIRS {
            let listed = match self.env.fs.list(Path::new(dir)) {
                Ok(listed) => listed,
                Err(e) => {
                    assert!(e.kind() == ErrorKind::NotFound && !self.dirs.contains_key(dir), "{dir}: {e}");
                    continue;
                }
            };
            let in_dir = |path: &str| Path::new(path).parent().unwrap() == Path::new(dir);
            let expected: Vec<(String, u64)> = self
                .names
                .iter()
                .filter(|(path, _)| in_dir(path))
                .map(|(path, b)| {
                    let name = Path::new(path).file_name().unwrap().to_str().unwrap();
                    (name.to_owned(), b.borrow().len() as u64)
                })
                .collect();
            let listed: Vec<(String, u64)> = listed.into_iter().map(|e| (e.name, e.len)).collect();
            assert_eq!(listed, expected, "{dir}");
        }
        for (path, bytes) in &self.names {
            let links = self.names.values().filter(|b| std::rc::Rc::ptr_eq(b, bytes)).count();
            assert_eq!(self.env.fs.metadata(Path::new(path)).unwrap().links, links as u64);
            let found = self.env.fs.read_all(Path::new(path), 1 << 30).unwrap();
            assert!(found == *bytes.borrow(), "{path} differs");
        }
        for (file, bytes) in &self.readers {
            let mut found = vec![0; bytes.borrow().len()];
            file.read_at(&mut found, 0).unwrap();
            assert!(found == *bytes.borrow(), "an open file differs: {}", file.path().display());
        }
    }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    let steps = world.rng.range(10, 120);
    for step in 0..steps {
        world.step();
        if step % 8 == 7 {
            world.check();
        }
    }
    world.check();
    world.remount();
}

#[test]
fn random_operations_agree_with_a_model() {
    let lists = std::env::var("LAVAFS_LISTS").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    let first = std::env::var("LAVAFS_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    for seed in first..first + lists {
        let ran = std::panic::catch_unwind(|| run(seed));
        if let Err(panic) = ran {
            println!("list {seed}: again with LAVAFS_SEED={seed} LAVAFS_LISTS=1");
            std::panic::resume_unwind(panic);
        }
    }
}
