//! The data set of the demonstration: the machine's Debian package index, or generated from a seed.

use crate::formats::{Format, LINE_BYTES_MAX, Record};
use crate::status::about;
use crate::{Result, input, output};
use bench::keys::mix;
use io::Rng;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Directory of the package indexes of apt.
const LISTS: &str = "/var/lib/apt/lists";
/// Minimum number of records of an index; with fewer, records are generated.
const RECORDS_MIN: usize = 2_000;
/// Maximum number of records, to limit the run time.
const RECORDS_MAX: usize = 120_000;
/// Default number of generated records.
const GENERATED: usize = 50_000;
/// Seed of generated data.
const SEED: u64 = 1;

/// Records sorted by unique key.
pub struct DataSet {
    /// Origin of the records, for display.
    pub origin: String,
    /// Keys and their first values.
    pub records: Vec<Record>,
    source: DataSource,
}

/// Source of a data set, to load it in another process.
pub enum DataSource {
    /// Package indexes.
    Files(Vec<PathBuf>),
    /// Number of generated records.
    Generated(usize),
}

impl DataSet {
    /// Returns the machine's package index if it is large enough, unless the user asked for
    /// generated records.
    pub fn choose(generate: Option<usize>) -> Result<DataSet> {
        if let Some(count) = generate {
            return DataSet::load(DataSource::Generated(count));
        }
        let files = package_indexes(Path::new(LISTS));
        if !files.is_empty() {
            match DataSet::load(DataSource::Files(files)) {
                Ok(data) if data.records.len() >= RECORDS_MIN => return Ok(data),
                Ok(_) => {}
                Err(error) => {
                    output::tell(&format!("the package index of this machine is not used: {error}"))
                }
            }
        }
        DataSet::load(DataSource::Generated(GENERATED))
    }

    /// Loads a data set.
    pub fn load(source: DataSource) -> Result<DataSet> {
        let (origin, mut all) = match &source {
            DataSource::Files(files) => {
                let mut all = BTreeMap::new();
                for file in files {
                    let (input, _progress) = input::open(file).map_err(|e| about(file.display(), e))?;
                    for record in Format::Packages.read(input, LINE_BYTES_MAX) {
                        let (key, value) = record.map_err(|e| about(file.display(), e))?;
                        all.insert(key, value);
                        // Only the first keys are used, so drop later ones.
                        if all.len() > RECORDS_MAX {
                            all.pop_last();
                        }
                    }
                }
                let plural = if files.len() == 1 { "index" } else { "indexes" };
                (format!("this machine's Debian package index, {} {plural} in {LISTS}", files.len()), all)
            }
            DataSource::Generated(count) => {
                let origin =
                    format!("generated package index, seed {SEED} (this machine has none, or --generate)");
                (origin, (0..*count as u64).map(generated).collect())
            }
        };
        if let Some(key) = all.keys().nth(RECORDS_MAX).cloned() {
            all.split_off(&key);
        }
        Ok(DataSet { origin, records: all.into_iter().collect(), source })
    }

    /// Returns the bytes of keys and first values.
    pub fn bytes(&self) -> u64 {
        self.records.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }

    /// Returns the arguments with which the writer process loads the same data.
    pub fn writer_args(&self) -> Vec<OsString> {
        match &self.source {
            DataSource::Files(files) => files.iter().map(|f| f.clone().into_os_string()).collect(),
            DataSource::Generated(count) => vec!["--generate".into(), count.to_string().into()],
        }
    }
}

/// Returns the package indexes in apt's directory, sorted by name.
fn package_indexes(dir: &Path) -> Vec<PathBuf> {
    let mut files = output::files_in(dir);
    files.retain(|file| {
        file.to_string_lossy().contains("_binary-") && Format::of_name(file) == Some(Format::Packages)
    });
    files.sort();
    files
}

/// Returns the generated stanza of an index with its key.
fn generated(index: u64) -> Record {
    const WORDS: [&str; 16] = [
        "library",
        "for",
        "fast",
        "durable",
        "storage",
        "tools",
        "common",
        "data",
        "files",
        "network",
        "shared",
        "development",
        "headers",
        "and",
        "documentation",
        "engine",
    ];
    let mut rng = Rng::new(mix(SEED ^ mix(index)));
    let mut word = || WORDS[rng.below(WORDS.len() as u64) as usize];
    let name = format!("lib{}-{}-{:06x}", word(), word(), index);
    let words: Vec<&str> = (0..60).map(|_| word()).collect();
    let version = format!("{}.{}-{}", index % 9, index % 23, index % 5 + 1);
    let mut digest = [0u8; 32];
    rng.fill(&mut digest);
    let digest: String = digest.iter().map(|b| format!("{b:02x}")).collect();
    let stanza = format!(
        "Package: {name}\nVersion: {version}\nInstalled-Size: {}\nMaintainer: Nobody <nobody@example.org>\nArchitecture: amd64\n\
         Depends: libc6 (>= 2.{})\nDescription: {}\n {}\n {}\nSHA256: {digest}\n",
        rng.below(90_000),
        rng.below(40),
        words[..6].join(" "),
        words[6..33].join(" "),
        words[33..].join(" "),
    );
    (format!("{name}/{version}").into_bytes(), stanza.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::packages::key_of;

    #[test]
    fn generated_data_is_a_package_index_and_always_the_same() {
        let data = DataSet::load(DataSource::Generated(500)).unwrap();
        assert_eq!(data.records.len(), 500);
        assert!(data.records.windows(2).all(|w| w[0].0 < w[1].0));
        assert!(data.records.iter().all(|(key, value)| key_of(value).as_ref() == Some(key)));
        assert_eq!(data.records, DataSet::load(DataSource::Generated(500)).unwrap().records);
    }
}
