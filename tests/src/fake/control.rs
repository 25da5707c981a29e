//! The switch: a small HTTP API of the running fake, beside the files of its control directory.

use std::{collections::HashMap, sync::Arc};

use anyhow::Context as _;
use axum::{
    Json, Router,
    extract::{Query, State},
    http::StatusCode,
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tokio::net::TcpListener;

use super::{
    control_dir::{Arm, LogEntry},
    server::{Fake, ListenEnd},
};

type Failed = (StatusCode, String);

/// Serves until the process ends, at an address that stands in the control directory.
pub async fn start(fake: Arc<Fake>) -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("the control port")?;
    fake.dir.announce_control(&format!("http://{}", listener.local_addr()?))?;
    let routes = Router::new()
        .route("/log", get(log))
        .route("/count", get(count))
        .route("/arm", post(arm))
        .route("/disarm", post(disarm))
        .route("/lists", post(lists))
        .route("/announce", post(announce))
        .route("/end-listens", post(end_listens))
        .with_state(fake);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, routes).await {
            eprintln!("fake upstream: its control API ended: {error}");
        }
    });
    Ok(())
}

fn failed(error: impl std::fmt::Display) -> Failed {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

async fn log(State(fake): State<Arc<Fake>>) -> Result<Json<Vec<LogEntry>>, Failed> {
    fake.dir.log().map(Json).map_err(failed)
}

async fn count(
    State(fake): State<Arc<Fake>>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<usize>, Failed> {
    let log = fake.dir.log().map_err(failed)?;
    let method = query.get("method");
    Ok(Json(log.iter().filter(|entry| entry.method.as_ref() == method).count()))
}

async fn arm(State(fake): State<Arc<Fake>>, Json(arm): Json<Arm>) -> Result<(), Failed> {
    fake.dir.arm(&arm).map_err(failed)
}

async fn disarm(State(fake): State<Arc<Fake>>) -> Result<(), Failed> {
    fake.dir.disarm().map_err(failed)
}

/// `{"tools": [...], "announce": true}`: replaces lists, and tells so if asked to.
async fn lists(State(fake): State<Arc<Fake>>, body: String) -> Result<Json<Value>, Failed> {
    #[derive(Deserialize)]
    struct Lists {
        #[serde(default)]
        announce: bool,
        #[serde(flatten)]
        lists: HashMap<String, Value>,
    }
    let lists: Lists = serde_json::from_str(&body)
        .map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
    let mut told = 0;
    for (member, items) in lists.lists {
        let items: Vec<Box<RawValue>> =
            serde_json::from_value(items).map_err(|e| (StatusCode::BAD_REQUEST, e.to_string()))?;
        fake.dir.set_list(&member, &items).map_err(failed)?;
        if lists.announce {
            told +=
                fake.announce(if member == "resourceTemplates" { "resources" } else { &member });
        }
    }
    Ok(Json(json!({"told": told})))
}

#[derive(Deserialize)]
struct Announce {
    what: String,
}

async fn announce(State(fake): State<Arc<Fake>>, Json(body): Json<Announce>) -> Json<Value> {
    Json(json!({"told": fake.announce(&body.what)}))
}

#[derive(Deserialize)]
struct EndListens {
    how: ListenEnd,
}

async fn end_listens(State(fake): State<Arc<Fake>>, Json(body): Json<EndListens>) -> Json<Value> {
    // Without a listener there is nobody to end.
    Json(json!({"ended": fake.ends.send(body.how).unwrap_or_default()}))
}
