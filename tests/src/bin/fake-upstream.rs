//! A real MCP server with a failure switch, for the end-to-end tests.

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    traygate_tests::fake::run().await
}
