//! LavaFS volumes from the command line: on an image, and on a loop device if available.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "looks at the program from outside")]

use crate::common::*;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the output of `lava fs`, which must succeed.
fn fs(s: &Scratch, line: &str) -> String {
    s.ok(&[&["fs"], &line.split(' ').collect::<Vec<_>>()[..]].concat())
}

/// Returns the error line of `lava fs`.
fn fails(s: &Scratch, status: i32, line: &str) -> String {
    s.fails(status, &[&["fs"], &line.split(' ').collect::<Vec<_>>()[..]].concat())
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i / 7) as u8).collect()
}

/// A closed pipe ends a command quietly, a full one with its status; the volume is unchanged either
/// way.
#[test]
fn fs_commands_survive_a_closed_stdout_pipe() {
    let s = Scratch::new("fs-unread");
    fs(&s, "mkfs image --size 64M --sparse");
    s.file("small", b"hello\n");
    fs(&s, "cp image small :/small");
    let run = |line: &str, out: std::process::Stdio| {
        lava(&s.0).arg("fs").args(line.split(' ')).stdout(out).output().unwrap()
    };
    for line in [
        "ls image",
        "ls image --json",
        "cat image /small",
        "stat image /small",
        "df image",
        "df image --json",
        "fsck image",
        "dump-journal image",
        "mkfs other --size 64M --sparse",
        "cp image :/small :/copy",
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = run(line, writer.into());
        assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]), "{line}");
    }
    assert_eq!(fs(&s, "cat image /copy"), "hello\n");
    for line in ["ls image", "cat image /small", "df image", "fsck image", "dump-journal image"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = run(line, full.into());
        assert_eq!(output.status.code(), Some(6), "{line}: {output:?}");
    }
    assert_eq!(json(&fs(&s, "fsck image --json"))["clean"], true);
}

#[test]
fn files_go_in_and_out() {
    let s = Scratch::new("fs-files");
    assert!(fs(&s, "mkfs image --size 64M --sparse").contains("made a volume"));
    s.file("big", &bytes(3_000_000));
    s.file("small", b"hello\n");
    fs(&s, "cp image small :/a/b/hello");
    fs(&s, "cp image big :/big");
    fs(&s, "cp image :/big back");
    assert!(std::fs::read(s.path("back")).unwrap() == bytes(3_000_000));
    fs(&s, "cp image :/a/b/hello :/copy");
    assert_eq!(fs(&s, "cat image /copy"), "hello\n");
    let listed = fs(&s, "ls image");
    let words: Vec<&str> = listed.split_whitespace().collect();
    assert_eq!(words, ["a/", "3000000", "big", "6", "copy"]);
    assert!(fs(&s, "ls image /a/b").contains("hello"));
    assert!(fs(&s, "stat image /big").contains("bytes      3000000"));
    assert_eq!(fs(&s, "stat image /a"), "directory\n");
    let df = json(&fs(&s, "df image --json"));
    assert_eq!(df["files"], 3);
    assert_eq!(df["total_bytes"], 64 << 20);
    assert!(fs(&s, "df image").contains("free for files"));
    assert_eq!(json(&fs(&s, "fsck image --json"))["clean"], true);
    assert!(fs(&s, "dump-journal image").contains("link file"));

    for (status, line, what) in [
        (8, "cat image /none", "/none"),
        (1, "cat image /a", "directory"),
        (8, "ls image /none", "/none"),
        (8, "stat image /none", "/none"),
        (8, "cp image :/none out", "/none"),
        (8, "cp image missing :/x", "missing"),
        (9, "cp image small :/copy", "already exists"),
        (9, "cp image :/copy small", "small"),
        (1, "cp image :/a out", "directory"),
    ] {
        assert!(fails(&s, status, line).contains(what), "{line}");
    }
    assert!(fails(&s, 2, "cp image small elsewhere").contains("colon"));
    assert!(!s.path("out").exists());
    assert_eq!(json(&fs(&s, "df image --json"))["files"], 3, "mistakes leave nothing");
}

#[test]
fn mkfs_creates_a_complete_image_and_never_overwrites() {
    let s = Scratch::new("fs-mkfs");
    assert!(fails(&s, 2, "mkfs image").contains("--size"));
    for (size, what) in [("5000", "multiple of 4096 bytes"), ("1M", "too small")] {
        assert!(fails(&s, 2, &format!("mkfs image --size {size}")).contains(what));
        assert!(!s.path("image").exists(), "a volume that could not be made leaves no image");
    }
    fails(&s, 2, "mkfs image --size 4X");
    fails(&s, 8, "mkfs none/image --size 16M");
    fs(&s, "mkfs image --size 16M");
    assert!(fails(&s, 9, "mkfs image").contains("LavaFS"));
    assert!(fails(&s, 2, "mkfs image --size 32M --force").contains("omit --size"));
    s.file("small", b"x");
    fs(&s, "cp image small :/x");
    fs(&s, "mkfs image --force");
    assert_eq!(fs(&s, "ls image"), "");
    // The error names the existing data.
    let mut other = bytes(16 << 20);
    other[..4096].fill(0);
    other[1080..1082].copy_from_slice(b"\x53\xef");
    s.file("ext", &other);
    assert!(fails(&s, 9, "mkfs ext").contains("ext"));
    s.file("data", &bytes(16 << 20));
    assert!(fails(&s, 9, "mkfs data").contains("unknown"));
    for line in ["ls data", "df data", "fsck data", "dump-journal data", "cat data /x", "ls small"] {
        assert!(fails(&s, 8, line).contains("LavaFS"), "{line}");
    }
    assert!(fails(&s, 8, "ls missing").contains("missing"));
    assert!(fails(&s, 2, "ls /dev/null").contains("neither"));
}

#[test]
fn a_volume_grows_with_its_image() {
    let s = Scratch::new("fs-grow");
    for (image, sparse) in [("written", ""), ("sparse", " --sparse")] {
        fs(&s, &format!("mkfs {image} --size 16M{sparse}"));
        s.file("large", &bytes(20 << 20));
        assert!(fails(&s, 6, &format!("cp {image} large :/large")).contains("no space"));
        let told = fs(&s, &format!("grow {image} 32M"));
        assert!(told.contains("16.00 MiB more"), "{told}");
        fs(&s, &format!("cp {image} large :/large"));
        let allocated =
            std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(s.path(image)).unwrap()) * 512;
        assert_eq!(allocated < 32 << 20, image == "sparse", "{image}: {allocated} bytes");
        // After an external extension of the image, a check reports it, and `grow` uses it.
        std::fs::OpenOptions::new().write(true).open(s.path(image)).unwrap().set_len(40 << 20).unwrap();
        assert_eq!(json(&fs(&s, &format!("fsck {image} --json")))["beyond_bytes"], 8 << 20);
        assert!(fs(&s, &format!("fsck {image}")).contains("run lava fs grow to use them"));
        assert_eq!(json(&fs(&s, &format!("df {image} --json")))["total_bytes"], 32 << 20);
        let grown = json(&fs(&s, &format!("grow {image} --json")));
        assert_eq!((&grown["total_bytes"], &grown["grown_bytes"]), (&(40 << 20).into(), &(8 << 20).into()));
        assert_eq!(json(&fs(&s, &format!("grow {image} --json")))["grown_bytes"], 0);
        assert!(fails(&s, 2, &format!("grow {image} 32M")).contains("cannot shrink"));
        assert!(fails(&s, 2, &format!("grow {image} 50000001")).contains("a multiple of 4096 bytes"));
        fs(&s, &format!("cp {image} :/large back-{image}"));
        assert!(std::fs::read(s.path(&format!("back-{image}"))).unwrap() == bytes(20 << 20));
        assert_eq!(json(&fs(&s, &format!("fsck {image} --json")))["clean"], true);
        // A volume with a truncated image is refused.
        std::fs::OpenOptions::new().write(true).open(s.path(image)).unwrap().set_len(36 << 20).unwrap();
        assert!(fails(&s, 5, &format!("grow {image}")).contains("cut off"));
        assert!(fails(&s, 5, &format!("ls {image}")).contains("cut off"));
    }
    assert!(fails(&s, 8, "grow missing 32M").contains("missing"));
    s.file("data", &bytes(1 << 20));
    assert!(fails(&s, 8, "grow data 32M").contains("LavaFS"));
    assert_eq!(
        std::fs::metadata(s.path("data")).unwrap().len(),
        1 << 20,
        "what holds no volume stays as it is"
    );
}

#[test]
fn a_full_volume_reports_no_space_and_recovers() {
    let s = Scratch::new("fs-full");
    fs(&s, "mkfs image --size 16M --sparse");
    s.file("large", &bytes(20 << 20));
    s.file("small", &bytes(1 << 20));
    assert!(fails(&s, 6, "cp image large :/large").contains("no space"));
    assert_eq!(fs(&s, "ls image"), "", "what was copied in part is not left");
    fs(&s, "cp image small :/small");
    assert_eq!(json(&fs(&s, "fsck image --json"))["files"], 1);
}

#[test]
fn damage_is_named_and_repaired() {
    let s = Scratch::new("fs-damage");
    fs(&s, "mkfs image --size 16M --sparse");
    s.file("small", b"hello\n");
    fs(&s, "cp image small :/hello");
    let sound = std::fs::read(s.path("image")).unwrap();
    let damaged = |places: &[usize]| {
        let mut bytes = sound.clone();
        places.iter().for_each(|at| bytes[*at] ^= 0x10);
        s.file("damaged", &bytes);
    };
    // Damage to one superblock slot.
    damaged(&[4096 + 40]);
    assert_eq!(fs(&s, "cat damaged /hello"), "hello\n");
    assert!(fails(&s, 5, "fsck damaged").contains("wrong"));
    let report = json(&String::from_utf8(s.lava(&["fs", "fsck", "damaged", "--json"]).stdout).unwrap());
    assert!(report["findings"][0].as_str().unwrap().contains("slot 0"), "{report}");
    assert!(fs(&s, "fsck damaged --repair").contains("(repaired)"));
    fs(&s, "fsck damaged");
    // Damage to both slots.
    damaged(&[4096 + 40, 65_536 + 40]);
    assert!(fails(&s, 5, "ls damaged").contains("corruption"));
    fails(&s, 5, "fsck damaged");
    fails(&s, 5, "fsck damaged --repair");
    // Damage to the journal: the transaction that names the file.
    let journal = fs(&s, "dump-journal image");
    let mut lines = journal.lines().collect::<Vec<_>>();
    lines.truncate(lines.iter().position(|line| line.contains("link file")).unwrap());
    let at = lines.iter().rev().find_map(|line| line.strip_prefix("offset ")?.split(':').next()).unwrap();
    damaged(&[at.parse::<usize>().unwrap() + 80]);
    let error = fails(&s, 5, "ls damaged");
    assert!(error.contains("run `lava fs fsck`") && error.contains(at), "{error}");
    let output = run(Path::new("lavafs:damaged"), &["get", "k"], &s.0);
    assert!(
        !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("run `lava fs fsck`")
    );
    assert!(fs(&s, "fsck damaged --repair").contains("(repaired)"));
    fs(&s, "fsck damaged");
    fs(&s, "cp damaged small :/again");
    // A truncated image.
    std::fs::write(s.path("cut"), &sound[..8 << 20]).unwrap();
    assert!(fails(&s, 5, "ls cut").contains("cut off"));
    fails(&s, 5, "fsck cut");
}

#[test]
fn store_commands_work_on_a_volume() {
    let s = Scratch::new("fs-store");
    fs(&s, "mkfs image --size 256M --sparse");
    let on = |volume: &str, args: &[&str]| {
        let output = run(Path::new(volume), args, &s.0);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "lava {args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    };
    on("lavafs:image", &["put", "planet", "earth"]);
    assert_eq!(on("lavafs:image", &["get", "planet"]), "earth\n");
    assert!(fs(&s, "ls image /db").contains("CURRENT"));
    assert!(fs(&s, "cat image /db/CURRENT").contains("MANIFEST"));
    on("lavafs:image", &["verify"]);
    fs(&s, "fsck image");
    fs(&s, "mkfs demonstration --size 512M --sparse");
    let demo = on("lavafs:demonstration", &["demo", "--generate", "2000"]);
    assert_eq!(demo.lines().last(), Some("demo: 2000 records verified, 0 lost"), "{demo}");
    fs(&s, "fsck demonstration");
    assert!(on("lavafs:image", &["dump"]).contains("MANIFEST"));
    assert!(on("lavafs:image", &["inspect", "CURRENT"]).contains("MANIFEST"));
    assert!(json(&fs(&s, "stat image /db/CURRENT --json"))["bytes"].as_u64().unwrap() > 0);
    assert!(json(&fs(&s, "cat image /db/CURRENT --json"))["content"].as_str().unwrap().contains("MANIFEST"));
    assert_eq!(json(fs(&s, "ls image --json").lines().next().unwrap())["name"], "db");
}

#[test]
fn only_mkfs_creates_a_volume() {
    let s = Scratch::new("fs-absent");
    s.file("rows.tsv", b"k\tv\n");
    for args in [
        &["get", "k"][..],
        &["put", "k", "v"],
        &["import", "rows.tsv"],
        &["demo", "--generate", "10"],
        &["bench", "load", "--num", "10"],
        &["bench", "fs"],
        &["bench", "page-server"],
        &["bench", "recovery"],
    ] {
        let output = run(Path::new("lavafs:other"), args, &s.0);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(8), "{args:?}: {stderr}");
        assert!(stderr.contains("lava fs mkfs other --size"), "{args:?}: {stderr}");
        assert!(!s.path("other").exists(), "{args:?} made a volume");
    }
}

#[test]
fn a_volume_may_be_on_two_devices() {
    let s = Scratch::new("fs-two");
    assert!(fails(&s, 2, "mkfs large --size 64M --sparse --fast-tier fast").contains("--fast-tier-size"));
    assert!(!s.path("large").exists() && !s.path("fast").exists(), "nothing is left of it");
    let made = fs(&s, "mkfs large --size 64M --sparse --fast-tier fast --fast-tier-size 32M");
    assert!(made.contains("name it large+fast from now on"), "{made}");
    let there = fails(&s, 2, "mkfs other --size 64M --sparse --fast-tier fast --fast-tier-size 48M");
    assert!(
        there.contains("exists already and has 33554432 bytes, not 50331648: omit --fast-tier-size"),
        "{there}"
    );
    assert!(!s.path("other").exists(), "nothing is left of it");
    s.file("in", &bytes(100_000));
    fs(&s, "cp large+fast in :/table");
    fs(&s, "cp fast+large in :/1.log");
    assert!(fs(&s, "stat large+fast /table").contains("capacity:"));
    assert!(fs(&s, "stat large+fast /1.log").contains("speed:"));
    fs(&s, "cp large+fast :/table out");
    assert_eq!(std::fs::read(s.path("out")).unwrap(), bytes(100_000));
    let df = fs(&s, "df large+fast");
    assert!(df.contains("the speed device has") && df.contains("the capacity device has"), "{df}");
    assert_eq!(json(&fs(&s, "df large+fast --json"))["devices"].as_array().unwrap().len(), 2);
    fs(&s, "fsck large+fast");
    assert!(fs(&s, "dump-journal large+fast").contains("of the capacity device"));
    for (line, more) in [("96M", 32), ("48M --device speed", 16)] {
        let grown = json(&fs(&s, &format!("grow large+fast {line} --json")));
        assert_eq!(grown["grown_bytes"], more << 20, "{line}");
    }
    assert_eq!(json(&fs(&s, "grow large+fast --json"))["grown_bytes"], 0);
    // With a page cache, and with one that is too small.
    assert_eq!(fs(&s, "--page-cache 1M ls large+fast"), fs(&s, "ls large+fast"));
    assert!(fails(&s, 2, "--page-cache 5K ls large+fast").contains("at least 65536 bytes"));
    // A store on the volume, and the errors of one device without the other.
    let on = Path::new("lavafs:large+fast");
    assert!(run(on, &["put", "k", "v"], &s.0).status.success());
    assert_eq!(run(on, &["get", "k"], &s.0).stdout, b"v\n");
    assert!(run(on, &["verify"], &s.0).status.success());
    let log = json(fs(&s, "ls large+fast /db --json").lines().find(|line| line.contains(".log")).unwrap());
    let log = log["name"].as_str().unwrap();
    assert!(fs(&s, &format!("stat large+fast /db/{log}")).contains("speed:"));
    for (line, told) in [
        (
            "df large",
            "the device is the capacity device of a volume of two devices: name its speed device as well",
        ),
        (
            "fsck fast",
            "the device is the speed device of a volume of two devices: name its capacity device as well",
        ),
        ("grow large 200M", "the device is the capacity device of a volume of two"),
    ] {
        assert!(fails(&s, 2, line).contains(told), "{line}");
    }
    assert_eq!(std::fs::metadata(s.path("large")).unwrap().len(), 96 << 20, "it did not become longer");
    std::fs::rename(s.path("fast"), s.path("gone")).unwrap();
    let missing = fails(&s, 8, "df large+fast");
    assert!(missing.contains("there is no device at fast, and the volume on large needs both"), "{missing}");
    fs(&s, "df large+gone");
}

#[test]
fn a_checkpoint_of_a_store_on_a_volume_is_found_there() {
    let s = Scratch::new("fs-checkpoint");
    fs(&s, "mkfs image --size 256M --sparse");
    let on = |db: &str, args: &[&str]| {
        let output = run(Path::new(db), args, &s.0);
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code(), text)
    };
    assert_eq!(on("lavafs:image", &["put", "k", "v"]).0, Some(0));
    for target in ["copy", "lavafs:image", "lavafs:elsewhere:/copy"] {
        let (status, text) = on("lavafs:image", &["checkpoint", target]);
        assert!(status == Some(2) && text.contains("lavafs:image:/NAME"), "{target}: {text}");
        assert!(!s.path(target).exists() && !s.path("elsewhere").exists());
    }
    assert_eq!(on("lavafs:image", &["checkpoint", "lavafs:image:/copy"]).0, Some(0));
    assert_eq!(on("lavafs:image", &["put", "k", "later"]).0, Some(0));
    assert_eq!(on("lavafs:image:/copy", &["get", "k"]), (Some(0), "v\n".to_owned()));
    assert_eq!(on("lavafs:image", &["get", "k"]), (Some(0), "later\n".to_owned()));
    assert_eq!(on("lavafs:image", &["checkpoint", "lavafs:image:/copy"]).0, Some(9));
    // A directory and a volume cannot share files.
    s.ok(&["put", "k", "v"]);
    let refused = s.fails(2, &["checkpoint", "lavafs:image:/other"]);
    assert!(refused.contains("repair --into"), "{refused}");
    assert!(!s.path("lavafs:image:").exists());
    fs(&s, "fsck image");
}

/// A loop device, detached at the end.
struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Returns `None` and prints the reason if there is none.
    fn new(image: &Path) -> Option<LoopDevice> {
        let made = Command::new("losetup").args(["-f", "--show"]).arg(image).output();
        match made {
            Ok(output) if output.status.success() => {
                Some(LoopDevice(String::from_utf8_lossy(&output.stdout).trim().into()))
            }
            Ok(output) => {
                println!("skipped: losetup: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(e) => {
                println!("skipped: losetup: {e}");
                None
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

#[test]
fn a_block_device_is_used_at_its_own_size() {
    let s = Scratch::new("fs-device");
    s.file("backing", &vec![0; 64 << 20]);
    let Some(device) = LoopDevice::new(&s.path("backing")) else { return };
    let name = device.0.to_str().unwrap();
    assert!(fs(&s, &format!("mkfs {name}")).contains("device"));
    assert!(fails(&s, 9, &format!("mkfs {name}")).contains("LavaFS"));
    s.file("small", b"hello\n");
    fs(&s, &format!("cp {name} small :/hello"));
    assert_eq!(fs(&s, &format!("cat {name} /hello")), "hello\n");
    assert_eq!(json(&fs(&s, &format!("df {name} --json")))["total_bytes"], 64 << 20);
    fs(&s, &format!("fsck {name}"));
    let store = format!("lavafs:{name}");
    assert!(run(Path::new(&store), &["put", "k", "v"], &s.0).status.success());
    assert_eq!(run(Path::new(&store), &["get", "k"], &s.0).stdout, b"v\n");
    // The error names another file system; a mounted one is refused even with --force.
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(name).status();
    if !made.is_ok_and(|status| status.success()) {
        println!("skipped: there is no mkfs.ext4");
        return;
    }
    assert!(fails(&s, 9, &format!("mkfs {name}")).contains("ext"));
    std::fs::create_dir(s.path("mounted")).unwrap();
    if !Command::new("mount").arg(name).arg(s.path("mounted")).status().is_ok_and(|status| status.success()) {
        println!("skipped: it cannot be mounted");
        return;
    }
    let refused = [format!("mkfs {name}"), format!("mkfs {name} --force")].map(|line| fails(&s, 7, &line));
    assert!(Command::new("umount").arg(s.path("mounted")).status().unwrap().success());
    refused.iter().for_each(|error| assert!(error.contains("mounted"), "{error}"));
    fs(&s, &format!("mkfs {name} --force"));
    fs(&s, &format!("fsck {name}"));
}

/// A volume in use stays undisturbed, and commands do not wait for it.
#[test]
fn a_volume_in_use_is_not_touched() {
    let s = Scratch::new("fs-held");
    fs(&s, "mkfs image --size 64M --sparse");
    let hold = || {
        let mut command = lava(&s.0);
        command.args(["import", "-", "--format", "tsv", "--db", "lavafs:image"]);
        command.stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().unwrap()
    };
    let mut holder = hold();
    // The first refused command shows that the holder has the volume; an earlier command may have
    // been in its way.
    while lava(&s.0).args(["fs", "ls", "image"]).output().unwrap().status.code() != Some(7) {
        if holder.try_wait().unwrap().is_some() {
            holder = hold();
        }
    }
    s.file("small", b"hello\n");
    for line in [
        "ls image",
        "cat image /db/CURRENT",
        "cp image small :/small",
        "stat image /db",
        "df image",
        "fsck image",
        "fsck image --repair",
        "dump-journal image",
        "mkfs image --size 64M",
        "mkfs image --size 64M --force",
    ] {
        assert!(fails(&s, 7, line).contains("locked"), "{line}");
    }
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    assert!(fs(&s, "ls image").contains("db/"));
}

/// Files without a volume and missing paths are reported; no file is created.
#[test]
fn fs_commands_leave_non_volumes_unchanged() {
    let s = Scratch::new("fs-none");
    s.file("text", b"dear\n");
    s.file("large", &vec![1; 16 << 20]);
    std::fs::create_dir(s.path("home")).unwrap();
    for line in ["ls", "df", "fsck", "fsck --repair", "dump-journal", "cat /x", "stat /x", "cp text :/x"] {
        for (place, statuses) in [("none", &[8][..]), ("text", &[8]), ("large", &[8]), ("home", &[2])] {
            let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
            let output =
                lava(&s.0).args(["fs", command, place]).args(rest.split_whitespace()).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            let status = output.status.code().unwrap();
            assert!(
                statuses.contains(&status) && stderr.starts_with("lava: "),
                "{line} {place}: {status} {stderr}"
            );
        }
    }
    assert!(!s.path("none").exists());
    assert!(std::fs::read(s.path("text")).unwrap() == b"dear\n");
    assert!(std::fs::read(s.path("large")).unwrap() == vec![1; 16 << 20]);
}
