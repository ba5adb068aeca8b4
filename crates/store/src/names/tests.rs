use super::*;
use datadriven::TestCase;

/// Prints the kind of each name.
fn run(case: &mut TestCase) -> Result<String, String> {
    let names = || case.input.lines().map(str::trim);
    let kind =
        |name: &str| parse(name).map_or_else(|| "no file of a store".into(), |kind| format!("{kind:?}"));
    Ok(match &*case.directive {
        "parse" => names().map(|name| format!("{name}: {}\n", kind(name))).collect(),
        "largest-number" => format!("{}\n", largest_number(names().map(|name| parse(name).unwrap()))),
        other => return Err(format!("no command is called {other}")),
    })
}

#[test]
fn scripts() {
    datadriven::walk("src/names/scripts", |file| file.run(run));
}
