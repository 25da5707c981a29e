//! What the desktop around the gateway can do besides, and the menu's settings can switch. What it
//! can't do has no row.

use tauri::AppHandle;

/// All that this desktop can do.
#[derive(Clone, Copy, Default)]
pub struct Powers {
    /// Starting with the user's session.
    pub start_at_login: Option<Switch>,
    /// Whether anything here shows the gateway's notices. Whether the user wants them is a setting of
    /// the gateway's.
    pub notifications: bool,
}

/// Something that is on or off on this machine. Nothing of it is in a snapshot, so whoever switches it
/// elsewhere calls `tray::redraw`.
#[derive(Clone, Copy)]
pub struct Switch {
    pub is_on: fn(&AppHandle) -> bool,
    pub set: fn(&AppHandle, bool) -> Result<(), String>,
}
