//! Group commits of the manifest on a full disk.

use crate::full_disk::on_tmpfs;
use lavastore_lavakv::io::{
    Access, AppendFile, CreateOptions, DirEntry, FileLock, FileSystem, FsSpace, InPlaceFile, Metadata,
    ReadFile, ScratchFile, SyncKind,
};
use lavastore_lavakv::{Env, ErrorKind, Result};
use std::path::Path;
use std::sync::Arc;
use version::{Edit, InitialState, Manifest, Record};

/// A file system whose syncs take a while, as on a device, so that commits queue up behind one another.
#[derive(Debug)]
struct SlowSyncs(Arc<dyn FileSystem>);

struct SlowFile(Box<dyn AppendFile>);

impl AppendFile for SlowFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.0.append(data)
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }
    fn sync(&mut self, kind: SyncKind) -> Result<()> {
        std::thread::sleep(std::time::Duration::from_millis(1));
        self.0.sync(kind)
    }
}

/// Hands calls on.
macro_rules! pass_on {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> Result<$out> {
            self.0.$name($($arg),*)
        })*
    };
}

impl FileSystem for SlowSyncs {
    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>> {
        Ok(Box::new(SlowFile(self.0.create(path, options)?)))
    }
    pass_on! {
        open(path: &Path, access: Access) -> Arc<dyn ReadFile>;
        create_in_place(path: &Path, len: u64, access: Access) -> Arc<dyn InPlaceFile>;
        open_in_place(path: &Path, access: Access) -> Arc<dyn InPlaceFile>;
        create_scratch(path: &Path, len: usize) -> Arc<dyn ScratchFile>;
        rename(from: &Path, to: &Path) -> ();
        remove(path: &Path) -> ();
        link(from: &Path, to: &Path) -> ();
        punch_hole(path: &Path, offset: u64, len: u64) -> ();
        list(dir: &Path) -> Vec<DirEntry>;
        metadata(path: &Path) -> Metadata;
        create_dir_all(dir: &Path) -> ();
        remove_dir(dir: &Path) -> ();
        sync_dir(dir: &Path) -> ();
        lock(path: &Path, holder: &str) -> Box<dyn FileLock>;
        lock_to_read(path: &Path) -> Box<dyn FileLock>;
        space(dir: &Path) -> FsSpace;
    }
}

/// Jobs of several threads commit edits together while not a byte is free: none of the edits is left in doubt.
#[test]
fn edits_of_several_threads_meet_a_full_tmpfs() {
    on_tmpfs("tmpfs-edits", |dir| {
        let env = Env { fs: Arc::new(SlowSyncs(Env::kernel().fs)), ..Env::kernel() };
        let manifest = Manifest::create(&env, &dir.join("m"), InitialState::default()).unwrap();
        let make = |id| {
            let name = format!("{id:0>900}");
            manifest.commit_with(
                |state| {
                    let id = state.next_family;
                    Ok(Edit(vec![Record::CreateFamily { id, name: format!("{id}/{name}"), options: vec![] }]))
                },
                |_| {},
            )
        };
        let mut made = 0;
        for round in 0..20 {
            // Fails when the volume is full, having filled it.
            let _ = std::fs::write(dir.join("ballast"), vec![1; 4 << 20]);
            made += std::thread::scope(|s| {
                let threads: Vec<_> = (0..4)
                    .map(|t| {
                        let make = &make;
                        s.spawn(move || {
                            (0..20)
                                .map(|n| match make(t * 20 + n) {
                                    Ok(_) => 1,
                                    Err(e) if e.kind() == ErrorKind::NoSpace => 0,
                                    Err(e) => panic!("round {round}: {e}"),
                                })
                                .sum::<usize>()
                        })
                    })
                    .collect();
                threads.into_iter().map(|t| t.join().unwrap()).sum::<usize>()
            });
            let reopened = Manifest::recover(&env, &dir.join("m"), true).unwrap();
            assert_eq!(reopened.state().families.len(), made, "round {round}");
            std::fs::remove_file(dir.join("ballast")).unwrap();
            make(round).unwrap();
            made += 1;
        }
    });
}
