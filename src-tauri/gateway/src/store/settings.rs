//! Settings as text by key; [`crate::settings`] knows what they mean.

use std::collections::BTreeMap;

use super::{Store, StoreError};

impl Store {
    pub async fn settings(&self) -> Result<BTreeMap<String, String>, StoreError> {
        let rows: Vec<(String, String)> =
            sqlx::query_as("SELECT key, value FROM settings").fetch_all(&self.pool).await?;
        Ok(rows.into_iter().collect())
    }

    /// `None` takes the stored value away.
    pub async fn set_setting(&self, key: &str, value: Option<&str>) -> Result<(), StoreError> {
        let query = match value {
            Some(value) => sqlx::query(
                "INSERT INTO settings (key, value) VALUES (?, ?)
                 ON CONFLICT DO UPDATE SET value = excluded.value",
            )
            .bind(key)
            .bind(value),
            None => sqlx::query("DELETE FROM settings WHERE key = ?").bind(key),
        };
        query.execute(&self.pool).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Fixture;

    #[tokio::test]
    async fn a_setting_is_kept_replaced_and_taken_away() {
        let fixture = Fixture::new().await;
        fixture.store.set_setting("port", Some("1")).await.expect("set");
        fixture.store.set_setting("port", Some("9000")).await.expect("replaced");
        let store = fixture.reopen().await;
        let stored = store.settings().await.expect("settings");
        assert_eq!(stored.get("port").map(String::as_str), Some("9000"));
        store.set_setting("port", None).await.expect("taken away");
        store.set_setting("port", None).await.expect("nothing there is fine");
        assert!(!store.settings().await.expect("settings").contains_key("port"));
    }
}
