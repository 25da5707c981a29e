//! The clipboard of the user's desktop.

/// On the main thread.
#[cfg(target_os = "linux")]
pub fn put(text: &str) {
    gtk::Clipboard::get(&gtk::gdk::SELECTION_CLIPBOARD).set_text(text);
}

#[cfg(not(target_os = "linux"))]
pub fn put(text: &str) {
    let put = arboard::Clipboard::new().and_then(|mut clipboard| clipboard.set_text(text));
    if let Err(error) = put {
        tracing::warn!(%error, "nothing can be put on the clipboard");
    }
}
