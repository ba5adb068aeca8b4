//! All examples of the help texts run, in the order of the commands, in an empty directory.

#![allow(clippy::disallowed_methods, reason = "looks at the program from outside")]

use crate::common::*;
use std::path::Path;
use std::process::{Command, Stdio};

fn help(s: &Scratch, path: &[&str]) -> String {
    let output = lava(&s.0).arg("help").args(path).output().unwrap();
    assert!(output.status.success(), "{path:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the names under `Commands:` of a help text.
fn commands(text: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let lines = lines.take_while(|line| line.starts_with("  "));
    let names = lines.filter(|line| !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

/// Returns the lines under `Examples:`.
fn examples(text: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| *line != "Examples:").skip(1);
    lines.take_while(|line| line.starts_with("  ")).map(|line| line.trim().to_owned()).collect()
}

/// Collects the examples of a command and of its subcommands.
fn collect(s: &Scratch, path: &[&str], all: &mut Vec<String>) {
    let text = help(s, path);
    all.extend(examples(&text));
    for name in commands(&text) {
        collect(s, &[path, &[&name[..]]].concat(), all);
    }
}

#[test]
fn every_example_of_a_help_text_runs() {
    let s = Scratch::new("examples");
    let mut all = Vec::new();
    collect(&s, &[], &mut all);
    assert!(all.len() >= 60, "{} examples: {all:#?}", all.len());
    let bin = Path::new(env!("CARGO_BIN_EXE_lava")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    for example in all {
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", &example]).current_dir(&s.0).env("PATH", &path).env_remove("LAVA_DB");
        let output = shell.stdin(Stdio::null()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{example}: {stderr}");
        assert!(!stderr.contains("lava: ") || example.contains("lava bench"), "{example}: {stderr}");
    }
}
