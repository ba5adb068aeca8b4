//! System calls.

use crate::sources::{below, is_test, root};
use std::fs;
use std::path::Path;

/// System calls go through one table (`io::kernel::calls`), whose test version sees them all.
#[test]
fn the_kernel_is_called_through_one_table() {
    let kernel = root().join("crates/io/src");
    let mut files = Vec::new();
    below(&kernel, &mut files);
    let table = |path: &Path| {
        let path = path.strip_prefix(&kernel).unwrap();
        path.starts_with("kernel/calls")
            || path == Path::new("kernel/calls.rs")
            || path == Path::new("kernel/ffi.rs")
    };
    for path in files.iter().filter(|path| !table(path) && !is_test(path)) {
        let text = fs::read_to_string(path).unwrap();
        for (nth, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let calls = [
                "rustix::fs::",
                "rustix::io::",
                "rustix::mm::",
                "rustix::process::",
                "libc::",
                "ffi::",
                "std::fs::",
            ];
            let called = calls.iter().any(|prefix| {
                let rest = line.split(prefix).nth(1).unwrap_or_default();
                // Types and constants begin with a capital letter, calls do not.
                rest.starts_with(|c: char| c.is_lowercase())
                    && rest
                        .split(|c: char| !c.is_alphanumeric() && c != '_')
                        .next()
                        .is_some_and(|name| rest[name.len()..].starts_with('('))
            });
            let ring =
                [".submit(", ".submit_and_wait(", "IoUring::new("].iter().any(|call| line.contains(call));
            assert!(
                !called && !ring,
                "{}:{} calls the kernel around the table: {line}",
                path.display(),
                nth + 1
            );
        }
    }
}
