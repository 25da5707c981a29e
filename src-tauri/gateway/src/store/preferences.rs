//! The user's choice for each capability ever seen: the only state of a capability that is stored.

use super::{Store, StoreError, UpstreamId, kind};
use crate::capability::CapabilityType;

/// One row. Times are milliseconds of Unix time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preference {
    pub upstream: UpstreamId,
    pub kind: CapabilityType,
    /// The tool's or prompt's own name, the URI, or the URI template.
    pub key: String,
    pub enabled: bool,
    pub first_seen_at: i64,
    /// `None`: the user decided before it was ever seen.
    pub last_seen_at: Option<i64>,
}

type Row = (i64, String, String, bool, i64, Option<i64>);

impl Store {
    pub async fn preferences(&self) -> Result<Vec<Preference>, StoreError> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT upstream_id, capability_type, capability_key, enabled, first_seen_at, last_seen_at
             FROM capability_preferences
             ORDER BY upstream_id, capability_type, capability_key",
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(from_row).collect())
    }

    /// Gives each key that has no row yet one; a row that exists keeps the user's choice.
    pub async fn insert_new(
        &self,
        upstream: UpstreamId,
        kind: CapabilityType,
        keys: &[&str],
        enabled: bool,
        now: i64,
    ) -> Result<(), StoreError> {
        if keys.is_empty() {
            return Ok(());
        }
        let mut transaction = self.begin().await?;
        for key in keys {
            // DO NOTHING rather than OR IGNORE, which would also hide a broken CHECK.
            sqlx::query(
                "INSERT INTO capability_preferences
                     (upstream_id, capability_type, capability_key, enabled, first_seen_at, last_seen_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?5)
                 ON CONFLICT DO NOTHING",
            )
            .bind(upstream.0)
            .bind(kind.word())
            .bind(key)
            .bind(enabled)
            .bind(now)
            .execute(&mut *transaction)
            .await?;
        }
        Ok(transaction.commit().await?)
    }

    /// Moves `last_seen_at` on, never back.
    pub async fn seen(
        &self,
        upstream: UpstreamId,
        kind: CapabilityType,
        keys: &[&str],
        now: i64,
    ) -> Result<(), StoreError> {
        if keys.is_empty() {
            return Ok(());
        }
        let mut transaction = self.begin().await?;
        for key in keys {
            sqlx::query(
                "UPDATE capability_preferences SET last_seen_at = ?1
                 WHERE upstream_id = ?2 AND capability_type = ?3 AND capability_key = ?4
                     AND coalesce(last_seen_at < ?1, TRUE)",
            )
            .bind(now)
            .bind(upstream.0)
            .bind(kind.word())
            .bind(key)
            .execute(&mut *transaction)
            .await?;
        }
        Ok(transaction.commit().await?)
    }

    /// The user's toggle, also for what isn't there at the moment or was never seen.
    pub async fn set_enabled(
        &self,
        upstream: UpstreamId,
        kind: CapabilityType,
        key: &str,
        enabled: bool,
        now: i64,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO capability_preferences
                 (upstream_id, capability_type, capability_key, enabled, first_seen_at)
             VALUES (?, ?, ?, ?, ?)
             ON CONFLICT DO UPDATE SET enabled = excluded.enabled",
        )
        .bind(upstream.0)
        .bind(kind.word())
        .bind(key)
        .bind(enabled)
        .bind(now)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Whether there was something to forget.
    pub async fn forget(
        &self,
        upstream: UpstreamId,
        kind: CapabilityType,
        key: &str,
    ) -> Result<bool, StoreError> {
        let done = sqlx::query(
            "DELETE FROM capability_preferences
             WHERE upstream_id = ? AND capability_type = ? AND capability_key = ?",
        )
        .bind(upstream.0)
        .bind(kind.word())
        .bind(key)
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() > 0)
    }
}

fn from_row((upstream, word, key, enabled, first_seen_at, last_seen_at): Row) -> Preference {
    let (upstream, kind) = (UpstreamId(upstream), kind(&word));
    Preference { upstream, kind, key, enabled, first_seen_at, last_seen_at }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::Fixture, *};
    use crate::names::UpstreamName;

    const TOOL: CapabilityType = CapabilityType::Tool;

    async fn rows(store: &Store) -> Vec<(String, bool, i64, Option<i64>)> {
        let rows = store.preferences().await.expect("preferences");
        rows.into_iter().map(|p| (p.key, p.enabled, p.first_seen_at, p.last_seen_at)).collect()
    }

    #[tokio::test]
    async fn a_key_never_seen_gets_a_row_and_a_known_one_keeps_its_choice() {
        let fixture = Fixture::new().await;
        let id = fixture.add("one").await;
        let store = &fixture.store;
        store.insert_new(id, TOOL, &["a", "b"], true, 100).await.expect("first read");
        store.set_enabled(id, TOOL, "a", false, 150).await.expect("toggled");
        store.insert_new(id, TOOL, &["a", "c"], true, 200).await.expect("second read");
        store.seen(id, TOOL, &["a", "c", "unknown"], 200).await.expect("seen");
        store.seen(id, TOOL, &["a"], 50).await.expect("a clock that went back");
        let expected = [
            ("a".to_owned(), false, 100, Some(200)),
            ("b".to_owned(), true, 100, Some(100)),
            ("c".to_owned(), true, 200, Some(200)),
        ];
        assert_eq!(rows(store).await, expected);
    }

    #[tokio::test]
    async fn what_was_never_seen_can_be_toggled_and_forgotten() {
        let fixture = Fixture::new().await;
        let id = fixture.add("one").await;
        let store = &fixture.store;
        store.set_enabled(id, TOOL, "later", false, 7).await.expect("toggled");
        assert_eq!(rows(store).await, [("later".to_owned(), false, 7, None)]);
        store.insert_new(id, TOOL, &["later"], true, 9).await.expect("it came");
        store.seen(id, TOOL, &["later"], 9).await.expect("seen");
        assert_eq!(rows(store).await, [("later".to_owned(), false, 7, Some(9))]);
        assert!(store.forget(id, TOOL, "later").await.expect("forgotten"));
        assert!(!store.forget(id, TOOL, "later").await.expect("nothing there"));
        assert_eq!(rows(store).await, []);
    }

    #[tokio::test]
    async fn keys_are_kept_to_the_byte_and_types_apart() {
        let fixture = Fixture::new().await;
        let id = fixture.add("one").await;
        let long = "x".repeat(100_000);
        let keys = ["", "A", "a", "ä", "a\u{0308}", "nul\0inside", "'; DROP TABLE apps; --", &long];
        for kind in CapabilityType::ALL {
            fixture.store.insert_new(id, kind, &keys, true, 1).await.expect("inserted");
        }
        let store = fixture.reopen().await;
        for kind in CapabilityType::ALL {
            let mut stored: Vec<_> = store.preferences().await.expect("preferences");
            stored.retain(|preference| preference.kind == kind);
            let mut stored: Vec<_> = stored.iter().map(|p| p.key.as_str()).collect();
            stored.sort_unstable();
            let mut expected = keys;
            expected.sort_unstable();
            assert_eq!(stored, expected, "{kind}");
        }
    }

    #[tokio::test]
    async fn preferences_follow_a_rename_and_go_with_their_upstream_only() {
        let fixture = Fixture::new().await;
        let (one, two) = (fixture.add("one").await, fixture.add("two").await);
        let store = &fixture.store;
        store.set_enabled(one, TOOL, "a", false, 1).await.expect("toggled");
        store.set_enabled(two, TOOL, "a", false, 1).await.expect("toggled");
        let name = UpstreamName::parse("renamed").expect("a valid name");
        store.rename_upstream(one, &name).await.expect("renamed");
        assert_eq!(store.preferences().await.expect("preferences").len(), 2);
        store.remove_upstream(one).await.expect("removed");
        let left: Vec<_> = store.preferences().await.expect("preferences");
        assert_eq!(left.iter().map(|p| p.upstream).collect::<Vec<_>>(), [two]);
        let late = store.insert_new(one, TOOL, &["b"], true, 2).await;
        assert!(
            matches!(late, Err(StoreError::Gone)),
            "a read that ends after the removal: {late:?}"
        );
    }
}
