//! One bench on a machine at a time: two would share one cluster, and each would end the other's.

use std::fs::{File, TryLockError};
use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// Held for as long as a bench runs; the kernel lets go of it with the process.
#[derive(Debug)]
pub struct Alone(#[expect(dead_code, reason = "it is held, not read")] File);

/// Makes this the only bench that holds the lock file.
///
/// # Errors
/// Another one holds it, or it cannot be made.
pub fn alone(lock: &Path) -> Result<Alone> {
    let file = File::create(lock).with_context(|| format!("make {}", lock.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(Alone(file)),
        Err(TryLockError::WouldBlock) => {
            bail!(
                "another migpool-bench runs on this machine (it holds {}): wait until it ends",
                lock.display()
            )
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("lock {}", lock.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_bench_is_refused_until_the_first_has_ended() {
        let lock = std::env::temp_dir().join(format!("migpool-bench-test-{}.lock", std::process::id()));
        let first = alone(&lock).unwrap();
        let refused = alone(&lock).unwrap_err().to_string();
        assert!(refused.contains("wait until it ends"), "{refused}");
        drop(first);
        assert!(alone(&lock).is_ok());
        std::fs::remove_file(&lock).unwrap();
    }
}
