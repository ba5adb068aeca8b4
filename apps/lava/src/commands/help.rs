//! `help`, `man`, `completions`: generated from the parser.

use crate::{Result, cli, nearest, output, status};
use clap::Args;
use clap_complete::Shell;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Options of `help`.
#[derive(Args)]
pub struct HelpArgs {
    /// A command (import, fs mkfs), or exit-codes
    #[arg(value_name = "COMMAND")]
    topic: Vec<String>,
}

/// Topic without a command.
const EXIT_CODES: &str = "exit-codes";

/// Prints the help of a command.
pub fn help(args: &HelpArgs) -> Result<()> {
    if args.topic == [EXIT_CODES] {
        return print(&status::table());
    }
    let mut root = cli::command();
    root.build();
    let mut command = root;
    for name in &args.topic {
        if command.find_subcommand(name).is_none() {
            let tip = nearest::tip(name, command.get_subcommands().map(clap::Command::get_name));
            return output::usage(format!("unknown command {}{tip}", args.topic.join(" ")));
        }
        if let Some(found) = command.find_subcommand(name).cloned() {
            command = found;
        }
    }
    print(&command.render_long_help().to_string())
}

fn print(text: &str) -> Result<()> {
    let mut out = output::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Options of `completions`.
#[derive(Args)]
pub struct CompletionsArgs {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints completions.
pub fn completions(args: &CompletionsArgs) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut cli::command(), "lava", &mut text);
    let mut out = output::stdout();
    out.write_all(&text)?;
    Ok(out.flush()?)
}

/// Options of `man`.
#[derive(Args)]
pub struct ManArgs {
    /// Output directory, created with its parents if missing. Existing pages are replaced
    dir: PathBuf,
    /// Print the names of the pages as JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Writes a man page for each command.
pub fn man(args: &ManArgs) -> Result<()> {
    output::create_directory(&args.dir)?;
    let mut pages = Vec::new();
    let mut root = cli::command();
    root.build();
    write_pages(&root, &args.dir, &mut pages)?;
    output::report(args.json, &json!({ "pages": pages }), || {
        let dir = args.dir.display();
        format!("wrote {} pages into {dir}\n", pages.len())
    })
}

/// Writes the pages of a command and its subcommands.
fn write_pages(command: &clap::Command, dir: &Path, pages: &mut Vec<String>) -> Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let mut text = Vec::new();
    let source = concat!("LavaStore ", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(command.clone()).source(source).render(&mut text)?;
    let file = format!("{name}.1");
    output::write_file(&dir.join(&file), &text)?;
    pages.push(file);
    command.get_subcommands().filter(|c| !c.is_hide_set()).try_for_each(|c| write_pages(c, dir, pages))
}
