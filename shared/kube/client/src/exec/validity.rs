use clock::Timestamp;
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

/// The validity period of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) begins: Timestamp,
    pub(super) expires: Timestamp,
}

impl Validity {
    /// Reads it from a certificate in DER.
    pub(super) fn of(certificate: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let time = |seconds: i64| Timestamp::from_second(seconds).ok();
        let validity = certificate.validity();
        Some(Self { begins: time(validity.not_before.timestamp())?, expires: time(validity.not_after.timestamp())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(begins: i32, expires: i32) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::new(vec!["name".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(begins, 1, 2);
        params.not_after = rcgen::date_time_ymd(expires, 3, 4);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn both_forms_of_a_time_are_read() {
        let want = Validity {
            begins: "1999-01-02T00:00:00Z".parse().unwrap(),
            expires: "2077-03-04T00:00:00Z".parse().unwrap(),
        };
        assert_eq!(Validity::of(&certificate(1999, 2077)), Some(want));
    }

    #[test]
    fn bytes_that_are_no_certificate_have_no_validity() {
        let whole = certificate(2020, 2030);
        for length in 0..whole.len() {
            // A truncated certificate must not cause a panic.
            assert!(Validity::of(&whole[..length]).is_none(), "{length}");
        }
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..10_000 {
            let mut corrupt = whole.clone();
            for _ in 0..rng.usize(1..6) {
                let at = rng.usize(..corrupt.len());
                corrupt[at] = rng.u8(..);
            }
            let _ = Validity::of(&corrupt);
        }
    }
}
