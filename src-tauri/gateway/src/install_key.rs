//! The key of this installation, under which what is written outside the database names a definition
//! without telling anything of it (design section 7).

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::{
    definition::Definition,
    json::raw,
    store::{Store, StoreError},
    text::hex,
};

/// Where it is kept: in the database, which only this user can read.
const SETTING: &str = "internal.install_key";

/// 32 random bytes, made once.
#[derive(Clone)]
pub struct InstallKey(Vec<u8>);

impl InstallKey {
    /// The stored one, or a new one. Without randomness there is none, and nothing is named by it.
    pub async fn of(store: &Store) -> Result<Option<Self>, StoreError> {
        let stored = store.settings().await?.remove(SETTING);
        if let Some(key) = stored.as_deref().and_then(bytes) {
            return Ok(Some(Self(key)));
        }
        let mut key = vec![0; 32];
        if getrandom::fill(&mut key).is_err() {
            return Ok(None);
        }
        store.set_setting(SETTING, Some(&hex(&key))).await?;
        Ok(Some(Self(key)))
    }

    /// Of everything that decides whom an upstream sees, and which upstream it is. Equal ones have
    /// equal fingerprints on this installation only.
    pub fn fingerprint(&self, definition: &Definition) -> String {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of every length");
        // Maps are sorted and members have their places, so equal definitions are equal texts.
        mac.update(raw(&(&definition.name, &definition.transport)).get().as_bytes());
        hex(&mac.finalize().into_bytes())
    }
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        hex.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    (digits.len() == 64).then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        definition::{HttpFlavour, Transport, UpstreamSettings},
        names::UpstreamName,
        store::tests::Fixture,
    };

    fn definition(token: &str) -> Definition {
        Definition {
            name: UpstreamName::parse("up").expect("a valid name"),
            transport: Transport::Http {
                url: "http://127.0.0.1:1/mcp".to_owned(),
                headers: [("authorization".to_owned(), token.to_owned())].into(),
                flavour: HttpFlavour::Auto,
            },
            enabled: true,
            settings: UpstreamSettings::default(),
        }
    }

    #[tokio::test]
    async fn it_is_made_once_and_names_a_definition_with_its_credentials() {
        let fixture = Fixture::new().await;
        let key = InstallKey::of(&fixture.store).await.expect("stored").expect("random");
        let store = fixture.reopen().await;
        let again = InstallKey::of(&store).await.expect("stored").expect("random");
        let one = key.fingerprint(&definition("one"));
        assert_eq!(one, again.fingerprint(&definition("one")), "over a restart");
        assert_ne!(one, key.fingerprint(&definition("two")), "another credential");
        let other = Definition {
            settings: UpstreamSettings { request_timeout: 1, ..UpstreamSettings::default() },
            ..definition("one")
        };
        assert_eq!(one, key.fingerprint(&other), "how it is treated is no part of it");
        assert!(!one.contains("one") && one.len() == 64);
        let elsewhere = Fixture::new().await;
        let elsewhere = InstallKey::of(&elsewhere.store).await.expect("stored").expect("random");
        assert_ne!(one, elsewhere.fingerprint(&definition("one")), "another installation");
    }
}
