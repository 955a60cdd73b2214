//! The view: formats the state as lines of text.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::samples::{Progress, State};

/// How many recent lines are kept for a large screen.
const MAX_RECENT: usize = 200;

/// Everything that is shown.
#[derive(Debug, Default)]
pub(crate) struct ScreenModel {
    pub(crate) elapsed: Duration,
    /// The cluster and the options, one line each.
    pub(crate) head: Vec<String>,
    /// The state of the nodes.
    pub(crate) nodes: Vec<String>,
    pub(crate) rows: Vec<Row>,
    pub(crate) faults: BTreeMap<&'static str, u32>,
    /// Recent changes, the newest last.
    pub(crate) recent: VecDeque<String>,
    /// Commands to try.
    pub(crate) hints: Vec<String>,
    /// The last line.
    pub(crate) foot: String,
}

/// One sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) shows: &'static str,
    pub(crate) progress: Progress,
}

/// The style of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Bold,
    Faint,
    Good,
    Bad,
}

pub(crate) type Line = (Tone, String);

impl ScreenModel {
    /// Records a change, and returns the line to print if there is no terminal.
    pub(crate) fn record_change(&mut self, text: &str) -> String {
        let line = format!("{:6.1} s  {text}", self.elapsed.as_secs_f64());
        self.recent.push_back(line.clone());
        if self.recent.len() > MAX_RECENT {
            self.recent.pop_front();
        }
        line
    }

    /// True when all samples are done. False before the first update.
    pub(crate) fn all_done(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|it| it.progress.state == State::Done)
    }

    /// The screen, as many lines as fit.
    pub(crate) fn screen(&self, width: usize, height: usize) -> Vec<Line> {
        let mut top = vec![(Tone::Bold, format!("mini-kcm playground  {:.0} s", self.elapsed.as_secs_f64()))];
        top.extend(self.head.iter().map(|it| (Tone::Plain, it.clone())));
        top.push((Tone::Plain, format!("nodes       {}", self.nodes.join("  "))));
        if !self.faults.is_empty() {
            let faults: Vec<String> = self.faults.iter().map(|(name, count)| format!("{count} {name}")).collect();
            top.push((Tone::Bad, format!("chaos       {}", faults.join(", "))));
        }
        top.push((Tone::Plain, String::new()));
        for row in &self.rows {
            top.push((Tone::Faint, format!("{:<12}{}", "", row.shows)));
            top.push(row.line());
        }
        let mut bottom = vec![(Tone::Plain, String::new())];
        bottom.extend(self.hints.iter().map(|it| (Tone::Faint, it.clone())));
        bottom.push((Tone::Bold, self.foot.clone()));
        // Recent changes fill the space in between, the newest of them.
        let space = height.saturating_sub(top.len() + bottom.len() + 1);
        let recent = self.recent.iter().skip(self.recent.len().saturating_sub(space));
        top.push((Tone::Plain, String::new()));
        top.extend(recent.map(|it| (Tone::Plain, it.clone())));
        top.extend(bottom);
        top.truncate(height);
        top.into_iter().map(|(tone, text)| (tone, truncate(&text, width))).collect()
    }
}

impl Row {
    /// The progress of a sample.
    pub(crate) fn line(&self) -> Line {
        let (tone, mark) = match self.progress.state {
            State::Going => (Tone::Plain, "…"),
            State::Done => (Tone::Good, "✓"),
            State::Failed => (Tone::Bad, "✗"),
        };
        (tone, format!("{:<12}{mark} {}", self.name, self.progress.text))
    }
}

/// Cuts a text to the width of the terminal.
fn truncate(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> ScreenModel {
        let row = |name, progress| Row { name, shows: "something", progress };
        let rows = vec![row("a", Progress::going("1 of 2")), row("b", Progress::done("all of it"))];
        let mut model = ScreenModel { rows, hints: vec!["kubectl get pods".to_owned()], ..ScreenModel::default() };
        for number in 0..50 {
            model.record_change(&format!("line {number}"));
        }
        model
    }

    #[test]
    fn screen_is_never_larger_than_the_terminal() {
        for (width, height) in [(80, 24), (20, 10), (1, 1), (0, 0), (200, 100)] {
            let screen = model().screen(width, height);
            assert!(screen.len() <= height, "{width}x{height}: {}", screen.len());
            assert!(screen.iter().all(|(_, it)| it.chars().count() <= width.max(1)), "{width}x{height}");
        }
    }

    #[test]
    fn newest_lines_stay_above_the_hints() {
        let text: Vec<String> = model().screen(80, 24).into_iter().map(|(_, it)| it).collect();
        let at = |word: &str| text.iter().position(|it| it.contains(word));
        assert!(at("line 49") < at("kubectl get pods") && at("line 49").is_some(), "{text:#?}");
        assert_eq!(at("line 0 "), None);
        assert!(at("1 of 2").is_some() && at("all of it").is_some());
    }

    #[test]
    fn all_done_when_every_sample_is_done() {
        assert!(!ScreenModel::default().all_done(), "no update yet");
        let mut model = model();
        assert!(!model.all_done());
        model.rows.remove(0);
        assert!(model.all_done());
    }

    #[test]
    fn row_shows_progress_after_the_screen_is_closed() {
        let lines: Vec<String> = model().rows.iter().map(|it| it.line().1).collect();
        assert_eq!(lines, ["a           … 1 of 2", "b           ✓ all of it"]);
    }

    #[test]
    fn change_is_printed_with_its_time() {
        let mut model = ScreenModel { elapsed: Duration::from_millis(1234), ..ScreenModel::default() };
        assert_eq!(model.record_change("it"), "   1.2 s  it");
    }
}
