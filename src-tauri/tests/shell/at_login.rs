//! Starting with the user's session: what is written, that it starts Traygate, and what is said.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use gtk::gio::{AppLaunchContext, DesktopAppInfo, prelude::*};
use traygate_tests::process::{binary, until};

use crate::{
    browser::Browser,
    panel::Panel,
    stage::{Desktop, Home, Started},
};

const ROW: [&str; 2] = ["Settings", "Start at login"];

fn entry(home: &Home) -> PathBuf {
    home.traygate.home.path().join(".config/autostart/Traygate.desktop")
}

/// As a desktop does it that has just begun, by the entry alone.
fn launch(entry: &Path, furnish: impl FnOnce(&mut Command)) -> Result<()> {
    let app = DesktopAppInfo::from_filename(entry).context("a valid entry")?;
    let context = AppLaunchContext::new();
    // What a child of the session would inherit.
    let mut command = Command::new("unused");
    furnish(&mut command);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => context.setenv(name, value),
            None => context.unsetenv(name),
        }
    }
    app.launch(&[], Some(&context)).map_err(Into::into)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trays_switch_writes_an_entry_that_starts_traygate_hidden() -> Result<()> {
    let (mut home, desktop) = (Home::new(), Desktop::start());
    let mut panel = Panel::start(&desktop).await;
    let mut traygate = Started::hidden(&desktop, &mut home);
    let mut icon = panel.icon().await;
    // The entry names no port, and the usual one may be in use here.
    let port = traygate_tests::traygate::free_port()?.to_string();
    home.traygate.cli(&["config", "port", &port]).await?.ok()?;
    let is = |on| move |menu: &crate::panel::Row| menu.need(&ROW).checked == Some(on);
    icon.until("it is off until the user says yes", is(false)).await;
    icon.click(&ROW).await;
    icon.until("the row shows it", is(true)).await;
    let said = home.traygate.cli_with(&["autostart"], &[("HOME", home.path())]).await?.ok()?;
    ensure!(said.contains("starts with your session"), "{said}");
    traygate.ask_to_end();
    assert_eq!(traygate.exit_code(), Some(0));

    launch(&entry(&home), |command| {
        home.furnish(command);
        desktop.furnish(command);
    })?;
    let mut icon = panel.icon().await;
    let run = home.run_file();
    assert_eq!(run.host, "desktop");
    home.traygate.port = run.port;
    icon.until("and it is on still", is(true)).await;
    icon.click(&ROW).await;
    icon.until("off", is(false)).await;
    ensure!(!entry(&home).exists(), "nothing is left of it");
    icon.click(&["Quit"]).await;
    until("it ends", || !home.has_run_file()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_switches_it_too_whatever_the_path_and_the_directory() -> Result<()> {
    let home = Home::new();
    let directory = home.traygate.home.path().join("a $HOME `b`");
    fs::create_dir(&directory)?;
    // The programs stand beside each other; this desktop only notes how it was started.
    let traygate = directory.join("traygate");
    fs::copy(binary("traygate"), &traygate)?;
    let desktop = directory.join("traygate-desktop");
    fs::write(&desktop, "#!/bin/sh\necho \"$0|$*\" >\"$NOTED\"\n")?;
    Command::new("chmod").arg("+x").arg(&desktop).status()?;
    let config = home.traygate.home.path().join("config");
    let autostart = |wanted: &str| -> Result<String> {
        let mut command = Command::new(&traygate);
        home.furnish(&mut command);
        let command = command.args(["autostart", wanted]).env("XDG_CONFIG_HOME", &config);
        let output = command.output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };
    ensure!(autostart("status")?.contains("doesn't start"));
    ensure!(autostart("on")?.contains("starts with your session"));
    let entry = config.join("autostart/Traygate.desktop");
    let noted = home.traygate.home.path().join("noted");
    launch(&entry, |command| {
        command.env("NOTED", &noted);
    })?;
    let expected = format!("{}|--hidden\n", desktop.display());
    until("it was started as written", || {
        fs::read_to_string(&noted).is_ok_and(|noted| noted == expected)
    })
    .await?;
    let text = fs::read_to_string(&entry)?;
    fs::write(&entry, format!("{text}Hidden=true\n"))?;
    ensure!(autostart("status")?.contains("switched off in your desktop's settings"));
    autostart("on")?;
    fs::remove_file(&desktop)?;
    ensure!(autostart("status")?.contains("which is not there"));
    ensure!(autostart("off")?.contains("doesn't start"));
    ensure!(!entry.exists());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_window_asks_once() -> Result<()> {
    let (home, desktop) = (Home::new(), Desktop::start());
    let browser = Browser::start(&desktop, &home);
    browser.until("it asks", "document.querySelector('#yes-at-login') !== null");
    ensure!(!entry(&home).exists(), "off until the user says yes");
    browser.click("#yes-at-login");
    browser.until("and asks no more", "document.querySelector('#yes-at-login') === null");
    ensure!(entry(&home).exists());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_follows_a_program_that_moved() -> Result<()> {
    let (home, desktop) = (Home::new(), Desktop::start());
    let mut panel = Panel::start(&desktop).await;
    let entry = entry(&home);
    fs::create_dir_all(entry.parent().context("a directory")?)?;
    fs::write(
        &entry,
        "[Desktop Entry]\nType=Application\nExec=/opt/old/traygate-desktop --hidden\n",
    )?;
    let mut traygate = Started::new(desktop.command(&home).arg("--hidden"));
    traygate.hear("on the desktop");
    panel.icon().await;
    let text = fs::read_to_string(&entry)?;
    ensure!(
        text.contains(&format!("Exec=\"{}\" --hidden", env!("CARGO_BIN_EXE_traygate-desktop"))),
        "{text}"
    );
    Ok(())
}
