//! A new migration is a new file, which cargo would not notice by itself.

fn main() {
    println!("cargo::rerun-if-changed=../../migrations");
}
