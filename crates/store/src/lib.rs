//! The ground of a store: what any engine that keeps files in a directory needs, whatever it keeps in them.
//!
//! * [`names`]: the names of the files of a store, and their numbers, of which there is one sequence for all kinds.
//! * [`manifest`]: the durable history of a store: one file, one stream of edits for all engines.
//! * [`format`](mod@format): the format of a store as a whole, and what each allows.
//! * [`commit`]: the log, the one durability domain of all engines.
//! * [`open`]: a store opened for engines that have no roof of their own; [`directory`]: where it is. [`guest`]: an engine on a store that
//!   another one opens.
//! * [`engines`]: which engines there are, and how one leaves for good. [`mod@copy`]: a copy that is a store of its own.
//! * [`context`]: what every part is given: the machine, health, signals. [`run`]: who does the work in the background.
//! * [`mailbox`]: requests of other processes to the one that has the store open.
//! * [`descriptors`]: the share of the store of the descriptors of the process.
//! * [`pacing`]: how much of the device background work may use.
//! * [`volumes`]: where files are, and what they occupy there. [`space`]: how much they may. [`files`]: how they come and go.
//! * [`speed`]: a second disk, for the log.
//! * [`repair`]: what every repair does around its own work.
//! * [`numbers`]: how large numbers of files, log groups, pages and edits may be; [`field`]: how they are read.
//! * [`idmap`]: the copy-on-write ordered map in which states keep their files: cheap to clone and to change a little.
//!
//! It knows nothing of keys, families or what a sequence means to an engine: an arrow from here to `version`, `lsm` or any
//! engine would point up. LavaKV is the first engine; another one stands beside it on the same store, shares the numbers
//! of files, the manifest and the log, and neither of them is compiled into the other.

pub mod commit;
pub mod context;
pub mod copy;
pub mod descriptors;
pub mod directory;
pub mod engines;
pub mod field;
pub mod files;
pub mod format;
pub mod guest;
pub mod idmap;
pub mod mailbox;
pub mod manifest;
pub mod names;
pub mod numbers;
pub mod open;
pub mod pacing;
pub mod read_only;
pub mod repair;
pub mod run;
pub mod space;
pub mod speed;
pub mod volumes;

pub use idmap::IdMap;
pub use open::Store;
