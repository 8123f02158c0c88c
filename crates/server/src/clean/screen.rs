//! A terminal's screen, as far as text needs one: lines that a cursor moves in, writes over and erases.
//!
//! It differs from a real one where that keeps more of the text or costs less: lines have no width and never wrap, each
//! character takes one column, and the screen is the last [`ROWS_MAX`] lines. What is above them is out of reach.
//!
//! ```text
//! text ──▶ rows (within reach of the cursor) ──▶ out (can no longer change)
//! ```
//!
//! Every step costs at most [`COLUMNS_MAX`], and what the cursor adds by jumping is bounded by the length of the text, so
//! that no text, however it was made, takes more than a few times the memory and time of a plain one.

use std::collections::VecDeque;

use super::sequence::{self, ESCAPE, Erase, Order};

/// How far up a cursor can go. More than the lines of any terminal.
const ROWS_MAX: usize = 200;

/// The lines of a usual terminal: what clearing the screen clears at most, and how far down a cursor can jump.
const SCREEN_ROWS: usize = 50;

/// How far right a cursor can jump, and how far left of it a line can be erased. Writing goes further.
const COLUMNS_MAX: usize = 400;

/// What jumps may add to a text however short it is.
const BLANKS_MIN: usize = 4096;

const TAB: usize = 8;

/// `text` as it stands when all of it was printed.
pub(super) fn show(text: &str) -> String {
    let mut screen = Screen::new(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\n' => screen.new_line(),
            '\r' => screen.column = 0,
            '\t' => screen.tab(),
            '\u{8}' => screen.order(Order::Left(1)),
            ESCAPE => match sequence::read(rest) {
                Some((length, order)) => {
                    rest = &rest[length..];
                    screen.order(order);
                }
                None => screen.write(c),
            },
            c => screen.write(c),
        }
    }
    screen.into_text()
}

#[derive(Debug, Default)]
struct Row {
    cells: Vec<char>,
    /// The cursor moved in it. Its tabs are spaces by then, so that a column is a place, and blanks at its end are
    /// what an erased text left.
    drawn: bool,
    /// It began with a newline and not by a jump, so that it counts even if it stays empty.
    begun: bool,
}

#[derive(Debug)]
struct Screen {
    out: String,
    rows: VecDeque<Row>,
    /// The cursor. Its row is always one of `rows`; its column may be past the end of that.
    row: usize,
    column: usize,
    /// Rows that left for `out`, so that places can be remembered while rows move up.
    gone: usize,
    /// The first row of a screen that was cleared.
    home: Option<usize>,
    saved: Option<(usize, usize)>,
    /// Blanks that jumps may still add.
    blanks: usize,
}

impl Screen {
    fn new(length: usize) -> Screen {
        Screen {
            out: String::with_capacity(length),
            rows: VecDeque::from([Row { begun: true, ..Row::default() }]),
            row: 0,
            column: 0,
            gone: 0,
            home: None,
            saved: None,
            blanks: BLANKS_MIN + length,
        }
    }

    fn write(&mut self, c: char) {
        if self.column != self.rows[self.row].cells.len() {
            self.draw();
            let gap = self.column.saturating_sub(self.rows[self.row].cells.len());
            if gap > 0 && !self.spend(gap) {
                self.column = self.rows[self.row].cells.len();
            }
        }
        let cells = &mut self.rows[self.row].cells;
        match cells.get_mut(self.column) {
            Some(cell) => *cell = c,
            None => {
                cells.resize(self.column, ' ');
                cells.push(c);
            }
        }
        self.column += 1;
    }

    /// A tab that is written at the end of a line is text like any other; otherwise it moves.
    fn tab(&mut self) {
        let row = &mut self.rows[self.row];
        if !row.drawn && self.column == row.cells.len() {
            row.cells.push('\t');
            self.column += 1;
        } else {
            self.draw_behind();
            self.column = (self.column / TAB + 1) * TAB;
        }
    }

    /// Makes spaces of the tabs in the cursor's row, so that a column is a place in it. The cursor is where it was.
    fn draw(&mut self) {
        let row = &mut self.rows[self.row];
        if std::mem::replace(&mut row.drawn, true) || !row.cells.contains(&'\t') {
            return;
        }
        let tabbed = std::mem::take(&mut row.cells);
        let mut cells = Vec::with_capacity(tabbed.len() + TAB);
        for c in tabbed {
            if c != '\t' {
                cells.push(c);
                continue;
            }
            let width = TAB - cells.len() % TAB;
            let width = if self.spend(width - 1) { width } else { 1 };
            cells.resize(cells.len() + width, ' ');
        }
        self.rows[self.row].cells = cells;
    }

    /// The same for the row that the cursor wrote last, where it may be behind some tabs.
    fn draw_behind(&mut self) {
        let at_end = self.column == self.rows[self.row].cells.len();
        self.draw();
        if at_end {
            self.column = self.rows[self.row].cells.len();
        }
    }

    fn new_line(&mut self) {
        self.column = 0;
        if self.row + 1 < self.rows.len() {
            self.row += 1;
        } else {
            self.add_row();
        }
        self.rows[self.row].begun = true;
    }

    /// A row below all others, with the cursor in it.
    fn add_row(&mut self) {
        let mut row = Row::default();
        if self.rows.len() == ROWS_MAX
            && let Some(first) = self.rows.pop_front()
        {
            print(&first, &mut self.out);
            self.out.push('\n');
            self.gone += 1;
            row.cells = first.cells;
            row.cells.clear();
        }
        self.rows.push_back(row);
        self.row = self.rows.len() - 1;
    }

    fn order(&mut self, order: Order) {
        let at_end = self.column == self.rows[self.row].cells.len();
        // Compilers and grep erase what is behind each coloured word, though nothing is there.
        if order == Order::Nothing || at_end && order == Order::EraseLine(Erase::ToEnd) {
            return;
        }
        self.draw_behind();
        match order {
            Order::Nothing => {}
            Order::Up(by) => self.row = self.row.saturating_sub(by),
            Order::Down(by) => self.down(by),
            Order::Right(by) => self.column = self.column.max(self.column.saturating_add(by).min(COLUMNS_MAX)),
            Order::Left(by) => self.column = self.column.saturating_sub(by),
            Order::NextLine(by) => {
                self.down(by);
                self.column = 0;
            }
            Order::PreviousLine(by) => {
                self.row = self.row.saturating_sub(by);
                self.column = 0;
            }
            Order::Column(column) => self.column = column.min(COLUMNS_MAX),
            Order::Home { row, column } => self.go_home(row, column),
            Order::EraseLine(what) => self.erase_line(what),
            Order::EraseScreen(what) => self.erase_screen(what),
            Order::Save => self.saved = Some((self.gone + self.row, self.column.min(COLUMNS_MAX))),
            Order::Restore => {
                if let Some((row, column)) = self.saved {
                    self.row = row.saturating_sub(self.gone).min(self.rows.len() - 1);
                    self.column = column;
                }
            }
            Order::Reset => {
                self.erase_screen(Erase::All);
                self.go_home(0, 0);
            }
        }
        self.draw();
    }

    /// Rows that are not there yet are blank ones of the screen below.
    fn down(&mut self, by: usize) {
        let by = by.min(SCREEN_ROWS - 1);
        let below = self.rows.len() - 1 - self.row;
        self.row += by.min(below);
        for _ in below..by {
            if !self.spend(1) {
                return;
            }
            self.add_row();
        }
    }

    fn erase_line(&mut self, what: Erase) {
        let column = self.column;
        let cells = &mut self.rows[self.row].cells;
        match what {
            Erase::ToEnd => cells.truncate(column),
            Erase::All => cells.clear(),
            Erase::ToStart if column >= cells.len() => cells.clear(),
            Erase::ToStart if column <= COLUMNS_MAX => cells[..=column].fill(' '),
            Erase::ToStart => {}
        }
    }

    fn erase_screen(&mut self, what: Erase) {
        match what {
            Erase::ToEnd => {
                self.erase_line(Erase::ToEnd);
                self.rows.truncate(self.row + 1);
            }
            Erase::ToStart => self.erase_line(Erase::ToStart),
            Erase::All => {
                let home = self.home();
                let begun = self.rows.get(home).is_some_and(|row| row.begun);
                self.rows.truncate(home);
                self.add_row();
                self.rows[self.row].begun = begun;
                self.column = 0;
            }
        }
    }

    /// Where the screen begins. The first time that is below everything, for how much of that has scrolled away nobody
    /// can know; from then on each screen takes the place of the one before, but for what was too much for it.
    fn home(&mut self) -> usize {
        let home = match self.home {
            Some(home) => {
                let rows = self.rows.len();
                home.saturating_sub(self.gone).clamp(rows.saturating_sub(SCREEN_ROWS), rows)
            }
            None => {
                let last = self.rows.len() - 1;
                if self.rows[last].cells.is_empty() { last } else { self.rows.len() }
            }
        };
        self.home = Some(self.gone + home);
        home
    }

    fn go_home(&mut self, row: usize, column: usize) {
        let home = self.home();
        if home == self.rows.len() {
            self.add_row();
        }
        self.row = home.min(self.rows.len() - 1);
        self.down(row);
        self.column = column.min(COLUMNS_MAX);
    }

    fn spend(&mut self, blanks: usize) -> bool {
        let left = self.blanks.checked_sub(blanks);
        self.blanks = left.unwrap_or(self.blanks);
        left.is_some()
    }

    fn into_text(mut self) -> String {
        while self.rows.back().is_some_and(|row| !row.begun && row.blank()) && self.rows.len() > 1 {
            self.rows.pop_back();
        }
        for (at, row) in self.rows.iter().enumerate() {
            if at > 0 {
                self.out.push('\n');
            }
            print(row, &mut self.out);
        }
        self.out
    }
}

impl Row {
    fn blank(&self) -> bool {
        self.cells.iter().all(|c| *c == ' ')
    }
}

/// Characters that would not be seen are shown only here: next to what finally stands beside them.
fn print(row: &Row, out: &mut String) {
    let blanks = if row.drawn { row.cells.iter().rev().take_while(|c| **c == ' ').count() } else { 0 };
    let mut before = None;
    for c in &row.cells[..row.cells.len() - blanks] {
        super::show(*c, before, out);
        before = Some(*c);
    }
}
