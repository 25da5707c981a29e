//! Foreign pages, and data of a newer version.

use anyhow::{Context as _, Result, ensure};
use traygate_tests::process;

use crate::support::Case;

#[tokio::test]
async fn rw_67_foreign_hosts_and_origins_are_refused_on_every_route() -> Result<()> {
    let Some(case) = Case::start().await? else { return Ok(()) };
    case.add("u", "ok").await?;
    case.traygate.state("u", "ready").await?;
    let before = case.count("u", "recv", Some("tools/list"))?;
    let port = case.traygate.run_file()?.port;
    let http = reqwest::Client::new();
    let foreign = [
        ("host", "evil.example".to_owned()),
        ("host", "127.0.0.1.evil.example".to_owned()),
        ("host", format!("localhost.evil.example:{port}")),
        ("origin", "http://evil.example".to_owned()),
        ("origin", "null".to_owned()),
        ("origin", "http://127.0.0.1.evil.example".to_owned()),
        // Another program's page on this machine is foreign too: docs/guide.md.
        ("origin", "http://localhost:9999".to_owned()),
    ];
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    for path in ["/mcp", "/mcp/u", "/control/v1/status", "/control/v1/upstreams", "/", "/nothing"] {
        for method in [
            reqwest::Method::GET,
            reqwest::Method::POST,
            reqwest::Method::DELETE,
            reqwest::Method::OPTIONS,
        ] {
            for (header, value) in &foreign {
                let response = http
                    .request(method.clone(), format!("http://127.0.0.1:{port}{path}"))
                    .header(*header, value)
                    .header("content-type", "text/plain")
                    .bearer_auth(&case.token)
                    .body(body)
                    .send()
                    .await?;
                ensure!(
                    response.status() == 403,
                    "{method} {path} {header}: {value} got {}",
                    response.status()
                );
                ensure!(response.headers().get("access-control-allow-origin").is_none());
            }
        }
    }
    ensure!(case.count("u", "recv", Some("tools/list"))? == before, "nothing reached the upstream");
    let sockets = tokio::process::Command::new("ss").args(["-ltnpH"]).output().await;
    if let Ok(sockets) = sockets {
        let sockets = String::from_utf8_lossy(&sockets.stdout).into_owned();
        let ours: Vec<_> = sockets
            .lines()
            .filter(|line| line.contains(&format!("pid={},", case.traygate.pid())))
            .collect();
        ensure!(
            !ours.is_empty()
                && ours.iter().all(|line| line.contains("127.0.0.1:") || line.contains("[::1]:")),
            "{ours:?}"
        );
    }
    case.end(&["u"]).await
}

#[tokio::test]
async fn rw_70_a_newer_database_is_refused_untouched_and_a_killed_start_loses_nothing() -> Result<()>
{
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    case.add("u", "ok").await?;
    case.traygate.cli(&["show", "u"]).await?.ok()?;
    case.traygate.cli(&["disable", "u/tool/echo"]).await?.ok()?;
    case.traygate.stop().await?;
    let database = case.traygate.paths().database();
    let original = std::fs::read(&database)?;
    for (statement, words) in [
        ("PRAGMA user_version = 1000; ALTER TABLE apps ADD COLUMN colour TEXT;", "newer"),
        ("PRAGMA user_version = 1001; ALTER TABLE upstreams RENAME TO servers;", "newer"),
    ] {
        let pool = sqlx::SqlitePool::connect(&format!("sqlite:{}", database.display())).await?;
        for part in statement.split_inclusive(';') {
            sqlx::query(sqlx::AssertSqlSafe(part)).execute(&pool).await.context(part)?;
        }
        pool.close().await;
        let raised = std::fs::read(&database)?;
        let refused = case.traygate.cli(&["serve"]).await?;
        ensure!(refused.code == Some(1), "{refused:?}");
        ensure!(refused.stderr.contains(words) && refused.stderr.contains("update"), "{refused:?}");
        ensure!(refused.stderr.contains(&database.display().to_string()), "{refused:?}");
        ensure!(std::fs::read(&database)? == raised, "the file is as it was");
        std::fs::write(&database, &original)?;
    }
    for _ in 0..10 {
        let mut host = case.traygate.command();
        host.args(["serve", "--port", &case.traygate.port.to_string()]);
        let mut host =
            host.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn()?;
        // The moment differs from machine to machine and from try to try; any will do.
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        host.kill()?;
        host.wait()?;
    }
    case.traygate.serve().await?;
    let capabilities = case.traygate.capabilities("u").await?;
    ensure!(
        capabilities.items.iter().any(|item| item.key == "echo" && !item.enabled),
        "the choice is there"
    );
    ensure!(!process::files(&case.traygate.paths().data).is_empty());
    case.end(&["u"]).await
}
