//! Entry point of the binary.

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    // An argument that is not UTF-8 is never a valid flag value. The lossy text appears in the error for that flag.
    mini_kcm::start::main(std::env::args_os().skip(1).map(|it| it.to_string_lossy().into_owned()))
}
