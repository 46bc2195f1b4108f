//! Who may hear the load: the one ServiceAccount, by a token that was made for this and nothing else. The API server
//! is asked about every token; what was good is taken for a while without asking again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest as _, Sha256};
use shared::names::AUDIENCE_USAGE;
use shared::policy::{LOAD_DIAL_SECONDS, LOAD_TOKEN_SECONDS};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tonic::Status;
use tonic::metadata::MetadataMap;

/// Longest that a review may take, and the wait for its turn: together what a caller waits.
const REVIEW: Duration = Duration::from_secs(LOAD_DIAL_SECONDS / 2);
/// Tokens that are reviewed at once: a flood of bad ones must not become one of the API server.
const REVIEWS: usize = 2;
/// Good tokens that are remembered: there is one scheduler, and its token changes once an hour.
const KEPT: usize = 16;

/// Those who may call.
pub struct Callers {
    client: Client,
    /// `system:serviceaccount:<namespace>:<name>`
    account: String,
    /// When each token was found good, by its SHA-256: a token itself is never kept.
    good: Mutex<BTreeMap<[u8; 32], Instant>>,
    reviews: Semaphore,
    /// Whether the last review came to nothing.
    failing: AtomicBool,
}

impl Callers {
    /// Lets in one account. The client should not try again by itself: a caller waits.
    #[must_use]
    pub fn new(client: Client, account: &str) -> Self {
        Self {
            client,
            account: account.to_owned(),
            good: Mutex::default(),
            reviews: Semaphore::new(REVIEWS),
            failing: AtomicBool::new(false),
        }
    }

    /// Whether whoever sends this may call.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` without a good token, `PERMISSION_DENIED` for another account, `UNAVAILABLE` where the API
    /// server does not answer. None says more than that.
    pub async fn check(&self, metadata: &MetadataMap, now: Instant) -> Result<(), Status> {
        let token = bearer(metadata).ok_or_else(unauthenticated)?;
        let digest: [u8; 32] = Sha256::digest(token).into();
        if self.knows(&digest, now) {
            return Ok(());
        }
        // a flood of callers says nothing of the API server
        let turn = timeout(REVIEW, self.reviews.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            return Err(unavailable());
        };
        let answer = match timeout(REVIEW, self.review(token)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(self.failed(&error.to_string())),
            Err(_) => return Err(self.failed("no answer in time")),
        };
        if self.failing.swap(false, Ordering::AcqRel) {
            tracing::info!("the API server reviews tokens again");
        }
        judge(&answer, &self.account)?;
        self.learn(digest, now);
        Ok(())
    }

    async fn review(&self, token: &str) -> kube::Result<TokenReview> {
        let spec = TokenReviewSpec {
            audiences: Some(vec![AUDIENCE_USAGE.to_owned()]),
            token: Some(token.to_owned()),
        };
        let review = TokenReview {
            spec,
            ..TokenReview::default()
        };
        let api = Api::<TokenReview>::all(self.client.clone());
        api.create(&PostParams::default(), &review).await
    }

    fn failed(&self, error: &str) -> Status {
        if !self.failing.swap(true, Ordering::AcqRel) {
            tracing::warn!(
                error,
                "the API server does not review tokens; new callers hear no load"
            );
        }
        unavailable()
    }

    fn knows(&self, digest: &[u8; 32], now: Instant) -> bool {
        let good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        good.get(digest).is_some_and(|since| fresh(*since, now))
    }

    fn learn(&self, digest: [u8; 32], now: Instant) {
        let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        good.retain(|_, since| fresh(*since, now));
        if good.len() >= KEPT
            && let Some(oldest) = good
                .iter()
                .min_by_key(|(_, since)| **since)
                .map(|(digest, _)| *digest)
        {
            good.remove(&oldest);
        }
        good.insert(digest, now);
    }
}

fn fresh(since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(since) < Duration::from_secs(LOAD_TOKEN_SECONDS)
}

/// The token of `authorization: Bearer <token>`.
fn bearer(metadata: &MetadataMap) -> Option<&str> {
    let value = metadata.get("authorization")?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// What the API server's answer means for a caller.
fn judge(review: &TokenReview, account: &str) -> Result<(), Status> {
    let status = review.status.clone().unwrap_or_default();
    // an API server that knows no audiences names none, and has not looked at them
    let audiences = status.audiences.unwrap_or_default();
    let for_this = audiences.iter().any(|audience| audience == AUDIENCE_USAGE);
    if status.authenticated != Some(true) || !for_this {
        return Err(unauthenticated());
    }
    let name = status.user.and_then(|user| user.username);
    if name.as_deref() == Some(account) {
        Ok(())
    } else {
        Err(Status::permission_denied("not for this account"))
    }
}

fn unauthenticated() -> Status {
    Status::unauthenticated("no good token")
}

fn unavailable() -> Status {
    Status::unavailable("the token cannot be checked now")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authentication::v1::{TokenReviewStatus, UserInfo};
    use tonic::Code;

    use super::*;

    const ACCOUNT: &str = "system:serviceaccount:migpool-system:migpool-scheduler";

    #[test]
    fn only_the_account_with_a_token_for_this_is_let_in() {
        let review = |authenticated, audiences: Option<&[&str]>, name: Option<&str>| TokenReview {
            status: Some(TokenReviewStatus {
                authenticated,
                audiences: audiences.map(|all| all.iter().map(|one| (*one).to_owned()).collect()),
                user: Some(UserInfo {
                    username: name.map(str::to_owned),
                    ..UserInfo::default()
                }),
                ..TokenReviewStatus::default()
            }),
            ..TokenReview::default()
        };
        let (ours, other) = (&["x", AUDIENCE_USAGE][..], &["https://kubernetes"][..]);
        for (answer, code) in [
            (review(Some(true), Some(ours), Some(ACCOUNT)), None),
            (
                review(Some(false), Some(ours), Some(ACCOUNT)),
                Some(Code::Unauthenticated),
            ),
            (
                review(None, Some(ours), Some(ACCOUNT)),
                Some(Code::Unauthenticated),
            ),
            (
                review(Some(true), Some(other), Some(ACCOUNT)),
                Some(Code::Unauthenticated),
            ),
            (
                review(Some(true), None, Some(ACCOUNT)),
                Some(Code::Unauthenticated),
            ),
            (
                review(Some(true), Some(ours), Some("system:admin")),
                Some(Code::PermissionDenied),
            ),
            (review(Some(true), Some(ours), None), Some(Code::PermissionDenied)),
            (TokenReview::default(), Some(Code::Unauthenticated)),
        ] {
            let judged = judge(&answer, ACCOUNT).err().map(|status| status.code());
            assert_eq!(judged, code, "{answer:?}");
        }
    }

    #[test]
    fn a_token_is_read_from_its_header_alone() {
        for (value, token) in [
            ("Bearer abc.def", Some("abc.def")),
            ("bearer abc", Some("abc")),
            ("Basic abc", None),
            ("Bearer ", None),
            ("Bearer", None),
            ("abc", None),
        ] {
            let mut metadata = MetadataMap::new();
            metadata.insert("authorization", value.parse().unwrap());
            assert_eq!(bearer(&metadata), token, "{value}");
        }
        assert_eq!(bearer(&MetadataMap::new()), None);
    }

    #[tokio::test]
    async fn good_tokens_are_known_for_a_minute_and_never_many() {
        serve::client::install_tls_provider();
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let callers = Callers::new(Client::try_from(config).unwrap(), ACCOUNT);
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        callers.learn([0; 32], start);
        assert!(callers.knows(&[0; 32], later(59)) && !callers.knows(&[0; 32], later(60)));
        for number in 1..=100_u8 {
            callers.learn([number; 32], later(number.into()));
        }
        assert!(callers.good.lock().unwrap().len() <= KEPT);
        assert!(callers.knows(&[100; 32], later(100)) && !callers.knows(&[1; 32], later(100)));
    }
}
