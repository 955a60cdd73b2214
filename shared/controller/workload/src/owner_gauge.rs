use std::{collections::HashMap, fmt};

use api::Uid;
use metrics::IntGaugeVec;
use parking_lot::Mutex;

/// A gauge with one series for each owner, which is removed with the owner.
pub struct OwnerGauge {
    gauge: IntGaugeVec,
    /// The values of the labels.
    series: Mutex<HashMap<Uid, Box<[String]>>>,
}

impl OwnerGauge {
    /// No series yet. Those of an earlier run of the controller in this process are removed.
    #[must_use]
    pub fn new(gauge: IntGaugeVec) -> Self {
        gauge.reset();
        Self { gauge, series: Mutex::default() }
    }

    /// Sets the value of an owner. The number of labels must be that of the gauge.
    pub fn set(&self, owner: &Uid, labels: &[&str], value: i64) {
        self.series.lock().insert(owner.clone(), labels.iter().map(|it| (*it).to_owned()).collect());
        if let Ok(gauge) = self.gauge.get_metric_with_label_values(labels) {
            gauge.set(value);
        }
    }

    /// Removes the series of an owner.
    pub fn remove(&self, owner: &Uid) {
        let Some(labels) = self.series.lock().remove(owner) else { return };
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        // A series that does not exist is no error.
        let _ = self.gauge.remove_label_values(&labels);
    }
}

impl fmt::Debug for OwnerGauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerGauge").finish_non_exhaustive()
    }
}
