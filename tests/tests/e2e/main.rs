//! What an app or a person sees of the real product, by topic. One binary, so that it is linked
//! once.

mod caching;
mod calls;
mod choices;
mod command_line;
mod conformance;
mod documents;
mod endurance;
mod every_transport;
mod fidelity;
mod fixture;
mod healing;
mod host;
mod journal;
mod kept_up;
mod names;
mod outages;
mod processes;
mod real;
mod renewal;
mod secrecy;
mod security;
mod sessions;
mod storms;

use anyhow::Result;
use serde_json::{Value, json};
use traygate_tests::{App, AppEra, Fake, FakeOptions, Traygate};

/// A host with one fake upstream, and an app's token.
async fn host_with(upstream: &str, options: FakeOptions) -> Result<(Traygate, Fake, String)> {
    let traygate = Traygate::start().await?;
    let fake = traygate.add_fake(upstream, options).await?;
    let token = traygate.token("app").await?;
    Ok((traygate, fake, token))
}

async fn app(traygate: &Traygate, era: AppEra, token: &str) -> Result<App> {
    App::connect(era, &traygate.endpoint(), token).await
}

/// The stable code in a tool result's `_meta` or in an error's data.
fn code_of(answer: traygate_tests::app::Answer) -> Value {
    match answer.outcome {
        Ok(result) => traygate_tests::json::tree(&result)["_meta"]["traygate/error"].take(),
        Err(error) => error.data.map_or(json!(null), |data| traygate_tests::json::tree(&data)),
    }
}
