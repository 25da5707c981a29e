//! The fake on standard input and output.

use std::sync::Arc;

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    sync::mpsc,
};

use super::{
    checks::LEGACY,
    control_dir::LogEntry,
    options::Probe,
    server::{After, Caller, Fake, Out, Session},
};

const SESSION: &str = "stdio";

pub async fn run(fake: Arc<Fake>) -> anyhow::Result<()> {
    let (out, outgoing) = mpsc::unbounded_channel();
    let writer = tokio::spawn(write(Arc::clone(&fake), outgoing));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut first = true;
    while let Some(line) = lines.next_line().await? {
        if line.trim().is_empty() {
            continue;
        }
        if first && !fake.options.era.speaks_modern() && !line.contains("\"initialize\"") {
            match fake.options.probe {
                Probe::Error => {}
                Probe::Silent => {
                    fake.log(&LogEntry::new("probed"));
                    continue;
                }
                Probe::Exit => {
                    eprintln!("fake upstream: expected initialize");
                    fake.log(&LogEntry::new("probed"));
                    fake.die(1);
                }
            }
        }
        first = false;
        if line.contains("\"initialize\"") && fake.options.era.speaks_legacy() {
            open(&fake, &out);
        }
        let caller = Caller {
            session: Some(SESSION.to_owned()),
            headers: None,
            out: out.clone(),
            stream_is_request: false,
        };
        fake.receive(&line, caller);
    }
    fake.log(&LogEntry::new("end").what("stdin was closed"));
    writer.abort();
    fake.die(0)
}

/// The process is the session: one `initialize` opens it.
fn open(fake: &Fake, out: &mpsc::UnboundedSender<Out>) {
    let session =
        Session { revision: LEGACY[3].to_owned(), push: Some(out.clone()), ..Session::default() };
    if fake.sessions().insert(SESSION.to_owned(), session).is_some() {
        fake.violation("initialize came twice", Some("initialize"));
    }
}

async fn write(fake: Arc<Fake>, mut outgoing: mpsc::UnboundedReceiver<Out>) {
    let mut stdout = tokio::io::stdout();
    if fake.options.noise {
        // A closed pipe shows itself at the first real line.
        let _ = stdout.write_all(b"Starting the fake upstream...\n\n").await;
    }
    while let Some(out) = outgoing.recv().await {
        let (text, then) = match out {
            Out::Message(text) => (text, After::Live),
            Out::Answer { text, then, .. } => (text, then),
            Out::Garbage(text) => (text.to_owned(), After::Live),
            Out::Status(_) | Out::Refused(_) => continue,
            Out::Cut => fake.die(9),
        };
        let line = format!("{text}\n");
        if stdout.write_all(line.as_bytes()).await.is_err() || stdout.flush().await.is_err() {
            fake.log(&LogEntry::new("end").what("stdout was closed"));
            fake.die(0);
        }
        if then == After::Die {
            fake.die(9);
        }
    }
}
