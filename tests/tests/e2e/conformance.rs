//! The protocol's official conformance suite, on what it says of freshness.

use anyhow::{Result, ensure};
use traygate_tests::{Fake, FakeOptions, fake::options::FakeEra, proxy::TokenProxy, sdk};

use crate::host_with;

/// The suite can't send a token, so a proxy adds it. It knows only plain names, so it looks at one
/// upstream alone.
#[tokio::test]
async fn the_official_suite_finds_the_hints_of_every_upstream_right() -> Result<()> {
    for options in FakeOptions::all() {
        for hints in ["--ttl 60000 --scope public", "--no-hints"] {
            let (traygate, fake, token) = host_with("fake", options.clone().with(hints)).await?;
            let proxy = TokenProxy::start(&traygate.origin(), &token).await?;
            let said = sdk::conformance(&proxy.url("/mcp/fake"), "caching").await?;
            ensure!(said.contains("0 failed"), "{:?} {hints}: {said}", options.era);
            ensure!(!said.contains("SKIPPED"), "{:?} {hints}: {said}", options.era);
            if options.era == FakeEra::Legacy {
                break;
            }
            fake.assert_no_violations()?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_official_suite_would_see_that_hints_are_missing() -> Result<()> {
    let options = FakeOptions::http(FakeEra::Modern).with("--no-hints");
    let fake = Fake::start("fake", options).await?;
    ensure!(sdk::conformance(fake.url(), "caching").await.is_err());
    Ok(())
}
