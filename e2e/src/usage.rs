use std::time::Duration;

use anyhow::Context;

/// Clock ticks per second in `/proc`, the same on every common Linux.
const TICKS: u64 = 100;

/// The resource usage of a process, from `/proc`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// CPU time, user and system.
    pub cpu: Duration,
    /// Resident set in KiB.
    pub resident_kib: u64,
    /// Its anonymous part.
    pub anonymous_kib: u64,
    /// The largest resident set so far.
    pub peak_kib: u64,
}

impl Usage {
    /// The usage of process `pid`.
    ///
    /// # Errors
    /// If it does not exist any more.
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        Self::parse(&stat, &status)
    }

    fn parse(stat: &str, status: &str) -> anyhow::Result<Self> {
        // The second field is the program's name in parentheses, which may contain spaces.
        let (_, fields) = stat.rsplit_once(") ").context("no program name in stat")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |field: usize| fields.get(field).and_then(|it| it.parse::<u64>().ok()).context("short stat");
        let ticks = ticks(11)? + ticks(12)?;
        let kib = |name: &str| {
            let line = status.lines().find_map(|it| it.strip_prefix(name)).with_context(|| format!("no {name}"))?;
            let number = line.trim_start_matches(':').split_whitespace().next().unwrap_or_default();
            number.parse().with_context(|| format!("{name}: {line:?}"))
        };
        Ok(Self {
            cpu: Duration::from_millis(ticks * 1000 / TICKS),
            resident_kib: kib("VmRSS")?,
            anonymous_kib: kib("RssAnon")?,
            peak_kib: kib("VmHWM")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_after_a_name_with_blanks() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20";
        let status = "Name:\ta\nVmHWM:\t  300 kB\nVmRSS:\t  200 kB\nRssAnon:\t  100 kB\n";
        let want = Usage { cpu: Duration::from_secs(2), resident_kib: 200, anonymous_kib: 100, peak_kib: 300 };
        assert_eq!(Usage::parse(stat, status).unwrap(), want);
        assert!(Usage::of(std::process::id()).unwrap().resident_kib > 0);
    }
}
