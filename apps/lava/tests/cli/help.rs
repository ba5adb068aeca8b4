//! Help, man pages and completions are generated from the parser and load in their programs.

#![allow(clippy::disallowed_methods, reason = "looks at the program from outside")]

use crate::common::*;
use std::io::Write;
use std::process::{Command, Stdio};

fn out(s: &Scratch, args: &[&str]) -> String {
    let output = lava(&s.0).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a system program on some input. Prints a note and returns `None` if it is not installed.
fn tool(name: &str, args: &[&str], input: &str) -> Option<(bool, String)> {
    let child = Command::new(name)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        println!("skipped: {name} is not installed");
        return None;
    };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

#[test]
fn every_command_has_help_and_a_page() {
    let s = Scratch::new("help");
    assert!(out(&s, &["help"]).contains("import"));
    assert!(out(&s, &["help", "import"]).contains("--resume"));
    assert!(out(&s, &["help", "stats"]).contains("--prometheus"));
    assert!(out(&s, &["help", "fs", "mkfs"]).contains("--size"));
    assert!(out(&s, &["help", "bench", "fs"]).contains("--file-size"));
    assert!(out(&s, &["help", "bench", "page-server"]).contains("--mix"));
    // Global options follow those of the command.
    let put = out(&s, &["help", "put"]);
    let (own, global) = put.split_once("Global options:").unwrap();
    assert!(
        own.contains("--sync") && !own.contains("--page-cache <") && !own.contains("--fast-tier <"),
        "{own}"
    );
    assert!(
        global.contains("--page-cache") && global.contains("--fast-tier") && global.contains("--db"),
        "{global}"
    );
    let unknown = lava(&s.0).args(["help", "nonsense"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));

    let pages = json(&out(&s, &["man", "pages", "--json"]))["pages"].clone();
    let pages: Vec<&str> = pages.as_array().unwrap().iter().map(|page| page.as_str().unwrap()).collect();
    assert!(["lava.1", "lava-put.1", "lava-fs-mkfs.1", "lava-bench-fs.1"].iter().all(|p| pages.contains(p)));
    assert!(!pages.iter().any(|page| page.contains("writer")), "hidden commands have none: {pages:?}");
    for page in &pages {
        let text = std::fs::read_to_string(s.path("pages").join(page)).unwrap();
        assert!(text.contains(".SH NAME") && text.contains(".SH OPTIONS"), "{page}");
        let Some((_, shown)) = tool("groff", &["-man", "-Tutf8", "-ww", "-P-cbou"], &text) else { continue };
        assert!(shown.contains("SYNOPSIS") && !shown.contains("warning"), "{page}: {shown}");
    }
    let main = std::fs::read_to_string(s.path("pages").join("lava.1")).unwrap();
    assert!(main.contains("Exit statuses"), "{main}");
}

#[test]
fn completions_load_and_complete_in_bash() {
    let s = Scratch::new("bash");
    let script = out(&s, &["completions", "bash"]);
    let try_it = "\ncomplete -p lava || exit 1\nCOMP_WORDS=(lava imp) COMP_CWORD=1\n_lava lava imp lava\necho \"got ${COMPREPLY[*]}\"\n\
        COMP_WORDS=(lava import --re) COMP_CWORD=2\n_lava lava --re import\necho \"got ${COMPREPLY[*]}\"\n";
    let Some((done, text)) = tool("bash", &["--norc", "-s"], &(script + try_it)) else { return };
    assert!(done && text.contains("got import") && text.contains("got --resume"), "{text}");
}

#[test]
fn completions_load_in_zsh() {
    let s = Scratch::new("zsh");
    std::fs::create_dir(s.path("site")).unwrap();
    std::fs::write(s.path("site").join("_lava"), out(&s, &["completions", "zsh"])).unwrap();
    let site = s.path("site");
    let try_it = format!(
        "fpath=({} $fpath)\nautoload -Uz compinit && compinit -u -D\nautoload +X -Uz _lava || exit 1\n\
         echo \"got $_comps[lava]\"\nwhence -w _lava\n",
        site.display()
    );
    let Some((done, text)) = tool("zsh", &["-f", "-s"], &try_it) else { return };
    assert!(done && text.contains("got _lava") && text.contains("_lava: function"), "{text}");
}

#[test]
fn completions_load_and_complete_in_fish() {
    let s = Scratch::new("fish");
    let script = out(&s, &["completions", "fish"]);
    let try_it = "\ncomplete -C 'lava imp'\ncomplete -C 'lava import --re'\ncomplete -C 'lava engines --rem'\n\
        complete -C 'lava fs mk'\n";
    let Some((done, text)) = tool("fish", &["--no-config", "--private"], &(script + try_it)) else { return };
    let found: Vec<&str> = text.lines().filter_map(|line| line.split('\t').next()).collect();
    assert!(done && found == ["import", "--resume", "--remove", "mkfs"], "{text}");
}
