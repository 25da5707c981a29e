//! Prepares what Tauri embeds: the page, the icons, and what the page may call.

use std::path::Path;

const PAGE: &str = "../ui/dist/index.html";

fn main() {
    println!("cargo::rerun-if-changed={PAGE}");
    if !Path::new(PAGE).exists() {
        println!("cargo::error=the window's page isn't built: run `make ui`");
        return;
    }
    // A command that stands here can only be called where a capability file allows it.
    let commands = tauri_build::AppManifest::new().commands(&[
        "snapshot",
        "log",
        "capabilities",
        "toggle",
        "quit",
        "try_again",
        "use_another_port",
        "asks_for_start_at_login",
        "start_at_login",
    ]);
    if let Err(error) =
        tauri_build::try_build(tauri_build::Attributes::new().app_manifest(commands))
    {
        println!("cargo::error={}", format!("{error:#}").replace('\n', " "));
    }
}
