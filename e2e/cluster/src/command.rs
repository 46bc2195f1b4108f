//! Running a program to its end, with an error that shows what it said.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// How often a foreign process is looked at while it is waited for.
const POLL: Duration = Duration::from_millis(20);

/// Runs it and returns its standard output; anything but success is an error with its last words.
pub fn run(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {}", shown(command)))?;
    judge(command, &output)
}

/// As [`run`], with text on standard input.
pub fn feed(command: &mut Command, text: &str) -> Result<String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {}", shown(command)))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends early closes its end; its exit status tells more than the broken pipe.
        let _ = stdin.write_all(text.as_bytes());
    }
    let output = child
        .wait_with_output()
        .with_context(|| format!("wait for {}", shown(command)))?;
    judge(command, &output)
}

/// Asks until the answer is yes or the time is over; tells which.
pub fn wait_until(limit: Duration, mut reached: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if reached() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(POLL);
    }
}

fn judge(command: &Command, output: &Output) -> Result<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let mut words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if words.is_empty() {
        words = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    }
    bail!("{} failed ({}): {words}", shown(command), output.status)
}

/// The command line as a person would type it, shortened.
fn shown(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    if let Some((cut, _)) = line.char_indices().nth(300) {
        line.truncate(cut);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_the_command_and_its_words() {
        let error = run(Command::new("sh").args(["-c", "echo no such link >&2; exit 4"])).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("sh -c") && text.contains("no such link") && text.contains('4'),
            "{text}"
        );
    }

    #[test]
    fn standard_input_arrives() {
        assert_eq!(
            feed(&mut Command::new("cat"), "link add\n").unwrap(),
            "link add\n"
        );
    }

    #[test]
    fn waiting_ends_with_the_answer_or_the_time() {
        let mut left = 3;
        assert!(wait_until(Duration::from_secs(5), || {
            left -= 1;
            left == 0
        }));
        assert!(!wait_until(Duration::ZERO, || false));
    }
}
