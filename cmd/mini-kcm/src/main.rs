//! Parse, run, exit code.

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    // What is not UTF-8 is in no flag's value, and what stands for it is told with the flag.
    mini_kcm::start::main(std::env::args_os().skip(1).map(|it| it.to_string_lossy().into_owned()))
}
