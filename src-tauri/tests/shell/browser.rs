//! Traygate's window in the hands of the web view's own driver, which starts Traygate itself.

use std::{
    net::{TcpListener, TcpStream},
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    http,
    stage::{Desktop, Ended, Home, PATIENCE},
};

pub struct Browser {
    driver: Ended,
    port: u16,
    session: String,
}

impl Browser {
    /// Starts Traygate with its window, and waits for the page.
    pub fn start(desktop: &Desktop, home: &Home) -> Self {
        let free = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = free.local_addr().expect("its number").port();
        drop(free);
        let mut command = Command::new("WebKitWebDriver");
        command
            .arg(format!("--port={port}"))
            .env("TAURI_WEBVIEW_AUTOMATION", "true")
            .stdout(Stdio::null())
            .process_group(0);
        home.furnish(&mut command);
        desktop.furnish(&mut command);
        let driver = command.spawn().expect("WebKitWebDriver starts; `make setup` installs it");
        let mut browser = Self { driver: Ended(driver), port, session: String::new() };
        browser.wait_until_it_listens();

        let program = home.command();
        let options = json!({
            "binary": program.get_program().to_string_lossy(),
            "args": program.get_args().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>(),
        });
        let wanted = json!({"alwaysMatch": {"webkitgtk:browserOptions": options}});
        let session = browser.ask("/session", &json!({"capabilities": wanted}));
        browser.session = text(&session["sessionId"]);
        // The driver waits for an element that the page has yet to draw.
        browser.ask_page("timeouts", &json!({"implicit": PATIENCE.as_millis() as u64}));
        browser
    }

    pub fn value_of(&self, selector: &str) -> String {
        text(&self.ask_element(selector, "return arguments[0].value"))
    }

    pub fn text_of(&self, selector: &str) -> String {
        text(&self.ask_element(selector, "return arguments[0].innerText"))
    }

    pub fn click(&self, selector: &str) {
        self.ask_element(selector, "arguments[0].click()");
    }

    /// Waits until an expression in the page is true.
    pub fn until(&self, what: &str, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        let script = format!("return String({expression})");
        while self.run(&script) != "true" {
            assert!(Instant::now() < deadline, "{what}: not in time: {}", self.text_of("body"));
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// What a script in the page returns.
    pub fn run(&self, script: &str) -> String {
        text(&self.ask_page("execute/sync", &json!({"script": script, "args": []})))
    }

    fn ask_element(&self, selector: &str, script: &str) -> Value {
        let element =
            self.ask_page("element", &json!({"using": "css selector", "value": selector}));
        self.ask_page("execute/sync", &json!({"script": script, "args": [element]}))
    }

    fn ask_page(&self, what: &str, body: &Value) -> Value {
        self.ask(&format!("/session/{}/{what}", self.session), body)
    }

    fn ask(&self, path: &str, body: &Value) -> Value {
        let mut answer = http::ask(self.port, "POST", path, None, Some(body));
        assert_eq!(answer.status, 200, "the driver refused {path}: {}", answer.body);
        answer.body["value"].take()
    }

    /// The driver says nothing when it is ready: the open port is the event.
    fn wait_until_it_listens(&self) {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < deadline, "WebKitWebDriver doesn't listen");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Traygate is the driver's child, in the driver's own process group.
        let kill = format!("kill -KILL -- -{}", self.driver.0.id());
        let _ = Command::new("sh").args(["-c", &kill]).status();
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("the page gave {value} for a text")).to_owned()
}
