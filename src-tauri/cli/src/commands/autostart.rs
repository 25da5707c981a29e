//! `traygate autostart`: whether Traygate starts with the user's session. Needs no running Traygate.

use anyhow::Result;

use crate::{arguments::AtLogin as Wanted, output::Output};

#[cfg(target_os = "linux")]
pub fn autostart(wanted: Wanted, output: Output) -> Result<()> {
    use anyhow::Context as _;
    use serde_json::json;
    use traygate_gateway::autostart::{self, AtLogin};

    use crate::desktop;

    let entry = autostart::entry()?;
    let place = || format!("the entry {} can't be changed", entry.display());
    match wanted {
        Wanted::On => {
            let program = desktop::find().context(
                "traygate-desktop is neither beside this program nor on the PATH, so there is nothing to start",
            )?;
            // Links stay: a package's link follows an update, and what it points to may not.
            let program = std::path::absolute(program)?;
            autostart::switch_on(&program).with_context(place)?;
        }
        Wanted::Off => autostart::switch_off().with_context(place)?,
        Wanted::Status => {}
    }
    let at_login =
        autostart::at_login().with_context(|| format!("cannot read {}", entry.display()))?;
    let words = match &at_login {
        AtLogin::Nothing => "Traygate doesn't start with your session".to_owned(),
        AtLogin::Starts(program) => format!("{} starts with your session", program.display()),
        AtLogin::SwitchedOff => "Traygate's start was switched off in your desktop's settings; `traygate autostart on` switches it on".to_owned(),
        AtLogin::Missing(program) => format!("the entry names {}, which is not there; `traygate autostart on` puts it right", program.display()),
    };
    let on = matches!(at_login, AtLogin::Starts(_));
    output.tell(&json!({"on": on, "entry": entry}), || format!("{words}\n"))
}

#[cfg(not(target_os = "linux"))]
pub fn autostart(_wanted: Wanted, _output: Output) -> Result<()> {
    anyhow::bail!("on this system it is switched in the tray's menu: Settings, Start at login")
}
