use futures::{FutureExt, future::BoxFuture};
use mini_kcm::{
    config::Config,
    flags::{self, Invocation},
    manager::{self, Deps, Exit},
};
use testing::sim::Process;

/// A simulated process that runs the manager with these flags, without a serving port.
pub(crate) fn manager(args: &[&str]) -> impl Fn(Process) -> BoxFuture<'static, Result<(), String>> + use<> {
    let args = ["--secure-port=0"].iter().chain(args).map(|it| (*it).to_owned());
    let Invocation::Run(typed) = flags::parse(args) else { panic!("flags") };
    let config = Config::new(typed).unwrap();
    move |process| {
        let config = config.clone();
        async move {
            let Process { name, transport, clock, scope, stop, seed } = process;
            let deps = Deps::in_memory(&config, transport, clock, &name.replace('#', "-"));
            let deps = Deps { scope, stop, seed, ..deps };
            match manager::run(config, deps).await {
                Exit::Clean => Ok(()),
                Exit::Failed(why) => Err(why),
            }
        }
        .boxed()
    }
}
