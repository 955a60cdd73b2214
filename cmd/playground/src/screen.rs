//! The output: a terminal that is redrawn, or plain lines.

use std::io::{IsTerminal, Write};

use crate::screen_model::{Line, ScreenModel, Tone};

const ALTERNATE_SCREEN: &str = "\x1b[?1049h\x1b[?25l";
const MAIN_SCREEN: &str = "\x1b[?25h\x1b[?1049l";

/// The terminal. Dropping it restores the user's own screen.
pub(crate) struct Screen {
    terminal: bool,
    /// There is no terminal: changes are printed line by line.
    prints: bool,
    drawn: Vec<Line>,
}

impl Screen {
    pub(crate) fn open() -> Self {
        let terminal = std::io::stdout().is_terminal() && size().is_some();
        if terminal {
            write(ALTERNATE_SCREEN);
        }
        Self { terminal, prints: !terminal, drawn: Vec::new() }
    }

    /// True if changes are redrawn and not printed.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Prints one change, if there is no terminal.
    pub(crate) fn print_line(&self, text: &str) {
        if self.prints {
            write(&format!("{text}\n"));
        }
    }

    /// Restores the user's own screen and prints the final state there, because what was drawn is gone.
    pub(crate) fn close(self, model: &ScreenModel) {
        let was_terminal = self.terminal;
        drop(self);
        if was_terminal {
            model.rows.iter().for_each(|it| write(&format!("{}\n", it.line().1)));
        }
    }

    /// For tests: shows nothing.
    #[cfg(test)]
    pub(crate) fn silent() -> Self {
        Self { terminal: false, prints: false, drawn: Vec::new() }
    }

    pub(crate) fn draw(&mut self, model: &ScreenModel) {
        let Some((width, height)) = size().filter(|_| self.terminal) else { return };
        let lines = model.screen(width, height);
        if lines == self.drawn {
            return;
        }
        let mut text = String::from("\x1b[H");
        for (number, (tone, line)) in lines.iter().enumerate() {
            if number > 0 {
                text.push_str("\r\n");
            }
            text += &format!("{}{line}\x1b[0m\x1b[K", escape_code(*tone));
        }
        text.push_str("\x1b[J");
        write(&text);
        self.drawn = lines;
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.terminal {
            write(MAIN_SCREEN);
        }
    }
}

/// Prints a text unchanged.
pub(crate) fn print(text: &str, failed: bool) {
    if failed {
        // If stderr is closed, the text cannot be shown anywhere.
        let _ = std::io::stderr().write_all(text.as_bytes());
    } else {
        write(text);
    }
}

fn write(text: &str) {
    let mut stdout = std::io::stdout().lock();
    // If stdout is closed, the text cannot be shown anywhere.
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

fn escape_code(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "",
        Tone::Bold => "\x1b[1m",
        Tone::Faint => "\x1b[2m",
        Tone::Good => "\x1b[32m",
        Tone::Bad => "\x1b[31m",
    }
}

/// Columns and rows.
fn size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((usize::from(size.ws_col), usize::from(size.ws_row)))
}
