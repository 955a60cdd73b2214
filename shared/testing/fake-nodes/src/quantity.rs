use std::{
    collections::BTreeMap,
    ops::{AddAssign, SubAssign},
};

use k8s_openapi::{
    api::core::v1::{Container, PodSpec},
    apimachinery::pkg::api::resource::Quantity,
};

/// The resources that a pod needs or a node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// Thousandths of a core.
    pub cpu: i128,
    /// Thousandths of a byte.
    pub memory: i128,
    /// How many pods.
    pub pods: i128,
}

impl Resources {
    /// What a node offers to pods.
    pub(crate) fn offered(allocatable: &BTreeMap<String, Quantity>) -> Self {
        Self { pods: thousandths(allocatable, "pods") / 1000, ..Self::of(allocatable) }
    }

    /// The most that a pod needs at one time: all its containers together or its largest init container, plus the
    /// overhead.
    pub(crate) fn needed(pod: &PodSpec) -> Self {
        let requests = |container: &Container| {
            let requests = container.resources.as_ref().and_then(|it| it.requests.as_ref());
            requests.map(Self::of).unwrap_or_default()
        };
        let mut steady = Self::default();
        for container in &pod.containers {
            steady += requests(container);
        }
        let (mut sidecars, mut highest) = (Self::default(), Self::default());
        for container in pod.init_containers.iter().flatten() {
            let mut now = sidecars;
            now += requests(container);
            if container.restart_policy.as_deref() == Some("Always") {
                sidecars = now;
            }
            highest = Self { cpu: highest.cpu.max(now.cpu), memory: highest.memory.max(now.memory), pods: 0 };
        }
        steady += sidecars;
        let mut needed = Self { cpu: steady.cpu.max(highest.cpu), memory: steady.memory.max(highest.memory), pods: 1 };
        needed += pod.overhead.as_ref().map(Self::of).unwrap_or_default();
        needed
    }

    fn of(quantities: &BTreeMap<String, Quantity>) -> Self {
        Self { cpu: thousandths(quantities, "cpu"), memory: thousandths(quantities, "memory"), pods: 0 }
    }
}

impl AddAssign for Resources {
    fn add_assign(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.memory += other.memory;
        self.pods += other.pods;
    }
}

impl SubAssign for Resources {
    fn sub_assign(&mut self, other: Self) {
        self.cpu -= other.cpu;
        self.memory -= other.memory;
        self.pods -= other.pods;
    }
}

/// A missing or invalid quantity counts as zero; the API server does not accept invalid ones.
fn thousandths(quantities: &BTreeMap<String, Quantity>, name: &str) -> i128 {
    quantities.get(name).and_then(|it| parse(&it.0)).unwrap_or(0)
}

/// A quantity in thousandths, rounded up.
fn parse(text: &str) -> Option<i128> {
    let digits = text.find(|it: char| !(it.is_ascii_digit() || matches!(it, '.' | '+' | '-'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let places = u32::try_from(fraction.len()).ok()?;
    let value: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (times, divided) = factor(suffix)?;
    let divisor = divided.checked_mul(10_i128.checked_pow(places)?)?;
    let scaled = value.checked_mul(times)?.checked_mul(1000)?;
    Some(scaled.div_euclid(divisor) + i128::from(scaled.rem_euclid(divisor) != 0))
}

/// The factor and the divisor of a suffix.
fn factor(suffix: &str) -> Option<(i128, i128)> {
    if let Some(exponent) = suffix.strip_prefix(['e', 'E']).filter(|it| !it.is_empty()) {
        let exponent: i32 = exponent.parse().ok()?;
        let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
        return Some(if exponent < 0 { (1, power) } else { (power, 1) });
    }
    Some(match suffix {
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "" => (1, 1),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_are_read_as_the_api_server_reads_them() {
        for (text, want) in [
            ("1", Some(1000)),
            ("250m", Some(250)),
            ("0.5", Some(500)),
            ("1.0005", Some(1001)),
            ("1Ki", Some(1_024_000)),
            ("1.5Gi", Some(1_610_612_736_000)),
            ("2k", Some(2_000_000)),
            ("1e3", Some(1_000_000)),
            ("1E3", Some(1_000_000)),
            ("5E", Some(5_000_000_000_000_000_000_000)),
            ("100n", Some(1)),
            ("-1", Some(-1000)),
            ("", None),
            ("1Zi", None),
            ("x", None),
        ] {
            assert_eq!(parse(text), want, "{text}");
        }
    }

    #[test]
    fn pod_needs_sum_of_containers_or_largest_init_container() {
        let container =
            |cpu: &str| json!({ "name": "c", "resources": { "requests": { "cpu": cpu, "memory": "1Ki" } } });
        let sidecar = |cpu: &str| {
            let mut it = container(cpu);
            it["restartPolicy"] = json!("Always");
            it
        };
        let cpu = |spec| Resources::needed(&serde_json::from_value(spec).unwrap()).cpu;
        for (name, inits, want) in [
            ("containers add up", vec![], 300),
            ("a small init container needs no more", vec![container("250m")], 300),
            ("a large one decides", vec![container("1")], 1000),
            ("a sidecar stays", vec![sidecar("500m")], 800),
            ("a sidecar runs beside the init containers after it", vec![sidecar("500m"), container("600m")], 1100),
            ("not beside those before it", vec![container("600m"), sidecar("500m")], 800),
        ] {
            let spec = json!({ "initContainers": inits, "containers": [container("100m"), container("200m")] });
            assert_eq!(cpu(spec), want, "{name}");
        }
        let spec = json!({ "containers": [container("100m")], "overhead": { "cpu": "50m" } });
        assert_eq!(cpu(spec), 150, "the overhead is added");
    }
}
