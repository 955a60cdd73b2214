use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Arg, ArgAction, Command, value_parser};

/// More nodes would not fit on the screen.
const MAX_NODES: u64 = 1000;

/// The command line, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    /// The number of fake nodes.
    pub(crate) nodes: usize,
    /// The seed of all random choices; random when not given.
    pub(crate) seed: Option<u64>,
    /// Inject faults.
    pub(crate) chaos: bool,
    /// Add a node that falls silent.
    pub(crate) kill_node: bool,
    /// End when all samples are done.
    pub(crate) until_done: bool,
    /// The time limit of `--until-done`.
    pub(crate) timeout: Duration,
    /// The kubeconfig of a real cluster.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The file for kubectl's kubeconfig.
    pub(crate) write_kubeconfig: Option<PathBuf>,
    /// Flags for mini-kcm.
    pub(crate) manager: Vec<String>,
}

/// The result of parsing the command line.
#[derive(Debug)]
pub(crate) enum Asked {
    Run(Box<Options>),
    Print { text: String, failed: bool },
}

pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Asked {
    let matches = match command().try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(err) => {
            let text = err.to_string();
            return Asked::Print { failed: err.use_stderr(), text };
        }
    };
    let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
    Asked::Run(Box::new(Options {
        nodes: matches.get_one::<u64>("nodes").and_then(|it| usize::try_from(*it).ok()).unwrap_or(1),
        seed: matches.get_one::<u64>("seed").copied(),
        chaos: matches.get_flag("chaos"),
        kill_node: matches.get_flag("kill-node"),
        until_done: matches.get_flag("until-done"),
        timeout: matches.get_one::<Duration>("timeout").copied().unwrap_or_default(),
        kubeconfig: path("kubeconfig"),
        write_kubeconfig: path("write-kubeconfig"),
        manager: matches.get_many::<String>("manager").unwrap_or_default().cloned().collect(),
    }))
}

fn command() -> Command {
    let switch =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).help(help).action(ArgAction::SetTrue);
    let number = |name: &'static str, help: &'static str| Arg::new(name).long(name).help(help).value_name("N");
    let file = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).help(help).value_name("FILE").value_parser(value_parser!(PathBuf))
    };
    Command::new("playground")
        .about("A cluster in one terminal: API server, fake nodes, mini-kcm, and sample workloads that complete.")
        .after_help("Ctrl-C stops it and removes its files. Arguments after -- are passed to mini-kcm.")
        .arg(
            number("nodes", "How many fake nodes")
                .default_value("3")
                .value_parser(value_parser!(u64).range(1..=MAX_NODES)),
        )
        .arg(
            number("seed", "Seed of all random choices: equal seeds give equal names, and equal faults for requests of equal number; the node of a pod also depends on time")
                .value_parser(value_parser!(u64)),
        )
        .arg(
            switch("chaos", "Injects faults: refused, lost and slow requests of mini-kcm")
                .conflicts_with("kubeconfig"),
        )
        .arg(
            switch("kill-node", "Adds a node that falls silent while it has pods of a Job, and that comes back")
                .conflicts_with("kubeconfig"),
        )
        .arg(switch("until-done", "Exits with 0 when all samples are done, and with 1 when one fails or --timeout expires"))
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .help("How long --until-done waits")
                .value_name("DURATION")
                .default_value("2m")
                .value_parser(timeout_value),
        )
        .arg(file(
            "kubeconfig",
            "Runs the samples on this cluster, in their own namespaces, and removes the created objects",
        ))
        .arg(
            file("write-kubeconfig", "Path of the kubeconfig for kubectl [default: in a temporary folder]")
                .conflicts_with("kubeconfig"),
        )
        .arg(Arg::new("manager").help("Flags for mini-kcm").last(true).action(ArgAction::Append).num_args(0..))
}

/// Parses a duration as kubectl and mini-kcm write it: `90s`, `2m`.
fn timeout_value(text: &str) -> Result<Duration, String> {
    match mini_kcm::flags::parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be longer than 0".to_owned()),
        Ok(duration) => Ok(duration),
        Err(err) => Err(err.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(args: &str) -> Asked {
        parse(std::iter::once("playground").chain(args.split_whitespace()).map(OsString::from))
    }

    #[test]
    fn defaults_use_the_embedded_cluster() {
        let Asked::Run(options) = typed("") else { panic!("no run") };
        let Options { nodes, seed, chaos, kill_node, until_done, timeout, kubeconfig, write_kubeconfig, manager } =
            *options;
        assert_eq!((nodes, seed, chaos, kill_node), (3, None, false, false));
        assert_eq!((until_done, timeout.as_secs()), (false, 120));
        assert_eq!((kubeconfig, write_kubeconfig, manager.len()), (None, None, 0));
    }

    #[test]
    fn arguments_after_two_dashes_are_for_the_manager() {
        let Asked::Run(options) = typed("--nodes=2 --seed 7 --until-done --timeout 1m30s -- -v=4 --standby=cold")
        else {
            panic!("no run")
        };
        assert_eq!((options.nodes, options.seed, options.until_done), (2, Some(7), true));
        assert_eq!(options.timeout.as_secs(), 90);
        assert_eq!(options.manager, ["-v=4", "--standby=cold"]);
    }

    #[test]
    fn errors_name_the_flag() {
        for (args, word) in [
            ("--nodes=0", "--nodes"),
            ("--nodes=many", "--nodes"),
            ("--seed=x", "--seed"),
            ("--timeout=0", "--timeout"),
            ("--timeout=5", "missing unit"),
            ("--chaos --kubeconfig=f", "--chaos"),
            ("--kill-node --kubeconfig=f", "--kill-node"),
            ("--write-kubeconfig=a --kubeconfig=f", "--write-kubeconfig"),
            ("--what", "--what"),
        ] {
            let Asked::Print { text, failed: true } = typed(args) else { panic!("{args} is taken") };
            assert!(text.contains(word), "{args}: {text}");
        }
        assert!(matches!(typed("--help"), Asked::Print { failed: false, .. }));
    }
}
