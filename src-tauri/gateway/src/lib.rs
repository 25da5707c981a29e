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
pub mod capability;
pub mod definition;
pub mod fault;
pub mod host;
pub mod json;
pub mod names;
pub mod paths;
pub mod store;
pub mod upstream;
