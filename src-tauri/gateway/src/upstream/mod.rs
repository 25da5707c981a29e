pub mod log;
pub mod process;
pub mod wire;
