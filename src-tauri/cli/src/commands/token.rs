//! `traygate token`: the apps that may connect, each with its own token.

use anyhow::Result;
use clap::Subcommand;
use serde_json::json;
use traygate_gateway::api::{AppView, NewApp, NewToken};

use super::{Context, status};
use crate::client::encoded;

#[derive(Subcommand)]
pub enum TokenCommand {
    /// Let an app in: prints its token, once
    ///
    /// Only a hash of the token is stored. Lost it? Revoke it and make a new one.
    #[command(after_help = "Example:\n  traygate token new claude")]
    New {
        /// What to call the app
        app: String,
    },
    /// List the apps that may connect
    #[command(after_help = "Example:\n  traygate token list")]
    List,
    /// Refuse an app's token from now on
    #[command(after_help = "Example:\n  traygate token revoke claude")]
    Revoke {
        /// The app's name, as `traygate token list` shows it
        app: String,
    },
}

pub async fn token(context: &Context, command: TokenCommand) -> Result<()> {
    match command {
        TokenCommand::New { app } => {
            let body = NewApp { name: app };
            let token: NewToken = context.client.post("/apps").body(&body)?.receive().await?;
            context.output.tell(&token, || ready_to_paste(&token))
        }
        TokenCommand::List => {
            let apps: Vec<AppView> = context.client.get("/apps").receive().await?;
            context.output.tell(&apps, || status::apps(&apps, context.output))
        }
        TokenCommand::Revoke { app } => {
            context.client.delete(format!("/apps/{}", encoded(&app))).done().await?;
            let words = format!("{app} can't connect any more");
            context.done(&json!({"revoked": app}), &words)
        }
    }
}

/// The token, and how an app is told to use it.
pub fn ready_to_paste(token: &NewToken) -> String {
    let NewToken { name, token, endpoint } = token;
    let header = format!("Bearer {token}");
    let snippet = json!({"mcpServers": {"traygate": {
        "type": "http", "url": endpoint, "headers": {"Authorization": header},
    }}});
    let snippet = serde_json::to_string_pretty(&snippet).unwrap_or_default();
    format!(
        "The token of {name}, shown only this once:\n\n  {token}\n\n\
         For the app:\n\n  endpoint  {endpoint}\n  header    Authorization: {header}\n\n\
         Or as a snippet for its configuration:\n\n{snippet}\n"
    )
}
