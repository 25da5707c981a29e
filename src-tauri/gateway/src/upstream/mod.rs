pub mod log;
pub mod wire;
