//! Addresses and ports of Services: each belongs to one Service at a time.

use serde_json::{Value, json};

use crate::kit::Server;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, address: &str, port: u32) -> Value {
    json!({ "metadata": { "name": name },
            "spec": { "type": "NodePort", "clusterIP": address, "ports": [{ "port": 80, "nodePort": port }] } })
}

#[tokio::test(start_paused = true)]
async fn used_address_or_port_is_refused() {
    let server = Server::new();
    let first = server.post(SERVICES, service("a", "", 31_234)).await.expect(201);
    let address = first["spec"]["clusterIP"].as_str().unwrap();
    // Messages as recorded from a real server.
    let why = "spec.ports[0].nodePort: Invalid value: 31234: provided port is already allocated";
    server.post(SERVICES, service("b", "", 31_234)).await.refused(422, "Invalid", why);
    let why = format!(
        "spec.clusterIPs: Invalid value: [{address:?}]: failed to allocate IP {address}: provided IP is already allocated"
    );
    server.post(SERVICES, service("b", address, 0)).await.refused(422, "Invalid", &why);

    server.post(SERVICES, service("b", "", 31_235)).await.expect(201);
    let path = format!("{SERVICES}/b");
    let taken = json!([{ "op": "replace", "path": "/spec/ports/0/nodePort", "value": 31_234 }]);
    let why = "provided port is already allocated";
    server.patch(&path, "json-patch+json", taken.clone()).await.refused(422, "Invalid", why);
    server.merge(&path, json!({ "metadata": { "labels": { "l": "1" } } })).await.expect(200);
    server.delete(&format!("{SERVICES}/a"), Value::Null).await.expect(200);
    server.patch(&path, "json-patch+json", taken).await.expect(200);
    server.post(SERVICES, service("c", address, 31_235)).await.expect(201);
}

#[tokio::test(start_paused = true)]
async fn ports_are_never_allocated_twice_and_run_out() {
    let server = Server::new();
    let ports: Vec<Value> = (0..900).map(|at| json!({ "name": format!("p{at}"), "port": 1 + at })).collect();
    let of = |name: &str, ports: &[Value]| {
        json!({ "metadata": { "name": name },
        "spec": { "type": "NodePort", "ports": ports } })
    };
    let mut given = std::collections::BTreeSet::new();
    for name in ["a", "b", "c"] {
        let made = server.post(SERVICES, of(name, &ports)).await.expect(201);
        given.extend(made["spec"]["ports"].as_array().unwrap().iter().map(|it| it["nodePort"].as_u64().unwrap()));
    }
    assert_eq!(given.len(), 2700);
    let why = "failed to allocate a nodePort: range is full";
    server.post(SERVICES, of("d", &ports[..69])).await.refused(500, "", why);
    let made = server.post(SERVICES, of("d", &ports[..68])).await.expect(201);
    given.extend(made["spec"]["ports"].as_array().unwrap().iter().map(|it| it["nodePort"].as_u64().unwrap()));
    assert_eq!((given.len(), given.first(), given.last()), (2768, Some(&30_000), Some(&32_767)));
    server.delete(&format!("{SERVICES}/a"), Value::Null).await.expect(200);
    server.post(SERVICES, of("e", &ports)).await.expect(201);
}
