//! What the documents say of tests is true: each one that they name is there.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The names of all tests, as far as a source file tells: the function, and the file's modules.
fn tests_below(directory: &Path, found: &mut BTreeSet<(String, String)>) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            tests_below(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path)?;
            let modules = path.with_extension("").display().to_string().replace('/', "::");
            let modules = modules.trim_end_matches("::mod").to_owned();
            // The line after the attribute, or after more of them, begins the function.
            let mut is_test = false;
            for line in text.lines().map(str::trim) {
                is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
                let function = line.trim_start_matches("async ").strip_prefix("fn ");
                if let Some((name, _)) = function.and_then(|rest| rest.split_once('(')) {
                    if is_test {
                        found.insert((modules.clone(), name.to_owned()));
                    }
                    is_test = false;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn every_test_that_the_register_of_freshness_names_exists() -> Result<()> {
    let mut tests = BTreeSet::new();
    for directory in ["src-tauri/gateway/src", "src-tauri/cli", "tests/tests"] {
        tests_below(&root().join(directory), &mut tests)?;
    }
    let register = std::fs::read_to_string(root().join("docs/caching.md"))?;
    let named = register.split('`').skip(1).step_by(2).filter(|name| name.contains("::"));
    let named: Vec<_> = named.filter(|name| !name.contains('…')).collect();
    ensure!(named.len() > 40, "{} tests are named", named.len());
    for name in named {
        let (modules, function) = name.rsplit_once("::").unwrap_or_default();
        let modules = modules.trim_end_matches("::tests");
        let there = tests.iter().any(|(file, test)| {
            test == function && file.trim_end_matches("::tests").ends_with(modules)
        });
        ensure!(there, "docs/caching.md names {name}, which is no test");
    }
    Ok(())
}
