use std::time::Duration;

use api::Resource;
use client::TermLimits;
use fastrand::Rng;

/// The wait between two attempts to acquire is the retry period times a factor from 1 to 1 + `JITTER`. So standbys do
/// not try at the same time (`leaderelection.JitterFactor`).
pub(crate) const JITTER: f64 = 1.2;

/// The Lease, the identity of this process, and the durations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `--leader-elect-lease-duration`: others wait this long after the last renewal that they observed.
    pub lease_duration: Duration,
    /// `--leader-elect-renew-deadline`: the leader stops this long after it sent its last successful renewal.
    pub renew_deadline: Duration,
    /// `--leader-elect-retry-period`: the time between two attempts.
    pub retry_period: Duration,
    /// `--leader-elect-resource-namespace`
    pub namespace: String,
    /// `--leader-elect-resource-name`
    pub name: String,
    /// The unique identity of this process: see [`identity`].
    pub identity: String,
}

/// All rules that the configuration breaks, with the names of the flags.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct InvalidConfig(pub Vec<String>);

/// `<hostname>_<random uuid>`: unique for each process, also for two on one host.
#[must_use]
pub fn identity(hostname: &str, rng: &mut Rng) -> String {
    // Version 4, variant 1 of RFC 9562.
    let bits = rng.u128(..) & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    format!("{hostname}_{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

impl Config {
    /// The name of the Lease in log lines.
    pub(crate) fn lock(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Checks that a leader stops before others may begin, and that it has time for more than one attempt until then.
    ///
    /// # Errors
    /// All rules that are broken.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        let Self { lease_duration, renew_deadline, retry_period, namespace, name, identity } = self;
        let longest_retry = retry_period.mul_f64(JITTER);
        let checks = [
            (
                !lease_duration.is_zero(),
                format!("leader-elect-lease-duration must be greater than zero, got {lease_duration:?}"),
            ),
            (
                !renew_deadline.is_zero(),
                format!("leader-elect-renew-deadline must be greater than zero, got {renew_deadline:?}"),
            ),
            (
                !retry_period.is_zero(),
                format!("leader-elect-retry-period must be greater than zero, got {retry_period:?}"),
            ),
            (
                lease_duration > renew_deadline,
                format!(
                    "leader-elect-lease-duration ({lease_duration:?}) must be greater than \
                     leader-elect-renew-deadline ({renew_deadline:?})"
                ),
            ),
            (
                *renew_deadline > longest_retry,
                format!(
                    "leader-elect-renew-deadline ({renew_deadline:?}) must be greater than \
                     leader-elect-retry-period ({retry_period:?}) times {JITTER}, which is {longest_retry:?}"
                ),
            ),
            (!namespace.is_empty(), "leader-elect-resource-namespace must not be empty".to_owned()),
            (!name.is_empty(), "leader-elect-resource-name must not be empty".to_owned()),
            (!identity.is_empty(), "the identity for leader election must not be empty".to_owned()),
        ];
        let wrong: Vec<String> = checks.into_iter().filter(|(holds, _)| !holds).map(|(_, why)| why).collect();
        if wrong.is_empty() { Ok(()) } else { Err(InvalidConfig(wrong)) }
    }

    /// The timeout of one request, for [`client::Clients::lease`]. After a request without a response there is time for
    /// another one before the renew deadline.
    #[must_use]
    pub fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1))
    }

    /// How long the term lasts after one renewal.
    pub(crate) fn limits(&self) -> TermLimits {
        TermLimits { renew_deadline: self.renew_deadline, lease_duration: self.lease_duration }
    }

    /// `leaseDurationSeconds` in the record. It is rounded up, where upstream truncates: others must not wait for less
    /// time than this process assumes.
    pub(crate) fn lease_seconds(&self) -> i64 {
        let whole = self.lease_duration.as_secs() + u64::from(self.lease_duration.subsec_nanos() > 0);
        i64::try_from(whole).unwrap_or(i64::MAX)
    }
}

/// The API resource of Leases.
pub(crate) fn leases() -> Resource {
    Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            namespace: "kube-system".into(),
            name: "kube-controller-manager".into(),
            identity: "host_uuid".into(),
        }
    }

    #[test]
    fn acceptance_machinery_051_durations_that_cannot_work_are_an_error_that_names_the_flags() {
        let secs = Duration::from_secs;
        let cases: [(&str, Config, &[&str]); 7] = [
            ("the defaults", config(), &[]),
            (
                "no time for a second attempt",
                Config { retry_period: secs(10), ..config() },
                &["leader-elect-renew-deadline (10s)", "leader-elect-retry-period (10s)", "12s"],
            ),
            (
                "time for exactly the longest wait is not enough",
                Config { renew_deadline: secs(12), retry_period: secs(10), ..config() },
                &["leader-elect-renew-deadline (12s)"],
            ),
            (
                "the lease must outlive the deadline",
                Config { lease_duration: secs(10), ..config() },
                &["leader-elect-lease-duration (10s)", "leader-elect-renew-deadline (10s)"],
            ),
            ("no retry period", Config { retry_period: secs(0), ..config() }, &["leader-elect-retry-period must be"]),
            ("no identity", Config { identity: String::new(), ..config() }, &["identity"]),
            (
                "everything at once",
                Config { lease_duration: secs(0), name: String::new(), ..config() },
                &["leader-elect-lease-duration must be", "leader-elect-resource-name"],
            ),
        ];
        for (name, config, want) in cases {
            let message = config.validate().err().map(|err| err.to_string()).unwrap_or_default();
            assert_eq!(message.is_empty(), want.is_empty(), "{name}: {message}");
            for part in want {
                assert!(message.contains(part), "{name}: {message}");
            }
        }
    }

    #[test]
    fn two_attempts_fit_into_a_renew_deadline_that_is_not_absurd() {
        let of =
            |millis| Config { renew_deadline: Duration::from_millis(millis), ..config() }.request_timeout().as_millis();
        assert_eq!([of(10_000), of(4_000), of(1_500)], [5_000, 2_000, 1_000]);
    }

    #[test]
    fn a_fraction_of_a_second_makes_the_lease_longer_never_shorter() {
        let of = |millis| Config { lease_duration: Duration::from_millis(millis), ..config() }.lease_seconds();
        assert_eq!([of(15_000), of(15_001), of(500)], [15, 16, 1]);
    }

    #[test]
    fn an_identity_is_host_and_random_uuid() {
        let mut rng = Rng::with_seed(7);
        let (one, two) = (identity("host", &mut rng), identity("host", &mut rng));
        assert_ne!(one, two);
        let uuid = one.strip_prefix("host_").unwrap();
        assert_eq!(uuid.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert_eq!(&uuid[14..15], "4", "{uuid}");
        assert!("89ab".contains(&uuid[19..20]), "{uuid}");
    }
}
