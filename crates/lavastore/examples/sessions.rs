//! A session store: one session per user at a time, expiry, and a counter of logins.
//!
//! ```text
//! cargo run --example sessions [LOGINS]
//! ```
//!
//! # Data layout
//!
//! | family | key | value |
//! |---|---|---|
//! | `sessions` | id of the session | its end in seconds since 1970 (8 bytes, big-endian), name of the user |
//! | `users` | name of the user | the same end, id of the session |
//! | `logins` | name of the user | number of logins, a merge counter |
//!
//! A login writes all three in one transaction. `users` is a unique index: two logins of one user
//! read the same key for update, and the later commit fails with a conflict. An ended session
//! counts as absent for every reader at once; compactions remove it and its index entry later.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a program on the machine")]

use lavastore::{
    CompactionFilter, CompactionFilters, Db, ErrorKind, Family, FamilyOptions, FilterDecision, FilterRun,
    FilteredCompaction, FilteredEntry, MergeChoice, Options, Result, Transaction, TransactionOptions,
    WriteOptions,
};
use std::sync::Arc;

/// Removes entries whose end is before the begin of the compaction.
struct Ended;

struct EndedBefore {
    seconds: u64,
}

impl CompactionFilter for Ended {
    fn begin(&self, compaction: &FilteredCompaction) -> Box<dyn FilterRun> {
        Box::new(EndedBefore { seconds: compaction.unix_seconds })
    }
}

impl FilterRun for EndedBefore {
    fn decide(&mut self, entry: &mut FilteredEntry<'_>) -> Result<FilterDecision> {
        let has_ended = parse(entry.value()?).is_none_or(|(end, _)| end <= self.seconds);
        Ok(if has_ended { FilterDecision::Remove } else { FilterDecision::Keep })
    }
}

/// Returns the end of a session, and the rest of the value.
fn parse(value: &[u8]) -> Option<(u64, String)> {
    let (end, rest) = value.split_first_chunk()?;
    Some((u64::from_be_bytes(*end), String::from_utf8_lossy(rest).into_owned()))
}

fn value(end: u64, rest: &str) -> Vec<u8> {
    [&end.to_be_bytes()[..], rest.as_bytes()].concat()
}

/// Sessions in a store.
pub struct Sessions {
    db: Db,
    sessions: Family,
    users: Family,
    logins: Family,
}

impl Sessions {
    /// Returns the options of the store.
    pub fn options() -> Options {
        let ended: Arc<dyn CompactionFilter> = Arc::new(Ended);
        let filters = CompactionFilters::default().with("sessions", ended.clone()).with("users", ended);
        Options::default().expert(|expert| expert.compaction_filters = filters)
    }

    /// Opens the sessions of a store with these options.
    pub fn open(db: Db) -> Result<Sessions> {
        let (sessions, users) = (db.family("sessions")?, db.family("users")?);
        let logins = match db.open_family("logins") {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let merge_operator = Some(MergeChoice::counter());
                db.create_family("logins", &FamilyOptions { merge_operator, ..Default::default() })?
            }
            opened => opened?,
        };
        Ok(Sessions { db, sessions, users, logins })
    }

    /// Begins a session, durably. Returns false if the user has one that has not ended.
    pub fn log_in(&self, user: &str, id: &str, (now, seconds): (u64, u64)) -> Result<bool> {
        self.repeated(|transaction| {
            let mut users = transaction.family(&self.users)?;
            let present = users.get_for_update(user)?;
            if present.and_then(|value| parse(&value)).is_some_and(|(end, _)| end > now) {
                return Ok(false);
            }
            users.put(user, value(now + seconds, id))?;
            transaction.family(&self.sessions)?.put(id, value(now + seconds, user))?;
            transaction.family(&self.logins)?.merge(user, 1i64.to_le_bytes())?;
            Ok(true)
        })
    }

    /// Ends a session, durably. Returns false if there is none.
    pub fn log_out(&self, id: &str, now: u64) -> Result<bool> {
        self.repeated(|transaction| {
            let mut sessions = transaction.family(&self.sessions)?;
            let session = sessions.get_for_update(id)?.and_then(|value| parse(&value));
            let Some((_, user)) = session.filter(|(end, _)| *end > now) else { return Ok(false) };
            sessions.delete(id)?;
            transaction.family(&self.users)?.delete(&user)?;
            Ok(true)
        })
    }

    /// Returns the user of a session that has not ended.
    pub fn user_of(&self, id: &str, now: u64) -> Result<Option<String>> {
        living(&self.sessions, id, now)
    }

    /// Returns the session of a user that has not ended.
    pub fn session_of(&self, user: &str, now: u64) -> Result<Option<String>> {
        living(&self.users, user, now)
    }

    /// Returns the number of logins of a user.
    pub fn logins(&self, user: &str) -> Result<i64> {
        let count = self.logins.get(user)?.and_then(|count| count.first_chunk().copied());
        Ok(count.map_or(0, i64::from_le_bytes))
    }

    /// Removes ended sessions now, which compactions do by and by.
    pub fn clean_up(&self) -> Result<()> {
        self.sessions.compact_range(..)?;
        self.users.compact_range(..)
    }

    /// Commits a transaction, again after a conflict.
    fn repeated(&self, mut act: impl FnMut(&mut Transaction) -> Result<bool>) -> Result<bool> {
        let options = TransactionOptions { write: WriteOptions::durable(), ..TransactionOptions::default() };
        loop {
            let mut transaction = self.db.transaction_with(&options);
            match act(&mut transaction).and_then(|outcome| transaction.commit().map(|()| outcome)) {
                Err(e) if e.kind() == ErrorKind::Conflict => {}
                outcome => return outcome,
            }
        }
    }
}

/// Returns the rest of a value that has not ended.
fn living(family: &Family, key: &str, now: u64) -> Result<Option<String>> {
    let found = family.get(key)?.and_then(|value| parse(&value));
    Ok(found.filter(|(end, _)| *end > now).map(|(_, rest)| rest))
}

#[allow(dead_code, reason = "the test of this example has a main of its own")]
fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let logins: u64 = std::env::args().nth(1).map_or(Ok(2000), |n| n.parse())?;
    let dir = std::env::temp_dir().join(format!("lavastore-sessions-{}", std::process::id()));
    let sessions = Sessions::open(Db::open_with(&dir, &Sessions::options())?)?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let mut begun = 0;
    for nth in 0..logins {
        let (user, id) = (format!("user {}", nth % 100), format!("session {nth}"));
        begun += u64::from(sessions.log_in(&user, &id, (now, 3600))?);
        if nth % 3 == 0 {
            sessions.log_out(&id, now)?;
        }
    }
    sessions.clean_up()?;
    println!("{logins} logins, {begun} sessions begun, {} by user 7", sessions.logins("user 7")?);
    drop(sessions);
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
