use super::*;
use datadriven::TestCase;
use std::error::Error;

const MB: u64 = 1 << 20;

/// The files of a script. Each record takes 1 MiB in a cold file unless its line gives another
/// size.
#[derive(Default)]
struct Script {
    files: Vec<FileFacts>,
}

impl Script {
    fn run(&mut self, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
        let input = std::mem::take(&mut case.input);
        let out = match &*case.directive {
            "files" => {
                self.files.clear();
                self.add(&input)
            }
            "add" => self.add(&input),
            "copy" => input.lines().flat_map(files_of).map(|file| copy_of(&file)).collect(),
            "pick" => said(pick(&mut Candidates::of(&self.files), &options(case)?)),
            "company" => company(case)?,
            other => return Err(format!("no command is called {other}").into()),
        };
        case.expect_empty()?;
        Ok(out)
    }

    fn add(&mut self, input: &str) -> String {
        self.files.extend(input.lines().flat_map(files_of));
        String::new()
    }
}

/// Parses bytes: `8MiB`, `1000B`.
fn bytes_of(text: &str) -> u64 {
    let mib = text.strip_suffix("MiB").map(|n| n.parse::<u64>().unwrap() * MB);
    mib.unwrap_or_else(|| text.strip_suffix("B").expect("bytes have a unit").parse().unwrap())
}

/// Formats bytes.
fn text_of(bytes: u64) -> String {
    if bytes.is_multiple_of(MB) { format!("{} MiB", bytes / MB) } else { format!("{bytes} B") }
}

/// Parses the files of a line: `group 1 live=40`,
/// `cold 1-16 live=2 written=2 file=2MiB generation=1`.
fn files_of(line: &str) -> Vec<FileFacts> {
    let mut words = line.split_whitespace();
    let (kind, numbers) = (words.next().unwrap(), words.next().unwrap());
    let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
    let (mut live, mut written, mut record, mut file, mut generation) =
        (0, 100, MB - RECORD_COST, 100 * MB, 0);
    for (key, value) in words.map(|word| word.split_once('=').unwrap()) {
        match key {
            "live" => live = value.parse().unwrap(),
            "written" => written = value.parse().unwrap(),
            "record" => record = bytes_of(value),
            "file" => file = bytes_of(value),
            "generation" => generation = value.parse().unwrap(),
            other => panic!("a file has no {other}"),
        }
    }
    assert!(kind == "group" || kind == "cold" && generation > 0, "{line}");
    let size = |records: u64| Size { records, bytes: records.saturating_mul(record) };
    let facts = |number| FileFacts {
        source: if kind == "group" { Source::Group(number) } else { Source::Cold(number) },
        bytes: file,
        written: size(written),
        live: size(live),
        age: number,
        generation,
    };
    (first.parse().unwrap()..=last.parse().unwrap()).map(facts).collect()
}

fn options(case: &mut TestCase) -> Result<PickOptions, Box<dyn Error>> {
    let mut out = all_there_is();
    let mut bytes = |name: &str, field: &mut u64| -> Result<(), Box<dyn Error>> {
        case.try_take_arg::<String>(name)?.iter().for_each(|text| *field = bytes_of(text));
        Ok(())
    };
    bytes("wanted", &mut out.wanted_bytes)?;
    bytes("second-min", &mut out.second_bytes_min)?;
    bytes("output", &mut out.output_bytes)?;
    bytes("room", &mut out.room_bytes)?;
    out.garbage_percent = case.try_take_arg("garbage-percent")?.unwrap_or(out.garbage_percent);
    out.all_garbage_percent = case.try_take_arg("all-garbage-percent")?.unwrap_or(out.all_garbage_percent);
    out.padded_groups = case.try_take_arg("padded-groups")?.unwrap_or(out.padded_groups);
    out.inputs_max = case.try_take_arg("inputs-max")?.unwrap_or(out.inputs_max);
    Ok(out)
}

/// Formats a choice, with consecutive inputs as a range.
fn said(pick: Option<Pick>) -> String {
    let runs = |inputs: &[Source]| {
        let mut runs: Vec<(&str, u64, u64)> = Vec::new();
        for (kind, number) in inputs.iter().map(|input| name_of(*input)) {
            match runs.last_mut() {
                Some(run) if run.0 == kind && run.2 + 1 == number => run.2 = number,
                _ => runs.push((kind, number, number)),
            }
        }
        let run = |(kind, first, last): &(&str, u64, u64)| {
            if first == last { format!("{kind} {first}") } else { format!("{kind} {first}-{last}") }
        };
        runs.iter().map(run).collect::<Vec<_>>().join(", ")
    };
    match pick {
        None => "nothing\n".into(),
        Some(Pick::Free(inputs)) => format!("free {}\n", runs(&inputs)),
        Some(Pick::Copy { inputs, generation, copy_bytes, free_bytes }) => {
            let (copied, freed) = (text_of(copy_bytes), text_of(free_bytes));
            format!("copy {}: {copied} into generation {generation}, {freed} free\n", runs(&inputs))
        }
    }
}

fn name_of(source: Source) -> (&'static str, u64) {
    match source {
        Source::Group(number) => ("group", number),
        Source::Cold(number) => ("cold", number),
    }
}

fn copy_of(file: &FileFacts) -> String {
    let (kind, number) = name_of(file.source);
    format!("{kind} {number}: a copy has {} B, garbage is {} B\n", file.copy_bytes(), file.garbage_bytes())
}

/// Prints the class of file for the records of a log.
fn company(case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let live = Size { records: 1, bytes: bytes_of(&case.take_arg::<String>("live")?) };
    let (is_trimmed, output) = (case.take_flag("trimmed")?, bytes_of(&case.take_arg::<String>("output")?));
    let of = |generation| ColdClass::of(generation, live, is_trimmed, output);
    let line = |generation: u32| format!("generation {generation}: {:?}\n", of(generation));
    Ok(case.take_args("generations")?.into_iter().map(line).collect())
}

#[test]
fn scripts() {
    datadriven::walk("src/pick/scripts", |file| {
        let mut script = Script::default();
        file.run(|case| script.run(case));
    });
}

fn all_there_is() -> PickOptions {
    PickOptions { wanted_bytes: u64::MAX, ..PickOptions::default() }
}
