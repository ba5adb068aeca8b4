//! The functions of a program: where they begin, their names and their files.

use crate::Result;
use object::{Object, ObjectSymbol, SymbolKind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Lines with code of an accessor, at most: its signature, two lines, its end.
const ACCESSOR_LINES_MAX: usize = 4;

/// A function of this project.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    /// Its path in the sources, without generic arguments and closures.
    pub name: String,
    /// The file, from the folder of the project.
    pub file: String,
}

/// The functions of a program.
pub struct Symbols {
    /// By the address of their first instruction from the beginning of the program.
    by_address: BTreeMap<u64, Function>,
    /// The lines with code of each, closures included.
    lines: BTreeMap<Function, BTreeSet<u32>>,
}

impl Symbols {
    /// The functions of a program of this project.
    pub fn of(program: &Path) -> Result<Symbols> {
        let bytes = std::fs::read(program)?;
        let object = object::File::parse(&*bytes)?;
        let lines = addr2line::Loader::new(program).map_err(|e| format!("{}: {e}", program.display()))?;
        let (mut by_address, mut lines_of) = (BTreeMap::new(), BTreeMap::<Function, BTreeSet<u32>>::new());
        for symbol in object.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0)
        {
            let Ok(mangled) = symbol.name() else { continue };
            let demangled = addr2line::demangle(mangled, addr2line::gimli::DW_LANG_Rust).unwrap_or_default();
            let Some(name) = name_in_project(&demangled) else { continue };
            let location = lines.find_location(symbol.address()).ok().flatten();
            let Some(file) = location.and_then(|location| file_in_project(location.file?)) else { continue };
            let function = Function { name, file };
            let end = symbol.address() + symbol.size();
            let places = lines.find_location_range(symbol.address(), end).map_err(|e| e.to_string())?;
            let own = places.filter(|(_, _, place)| {
                place.file.and_then(file_in_project).is_some_and(|file| file == function.file)
            });
            lines_of.entry(function.clone()).or_default().extend(own.filter_map(|(_, _, place)| place.line));
            by_address.insert(symbol.address(), function);
        }
        match by_address.is_empty() {
            true => {
                Err(format!("{}: no functions of this project are named in it", program.display()).into())
            }
            false => Ok(Symbols { by_address, lines: lines_of }),
        }
    }

    /// The function that begins here.
    pub fn at(&self, address: u64) -> Option<&Function> {
        self.by_address.get(&address)
    }

    /// True if the function is no longer than one that returns a field, compares two of them or passes a call on.
    pub fn is_accessor(&self, function: &Function) -> bool {
        self.lines.get(function).is_some_and(|lines| lines.len() <= ACCESSOR_LINES_MAX)
    }
}

/// The part of a path behind the folder of the project. `None`: it is elsewhere, as code that a macro of the standard library makes.
fn file_in_project(path: &str) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    Some(Path::new(path).strip_prefix(root).ok()?.display().to_string())
}

/// The name of a function of this project, without generic arguments and closures. `None`: it is another's, or the
/// simulated device's.
fn name_in_project(demangled: &str) -> Option<String> {
    let path = demangled.replace("::{{closure}}", "");
    let (own, rest) = match path.strip_prefix('<') {
        None => (path.as_str(), ""),
        Some(inner) => split_at_close(inner)?,
    };
    let (of_type, of_trait) = own.split_once(" as ").unwrap_or((own, ""));
    let is_ours = |path: &str| path.trim_start_matches(['&', '(']).starts_with("lavastore");
    if !is_ours(of_type) && !is_ours(of_trait) || of_type.starts_with("lavastore_io::sim") {
        return None;
    }
    // A method of a trait of this project may have the name of another of the type.
    let of_trait = if is_ours(of_trait) { format!("(as {})", last_part(of_trait)) } else { String::new() };
    Some(without_arguments(&format!("{of_type}{of_trait}{rest}")).replace("lavastore_", ""))
}

/// The last part of a path.
fn last_part(path: &str) -> &str {
    let path = path.split('<').next().unwrap_or(path);
    path.rsplit("::").next().unwrap_or(path)
}

/// The text up to the end of an open angle bracket, and the text behind it.
fn split_at_close(inner: &str) -> Option<(&str, &str)> {
    let mut depth = 1;
    for (at, sign) in inner.char_indices() {
        match sign {
            '<' => depth += 1,
            // Not the arrow of a function type.
            '>' if !inner[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((&inner[..at], &inner[at + 1..]));
        }
    }
    None
}

fn without_arguments(path: &str) -> String {
    let (mut name, mut depth) = (String::new(), 0);
    for sign in path.chars() {
        match sign {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ if depth == 0 => name.push(sign),
            _ => {}
        }
    }
    name.replace("::::", "::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_arguments_and_closures() {
        for (demangled, name) in [
            ("lavastore_wal::wal::Wal::append", Some("wal::wal::Wal::append")),
            ("lavastore_wal::wal::Wal::append::{{closure}}", Some("wal::wal::Wal::append")),
            ("<lavastore_io::Handle as core::ops::drop::Drop>::drop", Some("io::Handle::drop")),
            ("lavastore_base::sync::Mutex<T,R>::lock", Some("base::sync::Mutex::lock")),
            ("<u64 as lavastore_base::coding::Fixed>::read", Some("u64(as Fixed)::read")),
            ("<alloc::sync::Arc<lavastore_io::Env> as core::ops::deref::Deref>::deref", None),
            ("core::ptr::drop_in_place<lavastore_io::Env>", None),
            ("<lavastore_io::sim::fs::SimFs as lavastore_io::fs::FileSystem>::open", None),
        ] {
            assert_eq!(name_in_project(demangled).as_deref(), name, "{demangled}");
        }
    }
}
