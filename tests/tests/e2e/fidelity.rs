//! Arbitrary JSON through every transport pair and both eras on both sides, compared byte for byte.
//! `docs/fidelity.md` lists what is changed; these tests allow that and nothing else.

use anyhow::{Context as _, Result, ensure};
use proptest::{
    collection::vec,
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, TestRunner},
};
use serde_json::{json, value::RawValue};
use traygate_gateway::{capability::CapabilityType, json::RawObject};
use traygate_tests::{
    App, AppEra, Fake, FakeOptions, Traygate,
    app::{LegacyApp, ModernApp, body},
    fake::options::FakeEra,
};

/// How many documents go through each pair.
const DOCUMENTS: usize = 4;

/// Numbers that a double, a 64-bit integer or a tidy writer would spoil.
const NUMBERS: [&str; 16] = [
    "18446744073709551616",
    "9007199254740993",
    "-9223372036854775809",
    "1.0",
    "1e3",
    "1E+3",
    "1e-7",
    "-0",
    "-0.0",
    "0.1000000000000000055511151231257827",
    "1.7976931348623157e308",
    "123456789012345678901234567890.123456789012345678901234567890",
    "0",
    "-1",
    "0.30000000000000004",
    "5e-324",
];

/// What no usual parser takes, and a relay need not look at: in a list, where it would cost an app
/// all tools, it costs the item.
const UNREADABLE: [&str; 4] = ["1e400", r#""\ud800""#, r#""\udc00\ud800 half""#, "-1e999"];

/// JSON as text; `levels` more may stand in it.
fn document(readable: bool) -> BoxedStrategy<String> {
    let number = prop_oneof![
        prop::sample::select(NUMBERS.to_vec()).prop_map(str::to_owned),
        "-?[1-9][0-9]{0,40}(\\.[0-9]{1,20})?(e-?[0-9]{1,2})?",
    ];
    let leaf = prop_oneof![
        prop::sample::select(vec!["null", "true", "false", "\"\"", "[]", "{}"])
            .prop_map(str::to_owned),
        number,
        string(),
    ];
    let leaf = if readable {
        leaf.boxed()
    } else {
        prop_oneof![8 => leaf, 1 => prop::sample::select(UNREADABLE.to_vec()).prop_map(str::to_owned)]
            .boxed()
    };
    leaf.prop_recursive(5, 120, 12, |inner| {
        let member = (string(), inner.clone()).prop_map(|(key, value)| format!("{key}:{value}"));
        prop_oneof![
            vec(inner.clone(), 0..12).prop_map(|items| format!("[{}]", items.join(","))),
            vec(inner, 1..4).prop_map(|items| format!("[ {} ]", items.join(" , "))),
            // Equal keys stand side by side now and then, as they do in the wild.
            vec(member, 0..12).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
    .boxed()
}

/// A string as text: every code point, as itself or escaped in one of the ways that JSON has.
fn string() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        any::<char>().prop_map(|c| {
            let quoted = json!(c.to_string()).to_string();
            quoted[1..quoted.len() - 1].to_owned()
        }),
        any::<u16>().prop_filter_map("a half", |unit| {
            char::from_u32(unit.into()).map(|_| format!("\\u{unit:04X}"))
        }),
        prop::sample::select(vec![
            "\\/",
            "\\b",
            "\\f",
            "\\n",
            "\\\"",
            "\\\\",
            "\\u0000",
            "\\ud83d\\ude00"
        ])
        .prop_map(str::to_owned),
        prop::sample::select(vec![
            "\u{2028}", "\u{2029}", "\u{85}", "\u{feff}", "\u{202e}", "é", " "
        ])
        .prop_map(str::to_owned),
    ];
    vec(character, 0..8).prop_map(|parts| format!("\"{}\"", parts.concat()))
}

/// The documents of one run: random ones, and the extremes.
struct Documents {
    runner: TestRunner,
}

impl Documents {
    fn new() -> Self {
        Self { runner: TestRunner::new(Config::default()) }
    }

    fn some(&mut self, readable: bool) -> Result<Vec<String>> {
        let strategy = document(readable);
        let mut documents = Vec::new();
        for _ in 0..DOCUMENTS {
            let tree = strategy.new_tree(&mut self.runner).map_err(anyhow::Error::msg)?;
            documents.push(tree.current());
        }
        let levels = if readable { 90 } else { 1_000 };
        documents.push(format!("{}7{}", "[".repeat(levels), "]".repeat(levels)));
        documents.push(format!("{}7{}", "{\"\\u0061\":".repeat(levels), "}".repeat(levels)));
        let wide = (0..400).map(|n| format!("\"k{n}\":{n}.0"));
        documents.push(format!("{{{}}}", wide.collect::<Vec<_>>().join(",")));
        for document in &documents {
            serde_json::from_str::<&RawValue>(document).context(document.clone())?;
        }
        Ok(documents)
    }
}

/// An app that sends and reads text.
enum TextApp {
    Legacy(LegacyApp),
    Modern(ModernApp),
}

/// An answer's message, and what came before it on the request's stream.
struct Said {
    message: RawObject,
    before: Vec<String>,
}

impl TextApp {
    async fn connect(era: AppEra, traygate: &Traygate, token: &str) -> Result<Self> {
        Ok(match era {
            AppEra::Legacy => Self::Legacy(LegacyApp::connect(&traygate.endpoint(), token).await?),
            AppEra::Modern => Self::Modern(ModernApp::new(&traygate.endpoint(), token)?),
        })
    }

    /// Calls a tool with arguments and a member of `_meta` as text, and asks for progress.
    async fn call(&self, tool: &str, arguments: &str, meta: &str) -> Result<Said> {
        let own = match self {
            Self::Legacy(_) => "",
            Self::Modern(_) => concat!(
                r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
                r#""io.modelcontextprotocol/clientCapabilities":{},"#
            ),
        };
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":"fidelity","method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{{{own}"progressToken":"t","example.com/any":{meta}}}}}}}"#
        );
        let response = match self {
            Self::Legacy(app) => app.post(&text).await?,
            Self::Modern(app) => {
                app.post(&text, &ModernApp::headers("tools/call", &json!({"name": tool}))).await?
            }
        };
        let mut body = body(response).await?;
        let mut before = Vec::new();
        while let Some(text) = body.soon().await? {
            let message: RawObject = serde_json::from_str(&text).context(text.clone())?;
            if message.get("method").is_none() {
                ensure!(message.str("id").as_deref() == Some("fidelity"), "{text}");
                return Ok(Said { message, before });
            }
            before.push(text);
        }
        anyhow::bail!("no answer")
    }
}

/// A result as the upstream of one era gives it and an app of the other reads it.
fn expected(result: &str, upstream: FakeEra, app: AppEra) -> String {
    let members = &result[1..];
    match (upstream, app) {
        (_, AppEra::Legacy) => result.to_owned(),
        // Added behind what the legacy upstream said.
        (FakeEra::Legacy, AppEra::Modern) => {
            format!("{},\"resultType\":\"complete\"}}", &result[..result.len() - 1])
        }
        (_, AppEra::Modern) => format!("{{\"resultType\":\"complete\",{members}"),
    }
}

async fn calls_carry(app: &TextApp, era: AppEra, fake: &Fake, document: &str) -> Result<()> {
    let tool = |name: &str| format!("{}__{name}", fake.name);
    let upstream = fake.options.era;

    let result = format!(
        r#"{{"content":[{{"type":"x-unknown","any":{document}}},{{"type":"text","text":"","_meta":{{"any":{document}}}}}],"structuredContent":{document},"_meta":{{"example.com/any":{document}}},"\u0078-unknown":{document}}}"#
    );
    let arguments = format!(r#"{{"result":{result},"progress":{document}}}"#);
    let said = app.call(&tool("say"), &arguments, "1").await?;
    let found = said.message.get("result").with_context(|| said.message.to_text())?.get();
    ensure!(found == expected(&result, upstream, era), "the result became {found}");
    let progress = format!("\"x-unknown\":{document}}}}}");
    ensure!(
        said.before.len() == 1 && said.before[0].ends_with(&progress),
        "its progress became {:?}",
        said.before
    );

    let said = app.call(&tool("say"), &format!(r#"{{"error":{document}}}"#), "1").await?;
    let error = said.message.get("error").context("an error")?.get();
    let wanted = format!(r#"{{"code":4242,"message":"as told","data":{document}}}"#);
    ensure!(error == wanted, "the error became {error}");

    let arguments = format!(r#"{{"zeta":{document},"alpha":{document}}}"#);
    let said = app.call(&tool("echo"), &arguments, document).await?;
    let result = said.message.object("result").with_context(|| said.message.to_text())?;
    let content = result.object("structuredContent").context("what the upstream got")?;
    let got = content.get("arguments").context("arguments")?.get();
    ensure!(got == arguments, "the arguments became {got}");
    let meta = content.object("params").and_then(|params| params.object("_meta"));
    let meta = meta.context("the upstream got a _meta")?;
    let got = meta.get("example.com/any").context("a foreign member of _meta")?.get();
    ensure!(got == document, "a foreign member of _meta became {got}");
    Ok(())
}

/// Items of a list as an upstream may write them.
fn listed(kind: CapabilityType, documents: &[String]) -> Result<Vec<Box<RawValue>>> {
    let key = kind.key_member();
    let item = |(number, document): (usize, &String)| {
        let name = if key == "name" { "" } else { r#""name":"any","# };
        let text = format!(
            r#"{{"x-before":{document}, "{key}" : "mem://{number}/{{a}}",{name}"inputSchema":{{"type":"object","properties":{{"any":{document}}}}},"outputSchema":{{"type":"object","any":{document}}},"annotations":{{"any":{document}}},"_meta":{{"example.com/any":{document}}},"icons":[{document}],"\u0078":{document}}}"#
        );
        Ok(RawValue::from_string(text)?)
    };
    documents.iter().enumerate().map(item).collect()
}

async fn lists_carry(app: &App, kind: CapabilityType, items: &[Box<RawValue>]) -> Result<()> {
    let found = app.list(kind).await?;
    ensure!(found.len() == items.len(), "{} {kind}s of {}", found.len(), items.len());
    let key = kind.key_member();
    for (found, item) in found.iter().zip(items) {
        let own = RawObject::parse(item)?.get(key).context("a key")?.get().to_owned();
        let exposed = RawObject::parse(found)?.get(key).context("a key")?.get().to_owned();
        let wanted = item.get().replacen(&own, &exposed, 1);
        ensure!(found.get() == wanted, "a {kind} became {found}");
    }
    Ok(())
}

#[tokio::test]
async fn any_json_passes_every_transport_and_era_to_the_byte() -> Result<()> {
    let traygate = Traygate::start().await?;
    let token = traygate.token("app").await?;
    let mut documents = Documents::new();
    let answers_in_streams =
        [FakeEra::Legacy, FakeEra::Modern].map(|era| FakeOptions::http(era).with("--answers sse"));
    for (number, options) in FakeOptions::all().into_iter().chain(answers_in_streams).enumerate() {
        let about = format!("{options:?}");
        let fake = traygate.add_fake(&format!("up{number}"), options).await?;
        for era in AppEra::ALL {
            let app = TextApp::connect(era, &traygate, &token).await?;
            for document in documents.some(false)? {
                calls_carry(&app, era, &fake, &document)
                    .await
                    .with_context(|| format!("{about}, {era:?} app, {document}"))?;
            }
        }
        let mut lists = Vec::new();
        for kind in CapabilityType::ALL {
            let items = listed(kind, &documents.some(true)?)?;
            fake.set_raw_list(kind.list_member(), &items)?;
            lists.push((kind, items));
        }
        traygate.cli(&["refresh", &fake.name]).await?.ok()?;
        for era in AppEra::ALL {
            let app = App::connect(era, &traygate.view(&fake.name), &token).await?;
            for (kind, items) in &lists {
                lists_carry(&app, *kind, items)
                    .await
                    .with_context(|| format!("{about}, {era:?} app"))?;
            }
        }
        fake.assert_no_violations()?;
    }
    Ok(())
}

#[tokio::test]
async fn an_item_that_many_apps_could_not_read_costs_itself_and_is_said() -> Result<()> {
    let traygate = Traygate::start().await?;
    let token = traygate.token("app").await?;
    let fake = traygate.add_fake("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let unreadable: Vec<_> = UNREADABLE.iter().map(|text| (*text).to_owned()).collect();
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let documents = [unreadable, vec![deep, "1".to_owned()]].concat();
    for kind in CapabilityType::ALL {
        fake.set_raw_list(kind.list_member(), &listed(kind, &documents)?)?;
    }
    traygate.cli(&["refresh", "fake"]).await?.ok()?;
    let app = App::connect(AppEra::Legacy, &traygate.view("fake"), &token).await?;
    for kind in CapabilityType::ALL {
        lists_carry(&app, kind, &listed(kind, &documents)?[5..]).await?;
        let view = traygate.upstream("fake").await?;
        let list =
            view.catalogues.iter().find(|list| list.kind == kind).context("its catalogue")?;
        let said = list.warnings.iter().filter(|said| said.contains("can't read its JSON")).count();
        assert_eq!(said, 5, "{kind}s: {:?}", list.warnings);
    }
    Ok(())
}
