use std::{cell::RefCell, panic, sync::Once};

thread_local! {
    /// Panics of this thread since it began to listen.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Keeps what panics on this thread, wherever it is caught, in place of printing it.
pub(crate) fn listen() {
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let kept = PANICS.with_borrow_mut(|it| it.as_mut().map(|it| it.push(info.to_string())));
            if kept.is_none() {
                before(info);
            }
        }));
    });
    PANICS.set(Some(Vec::new()));
}

/// What has panicked; nothing is kept from now on.
pub(crate) fn heard() -> Vec<String> {
    PANICS.take().unwrap_or_default()
}
