//! The apps that may connect, each with the hash of its token.

use super::{Store, StoreError, taken};

/// Times are milliseconds of Unix time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredApp {
    pub id: i64,
    pub name: String,
    pub token_hash: [u8; 32],
    pub created_at: i64,
    pub last_seen_at: Option<i64>,
}

type Row = (i64, String, Vec<u8>, i64, Option<i64>);

impl Store {
    /// The oldest first.
    pub async fn apps(&self) -> Result<Vec<StoredApp>, StoreError> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT id, name, token_hash, created_at, last_seen_at FROM apps ORDER BY id",
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(from_row).collect())
    }

    pub async fn add_app(
        &self,
        name: &str,
        token_hash: &[u8; 32],
        now: i64,
    ) -> Result<StoredApp, StoreError> {
        let row = sqlx::query_as(
            "INSERT INTO apps (name, token_hash, created_at) VALUES (?, ?, ?)
             RETURNING id, name, token_hash, created_at, last_seen_at",
        )
        .bind(name)
        .bind(token_hash.as_slice())
        .bind(now)
        .fetch_one(&self.pool)
        .await
        .map_err(|error| taken(error, name))?;
        Ok(from_row(row))
    }

    /// Whether there was such an app. Its name may be given anew.
    pub async fn revoke_app(&self, name: &str) -> Result<bool, StoreError> {
        let done =
            sqlx::query("DELETE FROM apps WHERE name = ?").bind(name).execute(&self.pool).await?;
        Ok(done.rows_affected() > 0)
    }

    /// Does nothing for an app that was revoked meanwhile.
    pub async fn app_seen(&self, id: i64, now: i64) -> Result<(), StoreError> {
        sqlx::query("UPDATE apps SET last_seen_at = ? WHERE id = ?")
            .bind(now)
            .bind(id)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}

fn from_row((id, name, token_hash, created_at, last_seen_at): Row) -> StoredApp {
    let token_hash = token_hash.try_into().expect("the table's CHECK allows 32 bytes only");
    StoredApp { id, name, token_hash, created_at, last_seen_at }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::Fixture, *};

    #[tokio::test]
    async fn an_app_lives_from_its_token_to_its_revocation() {
        let fixture = Fixture::new().await;
        let store = &fixture.store;
        let first = store.add_app("cursor", &[7; 32], 10).await.expect("added");
        let taken = store.add_app("cursor", &[8; 32], 11).await;
        assert!(matches!(taken, Err(StoreError::Taken(name)) if name == "cursor"));
        store.app_seen(first.id, 20).await.expect("seen");
        let expected = StoredApp { last_seen_at: Some(20), ..first.clone() };
        assert_eq!(store.apps().await.expect("apps"), [expected]);
        assert!(store.revoke_app("cursor").await.expect("revoked"));
        assert!(!store.revoke_app("cursor").await.expect("nobody there"));
        store.app_seen(first.id, 30).await.expect("too late, and no matter");
        let second = store.add_app("cursor", &[9; 32], 40).await.expect("the name is free again");
        assert_ne!(second.id, first.id, "an id is never used twice");
        assert_eq!(store.apps().await.expect("apps"), [second]);
    }
}
