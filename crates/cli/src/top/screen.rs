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

use measure::table::Layout;

use super::peers::lines;
use super::report::Report;

/// How soon a signal is noticed.
const SIGNAL_MAX: Duration = Duration::from_millis(100);

/// The user's next wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Stay,
    Leave,
}

/// The subject of the look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Showing {
    /// Arrows choose it.
    rank: u32,
    /// Its peers are shown, and not all ranks.
    by_peer: bool,
}

/// A text of more lines than the terminal has, and which part of it is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Scrolled {
    /// The first line that is shown.
    from: usize,
    /// Lines that a page has, as of when it was last drawn.
    page: usize,
}

/// The whole terminal.
pub(super) struct Screen {
    out: Stdout,
    report: Option<Box<Report>>,
    showing: Showing,
    scrolled: Scrolled,
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

    /// The view after this key, in a job of so many ranks. Nothing changes by most.
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

    /// The last line names the keys: in fewer and fewer words.
    fn keys(self) -> [String; 3] {
        let Showing { rank, by_peer } = self;
        let [long, short] = match by_peer {
            true => [
                "q leaves, p shows all ranks, arrows another's peers".to_owned(),
                "q leaves, p all ranks, arrows another".to_owned(),
            ],
            false => [
                format!("q leaves, p shows the peers of rank {rank}, arrows choose another"),
                format!("q leaves, p peers of rank {rank}, arrows"),
            ],
        };
        [long, short, "q leaves".to_owned()]
    }
}

impl Scrolled {
    /// Where it is after this key: at most keys, where it was. There may be no such line.
    fn after(self, key: KeyEvent) -> Scrolled {
        let page = self.page.max(1);
        let from = match key.code {
            _ if key.kind == KeyEventKind::Release => self.from,
            KeyCode::PageDown => self.from.saturating_add(page),
            KeyCode::PageUp => self.from.saturating_sub(page),
            KeyCode::Char('j') => self.from.saturating_add(1),
            KeyCode::Char('k') => self.from.saturating_sub(1),
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            _ => self.from,
        };
        Scrolled { from, ..self }
    }

    /// The same in a terminal that has room for so many of all these lines.
    fn within(self, lines: usize, room: usize) -> Scrolled {
        Scrolled { from: self.from.min(lines.saturating_sub(room)), page: room }
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
        let mut screen =
            Screen { out: io::stdout(), report: None, showing, scrolled: Scrolled::default(), told_to_go };
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
        self.scrolled = self.scrolled.within(lines.len(), usize::from(height).saturating_sub(1));
        for (row, line) in (0..).zip(fit(&lines, self.scrolled, &self.showing.keys(), width.into())) {
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
        let after = (self.showing.after(key, size), self.scrolled.after(key));
        let before = (self.showing, self.scrolled);
        (self.showing, self.scrolled) = after;
        if before == after {
            return Ok(());
        }
        if before.0.by_peer != after.0.by_peer {
            self.scrolled.from = 0;
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

/// The `lines` that a terminal has room for, from where it is scrolled to. The last line says which they are
/// if there are others, and what the keys do, in as many words as there is room for. A line that goes on
/// beyond the edge ends in dots.
fn fit(lines: &[String], scrolled: Scrolled, keys: &[String; 3], width: usize) -> Vec<String> {
    let Scrolled { from, page } = scrolled;
    let end = lines.len().min(from.saturating_add(page));
    let others = match lines.len() - (end - from) {
        0 => String::new(),
        _ => format!("{}-{end} of {}: PgDn, PgUp; ", from + 1, lines.len()),
    };
    let feet = keys.each_ref().map(|keys| format!("{others}{keys}"));
    let fits = |foot: &&String| foot.chars().count() <= width;
    let foot = feet.iter().find(fits).unwrap_or(&feet[2]);
    let cut = |line: &str| -> String {
        let line = line.trim_end();
        match line.chars().count() {
            fits if fits <= width => line.to_owned(),
            _ => line.chars().take(width.saturating_sub(1)).chain(['…']).take(width).collect(),
        }
    };
    lines[from..end].iter().chain([foot]).map(|line| cut(line)).collect()
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

    /// Ten lines in a terminal of this size, scrolled to that one.
    fn fitted(from: usize, width: usize, height: usize) -> Vec<String> {
        let lines: Vec<String> = (0..10).map(|line| format!("line {line}")).collect();
        let scrolled = Scrolled { from, page: 0 }.within(lines.len(), height.saturating_sub(1));
        fit(&lines, scrolled, &["q leaves and more", "q leaves, too", "q leaves"].map(str::to_owned), width)
    }

    #[test]
    fn what_does_not_fit_is_told_and_dotted() {
        assert_eq!(fitted(0, 80, 20).len(), 11);
        assert_eq!(fitted(0, 5, 4), ["line…", "line…", "line…", "1-3 …"]);
        assert_eq!(fitted(0, 6, 4)[0], "line 0");
        assert_eq!(fitted(0, 80, 4)[3], "1-3 of 10: PgDn, PgUp; q leaves and more");
        assert_eq!(fitted(0, 36, 4)[3], "1-3 of 10: PgDn, PgUp; q leaves, too");
        assert_eq!(fitted(0, 80, 20)[10], "q leaves and more");
        assert_eq!(fitted(0, 80, 0).len(), 1);
        assert_eq!(fitted(0, 0, 2), ["", ""]);
    }

    #[test]
    fn keys_reach_every_line() {
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        let press = |scrolled: Scrolled, code| scrolled.after(key(code)).within(10, 4);
        let mut at = Scrolled::default().within(10, 4);
        let mut firsts = vec![at.from];
        for code in
            [KeyCode::PageDown, KeyCode::PageDown, KeyCode::PageDown, KeyCode::Char('k'), KeyCode::PageUp]
        {
            at = press(at, code);
            firsts.push(at.from);
        }
        assert_eq!(firsts, [0, 4, 6, 6, 5, 1], "no page ends beyond the last line");
        assert_eq!(press(at, KeyCode::End).from, 6);
        assert_eq!(press(at, KeyCode::Home).from, 0);
        assert_eq!(press(at, KeyCode::Char('j')).from, 2);
        assert_eq!(press(at, KeyCode::Char('x')), at);
        assert_eq!(fitted(6, 80, 5)[..2], ["line 6", "line 7"]);
        assert_eq!(fitted(9, 80, 20)[0], "line 0", "all fit after the terminal has grown");
    }

    #[test]
    fn p_and_arrows_choose_what_is_shown() {
        let press = |showing: Showing, code| showing.after(KeyEvent::new(code, KeyModifiers::NONE), 3);
        let ranks = Showing::of(None);
        assert_eq!((ranks.peers(), press(ranks, KeyCode::Up)), (None, ranks));
        let second = press(ranks, KeyCode::Down);
        assert!(second.peers().is_none() && second.keys()[0].contains("peers of rank 1"));
        let peers = press(second, KeyCode::Char('p'));
        assert_eq!(peers, Showing::of(Some(1)));
        let last = [KeyCode::Right, KeyCode::Down, KeyCode::Down].into_iter().fold(peers, press);
        assert_eq!(last.peers(), Some(2), "there is no rank beyond");
        assert_eq!(press(last, KeyCode::Char('x')), last);
        assert_eq!(press(press(last, KeyCode::Left), KeyCode::Char('P')), second);
        // With a thousand ranks, too, on the narrowest terminal.
        let [.., shorter, shortest] = Showing { rank: 1023, by_peer: false }.keys();
        for (keys, columns) in [(shorter, 80), (shortest, 60)] {
            let foot = format!("1005-1027 of 1031: PgDn, PgUp; {keys}");
            assert!(foot.chars().count() <= columns, "{foot}");
        }
    }
}
