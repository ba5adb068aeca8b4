//! An unused asynchronous interface costs no processor time. Alone in its process, because the test
//! inspects the threads of the process.

use lavastore::{Db, Env, Options, RequestOptions, WriteOptions};

/// Processor time of the request threads in hundredths of a second.
#[allow(clippy::disallowed_methods, reason = "what the system knows of the process's threads")]
fn ticks() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let own = threads.filter_map(|thread| {
        let path = thread.ok()?.path();
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let stat = std::fs::read_to_string(path.join("stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        let time = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        name.starts_with("lava-async").then_some(time)
    });
    own.sum()
}

#[test]
fn an_idle_request_front_end_uses_no_cpu() {
    let dir = std::env::temp_dir().join(format!("lavastore-idle-requests-{}", std::process::id()));
    std::fs::remove_dir_all(&dir).ok();
    let db = Db::open_with(&dir, &Options { cache_bytes: 0, ..Default::default() }).unwrap();
    let options = RequestOptions { write: WriteOptions::durable(), ..Default::default() };
    let requests = db.requests(&options).unwrap();
    let mut queue = requests.queue();
    for i in 0..100u32 {
        queue.submit(requests.put(i.to_be_bytes(), vec![7; 2000]).unwrap(), 0);
    }
    queue.submit(requests.flush().unwrap(), 0);
    while let Some((_, outcome)) = queue.wait(None) {
        outcome.unwrap();
    }
    for i in 0..100u32 {
        queue.submit(requests.get(i.to_be_bytes()).unwrap(), 0);
    }
    while let Some((_, outcome)) = queue.wait(None) {
        outcome.unwrap();
    }
    let before = ticks();
    Env::kernel().clock.sleep_ns(3_000_000_000);
    assert_eq!(ticks(), before, "they sleep");
    drop((requests, db));
    std::fs::remove_dir_all(&dir).ok();
}
