//! The minutes on disk, in a small file of their own, so that a restart of the agent forgets none. Whatever is wrong
//! with it, the agent goes on without.
//!
//! Layout, numbers little-endian: 8 bytes `MAGIC`, 4 bytes form, 8 bytes first minute, 4 bytes for the load of each
//! minute from there on (not a number where it was not read), and SHA-256 of all that.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use shared::decide::forecast::minutes::Minutes;
use shared::policy::LOAD_MINUTES;

use super::average::minute;
use crate::replace::replace;

/// File name in the state folder.
const FILE: &str = "usage";
/// What the file begins with.
const MAGIC: [u8; 8] = *b"migpool\n";
/// Form of the file.
const VERSION: u32 = 1;
/// Bytes before the loads.
const HEAD: usize = 20;
/// Bytes of the checksum.
const SUM: usize = 32;
/// Bytes of the largest file.
const LARGEST: usize = HEAD + 4 * LOAD_MINUTES + SUM;

/// The file of this node.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    /// Why it could not be written the last time, if so.
    failing: Option<String>,
}

/// Why the file says nothing.
#[derive(Debug, thiserror::Error)]
pub enum Damaged {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Its length is none that it can have.
    #[error("it is cut off or too long")]
    Length,
    /// Not what was written.
    #[error("its checksum is wrong")]
    Checksum,
    /// Of another program, or of another agent.
    #[error("it has another form")]
    Form,
    /// What was written makes no sense.
    #[error("it tells minutes that there cannot be")]
    Minutes,
}

impl File {
    /// The file in a folder, and what it says of the minutes up to now. One that cannot be read is set aside.
    #[must_use]
    pub fn open(folder: &Path, now: Timestamp) -> (Self, Minutes) {
        let path = folder.join(FILE);
        let minutes = match read(&path) {
            Ok(minutes) => minutes.map(|minutes| up_to(&minutes, minute(now))),
            Err(error) => {
                let aside = path.with_extension("unreadable");
                tracing::warn!(path = %path.display(), aside = %aside.display(), %error, "remembered load set aside");
                if let Err(error) = std::fs::rename(&path, &aside) {
                    tracing::debug!(%error, "it stays where it is until it is written anew");
                }
                None
            }
        };
        let failing = None;
        (Self { path, failing }, minutes.unwrap_or_default())
    }

    /// Writes what is remembered. A failure is logged when it begins and when it ends.
    pub fn write(&mut self, minutes: &Minutes) {
        let failed = replace(&self.path, &encode(minutes)).err();
        let failed = failed.map(|error| error.to_string());
        match (&failed, &self.failing) {
            (Some(error), before) if Some(error) != before.as_ref() => {
                tracing::warn!(path = %self.path.display(), error, "load is not written down; a restart would forget it");
            }
            (None, Some(_)) => tracing::info!(path = %self.path.display(), "load is written down again"),
            _ => {}
        }
        self.failing = failed;
    }
}

/// What a file says; `None` where there is none.
fn read(path: &Path) -> Result<Option<Minutes>, Damaged> {
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(LARGEST as u64 + 1).read_to_end(&mut bytes)?;
    decode(&bytes).map(Some)
}

/// Without minutes that are still to come: the clock was wrong then, and nothing could be told until it is right again.
fn up_to(minutes: &Minutes, now: i64) -> Minutes {
    let mut past = Minutes::default();
    for (minute, load) in minutes.after(0).take_while(|(minute, _)| *minute <= now) {
        past.put(minute, load);
    }
    if past.last() != minutes.last() {
        tracing::warn!(
            now,
            last = minutes.last(),
            "remembered load of minutes to come is forgotten"
        );
    }
    past
}

fn encode(minutes: &Minutes) -> Vec<u8> {
    let first = minutes.first().unwrap_or_default();
    let mut bytes = Vec::with_capacity(LARGEST);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(first.to_le_bytes());
    for (minute, load) in minutes.after(0) {
        let at = HEAD + 4 * usize::try_from(minute - first).unwrap_or_default();
        while bytes.len() < at {
            bytes.extend(f32::NAN.to_le_bytes());
        }
        bytes.extend(load.to_le_bytes());
    }
    let sum = Sha256::digest(&bytes);
    bytes.extend(sum);
    bytes
}

fn decode(bytes: &[u8]) -> Result<Minutes, Damaged> {
    let loads = bytes.len().checked_sub(HEAD + SUM).ok_or(Damaged::Length)?;
    if bytes.len() > LARGEST || loads % 4 != 0 {
        return Err(Damaged::Length);
    }
    let (told, sum) = bytes.split_at(HEAD + loads);
    if Sha256::digest(told).as_slice() != sum {
        return Err(Damaged::Checksum);
    }
    let (head, loads) = told.split_at(HEAD);
    let (magic, head) = head.split_at(MAGIC.len());
    let (version, first) = head.split_at(4);
    if magic != MAGIC || version != VERSION.to_le_bytes() {
        return Err(Damaged::Form);
    }
    let first = i64::from_le_bytes(first.try_into().map_err(|_| Damaged::Length)?);
    let mut minutes = Minutes::default();
    for (at, load) in (0..).zip(loads.chunks_exact(4)) {
        let load = f32::from_le_bytes(load.try_into().map_err(|_| Damaged::Length)?);
        let minute = first.checked_add(at).ok_or(Damaged::Minutes)?;
        if !load.is_nan() && !minutes.put(minute, load) {
            return Err(Damaged::Minutes);
        }
    }
    Ok(minutes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Of minute 100.
    fn now() -> Timestamp {
        Timestamp::from_second(100 * 60 + 5).unwrap()
    }

    fn some() -> Minutes {
        let mut minutes = Minutes::default();
        for (minute, load) in [(90, 0.0), (91, 1.0), (95, 0.25), (100, 0.5)] {
            assert!(minutes.put(minute, load));
        }
        minutes
    }

    /// What is told; two that were not read are not equal as numbers.
    fn told(minutes: &Minutes) -> Vec<(i64, f32)> {
        minutes.after(0).collect()
    }

    fn written(folder: &Path) -> PathBuf {
        File::open(folder, now()).0.write(&some());
        folder.join(FILE)
    }

    #[test]
    fn what_was_written_is_read_by_the_next_agent() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(told(&File::open(dir.path(), now()).1), []);
        written(dir.path());
        assert_eq!(told(&File::open(dir.path(), now()).1), told(&some()));
    }

    #[test]
    fn any_byte_that_is_another_one_and_any_other_length_is_noticed() {
        let whole = encode(&some());
        assert_eq!(told(&decode(&whole).unwrap()), told(&some()));
        for at in 0..whole.len() {
            let mut bad = whole.clone();
            bad[at] ^= 1;
            assert!(decode(&bad).is_err(), "byte {at}");
            assert!(decode(&whole[..at]).is_err(), "{at} bytes");
        }
        assert!(matches!(
            decode(&[whole, vec![0; LARGEST]].concat()),
            Err(Damaged::Length)
        ));
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_the_next_one_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path());
        std::fs::write(&path, "nonsense").unwrap();
        let (mut file, minutes) = File::open(dir.path(), now());
        assert_eq!(told(&minutes), []);
        assert!(!path.exists() && dir.path().join("usage.unreadable").exists());
        file.write(&some());
        assert_eq!(told(&File::open(dir.path(), now()).1), told(&some()));
    }

    #[test]
    fn a_file_that_makes_no_sense_is_damaged_though_its_checksum_is_right() {
        let summed = |mut bytes: Vec<u8>| {
            bytes.truncate(bytes.len() - SUM);
            let sum = Sha256::digest(&bytes);
            bytes.extend(sum);
            bytes
        };
        let of = |at: usize, new: &[u8]| {
            let mut bytes = encode(&some());
            bytes[at..at + new.len()].copy_from_slice(new);
            decode(&summed(bytes))
        };
        assert!(of(HEAD, &0.75_f32.to_le_bytes()).is_ok());
        assert!(matches!(of(HEAD, &2.0_f32.to_le_bytes()), Err(Damaged::Minutes)));
        assert!(matches!(of(12, &i64::MAX.to_le_bytes()), Err(Damaged::Minutes)));
        assert!(matches!(of(8, &2_u32.to_le_bytes()), Err(Damaged::Form)));
        assert!(matches!(of(0, b"MIGPOOL\n"), Err(Damaged::Form)));
    }

    #[test]
    fn minutes_that_are_still_to_come_are_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        written(dir.path());
        let earlier = Timestamp::from_second(95 * 60).unwrap();
        let (_, minutes) = File::open(dir.path(), earlier);
        assert_eq!(told(&minutes), [(90, 0.0), (91, 1.0), (95, 0.25)]);
    }

    #[test]
    fn a_folder_that_cannot_be_written_stops_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (mut file, _) = File::open(&dir.path().join("missing"), now());
        file.write(&some());
        assert!(file.failing.is_some());
        std::fs::create_dir(dir.path().join("missing")).unwrap();
        file.write(&some());
        assert_eq!(file.failing, None);
    }

    proptest! {
        #[test]
        fn every_minute_survives(steps in prop::collection::vec((1_i64..400, 0.0_f32..=1.0), 0..60)) {
            let (mut minutes, mut at) = (Minutes::default(), 1);
            for (step, load) in steps {
                at += step;
                minutes.put(at, load);
            }
            let bytes = encode(&minutes);
            prop_assert!(bytes.len() <= LARGEST);
            let again = decode(&bytes).unwrap();
            prop_assert_eq!(told(&again), told(&minutes));
        }
    }
}
