//! What the snapshot file and the database live through when the process is killed while it writes
//! them.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::{SnapshotFile, tests::entry};
use crate::{
    capability::CapabilityType,
    clock::wall,
    store::{Store, tests::Fixture},
};

/// Names the directory for the process that is to be killed.
const VICTIM: &str = "TRAYGATE_TEST_DIRECTORY_OF_THE_SNAPSHOT_VICTIM";
const ROUNDS: usize = 200;
/// Bounds a failure: what a round needs is a fraction of a second.
const WHOLE_TEST: Duration = Duration::from_mins(2);

/// Runs this same test in a process of its own, which writes until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_two_hundred_times_the_file_is_whole_or_absent_and_the_database_intact() {
    if let Some(directory) = std::env::var_os(VICTIM) {
        write_for_ever(Path::new(&directory)).await;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = SnapshotFile::below(directory.path());
    let database = directory.path().join("traygate.db");
    let (began, mut whole) = (Instant::now(), 0);
    for round in 0..ROUNDS {
        kill_while_it_writes(directory.path(), round);
        match file.load(wall()).unwrap_or_else(|why| panic!("round {round}: {why}")) {
            Some(loaded) => {
                assert_eq!((loaded.entries.len(), loaded.odd), (1, None), "round {round}");
                whole += 1;
            }
            None => assert_eq!(round, 0, "once it was there, it stays"),
        }
        // Each tenth time, since opening it costs more than all the rest of a round.
        if round % 10 == 9 {
            let store = Store::open(&database).await.expect("intact after the kill");
            let rows = store.preferences().await.expect("preferences");
            assert!(rows.iter().all(|row| !row.enabled), "round {round}");
            store.close().await;
        }
        assert!(began.elapsed() < WHOLE_TEST, "round {round} after {:?}", began.elapsed());
    }
    assert!(whole >= ROUNDS - 1, "{whole} of {ROUNDS}");
}

async fn write_for_ever(directory: &Path) -> ! {
    let file = SnapshotFile::below(directory);
    let store = Store::open(&directory.join("traygate.db")).await.expect("opened");
    let id = match store.upstreams().await.expect("the list").first() {
        Some(upstream) => upstream.id,
        None => store.add_upstream(&Fixture::definition("one")).await.expect("added"),
    };
    let toggles = tokio::spawn(async move {
        for number in 0.. {
            // The same few rows again and again: it is the writing that matters.
            let key = (number % 10).to_string();
            store.insert_new(id, CapabilityType::Tool, &[&key], false, 1).await.expect("inserted");
            store
                .set_enabled(id, CapabilityType::Tool, &key, false, number)
                .await
                .expect("toggled");
        }
    });
    let writes = tokio::task::spawn_blocking(move || {
        for size in (1..=400).cycle() {
            file.write(&[entry(size)]).expect("written");
            println!("written");
        }
    });
    let _ = tokio::join!(toggles, writes);
    unreachable!("it is killed before it ends")
}

/// Waits for a first write, and a little longer each time.
fn kill_while_it_writes(directory: &Path, round: usize) {
    use std::io::{BufRead as _, BufReader};
    let name = "snapshot_file::killed::killed_two_hundred_times_the_file_is_whole_or_absent_and_the_database_intact";
    let mut victim = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", name, "--nocapture"])
        .env(VICTIM, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let output = BufReader::new(victim.stdout.take().expect("piped"));
    let mut written = output.lines().map_while(Result::ok).filter(|line| line.contains("written"));
    assert!(written.nth(round % 3).is_some(), "it ended by itself");
    // No event to wait for: any moment is a good one to be killed at.
    std::thread::sleep(Duration::from_micros(100 * (round as u64 % 50)));
    victim.kill().expect("killed");
    victim.wait().expect("ended");
}
