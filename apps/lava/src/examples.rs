//! The examples in each `--help`. A test runs all of them in this order in one empty directory.

use clap::Command;

/// Command paths with their examples.
const EXAMPLES: &[(&str, &str)] = &[
    ("put", "lava put user:1 Ada --db ./data\nprintf 'a long value' | lava put user:2 --file - --db ./data"),
    ("get", "lava get user:1 --db ./data\nlava get user:1 --json --db ./data"),
    ("del", "lava del user:2 --db ./data\nlava del --range 'tmp:' 'tmp;' --db ./data"),
    ("scan", "lava scan --db ./data --prefix user: --limit 10\nlava scan --db ./data --reverse --keys-only"),
    (
        "import",
        "printf 'user:1\\tAda\\nuser:3\\tAlan\\n' > users.tsv\nlava import users.tsv --db ./data\n\
         lava import users.tsv --db ./data --resume\nlava import users.tsv --db ./data --family users --compression lz4\n\
         printf '{\"key\":\"user:4\",\"value\":\"Grace\"}\\n' | lava import - --format jsonl --db ./data",
    ),
    (
        "export",
        "lava export --db ./data --prefix user:\nlava export all.tsv.zst --db ./data\nlava export all.jsonl --db ./data --skip-damaged",
    ),
    ("stat", "lava stat --db ./data\nlava stat --json --db ./data"),
    ("family", "lava family ls --db ./data"),
    ("family ls", "lava family ls --db ./data\nlava family ls --json --db ./data"),
    (
        "family create",
        "lava family create orders --db ./data\nlava family create texts --compression zstd --min-blob-size 4096 --db ./data",
    ),
    ("family drop", "lava family drop orders --yes --db ./data"),
    ("space", "lava space --db ./data"),
    ("gc", "lava gc --dry-run --db ./data\nlava gc --until 10% --db ./data"),
    ("compact", "lava compact --db ./data\nlava compact --rewrite --compression zstd --db ./data"),
    ("verify", "lava verify --db ./data"),
    ("repair", "lava repair --dry-run --db ./data\nlava repair --into ./repaired --db ./data"),
    ("checkpoint", "lava checkpoint ./backup --db ./data"),
    ("fast-tier", "lava put k v --db ./two --fast-tier ./fast\nlava get k --db ./two --fast-tier ./fast"),
    ("fast-tier detach", "lava fast-tier detach --db ./two --fast-tier ./fast"),
    ("engines", "lava engines --db ./data"),
    ("upgrade", "lava upgrade --db ./data"),
    (
        "bench",
        "lava bench load --num 10000\nlava bench overwrite --num 10000 --updates 20000 --db ./bench-store --json report.json\n\
         lava bench read --num 10000 --reads 1000 --distribution zipf",
    ),
    ("bench families", "lava bench families --num 5,20 --flushes 2"),
    ("bench fs", "lava bench fs --db ./bench-files --file-size 4M"),
    ("bench log", "lava bench log --logs 10 --seconds 1 --warmup-seconds 0 --in-place 10"),
    ("demo", "lava demo --generate 2000 --db ./demo-store"),
    ("log", "lava log append events started --db ./logs\nlava log ls --db ./logs"),
    (
        "log append",
        "lava log append events ready --db ./logs\nprintf 'one\\ntwo\\n' | lava log append events --db ./logs",
    ),
    ("log read", "lava log read events 1 --db ./logs"),
    ("log tail", "lava log tail events -n 5 --db ./logs\nlava log tail events --from 2 --json --db ./logs"),
    ("log trim", "lava log trim events 2 --db ./logs"),
    ("log ls", "lava log ls --db ./logs"),
    ("log stat", "lava log stat --db ./logs\nlava log stat events --db ./logs"),
    ("log verify", "lava log verify --db ./logs"),
    ("log checkpoint", "lava log checkpoint ./logs-backup --db ./logs"),
    ("log repair", "lava log repair --dry-run --db ./logs"),
    ("fs", "lava fs mkfs small.img --size 64M --sparse\nlava put k v --db lavafs:small.img"),
    ("fs mkfs", "lava fs mkfs disk.img --size 64M"),
    ("fs ls", "lava fs ls small.img\nlava fs ls small.img /db"),
    ("fs cat", "lava fs cat small.img /db/CURRENT"),
    ("fs cp", "lava fs cp disk.img users.tsv :/users.tsv\nlava fs cp disk.img :/users.tsv copy.tsv"),
    ("fs stat", "lava fs stat disk.img /users.tsv"),
    ("fs df", "lava fs df disk.img"),
    ("fs grow", "lava fs grow disk.img 96M"),
    ("fs fsck", "lava fs fsck disk.img"),
    ("fs dump-journal", "lava fs dump-journal disk.img"),
    ("dump", "lava dump --db ./data\nlava dump --db ./data CURRENT"),
    ("help", "lava help import\nlava help exit-codes"),
];

/// Adds the examples to the parser.
pub fn added_to(root: Command) -> Command {
    EXAMPLES.iter().fold(root, |root, (path, lines)| {
        let words: Vec<&str> = path.split(' ').collect();
        let lines: String = lines.lines().map(|line| format!("  {line}\n")).collect();
        added_at(root, &words, &format!("Examples:\n{lines}"))
    })
}

fn added_at(command: Command, path: &[&str], text: &str) -> Command {
    match path {
        [] => command.after_help(text.to_owned()),
        [name, rest @ ..] if command.find_subcommand(name).is_some() => {
            command.mut_subcommand(name, |below| added_at(below, rest, text))
        }
        // The command belongs to a disabled feature.
        _ => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_command_has_examples_and_every_example_a_command() {
        fn names(command: &Command, path: &str, all: &mut Vec<String>) {
            for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
                let path = format!("{path} {}", below.get_name()).trim().to_owned();
                names(below, &path, all);
                all.push(path);
            }
        }
        let mut all = Vec::new();
        names(&crate::cli::Cli::command(), "", &mut all);
        // Needs a kernel with FUSE.
        all.retain(|name| name != "fs mount");
        // These take minutes.
        all.retain(|name| {
            !["bench pauses", "bench recovery", "bench rest", "bench page-server", "bench scale-meta"]
                .contains(&name.as_str())
        });
        all.sort();
        let mut known: Vec<String> = EXAMPLES.iter().map(|(path, _)| (*path).to_owned()).collect();
        known.sort();
        assert_eq!(all, known);
    }
}
