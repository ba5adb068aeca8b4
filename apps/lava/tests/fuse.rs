//! A mounted volume.

#![cfg(feature = "fuse")]
#![allow(clippy::disallowed_methods, reason = "looks at the program from outside")]

mod common;

use common::*;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Waits until the mount shows the file. Returns false if the process ended before.
fn comes_up(child: &mut Child, file: &Path) -> bool {
    loop {
        if file.exists() {
            return true;
        }
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_fuse_mount_lists_and_reads_files() {
    let s = Scratch::new("fuse");
    if !Path::new("/dev/fuse").exists() {
        println!("skipped: there is no /dev/fuse");
        return;
    }
    let bytes: Vec<u8> = (0..5_000_000u32).map(|i| (i / 7) as u8).collect();
    s.file("big", &bytes);
    s.file("small", b"hello\n");
    s.ok(&["fs", "mkfs", "image", "--size", "64M", "--sparse"]);
    s.ok(&["fs", "cp", "image", "small", ":/a/b/hello"]);
    s.ok(&["fs", "cp", "image", "big", ":/big"]);
    let dir = s.path("mounted");
    std::fs::create_dir(&dir).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_lava"))
        .args(["fs", "mount", "image", "mounted"])
        .current_dir(&s.0)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    if !comes_up(&mut child, &dir.join("big")) {
        let stderr = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
        assert!(stderr.contains("ermission") || stderr.contains("fusermount"), "{stderr}");
        println!("skipped: {stderr}");
        return;
    }
    let names = |dir: &Path| {
        let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.collect();
        names.sort();
        names
    };
    let looked = std::panic::catch_unwind(|| {
        assert_eq!(names(&dir), ["a", "big"]);
        assert_eq!(names(&dir.join("a/b")), ["hello"]);
        assert_eq!(std::fs::read(dir.join("a/b/hello")).unwrap(), b"hello\n");
        assert!(std::fs::read(dir.join("big")).unwrap() == bytes);
        let found = std::fs::metadata(dir.join("big")).unwrap();
        assert!(found.is_file() && found.len() == 5_000_000 && found.permissions().readonly());
        assert!(std::fs::metadata(dir.join("a")).unwrap().is_dir());
        assert!(std::fs::metadata(dir.join("none")).is_err() && std::fs::read_dir(dir.join("big")).is_err());
        assert!(
            std::fs::write(dir.join("new"), b"x").is_err() && std::fs::remove_file(dir.join("big")).is_err()
        );
        // The mount excludes writers.
        s.fails(7, &["fs", "cp", "image", "small", ":/more"]);
        s.ok(&["fs", "ls", "image"]);
    });
    assert!(Command::new("umount").arg(&dir).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    looked.unwrap();
    assert_eq!(names(&dir), Vec::<String>::new());
    s.ok(&["fs", "cp", "image", "small", ":/more"]);
}

#[test]
fn a_volume_is_mounted_on_a_directory_only() {
    let s = Scratch::new("fuse-place");
    s.ok(&["fs", "mkfs", "image", "--size", "64M", "--sparse"]);
    s.file("file", b"x");
    assert!(
        s.fails(1, &["fs", "mount", "image", "file"]).contains("file is not a directory: name another one")
    );
    assert!(s.fails(1, &["fs", "mount", "image", "nowhere"]).contains("cannot read nowhere: "));
}
