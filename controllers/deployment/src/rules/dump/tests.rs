use std::collections::BTreeSet;

use serde_json::json;

use super::*;

/// The fields of this value that are set, and all fields of its type.
fn fields(type_: &'static str, value: Option<&Value>, set: &mut BTreeSet<String>, all: &mut BTreeSet<String>) {
    match form(type_) {
        Form::Pointer(item) => fields(item, value, set, all),
        Form::List(item) => fields(item, value.and_then(|it| it.get(0)), set, all),
        Form::Map(item) => {
            fields(item, value.and_then(Value::as_object).and_then(|it| it.values().next()), set, all);
        }
        Form::Struct(of_type) => {
            for Field { go, json, type_: of_field } in of_type {
                let name = format!("{type_}.{go}");
                if all.contains(&name) && (value.is_none() || set.contains(&name)) {
                    continue;
                }
                let of_value = if *json == "-" { value } else { value.and_then(|it| it.get(*json)) };
                all.insert(name.clone());
                if of_value.is_some() {
                    set.insert(name);
                }
                fields(of_field, of_value, set, all);
            }
        }
        _ => {}
    }
}

#[test]
fn the_recorded_template_sets_every_field() {
    let templates: Value = serde_json::from_str(include_str!("templates.json")).unwrap();
    let (mut set, mut all) = (BTreeSet::new(), BTreeSet::new());
    fields("v1.PodTemplateSpec", Some(&templates["full"]), &mut set, &mut all);
    let missing: Vec<&str> =
        all.difference(&set).map(String::as_str).filter(|it| !it.contains("ManagedFields")).collect();
    assert_eq!(missing, ["v1.ObjectMeta.CreationTimestamp", "v1.ObjectMeta.DeletionTimestamp"]);
    assert!(all.len() > 500, "{}", all.len());
}

#[test]
fn a_template_is_printed_as_go_does() {
    let text = pod_template(&json!({
        "metadata": { "creationTimestamp": null, "labels": { "b": "2", "a": "1" } },
        "spec": {
            "containers": [{ "name": "c", "ports": [{ "containerPort": 80 }],
                "resources": { "limits": { "cpu": "100m" } },
                "livenessProbe": { "httpGet": { "port": "http" }, "periodSeconds": 3 } }],
            "hostNetwork": true, "terminationGracePeriodSeconds": 30,
        },
    }));
    for part in [
        "(v1.PodTemplateSpec){ObjectMeta:(v1.ObjectMeta){Name:(string) GenerateName:(string) ",
        " CreationTimestamp:(v1.Time){Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}} \
         DeletionTimestamp:(*v1.Time)<nil> ",
        " Labels:(map[string]string)map[a:1 b:2] Annotations:(map[string]string)<nil> ",
        " Spec:(v1.PodSpec){Volumes:([]v1.Volume)<nil> InitContainers:([]v1.Container)<nil> Containers:([]v1.Container)[{Name:(string)c ",
        " Ports:([]v1.ContainerPort)[{Name:(string) HostPort:(int32)0 ContainerPort:(int32)80 Protocol:(v1.Protocol) HostIP:(string)}] ",
        "{Limits:(v1.ResourceList)map[cpu:{i:(resource.int64Amount){value:(int64)100 scale:(resource.Scale)-3} \
         d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string)100m Format:(resource.Format)DecimalSI}] ",
        " LivenessProbe:(*v1.Probe){ProbeHandler:(v1.ProbeHandler){Exec:(*v1.ExecAction)<nil> HTTPGet:(*v1.HTTPGetAction){",
        " Port:(intstr.IntOrString){Type:(intstr.Type)1 IntVal:(int32)0 StrVal:(string)http} ",
        " TerminationGracePeriodSeconds:(*int64)30 ",
        " HostNetwork:(bool)true ",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.ends_with(")<nil>}}") || text.ends_with("<nil>}}"), "no unknown fields: {text}");
}

#[test]
fn a_field_that_the_types_lack_changes_the_text() {
    let with = |value: i32| pod_template(&json!({ "spec": { "fieldFromTomorrow": value } }));
    assert!(with(1) != with(2) && with(1).ends_with(r#"{"v1.PodSpec.fieldFromTomorrow":[1]}"#), "{}", with(1));
    assert_eq!(pod_template(&json!({ "spec": { "fieldFromTomorrow": null } })), pod_template(&json!({ "spec": {} })));
}
