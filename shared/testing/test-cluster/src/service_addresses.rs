//! Cluster IPs and node ports of Services: each belongs to one Service at a time.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    Failure,
    kinds::{self, Kind},
    meta,
    response::Fault,
    store::{State, storage_key},
};

/// How many node ports exist, from [`FIRST_PORT`] on.
pub(crate) const PORTS: u32 = 2768;
pub(crate) const FIRST_PORT: u32 = 30_000;

/// Owners by address or port, and addresses and ports by owner. An owner is a storage key.
#[derive(Debug, Default)]
pub(crate) struct ServiceAddresses {
    owners: BTreeMap<String, String>,
    owned: BTreeMap<String, Vec<String>>,
}

impl ServiceAddresses {
    /// Records a write of a Service, or its removal.
    pub(crate) fn record(&mut self, key: &str, service: Option<&Value>) {
        for value in self.owned.remove(key).unwrap_or_default() {
            if !self.is_owned_by_other(&value, key) {
                self.owners.remove(&value);
            }
        }
        let Some(service) = service else { return };
        let values: Vec<String> = address(service).into_iter().map(str::to_owned).chain(ports(service)).collect();
        for value in &values {
            self.owners.insert(value.clone(), key.to_owned());
        }
        self.owned.insert(key.to_owned(), values);
    }

    /// True when no Service has it.
    pub(crate) fn is_free(&self, value: &str) -> bool {
        !self.owners.contains_key(value)
    }

    fn is_owned_by_other(&self, value: &str, key: &str) -> bool {
        self.owners.get(value).is_some_and(|it| it != key)
    }
}

fn address(service: &Value) -> Option<&str> {
    service["spec"]["clusterIP"].as_str().filter(|it| !it.is_empty() && *it != "None")
}

fn node_port(port: &Value) -> Option<String> {
    port["nodePort"].as_i64().filter(|it| *it != 0).map(|it| it.to_string())
}

fn ports(service: &Value) -> impl Iterator<Item = String> {
    service["spec"]["ports"].as_array().into_iter().flatten().filter_map(node_port)
}

/// Refuses a Service that requests an address or port of another one, or a port when none is left.
///
/// # Errors
/// 422 that names the field, 500 when all ports are in use.
pub(crate) fn check(state: &State, kind: &Kind, service: &Value) -> Result<(), Failure> {
    if !kind.is(kinds::SERVICES) {
        return Ok(());
    }
    let key = storage_key(kind, meta::namespace(service), meta::name(service));
    let refuse = |fault: Fault| Err(Failure::invalid(kind, meta::name(service), &[fault]));
    if let Some(address) = address(service).filter(|it| state.service_addresses.is_owned_by_other(it, &key)) {
        let why = format!("failed to allocate IP {address}: provided IP is already allocated");
        return refuse(Fault::invalid("spec.clusterIPs", &service["spec"]["clusterIPs"], &why));
    }
    let wants_ports = matches!(service["spec"]["type"].as_str(), Some("NodePort" | "LoadBalancer"));
    for (at, port) in service["spec"]["ports"].as_array().into_iter().flatten().enumerate() {
        match node_port(port) {
            Some(number) if state.service_addresses.is_owned_by_other(&number, &key) => {
                let why = "provided port is already allocated";
                return refuse(Fault::invalid(format!("spec.ports[{at}].nodePort"), &port["nodePort"], why));
            }
            None if wants_ports => {
                return Err(Failure::internal("Internal error occurred: failed to allocate a nodePort: range is full"));
            }
            _ => {}
        }
    }
    Ok(())
}
