//! The command line by which Windows' command processor runs a script (`npx.cmd`) with arguments
//! that reach the server unchanged.
//!
//! The processor reads the line with its own rules, then the script hands `%*` on, and the program
//! behind it reads the result with the rules of the C runtime. Each argument is written so that it
//! means the same to both.

#![cfg_attr(not(windows), allow(dead_code))]

use std::path::{Path, PathBuf};

/// How long a line the processor takes.
const LONGEST: usize = 8191;

/// Why a script can't be given these arguments. Never holds one: they may be secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unpassable {
    #[error(
        "a line break in an argument can't be passed to a .cmd or .bat script; name the program that the script runs instead"
    )]
    LineBreak,
    #[error(
        "the arguments are too long for a .cmd or .bat script, which takes {LONGEST} characters; name the program that the script runs instead"
    )]
    TooLong,
}

/// Whether the system can't run this file by itself.
pub fn is_script(program: &Path) -> bool {
    let extension = program.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|text| ["cmd", "bat"].iter().any(|one| text.eq_ignore_ascii_case(one)))
}

/// The system's own, wherever `PATH` and `COMSPEC` point.
pub fn command_processor() -> PathBuf {
    let system = std::env::var_os("SystemRoot").unwrap_or_else(|| r"C:\Windows".into());
    Path::new(&system).join("System32").join("cmd.exe")
}

/// What follows the processor's name: without the user's start commands (`/d`), with its
/// extensions (`/e:on`), with `!` meaning nothing (`/v:off`), and with the outermost quotes taken
/// away (`/s`).
pub fn command_line(script: &str, args: &[String]) -> Result<String, Unpassable> {
    let mut line = String::from(r#"/d /e:on /v:off /s /c ""#);
    append(&mut line, script);
    for arg in args {
        if arg.contains(['\r', '\n']) {
            return Err(Unpassable::LineBreak);
        }
        line.push(' ');
        append(&mut line, arg);
    }
    line.push('"');
    if line.encode_utf16().count() > LONGEST {
        return Err(Unpassable::TooLong);
    }
    Ok(line)
}

/// In quotes, in which `& | < > ^ ( )` and spaces mean nothing to the processor.
fn append(line: &mut String, arg: &str) {
    line.push('"');
    let mut backslashes = 0;
    for c in arg.chars() {
        match c {
            // A doubled quote is one quote to the C runtime, and leaves the processor within
            // quotes; backslashes before a quote count double.
            '"' => {
                line.push_str(&"\\".repeat(backslashes));
                line.push_str("\"\"");
            }
            // Here a lone % begins a variable's name. This ends the name at once: what follows it
            // is an empty part of the current directory's.
            '%' => line.push_str("%%cd:~,%"),
            c => line.push(c),
        }
        backslashes = if c == '\\' { backslashes + 1 } else { 0 };
    }
    line.push_str(&"\\".repeat(backslashes));
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(args: &[&str]) -> Result<String, Unpassable> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        command_line(r"C:\Program Files\nodejs\npx.cmd", &args)
    }

    #[test]
    fn a_scripts_arguments_are_written_for_both_who_read_them() {
        for (arg, written) in [
            ("-y", r#""-y""#),
            ("", r#""""#),
            (r"C:\a b\c", r#""C:\a b\c""#),
            (r"C:\a b\", r#""C:\a b\\""#),
            ("x&y|z>1<2^3(4)", r#""x&y|z>1<2^3(4)""#),
            ("@scope/p@>=1.1", r#""@scope/p@>=1.1""#),
            (r#"say "hi""#, r#""say ""hi""""#),
            (r#"a\"b"#, r#""a\\""b""#),
            ("100%", r#""100%%cd:~,%""#),
            ("%PATH%", r#""%%cd:~,%PATH%%cd:~,%""#),
            ("!x!", r#""!x!""#),
        ] {
            let expected =
                format!(r#"/d /e:on /v:off /s /c ""C:\Program Files\nodejs\npx.cmd" {written}""#);
            assert_eq!(line(&[arg]), Ok(expected), "{arg}");
        }
    }

    #[test]
    fn what_can_not_be_passed_safely_is_refused() {
        for arg in ["a\nb", "a\r\nb", "\r"] {
            assert_eq!(line(&[arg]), Err(Unpassable::LineBreak));
        }
        assert_eq!(line(&["x".repeat(8_200).as_str()]), Err(Unpassable::TooLong));
    }

    /// The two readers, as their documentation tells their rules.
    #[test]
    fn what_is_written_is_read_back() {
        let args = ["a b", r"C:\a b\", r#"say "hi""#, r#"\\"\"#, "100%", "x&y", "", r#""""#];
        let line = line(&args).expect("passable");
        let inner = line.split_once("/c \"").expect("a command").1;
        let inner = inner.strip_suffix('"').expect("the outer quotes");
        // The processor, within quotes: the empty part of a variable disappears.
        let handed_on = inner.replace("%%cd:~,%", "%");
        assert_eq!(runtime(&handed_on)[1..], args);
    }

    /// How the C runtime tells arguments apart.
    fn runtime(line: &str) -> Vec<String> {
        let (mut args, mut arg, mut quoted, mut started) =
            (Vec::new(), String::new(), false, false);
        let chars: Vec<char> = line.chars().collect();
        let mut at = 0;
        while at < chars.len() {
            let backslashes = chars[at..].iter().take_while(|c| **c == '\\').count();
            at += backslashes;
            let before_quote = chars.get(at) == Some(&'"');
            arg.push_str(&"\\".repeat(if before_quote { backslashes / 2 } else { backslashes }));
            started |= backslashes > 0;
            match chars.get(at) {
                Some('"') if backslashes % 2 == 1 => arg.push('"'),
                Some('"') if quoted && chars.get(at + 1) == Some(&'"') => {
                    arg.push('"');
                    at += 1;
                }
                Some('"') => (quoted, started) = (!quoted, true),
                Some(' ') if !quoted && !started => {}
                Some(' ') if !quoted => {
                    started = false;
                    args.push(std::mem::take(&mut arg));
                }
                Some(c) => {
                    arg.push(*c);
                    started = true;
                }
                None => {}
            }
            at += 1;
        }
        if started {
            args.push(arg);
        }
        args
    }
}
