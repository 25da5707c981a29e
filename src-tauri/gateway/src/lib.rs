//! Traygate's gateway: one MCP endpoint for every local AI app, in front of all the MCP servers
//! of its user.
//!
//! Reading order: [`definition`] and [`capability`] are the words; [`upstream`] is one server with
//! its link and its catalogues; [`preferences`] is the user's choice; [`gateway`] brings them
//! together; [`endpoint`] is what AI apps see and [`control`] what the command line and the window
//! use. Dependencies point that way only: `endpoint → gateway → upstream, preferences → leaves`.
//!
//! There is no window, no GTK and no Tauri in here.

pub mod api;
#[cfg(target_os = "linux")]
pub mod autostart;
pub mod capability;
pub mod clock;
pub mod control;
pub mod definition;
pub mod endpoint;
pub mod events;
pub mod fault;
pub mod gateway;
pub mod host;
mod install_key;
pub mod json;
mod lock;
pub mod names;
pub mod nearest;
pub mod other_host;
pub mod paths;
mod port;
pub mod preferences;
mod private;
pub mod settings;
mod snapshot_file;
pub mod snippet;
pub mod store;
pub mod text;
pub mod upstream;
