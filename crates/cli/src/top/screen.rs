//! The terminal, taken over while `top` runs and given back however it ends.

use std::io::{self, Stdout, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::Print;
use crossterm::terminal::{
    self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::report::Report;
use super::text;

/// How soon a signal is noticed.
const SIGNAL_MAX: Duration = Duration::from_millis(100);

/// What the user wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Stay,
    Leave,
}

/// The whole terminal.
pub(super) struct Screen {
    out: Stdout,
    lines: Vec<String>,
    /// A signal wants us to go.
    told_to_go: Arc<AtomicBool>,
}

impl Screen {
    pub(super) fn open() -> io::Result<Screen> {
        let told_to_go = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&told_to_go))?;
        }
        enable_raw_mode()?;
        // From here on dropping it gives the terminal back.
        let mut screen = Screen { out: io::stdout(), lines: Vec::new(), told_to_go };
        execute!(screen.out, EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    pub(super) fn draw(&mut self, report: &Report) -> io::Result<()> {
        self.lines = text::lines(report);
        self.redraw()
    }

    fn redraw(&mut self) -> io::Result<()> {
        let (width, height) = terminal::size()?;
        for (row, line) in (0..).zip(fit(&self.lines, width.into(), height.into())) {
            queue!(self.out, MoveTo(0, row), Clear(ClearType::UntilNewLine), Print(line))?;
        }
        queue!(self.out, Clear(ClearType::FromCursorDown))?;
        self.out.flush()
    }

    /// Lets time pass until then, unless the user leaves.
    pub(super) fn wait(&mut self, until: Instant) -> io::Result<Wish> {
        loop {
            if self.told_to_go.load(Ordering::Relaxed) {
                return Ok(Wish::Leave);
            }
            let left = until.saturating_duration_since(Instant::now());
            if event::poll(left.min(SIGNAL_MAX))? {
                match event::read()? {
                    Event::Key(key) if leaves(key) => return Ok(Wish::Leave),
                    Event::Resize(..) => self.redraw()?,
                    _ => {}
                }
            } else if left <= SIGNAL_MAX {
                return Ok(Wish::Stay);
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = execute!(self.out, Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

fn leaves(key: KeyEvent) -> bool {
    let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        _ if key.kind == KeyEventKind::Release => false,
        KeyCode::Char('c') => with_control,
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => true,
        _ => false,
    }
}

/// What of `lines` a terminal has room for; the last line says what else there is, and how to leave.
fn fit(lines: &[String], width: usize, height: usize) -> Vec<String> {
    let shown = lines.len().min(height.saturating_sub(1));
    let foot = match lines.len() - shown {
        0 => "q leaves".to_owned(),
        hidden => format!("{hidden} more lines; q leaves"),
    };
    let cut = |line: &str| line.chars().take(width).collect();
    let mut fitted: Vec<String> = lines[..shown].iter().map(|line| cut(line)).collect();
    fitted.push(cut(&foot));
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_escape_and_control_c_leave() {
        let key = |code, modifiers| KeyEvent::new(KeyCode::Char(code), modifiers);
        assert!(leaves(key('q', KeyModifiers::NONE)));
        assert!(leaves(key('c', KeyModifiers::CONTROL)));
        assert!(!leaves(key('c', KeyModifiers::NONE)));
        assert!(!leaves(key('x', KeyModifiers::CONTROL)));
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let lines: Vec<String> = (0..10).map(|line| format!("line {line}")).collect();
        assert_eq!(fit(&lines, 80, 20).len(), 11);
        assert_eq!(fit(&lines, 5, 4), ["line ", "line ", "line ", "7 mor"]);
        assert_eq!(fit(&lines, 80, 0).len(), 1);
    }
}
