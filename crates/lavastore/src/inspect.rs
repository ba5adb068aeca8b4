//! Dumps of the files of a store, as printed by `lava dump`.
//!
//! ```
//! use lavastore::{Db, Options, inspect, testing::SimEnv};
//! let env = SimEnv::new(1).env();
//! let db = Db::open_in(&env, "/store", &Options::default())?;
//! db.put("key", "value")?;
//! db.flush()?;
//!
//! let table = env.fs.list("/store".as_ref())?.into_iter().find(|file| file.name.ends_with(".ksst")).expect("flushed");
//! let mut text = String::new();
//! inspect::dump(&env, &std::path::Path::new("/store").join(table.name), true, &mut text)?;
//! assert!(text.contains("key"));
//! # Ok::<(), lavastore::Error>(())
//! ```

pub use lavakv::dump::{LogContents, dump, log_contents};
