# What CI checks, and the two commands of the README. Everything works without just: see .ci/run.

# a cluster in one terminal: API server, fake nodes, manager, samples
playground *flags:
    cargo run --release -p playground -- {{flags}}

# all tests
test:
    cargo test --workspace

# one crate
check crate:
    cargo clippy -p {{crate}} --all-targets -- -D warnings
    cargo test -p {{crate}}

# SEEDS=10000 just sim: the whole manager with injected faults, see docs/simulation.md
sim:
    cargo test -p mini-kcm --test sim

# Checks that the simulation detects each broken variant.
mutants:
    .ci/mutants

# all checks of CI
ci:
    .ci/run

# figures for docs/benchmarks.md
bench:
    cargo bench -p api --bench decode
