//! The one thread that talks to the driver, and the fence around it: a call that does not come back is given up
//! on, and until it does come back every further call is refused at once. So the kubelet always gets an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::{GpuError, Gpus};

type Job = Box<dyn FnOnce(&mut Option<Box<dyn Gpus>>) + Send>;
type Connect = Box<dyn Fn() -> Result<Box<dyn Gpus>, GpuError> + Send>;

/// A handle on the driver's thread.
#[derive(Clone)]
pub struct Driver {
    jobs: mpsc::Sender<(u64, Job)>,
    fence: Arc<Fence>,
    limit: Duration,
}

/// Jobs are numbered from 1. The thread is stuck while the last one given up on is not done.
#[derive(Default)]
struct Fence {
    sent: AtomicU64,
    done: AtomicU64,
    given_up: AtomicU64,
}

impl Fence {
    fn is_stuck(&self) -> bool {
        self.given_up.load(Ordering::Acquire) > self.done.load(Ordering::Acquire)
    }
}

impl Driver {
    /// Starts the thread. `connect` opens the driver whenever it is needed and not open; `limit` is how long a
    /// call may take.
    #[must_use]
    pub fn start(connect: Connect, limit: Duration) -> Self {
        let (jobs, queue) = mpsc::channel::<(u64, Job)>();
        let fence = Arc::new(Fence::default());
        let shared = Arc::clone(&fence);
        // never joined: a thread inside a hung driver call cannot be ended
        std::thread::spawn(move || {
            let mut gpus = None;
            while let Ok((number, job)) = queue.recv() {
                if gpus.is_none() {
                    gpus = connect()
                        .inspect_err(|error| tracing::debug!(%error, "driver not opened"))
                        .ok();
                }
                job(&mut gpus);
                shared.done.fetch_max(number, Ordering::AcqRel);
            }
        });
        Self { jobs, fence, limit }
    }

    /// Runs one or more calls on the driver's thread.
    ///
    /// # Errors
    /// What the calls say; [`GpuError::Hung`] when they do not come back in time, [`GpuError::NoDriver`] when
    /// there is none. A driver that is gone is closed, so that the next call opens it again.
    pub async fn call<T: Send + 'static>(
        &self,
        call: &'static str,
        work: impl FnOnce(&mut dyn Gpus) -> Result<T, GpuError> + Send + 'static,
    ) -> Result<T, GpuError> {
        let hung = || GpuError::Hung {
            call,
            seconds: self.limit.as_secs(),
        };
        if self.fence.is_stuck() {
            return Err(hung());
        }
        let (answer, wait) = oneshot::channel();
        let job: Job = Box::new(move |gpus| {
            let result = match gpus {
                Some(open) => work(open.as_mut()),
                None => Err(GpuError::NoDriver(
                    "its library cannot be opened, or it finds no driver".to_owned(),
                )),
            };
            if result.as_ref().is_err_and(GpuError::driver_gone) {
                *gpus = None;
            }
            // the caller may have given up
            let _ = answer.send(result);
        });
        let ended = || GpuError::NoDriver("the driver's thread has ended".to_owned());
        let number = self.fence.sent.fetch_add(1, Ordering::AcqRel) + 1;
        self.jobs.send((number, job)).map_err(|_| ended())?;
        match tokio::time::timeout(self.limit, wait).await {
            Ok(Ok(result)) => result,
            // the thread died with the job: NVML broke an assumption of the wrapper
            Ok(Err(_)) => Err(ended()),
            Err(_) => {
                self.fence.given_up.fetch_max(number, Ordering::AcqRel);
                Err(hung())
            }
        }
    }

    /// Whether a call is given up on and has not come back yet.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.fence.is_stuck()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::gpus::DriverInfo;
    use crate::gpus::fake::Fake;

    #[tokio::test]
    async fn a_hung_call_is_given_up_on_and_the_next_is_refused_at_once_until_it_comes_back() {
        let driver = Driver::start(
            Box::new(|| Ok(Box::new(Fake::default()))),
            Duration::from_millis(50),
        );
        let (release, gate) = mpsc::channel::<()>();
        let hung = driver.call("wait", move |_| Ok(gate.recv().is_ok())).await;
        assert_eq!(
            hung,
            Err(GpuError::Hung {
                call: "wait",
                seconds: 0
            })
        );
        assert!(driver.call("next", |_| Ok(())).await.is_err() && driver.is_stuck());
        release.send(()).unwrap();
        while driver.is_stuck() {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            driver.call("driver", |gpus| gpus.driver()).await,
            Ok(DriverInfo::default())
        );
    }

    #[tokio::test]
    async fn without_a_driver_every_call_says_so_and_the_driver_is_looked_for_again() {
        let there = Arc::new(AtomicBool::new(false));
        let now = Arc::clone(&there);
        let connect = move || match now.load(Ordering::Acquire) {
            true => Ok(Box::new(Fake::default()) as Box<dyn Gpus>),
            false => Err(GpuError::NoDriver("gone".to_owned())),
        };
        let driver = Driver::start(Box::new(connect), Duration::from_secs(5));
        assert!(
            driver
                .call("list", |gpus| gpus.list())
                .await
                .unwrap_err()
                .driver_gone()
        );
        there.store(true, Ordering::Release);
        assert!(driver.call("list", |gpus| gpus.list()).await.is_ok());
    }
}
