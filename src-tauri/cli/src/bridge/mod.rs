use clap::Args;
#[derive(Args)]
pub struct Stdio {
    /// The app's name, as Traygate shows it; without it, that of the program that started the bridge
    #[arg(long)]
    pub app: Option<String>,
    /// Only this upstream, with its own names
    #[arg(long)]
    pub upstream: Option<String>,
}
pub fn run(_s: Stdio, _p: traygate_gateway::paths::Paths) -> anyhow::Result<()> {
    anyhow::bail!("no")
}
