use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use tokio::io::AsyncReadExt;

use super::*;

fn program(command: &str, args: &[&str]) -> Program {
    Program {
        command: command.to_owned(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env: BTreeMap::new(),
        cwd: None,
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn executable(path: &Path, script: &str) {
    fs::write(path, script).expect("the file is written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is executable");
}

/// The lines that a program prints.
async fn output(program: &Program) -> Vec<String> {
    let mut group = program.start(&Children::new()).await.expect("it starts");
    let (_, stdout, _) = group.stdio();
    let mut text = String::new();
    stdout.expect("piped").read_to_string(&mut text).await.expect("text");
    assert_eq!(group.leader_exit().await, Exit::Code(0));
    group.end().await;
    text.lines().map(str::to_owned).collect()
}

async fn reason(program: &Program) -> String {
    let failure = program.start(&Children::new()).await.expect_err("it can't start");
    assert_eq!((failure.kind, failure.ran), (FailureKind::Misconfigured, Ran::CertainlyNot));
    failure.reason
}

#[tokio::test]
async fn arguments_arrive_filled_in_and_untouched_by_any_shell() {
    let mut printf =
        program("printf", &[r"%s\n", "${WORDS}", "~/x", "${NOPE_X:-d}", "a b", "$(id)", "*", ";"]);
    printf.env.insert("WORDS".to_owned(), "v 1".to_owned());
    let home = format!("{}/x", home().expect("a home"));
    assert_eq!(output(&printf).await, ["v 1", home.as_str(), "d", "a b", "$(id)", "*", ";"]);
}

#[tokio::test]
async fn a_command_line_in_one_string_is_told_apart() {
    assert_eq!(output(&program(r"printf '%s\n' 'a b' c", &[])).await, ["a b", "c"]);
}

#[tokio::test]
async fn a_program_with_a_space_in_its_path_is_not_told_apart() {
    let folder = folder();
    let path = folder.path().join("dir with space");
    fs::create_dir(&path).expect("a folder");
    executable(&path.join("my server"), "#!/bin/sh\necho started\n");
    let command = path.join("my server").display().to_string();
    assert_eq!(output(&program(&command, &[])).await, ["started"]);
}

#[tokio::test]
async fn a_child_gets_a_minimal_environment_and_what_the_definition_says() {
    let mut printenv = program("env", &[]);
    printenv.env.insert("KEY".to_owned(), "${HOME}".to_owned());
    let lines = output(&printenv).await;
    let home = home().expect("a home");
    assert!(lines.contains(&format!("KEY={home}")), "{lines:?}");
    assert!(lines.contains(&format!("HOME={home}")), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("PATH=/")), "{lines:?}");
    // Set by cargo for this very test.
    assert!(env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert!(!lines.iter().any(|line| line.starts_with("CARGO_MANIFEST_DIR")), "{lines:?}");
}

#[tokio::test]
async fn the_definitions_own_path_is_searched_and_handed_on() {
    let folder = folder();
    executable(&folder.path().join("fakenode"), "#!/bin/sh\necho \"node $PATH\"\n");
    executable(&folder.path().join("fakenpx"), "#!/usr/bin/env fakenode\n");
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let mut npx = program("fakenpx", &[]);
    npx.env.insert("PATH".to_owned(), path.clone());
    assert_eq!(output(&npx).await, [format!("node {path}")]);
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let missing = reason(&program("no-such-command-xyz", &[])).await;
    assert!(missing.contains("\"no-such-command-xyz\" was not found"), "{missing}");
    assert!(missing.contains("searched /"), "{missing}");

    let unset = reason(&program("echo", &["${GW_MISSING}"])).await;
    assert!(unset.starts_with("GW_MISSING is not set (args)"), "{unset}");

    let mut elsewhere = program("echo", &[]);
    elsewhere.cwd = Some("/no/such/folder".to_owned());
    let missing = reason(&elsewhere).await;
    assert!(
        missing.starts_with("the working directory /no/such/folder doesn't exist"),
        "{missing}"
    );
    assert!(reason(&program(" ", &[])).await.starts_with("the command is empty"));
}

#[tokio::test]
async fn what_is_there_but_can_not_run_says_why() {
    let folder = folder();
    let path = folder.path().join("server");
    executable(&path, "#!/no/such/interpreter\n");
    let reason = reason(&program(&path.display().to_string(), &[])).await;
    assert!(reason.contains("interpreter that its first line names doesn't exist"), "{reason}");
}

#[test]
fn a_program_never_shows_its_values() {
    let mut server = program("server", &["--token", "secret"]);
    server.env.insert("KEY".to_owned(), "secret".to_owned());
    assert!(!format!("{server:?}").contains("secret"));
}
