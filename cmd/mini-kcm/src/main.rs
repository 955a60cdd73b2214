//! Parse, run, exit code.

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    mini_kcm::start::main(std::env::args().skip(1))
}
