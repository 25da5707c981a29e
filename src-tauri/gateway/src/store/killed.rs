//! What the database lives through when its process is killed.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use super::{tests::Fixture, *};

/// Names the database for the process that is to be killed.
const VICTIM: &str = "TRAYGATE_TEST_DATABASE_OF_THE_VICTIM";

/// Runs this same test in a process of its own, which toggles until it is killed. What it had
/// announced as stored has to be there.
#[tokio::test]
async fn a_choice_outlives_a_killed_process() {
    if let Some(path) = std::env::var_os(VICTIM) {
        toggle_for_ever(Path::new(&path)).await;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("traygate.db");
    for round in 0..20 {
        let announced = killed_after(&path, round);
        let store = Store::open(&path).await.expect("whole after the kill");
        let preferences = store.preferences().await.expect("preferences");
        for line in announced {
            let stored = preferences.iter().find(|preference| preference.key == line);
            assert_eq!(stored.map(|p| p.enabled), Some(false), "round {round}: {line}");
        }
        store.close().await;
    }
}

async fn toggle_for_ever(path: &Path) -> ! {
    let store = Store::open(path).await.expect("opened");
    let id = match store.upstreams().await.expect("the list").first() {
        Some(upstream) => upstream.id,
        None => store.add_upstream(&Fixture::definition("one")).await.expect("added"),
    };
    let from = store.preferences().await.expect("preferences").len();
    for number in from.. {
        let key = number.to_string();
        let kind = CapabilityType::Tool;
        store.insert_new(id, kind, &[&key], true, 1).await.expect("inserted");
        store.set_enabled(id, kind, &key, false, 2).await.expect("toggled");
        println!("stored {key}");
    }
    unreachable!("it is killed before the numbers end")
}

/// In even rounds kills it as soon as it has announced so many toggles; in odd ones while it
/// opens, a little later each time.
fn killed_after(path: &Path, round: u64) -> Vec<String> {
    let mut victim = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "store::killed::a_choice_outlives_a_killed_process", "--nocapture"])
        .env(VICTIM, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let output = BufReader::new(victim.stdout.take().expect("piped"));
    let lines = output.lines().map_while(Result::ok);
    let stored = lines.filter_map(|line| Some(line.split_once("stored ")?.1.to_owned()));
    let (at_once, moment) = (round.is_multiple_of(2), std::time::Duration::from_millis(round * 2));
    let announced = if at_once { stored.take(round as usize + 1).collect() } else { Vec::new() };
    if !at_once {
        // No event to wait for: any moment is a good one to be killed at.
        std::thread::sleep(moment);
    }
    victim.kill().expect("killed");
    victim.wait().expect("ended");
    assert!(!at_once || announced.len() as u64 == round + 1, "it ended by itself");
    announced
}
