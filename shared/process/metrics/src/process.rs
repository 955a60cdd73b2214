//! `process_*`: what the kernel reports about this process, with the names and help of the Prometheus client libraries.

use std::{collections::HashMap, fs};

use prometheus::{
    core::{Collector, Desc},
    proto::{Counter, Gauge, Metric, MetricFamily, MetricType},
};

const FAMILIES: [(&str, MetricType, &str); 9] = [
    ("process_cpu_seconds_total", MetricType::COUNTER, "Total user and system CPU time spent in seconds."),
    ("process_max_fds", MetricType::GAUGE, "Maximum number of open file descriptors."),
    (
        "process_network_receive_bytes_total",
        MetricType::COUNTER,
        "Number of bytes received by the process over the network.",
    ),
    (
        "process_network_transmit_bytes_total",
        MetricType::COUNTER,
        "Number of bytes sent by the process over the network.",
    ),
    ("process_open_fds", MetricType::GAUGE, "Number of open file descriptors."),
    ("process_resident_memory_bytes", MetricType::GAUGE, "Resident memory size in bytes."),
    ("process_start_time_seconds", MetricType::GAUGE, "Start time of the process since unix epoch in seconds."),
    ("process_virtual_memory_bytes", MetricType::GAUGE, "Virtual memory size in bytes."),
    ("process_virtual_memory_max_bytes", MetricType::GAUGE, "Maximum amount of virtual memory available in bytes."),
];

/// Reads `/proc` at each scrape. A value that the kernel does not report has no sample.
pub struct Process {
    descs: Vec<Desc>,
}

impl Process {
    /// The collector for this process.
    #[must_use]
    pub fn this() -> Self {
        // Names and help are constants of this file and are valid.
        let descs = FAMILIES.iter().filter_map(|(name, _, help)| {
            Desc::new((*name).to_owned(), (*help).to_owned(), Vec::new(), HashMap::new()).ok()
        });
        Self { descs: descs.collect() }
    }
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let values = values();
        let families = FAMILIES.iter().zip(values).filter_map(|((name, kind, help), value)| {
            let mut metric = Metric::default();
            if *kind == MetricType::COUNTER {
                let mut counter = Counter::default();
                counter.set_value(value?);
                metric.set_counter(counter);
            } else {
                let mut gauge = Gauge::default();
                gauge.set_value(value?);
                metric.set_gauge(gauge);
            }
            let mut family = MetricFamily::default();
            family.set_name((*name).to_owned());
            family.set_help((*help).to_owned());
            family.set_field_type(*kind);
            family.set_metric(vec![metric]);
            Some(family)
        });
        families.collect()
    }
}

/// When this process started, in seconds since the epoch.
#[must_use]
pub fn start_time() -> Option<f64> {
    let stat = Stat::parse(&read("/proc/self/stat"))?;
    Some(parse_boot_time(&read("/proc/stat"))? + stat.started_ticks / ticks())
}

/// In the order of the families.
fn values() -> [Option<f64>; 9] {
    let stat = Stat::parse(&read("/proc/self/stat"));
    let limits = read("/proc/self/limits");
    let net = read("/proc/self/net/netstat");
    let open = fs::read_dir("/proc/self/fd").ok().map(|it| it.count() as f64);
    [
        stat.as_ref().map(|it| it.cpu_ticks / ticks()),
        parse_limit(&limits, "Max open files"),
        parse_octets(&net, "InOctets"),
        parse_octets(&net, "OutOctets"),
        // One file descriptor is that of this read itself.
        open.map(|it| it - 1.0),
        stat.as_ref().map(|it| it.resident_pages * rustix::param::page_size() as f64),
        start_time(),
        stat.as_ref().map(|it| it.virtual_bytes),
        parse_limit(&limits, "Max address space"),
    ]
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn ticks() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// The fields of `/proc/self/stat` that are exported.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_ticks: f64,
    started_ticks: f64,
    virtual_bytes: f64,
    resident_pages: f64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The program's name is in parentheses and may contain any character.
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |index: usize| fields.get(index).and_then(|it| it.parse::<f64>().ok());
        Some(Self {
            cpu_ticks: number(11)? + number(12)?,
            started_ticks: number(19)?,
            virtual_bytes: number(20)?,
            resident_pages: number(21)?,
        })
    }
}

/// The soft limit. `unlimited` becomes the largest number.
fn parse_limit(limits: &str, name: &str) -> Option<f64> {
    let line = limits.lines().find_map(|it| it.strip_prefix(name))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX as f64),
        number => number.parse().ok(),
    }
}

/// `/proc/self/net/netstat` has a line of names and then a line of numbers.
fn parse_octets(netstat: &str, name: &str) -> Option<f64> {
    let mut lines = netstat.lines().filter(|it| it.starts_with("IpExt:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let index = names.split_whitespace().position(|it| it == name)?;
    numbers.split_whitespace().nth(index)?.parse().ok()
}

fn parse_boot_time(stat: &str) -> Option<f64> {
    stat.lines().find_map(|it| it.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_kernel_are_parsed() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 500 0 0 0 30 12 0 0 20 0 9 0 1234 9437184 256 18446744073709551615 1";
        let want = Stat { cpu_ticks: 42.0, started_ticks: 1234.0, virtual_bytes: 9_437_184.0, resident_pages: 256.0 };
        assert_eq!(Stat::parse(stat), Some(want));
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files   1024   4096   files\n\
                      Max address space   unlimited   unlimited   bytes\n";
        assert_eq!(parse_limit(limits, "Max open files"), Some(1024.0));
        assert_eq!(parse_limit(limits, "Max address space"), Some(u64::MAX as f64));
        assert_eq!(parse_limit(limits, "Max nothing"), None);
        let net = "TcpExt: A B\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 1 22 333\n";
        assert_eq!((parse_octets(net, "InOctets"), parse_octets(net, "OutOctets")), (Some(22.0), Some(333.0)));
        assert_eq!(parse_boot_time("cpu 1 2\nbtime 1700000000\n"), Some(1.7e9));
        assert!(Stat::parse("").is_none() && parse_octets("", "InOctets").is_none() && parse_boot_time("").is_none());
    }

    #[test]
    fn every_family_has_a_plausible_sample_of_this_process() {
        let families = Process::this().collect();
        assert_eq!(families.len(), FAMILIES.len());
        let value = |name: &str| {
            let family = families.iter().find(|it| it.name() == name).unwrap();
            family.get_metric()[0].get_gauge().get_value()
        };
        assert!(value("process_open_fds") >= 3.0 && value("process_open_fds") <= value("process_max_fds"));
        assert!(value("process_resident_memory_bytes") > 1e5);
        assert!(value("process_virtual_memory_bytes") > value("process_resident_memory_bytes"));
        assert!(value("process_start_time_seconds") > 1.6e9);
    }
}
