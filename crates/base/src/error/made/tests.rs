use crate::Error;
use std::process::Command;

/// Run by [`errors_are_recorded_with_their_source_location`] in a process with the variable set.
#[test]
#[ignore = "makes errors for another test"]
fn errors_are_created_in_a_child_process() {
    for n in 0..3 {
        let _ = Error::corruption(format!("made {n} times"));
    }
    let _ = Error::from_io("open", "f", std::io::ErrorKind::NotFound.into());
}

#[test]
#[allow(clippy::disallowed_methods, reason = "reads the record")]
fn errors_are_recorded_with_their_source_location() {
    let record = std::env::temp_dir().join(format!("lavastore-errors-made-{}", std::process::id()));
    let program = std::env::current_exe().unwrap();
    let child = Command::new(program)
        .args(["--ignored", "--exact", "error::made::tests::errors_are_created_in_a_child_process"])
        .env(super::VARIABLE, &record)
        .output();
    assert!(child.unwrap().status.success());
    let text = std::fs::read_to_string(&record).unwrap();
    std::fs::remove_file(&record).unwrap();
    let here = file!();
    // Recorded once for three errors, since only a number differs.
    assert_eq!(text, format!("Corruption\t{here}:9\tmade 0 times\nNotFound\t{here}:11\topen\n"));
}
