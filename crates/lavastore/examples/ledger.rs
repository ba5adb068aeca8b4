//! A ledger on transactions: transfers within a store and between two stores, each once and whole.
//!
//! ```text
//! cargo run --example ledger [TRANSFERS]
//! ```
//!
//! # Data layout
//!
//! | family | key | value |
//! |---|---|---|
//! | `accounts` | name | balance in cents |
//! | `entries` | number of the transfer | amount, names of both accounts |
//!
//! A transfer locks its number and both accounts, and writes all three in one commit. So transfers
//! of the same accounts wait for each other, and a repeated transfer finds its entry.
//!
//! # Between two stores
//!
//! [`Ledger::send`] prepares the credit in the other store, and then commits the debit with the
//! entry: this commit decides. A crash before it leaves a prepared credit without an entry, one
//! after it a prepared credit with one: [`Ledger::settle`] rolls back the first, and commits the
//! second. Call it after each open, and let one ledger send to another one: a credit of a third one
//! would find no entry.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a program on the machine")]

use lavastore::{Db, ErrorKind, Family, LockOptions, Result, Transaction, TransactionOptions, WriteOptions};

/// The outcome of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The money has moved, now or at an earlier call with the same number.
    Done,
    /// The account has too little.
    TooLittle,
}

/// Accounts and transfers in a store.
pub struct Ledger {
    db: Db,
    accounts: Family,
    entries: Family,
}

fn cents(value: Option<&[u8]>) -> i64 {
    value.and_then(|value| value.first_chunk()).map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

impl Ledger {
    /// Opens the ledger of a store.
    pub fn open(db: Db) -> Result<Ledger> {
        let (accounts, entries) = (db.family("accounts")?, db.family("entries")?);
        Ok(Ledger { db, accounts, entries })
    }

    /// Sets the balance of a new account. Returns false if the account exists.
    pub fn create(&self, account: &str, balance: i64) -> Result<bool> {
        self.accounts.writing(&WriteOptions::durable()).put_if_absent(account, balance.to_le_bytes())
    }

    /// Moves an amount between two accounts, durably. A second call with the same number changes
    /// nothing.
    pub fn transfer(&self, number: u64, (from, to): (&str, &str), amount: i64) -> Result<Outcome> {
        self.repeated(|transfer| {
            if !self.debit(transfer, number, (from, to), amount)? {
                return self.outcome(transfer, number);
            }
            self.credit(transfer, to, amount)?;
            Ok(Outcome::Done)
        })
    }

    /// Moves an amount to an account of another store, durably. After an error, repeat the call
    /// with the same number; after `Io` or `Poisoned`, open the store again before.
    pub fn send(&self, number: u64, way: (&str, &str, &Ledger), amount: i64) -> Result<Outcome> {
        let (from, to, other) = way;
        other.settle(self)?;
        let mut credit = other.begin();
        other.credit(&mut credit, to, amount)?;
        let credit = credit.prepare(number.to_be_bytes())?;
        let mut is_new = false;
        let outcome = self.repeated(|debit| {
            is_new = self.debit(debit, number, (from, to), amount)?;
            if is_new { Ok(Outcome::Done) } else { self.outcome(debit, number) }
        });
        match &outcome {
            Ok(Outcome::Done) if is_new => credit.commit()?,
            // The debit may exist: the next open tells.
            Err(e) if matches!(e.kind(), ErrorKind::Io | ErrorKind::Poisoned) => drop(credit),
            _ => credit.roll_back()?,
        }
        outcome
    }

    /// Ends the credits that a crash has left here, as the ledger `from` has decided.
    pub fn settle(&self, from: &Ledger) -> Result<()> {
        // An entry that is seen must not be lost any more. (It fails if a debit may be lost.)
        from.db.sync()?;
        for name in self.db.prepared_transactions()? {
            let Some(credit) = self.db.prepared_transaction(&name)? else { continue };
            match from.entries.contains_key(&name)? {
                true => credit.commit()?,
                false => credit.roll_back()?,
            }
        }
        Ok(())
    }

    /// Returns a balance in cents.
    pub fn balance(&self, account: &str) -> Result<i64> {
        Ok(cents(self.accounts.get(account)?.as_deref()))
    }

    /// Returns the sum of all balances, as of one moment.
    pub fn total(&self) -> Result<i64> {
        self.accounts.iter().map(|entry| Ok(cents(Some(&entry?.1)))).sum()
    }

    /// Returns whether a transfer is done.
    pub fn is_done(&self, number: u64) -> Result<bool> {
        self.entries.contains_key(number.to_be_bytes())
    }

    fn begin(&self) -> Transaction {
        let (locks, write) = (Some(LockOptions::default()), WriteOptions::durable());
        self.db.transaction_with(&TransactionOptions { locks, write, ..TransactionOptions::default() })
    }

    /// Commits a transaction, again after a deadlock.
    fn repeated(&self, mut act: impl FnMut(&mut Transaction) -> Result<Outcome>) -> Result<Outcome> {
        loop {
            let mut transaction = self.begin();
            match act(&mut transaction).and_then(|outcome| transaction.commit().map(|()| outcome)) {
                Err(e) if e.kind() == ErrorKind::Conflict => {}
                outcome => return outcome,
            }
        }
    }

    /// Adds the entry, and takes the amount from an account. Returns false, without a change, if the
    /// entry exists or the account has too little.
    fn debit(&self, transfer: &mut Transaction, number: u64, way: (&str, &str), amount: i64) -> Result<bool> {
        let (from, to) = way;
        let mut entries = transfer.family(&self.entries)?;
        if entries.get_for_update(number.to_be_bytes())?.is_some() {
            return Ok(false);
        }
        let mut accounts = transfer.family(&self.accounts)?;
        // Both locks at once, in the order of the names: such calls cause no deadlock.
        let balances = accounts.multi_get_for_update([from, to])?;
        let balance = cents(balances[0].as_deref());
        if balance < amount {
            return Ok(false);
        }
        accounts.put(from, (balance - amount).to_le_bytes())?;
        let entry = [&amount.to_le_bytes()[..], from.as_bytes(), b" to ", to.as_bytes()].concat();
        transfer.family(&self.entries)?.put(number.to_be_bytes(), entry)?;
        Ok(true)
    }

    fn credit(&self, transfer: &mut Transaction, to: &str, amount: i64) -> Result<()> {
        let mut accounts = transfer.family(&self.accounts)?;
        let balance = cents(accounts.get_for_update(to)?.as_deref());
        accounts.put(to, (balance + amount).to_le_bytes())
    }

    /// Returns the outcome of a transfer that changes nothing.
    fn outcome(&self, transfer: &mut Transaction, number: u64) -> Result<Outcome> {
        let entry = transfer.family(&self.entries)?.get_for_update(number.to_be_bytes())?;
        Ok(if entry.is_some() { Outcome::Done } else { Outcome::TooLittle })
    }
}

#[allow(dead_code, reason = "the test of this example has a main of its own")]
fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let transfers: u64 = std::env::args().nth(1).map_or(Ok(2000), |n| n.parse())?;
    let dir = std::env::temp_dir().join(format!("lavastore-ledger-{}", std::process::id()));
    let ledger = Ledger::open(Db::open(&dir)?)?;
    let names = ["ada", "ben", "cleo", "dan"];
    for name in names {
        ledger.create(name, 10_000)?;
    }
    std::thread::scope(|scope| {
        let transfer = |number: u64| {
            let (from, to) = (number as usize % 4, (number as usize * 7 + 1) % 4);
            ledger.transfer(number, (names[from], names[to]), (number % 90) as i64).map(drop)
        };
        let threads: Vec<_> = (0..4)
            .map(|thread| scope.spawn(move || (thread..transfers).step_by(4).try_for_each(transfer)))
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    println!("{transfers} transfers, {} cents in all", ledger.total()?);
    drop(ledger);
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
