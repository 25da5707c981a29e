//! A panel as the user's desktop has one: the host of the tray. It takes Traygate's icon, reads its
//! menu and clicks in it, all over the session bus, as `org.kde.StatusNotifierWatcher` and
//! `com.canonical.dbusmenu` say. A desktop where none is started has no tray.

use std::{collections::HashMap, fmt, time::Duration};

use futures::StreamExt as _;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};
use zbus::{
    Connection, OwnedObjectPath, OwnedVariant, Proxy, Variant, interface,
    message::Header,
    proxy::{CacheProperties, SignalStream},
};

use crate::stage::{Desktop, PATIENCE};

const WATCHER: &str = "org.kde.StatusNotifierWatcher";

pub struct Panel {
    bus: Connection,
    /// The bus name and the object of each icon that was handed in.
    icons: mpsc::UnboundedReceiver<(String, String)>,
}

impl Panel {
    pub async fn start(desktop: &Desktop) -> Self {
        let (handed_in, icons) = mpsc::unbounded_channel();
        let watcher = Watcher { handed_in, items: Vec::new() };
        let served = desktop.bus().serve_at("/StatusNotifierWatcher", watcher).name(WATCHER);
        Self { bus: served.build().await.expect("a bus without another panel"), icons }
    }

    /// The next icon that comes into the tray.
    pub async fn icon(&mut self) -> Icon {
        let icon = timeout(PATIENCE, self.icons.recv()).await.expect("an icon comes in time");
        let (owner, object) = icon.expect("the watcher lives as long as its bus");
        Icon::of(&self.bus, owner, object).await
    }
}

struct Watcher {
    handed_in: mpsc::UnboundedSender<(String, String)>,
    items: Vec<String>,
}

#[allow(clippy::unused_self, clippy::needless_pass_by_value, reason = "the interface's signatures")]
#[interface(name = "org.kde.StatusNotifierWatcher")]
impl Watcher {
    /// Takes the path of an object of the caller's, or a bus name with the usual object.
    fn register_status_notifier_item(&mut self, service: &str, #[zbus(header)] call: Header<'_>) {
        let caller = call.sender().map(ToString::to_string).unwrap_or_default();
        let (owner, object) = if service.starts_with('/') {
            (caller, service.to_owned())
        } else {
            (service.to_owned(), "/StatusNotifierItem".to_owned())
        };
        self.items.push(format!("{owner}{object}"));
        // A test that is over listens no more.
        let _ = self.handed_in.send((owner, object));
    }

    #[zbus(property)]
    fn registered_status_notifier_items(&self) -> Vec<String> {
        self.items.clone()
    }

    #[zbus(property)]
    fn is_status_notifier_host_registered(&self) -> bool {
        true
    }

    #[zbus(property)]
    fn protocol_version(&self) -> i32 {
        0
    }
}

/// Traygate's icon in the tray, with its menu.
pub struct Icon {
    item: Proxy<'static>,
    menu: Proxy<'static>,
    /// Every signal of the menu: it was laid out anew, or properties of rows changed.
    changes: SignalStream<'static>,
}

impl Icon {
    async fn of(bus: &Connection, owner: String, object: String) -> Self {
        let item = proxy(bus, &owner, &object, "org.kde.StatusNotifierItem").await;
        let menu: OwnedObjectPath = item.get_property("Menu").await.expect("an icon has a menu");
        let menu = proxy(bus, &owner, menu.as_str(), "com.canonical.dbusmenu").await;
        let changes = menu.receive_all_signals().await.expect("the bus takes a match rule");
        Self { item, menu, changes }
    }

    /// The file that the icon is drawn from.
    pub async fn picture(&self) -> String {
        self.item.get_property("IconName").await.expect("an icon has a picture")
    }

    pub async fn menu(&self) -> Row {
        let whole = (0, -1, Vec::<&str>::new());
        let laid_out = self.menu.call("GetLayout", &whole).await;
        let (_revision, root): (u32, Node) = laid_out.expect("a menu can be read");
        Row::read(root)
    }

    /// Opens the menu, and in it the submenu that these labels lead to.
    pub async fn open(&self, path: &[&str]) -> Row {
        let menu = self.menu().await;
        for depth in 0..=path.len() {
            let submenu = menu.need(&path[..depth]);
            let _: bool = self.menu.call("AboutToShow", &submenu.id).await.expect("it opens");
        }
        menu
    }

    /// Clicks the row that these labels lead to, through its submenus as a person does.
    pub async fn click(&self, path: &[&str]) {
        let menu = self.open(&path[..path.len() - 1]).await;
        let row = menu.need(path);
        assert!(row.enabled, "nobody can click {path:?}; the menu is\n{menu}");
        let click = (row.id, "clicked", Variant::from(""), 0_u32);
        let () = self.menu.call("Event", &click).await.expect("a menu takes clicks");
    }

    /// Waits until the menu is so. Woken by the menu's own signals only, as a panel is.
    pub async fn until(&mut self, what: &str, holds: impl Fn(&Row) -> bool) -> Row {
        self.within(PATIENCE, what, holds).await
    }

    pub async fn within(
        &mut self,
        time: Duration,
        what: &str,
        holds: impl Fn(&Row) -> bool,
    ) -> Row {
        let deadline = Instant::now() + time;
        loop {
            let menu = self.menu().await;
            if holds(&menu) {
                return menu;
            }
            let change = timeout_at(deadline, self.changes.next()).await;
            assert!(matches!(change, Ok(Some(_))), "{what}: not within {time:?}; it is\n{menu}");
        }
    }
}

async fn proxy(bus: &Connection, owner: &str, object: &str, interface: &str) -> Proxy<'static> {
    let builder = zbus::proxy::Builder::new(bus)
        .destination(owner.to_owned())
        .path(object.to_owned())
        .interface(interface.to_owned())
        .cache_properties(CacheProperties::No);
    builder.build().await.expect("a proxy needs no answer")
}

/// As `com.canonical.dbusmenu` sends it: number, properties, children.
type Node = (i32, HashMap<String, OwnedVariant>, Vec<OwnedVariant>);

/// A row of the menu with what opens from it; the menu itself is a row without a label.
#[derive(Clone, Debug)]
pub struct Row {
    id: i32,
    pub label: String,
    pub enabled: bool,
    /// None: it can't be checked.
    pub checked: Option<bool>,
    pub separator: bool,
    pub rows: Vec<Row>,
}

impl Row {
    fn read((id, properties, children): Node) -> Self {
        let text = |name| {
            let value = properties.get(name).cloned();
            value.and_then(|value| String::try_from(value).ok()).unwrap_or_default()
        };
        let flag = |name| {
            let value = properties.get(name).cloned();
            value.and_then(|value| bool::try_from(value).ok())
        };
        let number = |name| {
            let value = properties.get(name).cloned();
            value.and_then(|value| i32::try_from(value).ok())
        };
        let checkable = !text("toggle-type").is_empty();
        Self {
            id,
            label: as_drawn(&text("label")),
            enabled: flag("enabled").unwrap_or(true),
            checked: checkable.then(|| number("toggle-state") == Some(1)),
            separator: text("type") == "separator",
            rows: children
                .into_iter()
                .map(|child| Self::read(child.try_into().expect("a child is laid out as a menu")))
                .collect(),
        }
    }

    /// The row that these labels lead to.
    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |row, label| row.rows.iter().find(|row| row.label == *label))
    }

    pub fn need(&self, path: &[&str]) -> &Self {
        self.at(path).unwrap_or_else(|| panic!("no row {path:?}; the menu is\n{self}"))
    }

    /// What a person reads from top to bottom.
    pub fn labels(&self) -> Vec<&str> {
        self.rows.iter().filter(|row| !row.separator).map(|row| row.label.as_str()).collect()
    }
}

/// A single underscore marks the letter of a key and isn't drawn; two are drawn as one.
fn as_drawn(label: &str) -> String {
    let parts: Vec<_> = label.split("__").map(|part| part.replace('_', "")).collect();
    parts.join("_")
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn draw(rows: &[Row], depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            for row in rows {
                let mark = match (row.separator, row.checked) {
                    (true, _) => "---",
                    (_, Some(true)) => "[x]",
                    (_, Some(false)) => "[ ]",
                    _ => "   ",
                };
                let off = if row.enabled { "" } else { " (disabled)" };
                writeln!(f, "{mark} {:indent$}{}{off}", "", row.label, indent = 4 * depth)?;
                draw(&row.rows, depth + 1, f)?;
            }
            Ok(())
        }
        draw(&self.rows, 0, f)
    }
}
