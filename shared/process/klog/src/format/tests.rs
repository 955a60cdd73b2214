use std::time::Duration;

use super::*;

const ORIGIN: LineOrigin<'_> =
    LineOrigin { severity: Level::INFO, verbosity: 0, file: "controllers/job/src/sync.rs", line: 37, bare: false };

/// A line in the time zone UTC+2.
fn line(format: Format, origin: LineOrigin<'_>, context: &[FieldPair], message: &str, pairs: &[FieldPair]) -> String {
    let epoch: Timestamp = "2026-11-21T21:14:05.123456789Z".parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let formatter = Formatter::fixed(format, Clock::virtual_from(epoch), zone);
        let mut text = String::new();
        formatter.write(&mut text, origin, context, message, pairs);
        text
    })
}

fn text(name: &'static str, value: &str) -> FieldPair {
    (name, Value::Text(value.to_owned()))
}

fn plain(name: &'static str, value: &str) -> FieldPair {
    (name, Value::Plain(value.to_owned()))
}

#[test]
fn the_header_is_klogs_in_local_time() {
    for (severity, file, want) in [
        (Level::ERROR, "a/b.rs", "E1121 23:14:05.123456    1234 b.rs:37] \"m\"\n"),
        (Level::WARN, "b.rs", "W1121 23:14:05.123456    1234 b.rs:37] \"m\"\n"),
        (Level::INFO, "a/src/lib.rs", "I1121 23:14:05.123456    1234 a/lib.rs:37] \"m\"\n"),
        (Level::INFO, "???", "I1121 23:14:05.123456    1234 ???:37] \"m\"\n"),
        (Level::TRACE, "a/b.rs", "I1121 23:14:05.123456    1234 b.rs:37] \"m\"\n"),
    ] {
        assert_eq!(line(Format::Text, LineOrigin { severity, file, ..ORIGIN }, &[], "m", &[]), want);
    }
}

/// The rows with one value each are taken from klog's own tests of its quoting.
#[test]
fn values_are_quoted_like_klog() {
    for (pair, want) in [
        (text("pod", "default/nginx"), " pod=\"default/nginx\""),
        (text("status", ""), " status=\"\""),
        (text("s", "a \"b\" \\c"), " s=\"a \\\"b\\\" \\\\c\""),
        (text("s", "\u{0}\u{1}\u{7f}\t\r\u{7}\u{8}\u{c}\u{b}"), " s=\"\\x00\\x01\\x7f\\t\\r\\a\\b\\f\\v\""),
        (text("s", "äß☺日本e\u{301}🦀"), " s=\"äß☺日本e\u{301}🦀\""),
        (text("s", "\u{a0}\u{200b}\u{feff}\u{85}\u{e0001}"), " s=\"\\u00a0\\u200b\\ufeff\\u0085\\U000e0001\""),
        (plain("replicas", "3"), " replicas=3"),
        (plain("ready", "true"), " ready=true"),
        (text("multiLine", "first line\nsecond line\n"), " multiLine=<\n\tfirst line\n\tsecond line\n >"),
        (text("multiLine", "first line\nsecond line"), " multiLine=<\n\tfirst line\n\tsecond line\n >"),
        (text("multiLine", "\n\n"), " multiLine=<\n\t\n\t\n >"),
    ] {
        let whole = line(Format::Text, ORIGIN, &[], "Pod status updated", std::slice::from_ref(&pair));
        let head = "I1121 23:14:05.123456    1234 sync.rs:37] \"Pod status updated\"";
        assert_eq!(whole.strip_prefix(head), Some(format!("{want}\n").as_str()), "{pair:?}");
    }
}

#[test]
fn a_message_is_one_quoted_line_and_that_of_a_flag_is_not_quoted() {
    let two = line(Format::Text, ORIGIN, &[], "one\ntwo", &[]);
    assert!(two.ends_with("] \"one\\ntwo\"\n"), "{two}");
    let flag = line(Format::Text, LineOrigin { bare: true, ..ORIGIN }, &[], "FLAG: --v=\"4\"", &[]);
    assert!(flag.ends_with("] FLAG: --v=\"4\"\n"), "{flag}");
}

#[test]
fn the_error_comes_first_and_each_name_once() {
    let context = [text("controller", "job-controller"), text("key", "ns/old")];
    let pairs = [text("controller", "job-controller"), plain("n", "1"), text("key", "ns/new"), text("err", "gone")];
    let whole = line(Format::Text, ORIGIN, &context, "m", &pairs);
    assert!(whole.ends_with("] \"m\" err=\"gone\" controller=\"job-controller\" n=1 key=\"ns/new\"\n"), "{whole}");
}

/// Compared with a line of the real kube-controller-manager 1.36.2:
/// `{"ts":1795303130150.2139,"caller":"record/event.go:389","msg":"Event occurred","v":0,"type":"Normal"}`, and with an
/// error: `{"ts":..,"logger":..,"caller":"cli/run.go:72","msg":"command failed","err":"stat .."}`.
#[test]
fn acceptance_shell_050_a_json_line_is_one_object_in_upstreams_order() {
    let context = [text("controller", "job-controller"), text("key", "ns/old")];
    let pairs = [text("err", "two\nlines \"q\" \u{1}"), plain("n", "1.5"), text("key", "ns/new")];
    let ts = "\"ts\":1795295645123.4568,\"caller\":\"job/sync.rs:37\",\"msg\":\"m\",\"controller\":\"job-controller\"";
    let tail = "\"n\":1.5,\"key\":\"ns/new\",\"err\":\"two\\nlines \\\"q\\\" \\u0001\"}\n";
    let info = line(Format::Json, ORIGIN, &context, "m", &pairs);
    assert_eq!(info, format!("{{{ts},\"v\":0,{tail}"));
    let error = line(Format::Json, LineOrigin { severity: Level::ERROR, ..ORIGIN }, &context, "m", &pairs);
    assert_eq!(error, format!("{{{ts},{tail}"));
    let read: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!(read["err"], "two\nlines \"q\" \u{1}");
    assert!(Duration::from_millis(read["ts"].as_f64().unwrap() as u64).as_secs() == 1_795_295_645);
}

#[test]
fn the_caller_names_the_crate_or_the_folder() {
    for (file, want) in [
        ("cmd/mini-kcm/src/start.rs", "mini-kcm/start.rs"),
        ("shared/kube/client/src/layers/hints.rs", "layers/hints.rs"),
        ("/root/.cargo/registry/src/index/h2-0.4.1/src/proto/streams.rs", "proto/streams.rs"),
        ("start.rs", "start.rs"),
        ("", ""),
    ] {
        assert_eq!(caller(file), want);
    }
}
