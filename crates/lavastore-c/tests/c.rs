//! The header and the library agree, and a C program uses all functions.

// This test reads sources and libraries, not stores.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(here().join(path)).unwrap()
}

/// Counts the parameters in a list by its commas.
fn count(parameters: &str) -> usize {
    match parameters.trim().trim_end_matches(',') {
        "" | "void" => 0,
        some => some.split(',').count(),
    }
}

/// Returns the functions declared in the header with their numbers of parameters.
fn declared() -> BTreeMap<String, usize> {
    let header = read("include/lavastore.h");
    let functions = header.lines().filter(|line| line.ends_with(");") && line.contains("lava_"));
    let one = |line: &str| {
        let (head, parameters) = line.trim_end_matches(");").split_once('(').unwrap();
        (head.rsplit([' ', '*']).next().unwrap().to_owned(), count(parameters))
    };
    functions.map(one).collect()
}

/// Returns the functions defined by the library.
fn defined() -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for file in std::fs::read_dir(here().join("src")).unwrap() {
        let source = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for function in source.split("extern \"C\" fn ").skip(1) {
            let (name, rest) = function.split_once('(').unwrap();
            let parameters = rest.split_once(')').unwrap().0;
            out.insert(name.to_owned(), count(parameters.replace("*mut *mut", "").trim()));
        }
    }
    out
}

#[test]
fn the_header_declares_exactly_the_exported_functions() {
    assert!(declared().len() > 50, "{:?}", declared());
    assert_eq!(declared(), defined());
}

/// Returns the path of the library to link.
fn library() -> PathBuf {
    built(".a")
}

/// Returns the newest library of this kind, next to this test or in a build directory.
fn built(end: &str) -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let files =
        [deps.as_path(), deps.parent().unwrap()].into_iter().flat_map(|dir| std::fs::read_dir(dir).unwrap());
    let mut found: Vec<_> =
        files.map(|entry| entry.unwrap().path()).filter(|path| is_library(path, end)).collect();
    found.sort_by_key(|path| path.metadata().unwrap().modified().unwrap());
    found.pop().expect("cargo builds the library for its tests")
}

fn is_library(path: &Path, end: &str) -> bool {
    let name = path.file_name().unwrap().to_string_lossy();
    name.starts_with("liblavastore_c") && name.ends_with(end)
}

/// Compiles a program; returns whether that succeeded.
fn compile(source: &str, program: &Path, flags: &[&str]) -> Result<(), String> {
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let out = Command::new(cc)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-I"])
        .arg(here().join("include"))
        .args(flags)
        .arg(here().join(source))
        .arg(library())
        .args(["-lpthread", "-lm", "-ldl", "-o"])
        .arg(program)
        .output()
        .map_err(|e| e.to_string())?;
    out.status.success().then_some(()).ok_or_else(|| String::from_utf8_lossy(&out.stderr).into_owned())
}

#[test]
fn a_program_in_c_uses_every_function() {
    let source = read("tests/program.c");
    for name in declared().keys() {
        assert!(source.contains(&format!("{name}(")), "{name} is in no program");
    }
    let dir = std::env::temp_dir().join(format!("lavastore-c-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let program = dir.join("program");
    // With the sanitizer, leaks and uses after free end the program; not every compiler supports
    // it.
    if let Err(why) = compile("tests/program.c", &program, &["-fsanitize=address"]) {
        println!("without the address sanitizer: {}", why.lines().next().unwrap_or_default());
        compile("tests/program.c", &program, &[]).unwrap();
    }
    ends_well(Command::new(&program).arg(&dir));
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Without the sanitizer: a child leaks memory of its parent.
#[test]
fn a_c_program_forks() {
    let dir = std::env::temp_dir().join(format!("lavastore-c-fork-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let program = dir.join("program");
    compile("tests/fork.c", &program, &[]).unwrap();
    ends_well(Command::new(&program).arg(dir.join("store")));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_program_in_python_forks_its_workers() {
    if let Err(e) = Command::new("python3").arg("--version").output() {
        println!("skipped: there is no python3 ({e})");
        return;
    }
    let dir = std::env::temp_dir().join(format!("lavastore-python-{}", std::process::id()));
    let script = here().join("tests/fork.py");
    ends_well(Command::new("python3").arg(script).arg(built(".so")).arg(&dir));
    std::fs::remove_dir_all(&dir).unwrap();
}

fn ends_well(program: &mut Command) {
    let out = program.output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success() && said.contains("all is as the header says"),
        "{}: {said}{}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
}
