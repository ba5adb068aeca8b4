//! Directories, names, locks, holes, space.

use super::*;
use crate::{Access, SyncKind};
use base::ErrorKind;
use std::os::unix::fs::symlink;

#[test]
fn files_and_directories_are_created_renamed_and_removed() {
    each_engine(|env, dir| {
        let deep = dir.join("x/y/z");
        env.fs.create_dir_all(&deep).unwrap();
        env.fs.create_dir_all(&deep).unwrap();
        assert!(env.fs.metadata(&deep).unwrap().is_dir);
        let (a, b, c) = (deep.join("a"), deep.join("b"), deep.join("c"));
        write_file(env, &a, b"one");
        write_file(env, &b, b"three");
        let open = env.fs.open(&b, Access::Buffered).unwrap();
        env.fs.link(&a, &c).unwrap();
        assert_eq!(env.fs.metadata(&a).unwrap().links, 2);
        assert_eq!(env.fs.link(&a, &b).unwrap_err().kind(), ErrorKind::AlreadyExists);
        env.fs.rename(&a, &b).unwrap();
        env.fs.sync_dir(&deep).unwrap();
        let mut old = [0; 5];
        open.read_at(&mut old, 0).unwrap();
        assert_eq!(&old, b"three", "open handles go on reading what was replaced");
        env.fs.create_dir_all(&deep.join("directory")).unwrap();
        symlink("b", deep.join("link")).unwrap();
        let listed = env.fs.list(&deep).unwrap();
        let names: Vec<(&str, u64)> = listed.iter().map(|e| (e.name.as_str(), e.len)).collect();
        assert_eq!(names, [("b", 3), ("c", 3)], "plain files only, sorted");
        assert!(listed.iter().all(|e| e.allocated <= 64 << 10));
        assert_eq!(env.fs.remove_dir(&deep).unwrap_err().kind(), ErrorKind::Io);
        env.fs.remove(&b).unwrap();
        assert!(!env.fs.exists(&b).unwrap() && env.fs.exists(&c).unwrap());
        env.fs.create_dir_all(&dir.join("empty")).unwrap();
        env.fs.remove_dir(&dir.join("empty")).unwrap();
    });
}

#[test]
fn missing_paths_are_not_found() {
    each_engine(|env, dir| {
        let no = dir.join("no");
        let fs = &env.fs;
        let errors = [
            fs.open(&no, Access::Direct).map(|_| ()),
            fs.open_in_place(&no, Access::Direct).map(|_| ()),
            fs.create(&no.join("a"), &CreateOptions::default()).map(|_| ()),
            fs.rename(&no, &dir.join("other")),
            fs.remove(&no),
            fs.link(&no, &dir.join("other")),
            fs.punch_hole(&no, 0, 1 << 20),
            fs.list(&no).map(|_| ()),
            fs.metadata(&no).map(|_| ()),
            fs.remove_dir(&no),
            fs.sync_dir(&no),
            fs.space(&no).map(|_| ()),
            fs.lock(&no.join("LOCK"), "me").map(|_| ()),
        ];
        for (i, result) in errors.into_iter().enumerate() {
            let e = result.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::NotFound, "{i}: {e}");
            assert!(e.file().is_some_and(|path| path.starts_with(&no)), "{i}: {e}");
        }
        assert!(!fs.exists(&no).unwrap());
    });
}

#[test]
fn links_across_file_systems_are_unsupported() {
    let Some(volume) = SmallVolume::mount(64 * PAGE) else { return };
    each_engine(|env, dir| {
        let from = dir.join("a");
        write_file(env, &from, b"x");
        let e = env.fs.link(&from, &volume.0.0.join("a")).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unsupported);
    });
}

#[test]
fn read_only_volumes_say_so() {
    let Some(volume) = SmallVolume::mount(64 * PAGE) else { return };
    let dir = &volume.0.0;
    let env = env(IoEngine::Portable);
    write_file(&env, &dir.join("a"), b"x");
    let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(dir).output();
    if !remounted.is_ok_and(|out| out.status.success()) {
        println!("skipped: the volume cannot be made read-only");
        return;
    }
    assert_eq!(
        env.fs.create(&dir.join("b"), &CreateOptions::default()).err().unwrap().kind(),
        ErrorKind::ReadOnly
    );
    assert_eq!(env.fs.remove(&dir.join("a")).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(env.fs.read_all(&dir.join("a"), 9).unwrap(), b"x");
}

#[test]
fn holes_free_whole_pages_and_read_as_zeros() {
    each_engine(|env, dir| {
        let path = dir.join("a");
        let mut model = random_bytes(&mut Rng::new(1), 64 * PAGE);
        let mut file = env.fs.create(&path, &CreateOptions::default()).unwrap();
        file.append(&model).unwrap();
        file.sync(SyncKind::Full).unwrap();
        let before = env.fs.metadata(&path).unwrap();
        let (offset, len) = (PAGE as u64 + 1, 40 * PAGE as u64);
        match env.fs.punch_hole(&path, offset, len) {
            Err(e) if e.kind() == ErrorKind::Unsupported => return println!("skipped: {e}"),
            result => result.unwrap(),
        }
        model[2 * PAGE..41 * PAGE].fill(0);
        let after = env.fs.metadata(&path).unwrap();
        assert_eq!(before.len, after.len);
        assert!(after.allocated + 32 * PAGE as u64 <= before.allocated);
        env.fs.punch_hole(&path, 50 * PAGE as u64 + 1, PAGE as u64).unwrap();
        env.fs.punch_hole(&path, 0, 0).unwrap();
        env.fs.punch_hole(&path, u64::MAX - 5, 100).unwrap();
        for access in [Access::Buffered, Access::Direct] {
            let mut read = vec![1; model.len()];
            env.fs.open(&path, access).unwrap().read_at(&mut read, 0).unwrap();
            assert!(read == model);
        }
    });
}

#[test]
fn a_lock_is_exclusive_within_the_process_and_names_its_holder() {
    each_engine(|env, dir| {
        let path = dir.join("LOCK");
        let lock = env.fs.lock(&path, "process 12\non host\0h").unwrap();
        assert_eq!(env.fs.read_all(&path, 100).unwrap(), b"process 12 on host h\n");
        let refused = Env::kernel().fs.lock(&path, "second").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Locked);
        assert_eq!(refused.file(), Some(path.as_path()));
        assert!(refused.to_string().contains("process 12 on host h"), "{refused}");
        let other = env.fs.lock(&dir.join("LOCK2"), "another file").unwrap();
        drop(lock);
        let third = env.fs.lock(&path, "third").unwrap();
        assert!(env.fs.lock(&path, "").unwrap_err().to_string().contains("third"));
        assert!(env.fs.lock(&dir.join("LOCK2"), "").unwrap_err().to_string().contains("another file"));
        drop((third, other));
        env.fs.lock(&path, "").unwrap();
    });
}

#[test]
fn a_lock_of_another_process_is_seen() {
    each_engine(|env, dir| {
        let path = dir.join("LOCK");
        let script =
            r#"exec 9<>"$0"; flock -n 9 || exit 1; printf 'process 77\n' >&9; echo ready; read line"#;
        write_file(env, &path, b"");
        let child = Command::new("sh")
            .args(["-c", script])
            .arg(&path)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn();
        let Ok(mut child) = child else { return println!("skipped: no shell") };
        let mut ready = [0; 6];
        let said = std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready);
        if said.is_err() {
            child.wait().unwrap();
            return println!("skipped: no flock command");
        }
        let refused = env.fs.lock(&path, "me").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Locked);
        assert!(refused.to_string().contains("process 77"), "{refused}");
        drop(child.stdin.take());
        child.wait().unwrap();
        let lock = env.fs.lock(&path, "me").unwrap();
        assert_eq!(env.fs.read_all(&path, 100).unwrap(), b"me\n");
        drop(lock);
        assert_eq!(env.fs.read_all(&path, 100).unwrap(), b"");
    });
}

/// Opening a pipe does not block forever, and a directory is not taken for a file.
#[test]
fn pipes_and_directories_are_refused_without_blocking() {
    each_engine(|env, dir| {
        let (pipe, directory) = (dir.join("pipe"), dir.join("directory"));
        env.fs.create_dir_all(&directory).unwrap();
        let made = Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success());
        for path in [&directory, &pipe].into_iter().take(1 + usize::from(made)) {
            let errors = [
                env.fs.open(path, Access::Buffered).map(drop),
                env.fs.open_in_place(path, Access::Direct).map(drop),
                env.fs.create_scratch(path, PAGE).map(drop),
                env.fs.lock(path, "me").map(drop),
                env.fs.lock_to_read(path).map(drop),
            ];
            for refused in errors.map(Result::unwrap_err) {
                assert_eq!(refused.kind(), ErrorKind::Corruption);
                assert_eq!(refused.file(), Some(path.as_path()));
            }
        }
    });
}

/// A store left by another user must not cause files outside of it to be truncated and written.
#[test]
fn scratch_and_lock_files_are_not_made_through_links() {
    each_engine(|env, dir| {
        let (precious, link) = (dir.join("precious"), dir.join("link"));
        write_file(env, &precious, b"contents");
        symlink(&precious, &link).unwrap();
        assert_eq!(env.fs.create_scratch(&link, PAGE).unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(env.fs.lock(&link, "me").map(drop).unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(env.fs.read_all(&precious, 100).unwrap(), b"contents");
    });
}

#[test]
fn only_one_of_many_threads_gets_a_lock() {
    each_engine(|env, dir| {
        let path = dir.join("LOCK");
        let locks: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|i| {
                    let path = &path;
                    scope.spawn(move || env.fs.lock(path, &format!("thread {i}")).ok())
                })
                .collect();
            threads.into_iter().filter_map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(locks.len(), 1);
    });
}

#[test]
fn free_space_is_reported() {
    each_engine(|env, dir| {
        let space = env.fs.space(dir).unwrap();
        assert!(space.available <= space.total && space.total > 0);
    });
}

#[test]
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "another process that locks a file")]
fn a_lock_file_without_a_name_has_an_unknown_holder() {
    each_engine(|env, dir| {
        let path = dir.join("LOCK");
        let other = std::fs::File::create(&path).unwrap();
        rustix::fs::flock(&other, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        let e = env.fs.lock(&path, "me").unwrap_err();
        assert_eq!((e.kind(), e.file()), (ErrorKind::Locked, Some(&*path)));
        assert!(e.message().contains("an unknown process"), "{e}");
        drop(other);
        env.fs.lock(&path, "me").unwrap();
    });
}
