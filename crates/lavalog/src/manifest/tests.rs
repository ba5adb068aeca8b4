use super::*;
use datadriven::TestCase;
use std::error::Error;

/// Parses a file of a script: `7 index of 5`, `8 checkpoint`, `9 cold of generation 2`.
fn file(line: &str) -> FileMeta {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (number, last) = (words[0].parse().unwrap(), words[words.len() - 1]);
    let role = match words[1] {
        "index" => FileRole::Index { ltn: last.parse().unwrap() },
        "checkpoint" => FileRole::Checkpoint,
        "cold" => FileRole::Cold { generation: last.parse().unwrap() },
        other => panic!("no file is {other}"),
    };
    FileMeta { number, uid: Uid::from_words(number, 1), len: 4096, role }
}

fn told(result: Result<()>) -> String {
    result.map_or_else(|e| format!("{e}\n"), |()| "it is accepted\n".into())
}

fn run(state: &mut LogManifestState, case: &mut TestCase) -> std::result::Result<String, Box<dyn Error>> {
    let out = match &*case.directive {
        // Encodes and decodes a step with the files of the lines; also truncated at every length,
        // and with extra bytes.
        "step" => {
            let remove = case.try_take_args("remove")?.unwrap_or_default();
            let add = case.input.lines().map(file).collect();
            let step = LogEdit { floor: case.try_take_arg("floor")?, remove, add };
            let mut bytes = LavaLog::encode(&step);
            assert_eq!(LavaLog::decode(&bytes)?, step);
            (1..bytes.len()).for_each(|len| drop(LavaLog::decode(&bytes[..len]).unwrap_err()));
            if let Some(kind) = case.try_take_arg("first-kind")? {
                bytes[3] = kind;
            }
            bytes.extend(case.take_flag("longer")?.then_some(0));
            match LavaLog::decode(&bytes).and_then(|_| LavaLog::list(&bytes)) {
                Ok(listed) => listed.into_iter().map(|line| line + "\n").collect(),
                Err(e) => format!("{e}\n"),
            }
        }
        "remove" => told(state.remove(case.take_arg("file")?)),
        "add" => case.input.lines().map(|line| told(state.add(&file(line)))).collect(),
        // Against a store that lists no file.
        "verify" => {
            let engines = store::manifest::Engines::of::<LavaLog>();
            told(LavaLog::verify(state, &ManifestState::empty(Uid::from_words(1, 2), 1, &engines)))
        }
        other => return Err(format!("no command is called {other}").into()),
    };
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/manifest/scripts", |file| {
        let mut state = LavaLog::empty();
        file.run(|case| run(&mut state, case));
    });
}
