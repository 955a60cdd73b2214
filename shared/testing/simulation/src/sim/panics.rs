use std::{cell::RefCell, panic, sync::Once};

thread_local! {
    /// The panics of this thread since it began to record them.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Records panics of this thread instead of printing them, also those that are caught.
pub(crate) fn start_recording() {
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

/// Returns the recorded panics and stops recording.
pub(crate) fn take() -> Vec<String> {
    PANICS.take().unwrap_or_default()
}
