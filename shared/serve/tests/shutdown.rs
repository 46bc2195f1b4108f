//! Shutdown by real signals, on a process of its own: this test program, started again as the victim.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

/// Set where this program plays the victim.
const VICTIM: &str = "MIGPOOL_TEST_VICTIM";

#[tokio::test]
async fn without_a_signal_nothing_ends() {
    let token = serve::shutdown::token();
    if let Ok(manner) = std::env::var(VICTIM) {
        return victim(token, &manner).await;
    }
    let patience = std::time::Duration::from_millis(50);
    assert!(tokio::time::timeout(patience, token.cancelled()).await.is_err());
}

/// What the victim does: ends on the first signal unless told to be `deaf`.
async fn victim(token: tokio_util::sync::CancellationToken, manner: &str) {
    println!("\nlistening");
    token.cancelled().await;
    println!("\ncancelled");
    if manner == "deaf" {
        std::future::pending::<()>().await;
    }
}

struct Victim {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Victim {
    fn start(manner: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["without_a_signal_nothing_ends", "--exact", "--nocapture"])
            .env(VICTIM, manner)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut victim = Self { child, lines };
        victim.says("listening");
        victim
    }

    fn says(&mut self, word: &str) {
        assert!(
            self.lines.any(|line| line.unwrap() == word),
            "the victim never said {word}"
        );
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -{name} {}", self.child.id())])
            .status();
        assert!(sent.unwrap().success());
    }
}

#[test]
fn each_signal_cancels_the_token_and_the_program_ends_in_good_order() {
    for name in ["TERM", "INT"] {
        let mut victim = Victim::start("polite");
        victim.signal(name);
        victim.says("cancelled");
        assert!(victim.child.wait().unwrap().success(), "{name}");
    }
}

#[test]
fn a_second_signal_ends_a_program_that_does_not_end() {
    let mut victim = Victim::start("deaf");
    victim.signal("TERM");
    victim.says("cancelled");
    victim.signal("INT");
    assert_eq!(victim.child.wait().unwrap().code(), Some(130));
}
