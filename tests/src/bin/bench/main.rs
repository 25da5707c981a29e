//! What a hop through Traygate costs, beside no hop and the barest one, in one run.
//!
//! `make bench` builds everything optimised and runs it. The figures and what they mean are in
//! `docs/performance.md`. Nothing here fails on a slow machine: it measures, tests judge.

mod echo;
mod hop;
mod lists;
mod load;

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand};
use traygate_tests::{Traygate, process, traygate::free_port};

use self::load::{Load, Measured, Target};

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    part: Option<Part>,
    /// Measures every figure so many times and prints the median.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Requests of a measurement at one connection.
    #[arg(long, default_value_t = 3000)]
    requests: usize,
}

/// One part alone; the others are processes that the bench starts of itself.
#[derive(Subcommand)]
enum Part {
    /// What lists cost: warm, cold with many askers at once, and in memory.
    Lists,
    /// An upstream that answers at once, over stdio or behind a port.
    Echo {
        #[arg(long, default_value_t = 22)]
        tools: usize,
        #[arg(long)]
        port: Option<u16>,
    },
    /// HTTP in front of an echo over stdio, with nothing but another id.
    Hop {
        #[arg(long)]
        port: u16,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match arguments.part {
        Some(Part::Echo { tools, port: None }) => echo::over_stdio(tools),
        Some(Part::Echo { tools, port: Some(port) }) => echo::over_http(tools, port).await,
        Some(Part::Hop { port }) => hop::serve(port).await,
        Some(Part::Lists) => lists::measure(arguments.rounds, arguments.requests / 6).await,
        None => measure(&arguments).await,
    }
}

async fn measure(arguments: &Arguments) -> Result<()> {
    let one = Load { connections: 1, requests: arguments.requests, method: "tools/call" };
    let many = Load { connections: 64, requests: 6 * arguments.requests, method: "tools/call" };
    let list = Load { connections: 1, requests: arguments.requests / 6, method: "tools/list" };

    println!("| target | call, 1 connection: ms | calls a second, 64 connections | list: ms |");
    println!("|---|---|---|---|");
    let echo = Part::behind_port(|port| vec!["echo".into(), "--port".into(), port.to_string()])?;
    let direct = Target::bare(echo.port);
    row("echo upstream, direct over HTTP", &direct, arguments.rounds, [&one, &many, &list]).await?;
    let hop = Part::behind_port(|port| vec!["hop".into(), "--port".into(), port.to_string()])?;
    row("barest hop to stdio", &Target::bare(hop.port), arguments.rounds, [&one, &many, &list])
        .await?;

    let stdio = hosting(&[("echo", &["echo"])]).await?;
    let target = Target::of(&stdio, "echo__echo").await?;
    row("Traygate to stdio", &target, arguments.rounds, [&one, &many, &list]).await?;
    println!("\nresident after that load: {:.1} MiB", resident(stdio.pid())?);
    drop(stdio);

    let mut http = Traygate::start().await?;
    http.cli(&["add", "echo", "--url", &format!("http://127.0.0.1:{}/mcp", echo.port)])
        .await?
        .ok()?;
    let target = Target::of(&http, "echo__echo").await?;
    println!("\n| target | call, 1 connection: ms | calls a second, 64 connections | list: ms |");
    println!("|---|---|---|---|");
    row("Traygate to HTTP", &target, arguments.rounds, [&one, &many, &list]).await?;
    http.stop().await?;

    let hundred: &[&str] = &["echo", "--tools", "100"];
    let ten: Vec<(String, &[&str])> = (0..10).map(|at| (format!("u{at}"), hundred)).collect();
    let ten: Vec<(&str, &[&str])> = ten.iter().map(|(name, part)| (name.as_str(), *part)).collect();
    let thousand = hosting(&ten).await?;
    let target = Target::of(&thousand, "u0__echo").await?;
    let listed = median(&target, arguments.rounds, &list).await?;
    println!("\nlist of 1,000 tools from 10 upstreams: {:.2} ms", listed.millis);
    drop(thousand);

    lists::measure(arguments.rounds, arguments.requests / 6).await?;
    idle(&echo, arguments.rounds).await?;
    bridge(arguments.rounds).await
}

/// Resident memory with ten idle HTTP upstreams, and how long a start takes.
async fn idle(echo: &Serving, rounds: usize) -> Result<()> {
    let mut host = Traygate::start().await?;
    for at in 0..10 {
        let url = format!("http://127.0.0.1:{}/mcp", echo.port);
        host.cli(&["add", &format!("u{at}"), "--url", &url]).await?.ok()?;
    }
    host.stop().await?;
    let mut starts = Vec::new();
    for _ in 0..rounds {
        let begun = Instant::now();
        host.serve().await?;
        starts.push(begun.elapsed());
        if starts.len() < rounds {
            host.stop().await?;
        }
    }
    process::until("ten upstreams are ready", || {
        host.host_log().is_ok_and(|log| log.matches(" connected ").count() >= 10 * (rounds + 1))
    })
    .await?;
    starts.sort();
    let start = starts[starts.len() / 2].as_secs_f64() * 1000.0;
    println!("start to first accepted request, ten upstreams: {start:.0} ms");
    println!("resident, idle, ten HTTP upstreams: {:.1} MiB", resident(host.pid())?);
    host.stop().await
}

/// From the start of `traygate stdio` to the first answer through it.
async fn bridge(rounds: usize) -> Result<()> {
    let host = Traygate::start().await?;
    let mut took = Vec::new();
    for _ in 0..rounds.max(5) {
        let begun = Instant::now();
        let mut command = tokio::process::Command::from(host.command());
        let mut bridge = command
            .arg("stdio")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let mut line = load::handshake().to_string();
        line.push('\n');
        let (mut write, read) =
            (bridge.stdin.take().context("stdin")?, bridge.stdout.take().context("stdout")?);
        tokio::io::AsyncWriteExt::write_all(&mut write, line.as_bytes()).await?;
        let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(read));
        let answer = lines.next_line().await?;
        ensure!(answer.is_some_and(|answer| answer.contains("result")), "no handshake");
        took.push(begun.elapsed());
    }
    took.sort();
    println!(
        "traygate stdio, from its start to its first answer: {:.1} ms",
        took[took.len() / 2].as_secs_f64() * 1000.0
    );
    Ok(())
}

async fn row(name: &str, target: &Target, rounds: usize, loads: [&Load; 3]) -> Result<()> {
    let [one, many, list] = loads;
    let one = median(target, rounds, one).await?;
    let many = median(target, rounds, many).await?;
    let list = median(target, rounds, list).await?;
    println!("| {name} | {:.3} | {:.0} | {:.2} |", one.millis, many.per_second, list.millis);
    Ok(())
}

/// The median round; each figure by itself.
async fn median(target: &Target, rounds: usize, load: &Load) -> Result<Measured> {
    let mut millis = Vec::new();
    let mut per_second = Vec::new();
    for _ in 0..rounds {
        let measured = load.on(target).await?;
        millis.push(measured.millis);
        per_second.push(measured.per_second);
    }
    millis.sort_by(f64::total_cmp);
    per_second.sort_by(f64::total_cmp);
    Ok(Measured { millis: millis[rounds / 2], per_second: per_second[rounds / 2] })
}

/// A host whose upstreams are this program's own parts.
async fn hosting(upstreams: &[(&str, &[&str])]) -> Result<Traygate> {
    let host = Traygate::start().await?;
    let bench = std::env::current_exe()?.display().to_string();
    for (name, part) in upstreams {
        let mut add = vec!["add", name, "--", &bench];
        add.extend_from_slice(part);
        host.cli(&add).await?.ok()?;
    }
    Ok(host)
}

/// A part of this program behind a port, until it is dropped.
struct Serving {
    child: Child,
    port: u16,
}

impl Part {
    fn behind_port(arguments: impl FnOnce(u16) -> Vec<String>) -> Result<Serving> {
        let port = free_port()?;
        let child = Command::new(std::env::current_exe()?).args(arguments(port)).spawn()?;
        let serving = Serving { child, port };
        let deadline = Instant::now() + Duration::from_secs(10);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(Instant::now() < deadline, "a part of the bench does not open its port");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(serving)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In MiB, as the kernel counts it.
fn resident(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}
