//! What the user pinned to the tray.

use super::{Store, StoreError, UpstreamId, kind};
use crate::capability::CapabilityType;

impl Store {
    /// In the upstreams' order, then by type and key.
    pub async fn pins(&self) -> Result<Vec<(UpstreamId, CapabilityType, String)>, StoreError> {
        let rows: Vec<(i64, String, String)> = sqlx::query_as(
            "SELECT pins.upstream_id, pins.capability_type, pins.capability_key
             FROM pins JOIN upstreams ON upstreams.id = pins.upstream_id
             ORDER BY upstreams.position, pins.capability_type, pins.capability_key",
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|(id, word, key)| (UpstreamId(id), kind(&word), key)).collect())
    }

    pub async fn set_pin(
        &self,
        upstream: UpstreamId,
        kind: CapabilityType,
        key: &str,
        pinned: bool,
    ) -> Result<(), StoreError> {
        let statement = if pinned {
            "INSERT INTO pins (upstream_id, capability_type, capability_key) VALUES (?, ?, ?)
             ON CONFLICT DO NOTHING"
        } else {
            "DELETE FROM pins WHERE upstream_id = ? AND capability_type = ? AND capability_key = ?"
        };
        sqlx::query(statement)
            .bind(upstream.0)
            .bind(kind.word())
            .bind(key)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::Fixture, *};

    #[tokio::test]
    async fn pins_come_once_in_the_users_order_and_go_with_their_upstream() {
        let fixture = Fixture::new().await;
        let (one, two) = (fixture.add("one").await, fixture.add("two").await);
        let store = &fixture.store;
        let (tool, prompt) = (CapabilityType::Tool, CapabilityType::Prompt);
        for (id, kind) in [(one, tool), (two, tool), (one, tool), (one, prompt)] {
            store.set_pin(id, kind, "x", true).await.expect("pinned");
        }
        store.move_upstream(two, 1).await.expect("moved");
        let x = || "x".to_owned();
        let expected = [(two, tool, x()), (one, prompt, x()), (one, tool, x())];
        assert_eq!(store.pins().await.expect("pins"), expected);
        store.set_pin(one, prompt, "x", false).await.expect("unpinned");
        store.remove_upstream(two).await.expect("removed");
        assert_eq!(store.pins().await.expect("pins"), [(one, tool, x())]);
    }
}
