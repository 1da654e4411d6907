//! The terminal, taken over while `top` runs and given back however it ends.

use std::io::{self, Stdout, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::Print;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use rustix::termios::{Winsize, tcgetwinsize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use studies::table::Layout;

use super::peers::lines;
use super::report::Report;

/// How soon a signal is noticed.
const SIGNAL_MAX: Duration = Duration::from_millis(100);

/// What the user wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Stay,
    Leave,
}

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Showing {
    /// Arrows choose it.
    rank: u32,
    /// Its peers are shown, and not all ranks.
    by_peer: bool,
}

/// The whole terminal.
pub(super) struct Screen {
    out: Stdout,
    report: Option<Box<Report>>,
    showing: Showing,
    /// A signal wants us to go.
    told_to_go: Arc<AtomicBool>,
}

impl Showing {
    /// The peers of a rank, or all ranks.
    pub(super) fn of(peers: Option<u32>) -> Showing {
        Showing { rank: peers.unwrap_or(0), by_peer: peers.is_some() }
    }

    /// The rank whose peers are shown, if any are.
    pub(super) fn peers(self) -> Option<u32> {
        self.by_peer.then_some(self.rank)
    }

    /// What is shown after this key, in a job of so many ranks. Nothing changes by most.
    fn after(self, key: KeyEvent, size: u32) -> Showing {
        let Showing { rank, by_peer } = self;
        match key.code {
            _ if key.kind == KeyEventKind::Release => self,
            KeyCode::Char('p' | 'P') => Showing { by_peer: !by_peer, ..self },
            KeyCode::Up | KeyCode::Left => Showing { rank: rank.saturating_sub(1), ..self },
            KeyCode::Down | KeyCode::Right => {
                Showing { rank: rank.saturating_add(1).min(size.saturating_sub(1)), ..self }
            }
            _ => self,
        }
    }

    /// What the keys do, in the last line.
    fn keys(self) -> String {
        match self {
            Showing { by_peer: true, .. } => "q leaves, p shows all ranks, arrows another's peers".to_owned(),
            Showing { rank, .. } => {
                format!("q leaves, p shows the peers of rank {rank}, arrows choose another")
            }
        }
    }
}

impl Screen {
    pub(super) fn open(showing: Showing) -> io::Result<Screen> {
        let told_to_go = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&told_to_go))?;
        }
        enable_raw_mode()?;
        // From here on dropping it gives the terminal back.
        let mut screen = Screen { out: io::stdout(), report: None, showing, told_to_go };
        execute!(screen.out, EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    pub(super) fn draw(&mut self, report: &Report) -> io::Result<()> {
        self.report = Some(Box::new(report.clone()));
        self.redraw()
    }

    pub(super) fn showing(&self) -> Showing {
        self.showing
    }

    fn redraw(&mut self) -> io::Result<()> {
        // Where it draws, which need not be the terminal that it was started from.
        let Winsize { ws_col: width, ws_row: height, .. } = tcgetwinsize(&self.out)?;
        let layout = Layout { columns: width, ..Layout::FILE };
        let lines = self.report.iter().flat_map(|report| lines(report, self.showing.peers(), layout));
        let lines: Vec<String> = lines.collect();
        let keys = self.showing.keys();
        for (row, line) in (0..).zip(fit(&lines, &keys, width.into(), height.into())) {
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
                    Event::Key(key) => self.press(key)?,
                    Event::Resize(..) => self.redraw()?,
                    _ => {}
                }
            } else if left <= SIGNAL_MAX {
                return Ok(Wish::Stay);
            }
        }
    }
}

impl Screen {
    fn press(&mut self, key: KeyEvent) -> io::Result<()> {
        let size = self.report.as_ref().map_or(0, |report| report.ranks.len() as u32);
        let showing = self.showing.after(key, size);
        if std::mem::replace(&mut self.showing, showing) == showing {
            return Ok(());
        }
        self.redraw()
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

/// The `lines` that a terminal has room for. The last line says what else there is, and what the keys do. A
/// line that goes on beyond the edge ends in dots.
fn fit(lines: &[String], keys: &str, width: usize, height: usize) -> Vec<String> {
    let shown = lines.len().min(height.saturating_sub(1));
    let foot = match lines.len() - shown {
        0 => keys.to_owned(),
        hidden => format!("{hidden} more lines; {keys}"),
    };
    let cut = |line: &str| -> String {
        let line = line.trim_end();
        match line.chars().count() {
            fits if fits <= width => line.to_owned(),
            _ => line.chars().take(width.saturating_sub(1)).chain(['…']).take(width).collect(),
        }
    };
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
        assert_eq!(fit(&lines, "q leaves", 80, 20).len(), 11);
        assert_eq!(fit(&lines, "q leaves", 5, 4), ["line…", "line…", "line…", "7 mo…"]);
        assert_eq!(fit(&lines, "q leaves", 6, 4)[0], "line 0");
        assert_eq!(fit(&lines, "q leaves", 80, 0).len(), 1);
        assert_eq!(fit(&lines, "q leaves", 0, 2), ["", ""]);
    }

    #[test]
    fn p_and_arrows_choose_what_is_shown() {
        let press = |showing: Showing, code| showing.after(KeyEvent::new(code, KeyModifiers::NONE), 3);
        let ranks = Showing::of(None);
        assert_eq!((ranks.peers(), press(ranks, KeyCode::Up)), (None, ranks));
        let second = press(ranks, KeyCode::Down);
        assert!(second.peers().is_none() && second.keys().contains("peers of rank 1"));
        let peers = press(second, KeyCode::Char('p'));
        assert_eq!(peers, Showing::of(Some(1)));
        let last = [KeyCode::Right, KeyCode::Down, KeyCode::Down].into_iter().fold(peers, press);
        assert_eq!(last.peers(), Some(2), "there is no rank beyond");
        assert_eq!(press(last, KeyCode::Char('x')), last);
        assert_eq!(press(press(last, KeyCode::Left), KeyCode::Char('P')), second);
        // With a thousand lines hidden of a thousand ranks, too.
        let longest = Showing { rank: 1023, by_peer: false }.keys();
        assert!(format!("1023 more lines; {longest}").chars().count() <= 80, "{longest}");
    }
}
