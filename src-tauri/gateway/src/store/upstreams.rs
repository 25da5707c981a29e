//! The upstreams, in the user's order.

use serde::de::DeserializeOwned;

use super::{Store, StoreError, taken};
use crate::{
    definition::{Definition, Era, Transport, UpstreamSettings},
    names::UpstreamName,
};

/// Stands for one upstream for as long as the database lives, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpstreamId(pub i64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredUpstream {
    pub id: UpstreamId,
    pub definition: Definition,
    /// What the connector found last, for this very transport.
    pub era: Option<Era>,
}

type Row = (i64, String, bool, String, String, Option<String>);

impl Store {
    pub async fn upstreams(&self) -> Result<Vec<StoredUpstream>, StoreError> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT id, name, enabled, transport, settings, era FROM upstreams ORDER BY position",
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(from_row).collect()
    }

    /// Adds it behind all others.
    pub async fn add_upstream(&self, definition: &Definition) -> Result<UpstreamId, StoreError> {
        let name = definition.name.as_str();
        let id = sqlx::query_scalar(
            "INSERT INTO upstreams (name, position, enabled, transport, settings)
             VALUES (?, (SELECT count(*) + 1 FROM upstreams), ?, ?, ?)
             RETURNING id",
        )
        .bind(name)
        .bind(definition.enabled)
        .bind(json(&definition.transport))
        .bind(json(&definition.settings))
        .fetch_one(&self.pool)
        .await
        .map_err(|error| taken(error, name))?;
        Ok(UpstreamId(id))
    }

    /// Another way to reach it. What was known of the old one's era is forgotten with it.
    pub async fn replace_transport(
        &self,
        id: UpstreamId,
        transport: &Transport,
    ) -> Result<(), StoreError> {
        let update = sqlx::query("UPDATE upstreams SET transport = ?, era = NULL WHERE id = ?");
        self.update(update.bind(json(transport)).bind(id.0)).await
    }

    pub async fn save_settings(
        &self,
        id: UpstreamId,
        settings: &UpstreamSettings,
    ) -> Result<(), StoreError> {
        let update = sqlx::query("UPDATE upstreams SET settings = ? WHERE id = ?");
        self.update(update.bind(json(settings)).bind(id.0)).await
    }

    pub async fn set_upstream_enabled(
        &self,
        id: UpstreamId,
        enabled: bool,
    ) -> Result<(), StoreError> {
        let update = sqlx::query("UPDATE upstreams SET enabled = ? WHERE id = ?");
        self.update(update.bind(enabled).bind(id.0)).await
    }

    /// The preferences and pins stay: they belong to the id.
    pub async fn rename_upstream(
        &self,
        id: UpstreamId,
        name: &UpstreamName,
    ) -> Result<(), StoreError> {
        let done = sqlx::query("UPDATE upstreams SET name = ? WHERE id = ?")
            .bind(name.as_str())
            .bind(id.0)
            .execute(&self.pool)
            .await
            .map_err(|error| taken(error, name.as_str()))?;
        some_row(done.rows_affected())
    }

    /// Puts it at this place, from 1; a place beyond the end is the end.
    pub async fn move_upstream(&self, id: UpstreamId, position: usize) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        let mut order: Vec<i64> = sqlx::query_scalar("SELECT id FROM upstreams ORDER BY position")
            .fetch_all(&mut *transaction)
            .await?;
        let from = order.iter().position(|other| *other == id.0).ok_or(StoreError::Gone)?;
        order.remove(from);
        order.insert(position.saturating_sub(1).min(order.len()), id.0);
        for (place, id) in (1i64..).zip(order) {
            sqlx::query("UPDATE upstreams SET position = ?1 WHERE id = ?2 AND position <> ?1")
                .bind(place)
                .bind(id)
                .execute(&mut *transaction)
                .await?;
        }
        Ok(transaction.commit().await?)
    }

    /// Removes it with its preferences and pins.
    pub async fn remove_upstream(&self, id: UpstreamId) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        let place: Option<i64> =
            sqlx::query_scalar("DELETE FROM upstreams WHERE id = ? RETURNING position")
                .bind(id.0)
                .fetch_optional(&mut *transaction)
                .await?;
        sqlx::query("UPDATE upstreams SET position = position - 1 WHERE position > ?")
            .bind(place.ok_or(StoreError::Gone)?)
            .execute(&mut *transaction)
            .await?;
        Ok(transaction.commit().await?)
    }

    pub async fn remember_era(&self, id: UpstreamId, era: Option<Era>) -> Result<(), StoreError> {
        let word = era.map(|era| match era {
            Era::Modern => "modern",
            Era::Legacy => "legacy",
        });
        let update = sqlx::query("UPDATE upstreams SET era = ? WHERE id = ?");
        self.update(update.bind(word).bind(id.0)).await
    }

    async fn update(
        &self,
        query: sqlx::query::Query<'_, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>,
    ) -> Result<(), StoreError> {
        some_row(query.execute(&self.pool).await?.rows_affected())
    }
}

fn some_row(rows: u64) -> Result<(), StoreError> {
    if rows == 0 { Err(StoreError::Gone) } else { Ok(()) }
}

fn from_row(
    (id, name, enabled, transport, settings, era): Row,
) -> Result<StoredUpstream, StoreError> {
    let unreadable = |what| StoreError::Unreadable { name: name.clone(), what };
    let definition = Definition {
        transport: read(&transport).ok_or_else(|| unreadable("transport"))?,
        settings: read(&settings).ok_or_else(|| unreadable("settings"))?,
        name: UpstreamName::parse(&name).map_err(|_| unreadable("name"))?,
        enabled,
    };
    let era = era.map(|word| if word == "modern" { Era::Modern } else { Era::Legacy });
    Ok(StoredUpstream { id: UpstreamId(id), definition, era })
}

/// The reason isn't passed on: it may quote a value, and values are secret.
fn read<T: DeserializeOwned>(json: &str) -> Option<T> {
    serde_json::from_str(json).ok()
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("a definition always serializes")
}

#[cfg(test)]
mod tests {
    use super::{super::tests::Fixture, *};
    use crate::definition::LegacyTtl;

    fn name(text: &str) -> UpstreamName {
        UpstreamName::parse(text).expect("a valid name")
    }

    async fn order(store: &Store) -> Vec<String> {
        let upstreams = store.upstreams().await.expect("the list");
        upstreams.iter().map(|upstream| upstream.definition.name.to_string()).collect()
    }

    async fn positions(store: &Store) -> Vec<i64> {
        sqlx::query_scalar("SELECT position FROM upstreams ORDER BY position")
            .fetch_all(&store.pool)
            .await
            .expect("positions")
    }

    #[tokio::test]
    async fn what_is_added_is_read_back_whole_by_the_next_start() {
        let fixture = Fixture::new().await;
        let id = fixture.add("one").await;
        let transport = Transport::Http {
            url: "https://example.org/mcp/".into(),
            headers: [("Authorization".to_owned(), "Bearer ü\"\\".to_owned())].into(),
            flavour: crate::definition::HttpFlavour::Sse,
        };
        let settings =
            UpstreamSettings { legacy_ttl: LegacyTtl::Seconds(5), ..UpstreamSettings::default() };
        fixture.store.replace_transport(id, &transport).await.expect("replaced");
        fixture.store.save_settings(id, &settings).await.expect("saved");
        fixture.store.set_upstream_enabled(id, false).await.expect("disabled");
        fixture.store.remember_era(id, Some(Era::Modern)).await.expect("remembered");
        let store = fixture.reopen().await;
        let definition = Definition { name: name("one"), transport, enabled: false, settings };
        let expected = StoredUpstream { id, definition, era: Some(Era::Modern) };
        assert_eq!(store.upstreams().await.expect("the list"), [expected]);
    }

    #[tokio::test]
    async fn the_order_stays_the_users_and_without_gaps() {
        let fixture = Fixture::new().await;
        let store = &fixture.store;
        let mut ids = Vec::new();
        for name in ["a", "b", "c", "d"] {
            ids.push(fixture.add(name).await);
        }
        store.move_upstream(ids[3], 1).await.expect("moved to the front");
        assert_eq!(order(store).await, ["d", "a", "b", "c"]);
        store.move_upstream(ids[0], 3).await.expect("moved back");
        assert_eq!(order(store).await, ["d", "b", "a", "c"]);
        store.move_upstream(ids[3], 99).await.expect("beyond the end is the end");
        store.move_upstream(ids[2], 0).await.expect("before the front is the front");
        assert_eq!(order(store).await, ["c", "b", "a", "d"]);
        store.remove_upstream(ids[1]).await.expect("removed");
        assert_eq!(positions(store).await, [1, 2, 3]);
        fixture.add("e").await;
        assert_eq!(order(store).await, ["c", "a", "d", "e"]);
        assert_eq!(positions(store).await, [1, 2, 3, 4]);
    }

    #[tokio::test]
    async fn a_taken_name_is_refused_and_changes_nothing() {
        let fixture = Fixture::new().await;
        fixture.add("one").await;
        let two = fixture.add("two").await;
        let definition = Fixture::definition("one");
        let added = fixture.store.add_upstream(&definition).await;
        assert!(matches!(added, Err(StoreError::Taken(name)) if name == "one"));
        let renamed = fixture.store.rename_upstream(two, &name("one")).await;
        assert!(matches!(renamed, Err(StoreError::Taken(name)) if name == "one"));
        assert_eq!(order(&fixture.store).await, ["one", "two"]);
    }

    #[tokio::test]
    async fn another_transport_forgets_the_era() {
        let fixture = Fixture::new().await;
        let id = fixture.add("one").await;
        fixture.store.remember_era(id, Some(Era::Legacy)).await.expect("remembered");
        let transport = Fixture::definition("x").transport;
        fixture.store.replace_transport(id, &transport).await.expect("replaced");
        assert_eq!(fixture.store.upstreams().await.expect("the list")[0].era, None);
    }

    #[tokio::test]
    async fn an_upstream_that_is_gone_is_said_to_be_gone() {
        let fixture = Fixture::new().await;
        let id = fixture.add("one").await;
        fixture.store.remove_upstream(id).await.expect("removed");
        let store = &fixture.store;
        for answer in [
            store.remove_upstream(id).await,
            store.move_upstream(id, 1).await,
            store.set_upstream_enabled(id, true).await,
            store.rename_upstream(id, &name("x")).await,
        ] {
            assert!(matches!(answer, Err(StoreError::Gone)), "{answer:?}");
        }
        assert_ne!(fixture.add("one").await, id, "an id is never used twice");
    }

    #[tokio::test]
    async fn a_row_that_can_not_be_read_is_named_without_its_values() {
        let fixture = Fixture::new().await;
        fixture.add("one").await;
        sqlx::query(
            r#"UPDATE upstreams SET transport = '{"kind":"stdio","command":5,"x":"hush"}'"#,
        )
        .execute(&fixture.store.pool)
        .await
        .expect("damaged by hand");
        let error = fixture.store.upstreams().await.expect_err("not a transport").to_string();
        assert!(error.contains("\"one\"") && !error.contains("hush"), "{error}");
    }
}
