//! A certificate that is worth what its fingerprint is worth.

use std::fmt;
use std::str::FromStr;

use anyhow::Context as _;
use rcgen::{CertificateParams, KeyPair};
use sha2::{Digest as _, Sha256};

/// The name in every certificate; callers go by the fingerprint alone.
pub(super) const NAME: &str = "migpool-usage";

/// A certificate and its key, both in PEM.
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its key. Never written anywhere: a new one is made at each start.
    pub key: String,
    /// What callers know it by.
    pub fingerprint: Fingerprint,
}

/// SHA-256 of a certificate in DER.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

/// A fingerprint that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a fingerprint; it is sha256: and 64 hexadecimal digits")]
pub struct BadFingerprint(String);

impl Identity {
    /// A new one.
    ///
    /// # Errors
    /// The machine gives no random numbers.
    pub fn new() -> anyhow::Result<Self> {
        let key = KeyPair::generate().context("make a key")?;
        let params = CertificateParams::new([NAME.to_owned()]).context("describe a certificate")?;
        let certificate = params.self_signed(&key).context("sign a certificate")?;
        Ok(Self {
            fingerprint: Fingerprint::of(certificate.der()),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

impl Fingerprint {
    /// That of a certificate in DER.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = BadFingerprint;

    fn from_str(text: &str) -> Result<Self, BadFingerprint> {
        let bad = || BadFingerprint(text.to_owned());
        let digits = text.strip_prefix("sha256:").ok_or_else(bad)?;
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(bad());
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).map_err(|_| bad())?;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_it_is_written_and_nothing_else_is() {
        let fingerprint = Identity::new().unwrap().fingerprint;
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
        let digits = "ab".repeat(32);
        for bad in [
            String::new(),
            digits.clone(),
            format!("sha1:{digits}"),
            format!("sha256:{}", &digits[1..]),
            format!("sha256:{digits}0"),
            format!("sha256:+{}", &digits[1..]),
            format!("sha256:{}é", &digits[2..]),
        ] {
            assert!(bad.parse::<Fingerprint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn no_two_are_alike() {
        assert_ne!(
            Identity::new().unwrap().fingerprint,
            Identity::new().unwrap().fingerprint
        );
    }
}
