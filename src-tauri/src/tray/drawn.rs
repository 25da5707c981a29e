//! The menu as the system shows it, brought in line with the one that is wanted: rows that stay are
//! set in place, and only where the set of rows differs are rows made anew.

use tauri::{
    AppHandle, Result, Wry,
    menu::{
        CheckMenuItem, CheckMenuItemBuilder, IsMenuItem, Menu, MenuItem, MenuItemBuilder,
        PredefinedMenuItem, Submenu, SubmenuBuilder,
    },
};

use super::menu::{Deed, Kind, Row};

/// The whole menu.
pub struct Drawn {
    app: AppHandle,
    pub menu: Menu<Wry>,
    rows: Vec<DrawnRow>,
}

/// Whether rows may be made anew, or only be set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum May {
    Rebuild,
    SetOnly,
}

/// How far the drawn menu is the wanted one now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing had to be made anew.
    Set,
    Rebuilt,
    /// Rows have still to be made anew.
    Incomplete,
}

struct DrawnRow {
    /// As drawn, without the rows of its submenu.
    row: Row,
    handle: Handle,
    rows: Vec<DrawnRow>,
}

enum Handle {
    Item(MenuItem<Wry>),
    Check(CheckMenuItem<Wry>),
    Submenu(Submenu<Wry>),
    Separator(PredefinedMenuItem<Wry>),
}

/// All of it on the main thread, where menus live.
impl Drawn {
    pub fn new(app: &AppHandle) -> Result<Self> {
        Ok(Self { app: app.clone(), menu: Menu::new(app)?, rows: Vec::new() })
    }

    pub fn draw(&mut self, wanted: &[Row], may: May) -> Result<Outcome> {
        let Self { app, menu, rows } = self;
        let place = |item: &dyn IsMenuItem<Wry>, at| menu.insert(item, at);
        let remove = |at| menu.remove_at(at).map(drop);
        draw_rows(app, rows, wanted, may, &place, &remove)
    }

    /// What a click on this row does. A check item that the system has toggled by itself is put
    /// right: only a new snapshot changes what is drawn.
    pub fn clicked(&self, id: &str) -> Option<Deed> {
        let drawn = find(&self.rows, id)?;
        match (&drawn.row.kind, &drawn.handle) {
            (Kind::Check { on, deed }, Handle::Check(check)) => {
                if let Err(error) = check.set_checked(*on) {
                    tracing::warn!(%error, id, "a row can't be put right");
                }
                Some(deed.clone())
            }
            (Kind::Item(deed), _) => Some(deed.clone()),
            _ => None,
        }
    }
}

fn find<'a>(rows: &'a [DrawnRow], id: &str) -> Option<&'a DrawnRow> {
    rows.iter()
        .find_map(|drawn| if drawn.row.id == id { Some(drawn) } else { find(&drawn.rows, id) })
}

fn draw_rows(
    app: &AppHandle,
    drawn: &mut Vec<DrawnRow>,
    wanted: &[Row],
    may: May,
    place: &dyn Fn(&dyn IsMenuItem<Wry>, usize) -> Result<()>,
    remove: &dyn Fn(usize) -> Result<()>,
) -> Result<Outcome> {
    // What is the same at both ends stays; with one row that comes or goes, that is all but it.
    let head = drawn.iter().zip(wanted).take_while(|(old, new)| old.is(new)).count();
    let rest = drawn[head..].iter().rev().zip(wanted[head..].iter().rev());
    let tail = rest.take_while(|(old, new)| old.is(new)).count();
    let (old_end, new_end) = (drawn.len() - tail, wanted.len() - tail);
    let mut outcome = Outcome::Set;
    if head < old_end || head < new_end {
        if may == May::SetOnly {
            for old in drawn.iter_mut() {
                if let Some(new) = wanted.iter().find(|new| old.is(new)) {
                    old.set(app, new, may)?;
                }
            }
            return Ok(Outcome::Incomplete);
        }
        outcome = Outcome::Rebuilt;
        for at in (head..old_end).rev() {
            remove(at)?;
            drawn.remove(at);
        }
        for (at, new) in wanted.iter().enumerate().take(new_end).skip(head) {
            let made = DrawnRow::make(app, new)?;
            place(made.handle.item(), at)?;
            drawn.insert(at, made);
        }
    }
    for (old, new) in drawn.iter_mut().zip(wanted) {
        outcome = outcome.and(old.set(app, new, may)?);
    }
    Ok(outcome)
}

impl Outcome {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Incomplete, _) | (_, Self::Incomplete) => Self::Incomplete,
            (Self::Rebuilt, _) | (_, Self::Rebuilt) => Self::Rebuilt,
            (Self::Set, Self::Set) => Self::Set,
        }
    }
}

impl DrawnRow {
    fn make(app: &AppHandle, row: &Row) -> Result<Self> {
        let (id, label) = (row.id.as_str(), as_label(&row.label));
        let mut rows = Vec::new();
        let handle = match &row.kind {
            Kind::Separator => Handle::Separator(PredefinedMenuItem::separator(app)?),
            Kind::Text => {
                Handle::Item(MenuItemBuilder::with_id(id, label).enabled(false).build(app)?)
            }
            Kind::Item(_) => Handle::Item(MenuItemBuilder::with_id(id, label).build(app)?),
            Kind::Check { on, .. } => {
                Handle::Check(CheckMenuItemBuilder::with_id(id, label).checked(*on).build(app)?)
            }
            Kind::Submenu(wanted) => {
                let submenu = SubmenuBuilder::with_id(app, id, label).build()?;
                for row in wanted {
                    let made = Self::make(app, row)?;
                    submenu.append(made.handle.item())?;
                    rows.push(made);
                }
                Handle::Submenu(submenu)
            }
        };
        Ok(Self { row: bare(row), handle, rows })
    }

    /// Whether it can become this one without being made anew. The label of a submenu is part of
    /// what it is: on Linux it can't be set.
    fn is(&self, row: &Row) -> bool {
        self.row.id == row.id
            && match (&self.row.kind, &row.kind) {
                (Kind::Submenu(_), Kind::Submenu(_)) => self.row.label == row.label,
                (Kind::Text, Kind::Text)
                | (Kind::Item(_), Kind::Item(_))
                | (Kind::Check { .. }, Kind::Check { .. })
                | (Kind::Separator, Kind::Separator) => true,
                _ => false,
            }
    }

    fn set(&mut self, app: &AppHandle, row: &Row, may: May) -> Result<Outcome> {
        if let (Handle::Submenu(submenu), Kind::Submenu(wanted)) = (&self.handle, &row.kind) {
            let place = |item: &dyn IsMenuItem<Wry>, at| submenu.insert(item, at);
            let remove = |at| submenu.remove_at(at).map(drop);
            return draw_rows(app, &mut self.rows, wanted, may, &place, &remove);
        }
        if self.row.label != row.label {
            match &self.handle {
                Handle::Item(item) => item.set_text(as_label(&row.label))?,
                Handle::Check(check) => check.set_text(as_label(&row.label))?,
                Handle::Submenu(_) | Handle::Separator(_) => {}
            }
        }
        if let (Handle::Check(check), Kind::Check { on, .. }) = (&self.handle, &row.kind)
            && !matches!(&self.row.kind, Kind::Check { on: drawn, .. } if drawn == on)
        {
            check.set_checked(*on)?;
        }
        self.row = bare(row);
        Ok(Outcome::Set)
    }
}

impl Handle {
    fn item(&self) -> &dyn IsMenuItem<Wry> {
        match self {
            Self::Item(item) => item,
            Self::Check(check) => check,
            Self::Submenu(submenu) => submenu,
            Self::Separator(separator) => separator,
        }
    }
}

fn bare(row: &Row) -> Row {
    let kind = match &row.kind {
        Kind::Submenu(_) => Kind::Submenu(Vec::new()),
        kind => kind.clone(),
    };
    Row { id: row.id.clone(), label: row.label.clone(), kind }
}

/// A single `&` would mark the letter of a key.
fn as_label(text: &str) -> String {
    text.replace('&', "&&")
}
