//! The host that already runs for a data directory, as another start of Traygate meets it (design
//! section 8, "Who hosts"): a desktop shows its window, a headless host gives way to a desktop.

use std::{fs::File, time::Duration};

use reqwest::StatusCode;
use tokio::time::{Instant, sleep};

use crate::{
    api::RunFile,
    host::{HEADLESS, read_run_file},
    paths::Paths,
};

/// One question to it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Its whole end: its connections are drained for 1.5 s, and its programs have 3 s.
const END: Duration = Duration::from_secs(8);
const LOOK: Duration = Duration::from_millis(25);

pub struct OtherHost {
    run: RunFile,
}

impl OtherHost {
    /// As it wrote itself down; `None` if it hasn't yet, or no more.
    pub fn of(paths: &Paths) -> Option<Self> {
        read_run_file(paths).map(|run| Self { run })
    }

    pub fn is_headless(&self) -> bool {
        self.run.host == HEADLESS
    }

    pub fn pid(&self) -> u32 {
        self.run.pid
    }

    pub fn port(&self) -> u16 {
        self.run.port
    }

    /// Has it show its window.
    pub async fn show_window(&self) -> Result<(), String> {
        self.post("window").await
    }

    /// Has it end in good order, and waits for that.
    pub async fn give_way(&self, paths: &Paths) -> Result<(), String> {
        self.post("shutdown").await?;
        let deadline = Instant::now() + END;
        while !is_free(paths) {
            if Instant::now() >= deadline {
                return Err(format!("it doesn't end (process {})", self.run.pid));
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    async fn post(&self, route: &str) -> Result<(), String> {
        let RunFile { port, token, .. } = &self.run;
        // Loopback needs no proxy and no certificates.
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).timeout(PATIENCE);
        let asked = async {
            let url = format!("http://127.0.0.1:{port}/control/v1/{route}");
            client.build()?.post(url).bearer_auth(token).send().await
        };
        match asked.await {
            Ok(answer) if answer.status() == StatusCode::ACCEPTED => Ok(()),
            Ok(answer) => Err(format!("it answered {}", answer.status())),
            Err(error) => Err(format!("it can't be asked: {error}")),
        }
    }
}

/// Whether nobody holds the lock.
fn is_free(paths: &Paths) -> bool {
    File::open(paths.lock()).is_ok_and(|lock| lock.try_lock().is_ok())
}
