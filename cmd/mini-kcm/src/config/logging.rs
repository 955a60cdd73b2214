//! The options of the log.

use klog::{Format, Options, Vmodule};

use crate::{flags::FlagValues, gates::Gates};

/// Reads the logging flags, and checks their combination with upstream's rules.
///
/// Errors are added to `flags`.
pub(super) fn read(flags: &mut FlagValues, gates: &Gates) -> Options {
    let (alpha, beta) = (gates.enabled("LoggingAlphaOptions"), gates.enabled("LoggingBetaOptions"));
    let format = match flags.text("logging-format") {
        "text" => Format::Text,
        "json" => Format::Json,
        other => {
            let error = format!("format: Invalid value: {other:?}: Unsupported log format; see --logging-format");
            flags.add_error(error);
            Format::Text
        }
    };
    if format == Format::Json && !beta {
        flags.add_error(
            "format: Forbidden: Log format json is disabled, see LoggingBetaOptions feature; see --logging-format",
        );
    }
    let patterns = flags.texts("vmodule").join(",");
    let vmodule = Vmodule::parse(&patterns).unwrap_or_else(|err| {
        flags.add_error(format!("--vmodule: {err}"));
        Vmodule::default()
    });
    if format == Format::Json && !vmodule.is_empty() {
        flags.add_error("vmodule: Forbidden: Only supported for text log format; see --vmodule, --logging-format");
    }
    let flush_every = flags.duration("log-flush-frequency");
    if flush_every.is_zero() {
        flags.add_error("flushFrequency: Invalid value: \"0s\": Must be greater than zero; see --log-flush-frequency");
    }
    let text = routing(flags, "text", alpha);
    let json = routing(flags, "json", alpha);
    let (split_stream, info_buffer) = match format {
        Format::Text => text,
        Format::Json => json,
    };
    Options { format, verbosity: flags.level("v"), vmodule, split_stream, info_buffer, flush_every }
}

/// The routing of one format: whether errors go to another stream, and how many bytes of info messages are buffered.
/// Both are alpha options of upstream. Without the gate they are refused, also for the format that is not selected.
fn routing(flags: &mut FlagValues, format: &str, allowed: bool) -> (bool, usize) {
    let (split, size) = (format!("log-{format}-split-stream"), format!("log-{format}-info-buffer-size"));
    let (splits, bytes) = (flags.bool(&split), flags.bytes(&size));
    if splits && !allowed {
        let field = format!("options.{format}.splitStream");
        flags.add_error(format!("{field}: Forbidden: Feature LoggingAlphaOptions is disabled; see --{split}"));
    }
    if bytes != 0 && !allowed {
        let field = format!("options.{format}.infoBufferSize");
        flags.add_error(format!("{field}: Forbidden: Feature LoggingAlphaOptions is disabled; see --{size}"));
    }
    // A negative size disables the buffer, as in upstream.
    (splits, usize::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::flags::{Invocation, parse};

    fn options(args: &[&str], gates: &str) -> Result<Options, String> {
        let gates = format!("--feature-gates={gates}");
        let args = args.iter().map(|it| (*it).to_owned()).chain([gates]);
        let Invocation::Run(mut typed) = parse(args) else { panic!("help") };
        let gates = Gates::read(&mut typed);
        let options = read(&mut typed, &gates);
        typed.finish().map_err(|it| it.join("\n"))?;
        Ok(options)
    }

    #[test]
    fn every_option_is_read() {
        let default = Options::default();
        let split = Options { split_stream: true, info_buffer: 1536, ..default.clone() };
        for (args, want) in [
            (vec![], default.clone()),
            (vec!["-v=4"], Options { verbosity: 4, ..default.clone() }),
            (
                vec!["--logging-format=json", "--v=10"],
                Options { format: Format::Json, verbosity: 10, ..default.clone() },
            ),
            (
                vec!["--vmodule=a=1", "--vmodule=b*=2"],
                Options { vmodule: Vmodule::parse("a=1,b*=2").unwrap(), ..default.clone() },
            ),
            (vec!["--log-flush-frequency=1m"], Options { flush_every: Duration::from_secs(60), ..default.clone() }),
            (vec!["--log-text-split-stream", "--log-text-info-buffer-size=1.5Ki"], split.clone()),
            (vec!["--log-text-info-buffer-size=-1"], default.clone()),
            (
                vec!["--logging-format=json", "--log-json-split-stream", "--log-json-info-buffer-size=1536"],
                Options { format: Format::Json, ..split },
            ),
            // An option of the other format is accepted and has no effect.
            (vec!["--log-json-split-stream", "--log-json-info-buffer-size=1k"], default),
        ] {
            assert_eq!(options(&args, "LoggingAlphaOptions=true"), Ok(want), "{args:?}");
        }
    }

    #[test]
    fn invalid_options_are_refused_with_upstreams_message_and_the_flag() {
        for (args, gates, expectation) in [
            (vec!["--logging-format=xml"], "", vec!["\"xml\": Unsupported log format", "--logging-format"]),
            (vec!["--logging-format="], "", vec!["\"\": Unsupported log format"]),
            (
                vec!["--logging-format=json"],
                "LoggingBetaOptions=false",
                vec!["Log format json is disabled, see LoggingBetaOptions feature; see --logging-format"],
            ),
            (vec!["--logging-format=json", "--vmodule=a=1"], "", vec!["vmodule: Forbidden: Only supported for text"]),
            (vec!["--log-flush-frequency=0s"], "", vec!["Must be greater than zero", "--log-flush-frequency"]),
            (vec!["--log-text-split-stream"], "", vec!["options.text.splitStream: Forbidden: Feature LoggingAlpha"]),
            (
                vec!["--log-json-info-buffer-size=1Ki", "--log-json-split-stream"],
                "",
                vec!["options.json.infoBufferSize: Forbidden", "options.json.splitStream: Forbidden"],
            ),
            (vec!["--vmodule=a"], "", vec!["\"a\" does not have the pattern=N format", "--vmodule"]),
            (vec!["-v=-1"], "", vec!["--v"]),
        ] {
            let message = options(&args, gates).unwrap_err();
            for want in expectation {
                assert!(message.contains(want), "{args:?}: {message}, not {want}");
            }
        }
    }
}
