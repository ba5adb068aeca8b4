//! Shared structs have few fields, and only the top level of the engine knows the engine type.

use crate::sources;
use std::fs;
use std::path::Path;

/// Maximum number of fields of a struct shared by threads.
const FIELDS_MAX: usize = 12;
/// Field types that mark a struct as shared by threads.
const SHARED: [&str; 5] = ["Mutex<", "RwLock<", "Atomic", "OnceLock<", "Condvar"];

/// Files of `lavakv` that assemble the engine and so know its type. All others get only the parts
/// they use.
const ROOF: [&str; 6] =
    ["db.rs", "engine.rs", "open.rs", "read_only.rs", "read_only/catch_up.rs", "service.rs"];

struct Struct<'a> {
    name: &'a str,
    fields: Vec<&'a str>,
}

/// Returns the structs with named fields, as laid out by rustfmt.
fn structs(text: &str) -> Vec<Struct<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some((before, rest)) = line.split_once("struct ") else { continue };
        let declares = before.trim().is_empty() || before.trim().starts_with("pub");
        if !declares || !line.ends_with('{') {
            continue;
        }
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        let indent = line.len() - line.trim_start().len();
        let body = lines[start + 1..].iter().take_while(|l| **l != format!("{}}}", " ".repeat(indent)));
        let is_field = |l: &&&str| {
            let own = l.len() - l.trim_start().len() == indent + 4;
            own && l.contains(": ") && !l.trim_start().starts_with(['/', '#'])
        };
        out.push(Struct { name, fields: body.filter(is_field).copied().collect() });
    }
    out
}

/// Returns shared structs with too many fields.
fn too_large(text: &str) -> Vec<String> {
    let shared = |s: &Struct<'_>| s.fields.iter().any(|f| SHARED.iter().any(|mark| f.contains(mark)));
    let large = structs(text).into_iter().filter(|s| shared(s) && s.fields.len() > FIELDS_MAX);
    large.map(|s| format!("{}: {} fields", s.name, s.fields.len())).collect()
}

/// Returns true if the code names the engine type; comments do not count.
fn names_engine(text: &str) -> bool {
    let code = text.lines().filter(|l| !l.trim_start().starts_with("//"));
    let mut words = code.flat_map(|l| l.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':'));
    // A variant or a path with this suffix is a different name.
    words.any(|word| word.trim_matches(':') == "Engine" || word == "crate::engine::Engine")
}

/// Returns lock fields without a comment on the guarded data.
fn unexplained_locks(text: &str) -> Vec<&str> {
    let fields = structs(text).into_iter().flat_map(|s| s.fields);
    let locks = fields.filter(|f| (f.contains("Mutex<") || f.contains("RwLock<")) && f.contains("rank::"));
    let before = |field: &str| {
        let start = field.as_ptr() as usize - text.as_ptr() as usize;
        text[..start].lines().next_back().unwrap_or_default().trim_start()
    };
    locks.filter(|field| !before(field).starts_with("///")).map(str::trim).collect()
}

#[test]
fn shared_structs_are_small_and_locks_are_documented() {
    for path in sources::all().into_iter().filter(|path| !sources::is_test(path)) {
        let (text, file) = (fs::read_to_string(&path).unwrap(), path.display());
        let (large, locks) = (too_large(&text), unexplained_locks(&text));
        assert!(large.is_empty(), "{file}: more than {FIELDS_MAX} fields: {large:?}");
        assert!(locks.is_empty(), "{file}: a comment before each must say what it guards: {locks:?}");
    }
}

#[test]
fn only_top_level_modules_use_the_engine_type() {
    let src = sources::root().join("crates/lavakv/src");
    let mut files = Vec::new();
    sources::below(&src, &mut files);
    for path in files.iter().filter(|path| !sources::is_test(path)) {
        let inside = path.strip_prefix(&src).unwrap();
        let is_roof = ROOF.iter().any(|name| inside == Path::new(name));
        let names = names_engine(&fs::read_to_string(path).unwrap());
        assert!(is_roof || !names, "{} names Engine: pass what it uses", inside.display());
    }
}

#[test]
fn structure_violations_are_found() {
    let fields: String = (0..13).map(|i| format!("    f{i}: u64,\n")).collect();
    let plain = format!("pub(crate) struct Plain {{\n{fields}}}\n");
    assert!(too_large(&plain).is_empty(), "nobody shares it");
    let shared = format!(
        "pub(crate) struct Shared<T> {{\n    /// It: guards them.\n    lock: Mutex<()>,\n{fields}}}\n"
    );
    assert_eq!(too_large(&shared), ["Shared: 14 fields"]);
    let few = "struct Few {\n    lock: Mutex<()>,\n    a: u8,\n}\nfn f() {\n    let x: u64 = 1;\n}\n";
    assert!(too_large(few).is_empty());
    let locks = "struct S {\n    /// It.\n    a: Mutex<u8, rank::A>,\n    b: RwLock<u8, rank::B>,\n}\n";
    assert_eq!(unexplained_locks(locks), ["b: RwLock<u8, rank::B>,"]);
    assert!(names_engine("fn f(engine: &Engine) {}") && !names_engine("// an Engine\nstruct EngineX;"));
}
