//! SYNOPSIS and OPTIONS of the pages in `man/`, made from the tables.
//!
//! The pages are kept in the repository, so that a reader needs no build. A test holds them against
//! the tables; with SHEAF_BLESS=1 in the environment it writes them.

use super::help::filled;
use super::outline::{
    Font, Outline, Piece, Token, Way, Word, alternatives, plain, roman, words, wrap,
};
use super::spelling::Spelling;
use std::fmt::Write;

/// Characters of a line of roff.
const WIDTH: usize = 100;
/// Stands for a space at which no line is broken, so that a font ends in its line.
const FIXED: char = '\u{1}';
/// Characters of a line of SYNOPSIS on a terminal of 80, less the margin of 7.
const SYNOPSIS: usize = 73;

/// The text between `.SH SYNOPSIS` and the next heading.
pub fn synopsis(grammars: &[&dyn Spelling]) -> String {
    let outlines: Vec<_> = grammars.iter().map(|grammar| grammar.outline()).collect();
    let mut text = ".nf\n".to_owned();
    for outline in &outlines {
        let lead = format!("\\fBsheaf {}\\fR", escaped(outline.command));
        lines(&mut text, &lead, 6 + outline.command.len(), outline.usage());
    }
    let mut written = Vec::new();
    for (name, tokens) in outlines.iter().flat_map(Outline::productions) {
        if !written.contains(&name) {
            written.push(name);
            text.push('\n');
            lines(&mut text, &format!("\\fI{name}\\fR :="), name.len() + 3, tokens);
        }
    }
    text + ".fi\n"
}

fn lines(text: &mut String, lead: &str, len: usize, tokens: Vec<Token>) {
    for (at, line) in wrap(tokens, len.max(8) + 1, SYNOPSIS).iter().enumerate() {
        let begin = if at == 0 { format!("{lead} ") } else { " ".repeat(8) };
        let line: Vec<_> = line.iter().map(roff).collect();
        let _ = writeln!(text, "{}", format!("{begin}{}", line.join(" ")).trim_end());
    }
}

/// The text between `.SH OPTIONS` and what follows it by hand.
pub fn options(grammars: &[&dyn Spelling]) -> String {
    let outlines: Vec<_> = grammars.iter().map(|grammar| grammar.outline()).collect();
    let (mut text, mut shown) = (String::new(), Vec::new());
    for outline in outlines.iter().filter(|outline| !outline.operand_about.is_empty()) {
        let operands = outline.operands.iter().map(Piece::token).collect();
        entry(&mut text, operands, outline.operand_about);
    }
    for section in outlines.iter().flat_map(|outline| &outline.sections) {
        let key = (section.title, section.words.first().map(|word| word.name));
        if shown.contains(&key) {
            continue;
        }
        shown.push(key);
        if section.words.iter().all(|word| word.is_silent()) && section.about.is_empty() {
            continue;
        }
        if !section.title.is_empty() {
            let _ = writeln!(text, ".SS {}", section.title);
        }
        paragraph(&mut text, section.about);
        entries(&mut text, &section.words, &mut Vec::new());
    }
    let mut live: Vec<_> =
        outlines.iter().flat_map(|outline| outline.live().map(|word| word.name)).collect();
    let mut known = std::collections::HashSet::new();
    live.retain(|name| known.insert(*name));
    if !live.is_empty() {
        let names: Vec<_> = live.iter().map(|name| format!("`{name}`")).collect();
        text.push_str(".PP\n");
        paragraph(
            &mut text,
            &format!("While the service runs, `sheaf change` sets {}.", names.join(", ")),
        );
    }
    text
}

fn entries(text: &mut String, words_of: &[Word], explained: &mut Vec<&'static str>) {
    for word in words_of {
        if !word.about.is_empty() {
            entry(text, word.tokens(), word.about);
        }
        for form in word.forms.iter().filter(|form| !form.about.is_empty()) {
            let mut tokens = form.tokens();
            if word.forms_name.is_empty() {
                tokens.insert(0, word.tokens().swap_remove(0));
            }
            entry(text, tokens, form.about);
        }
        for form in &word.forms {
            groups(text, form, explained);
        }
    }
}

/// The words of a group that have paragraphs of their own, further in.
fn groups(text: &mut String, form: &Way, explained: &mut Vec<&'static str>) {
    let told = |word: &Word| !word.is_silent();
    let name = form.group_name;
    if !form.group.iter().any(told) || (!name.is_empty() && explained.contains(&name)) {
        return;
    }
    explained.push(name);
    text.push_str(".RS\n");
    entries(text, &form.group, explained);
    text.push_str(".RE\n");
}

fn entry(text: &mut String, tokens: Vec<Token>, about: &str) {
    let tag: Vec<_> = tokens.iter().map(roff).collect();
    let _ = writeln!(text, ".TP\n{}", tag.join(" "));
    paragraph(text, about);
}

/// A paragraph in the markup of the tables.
fn paragraph(text: &mut String, about: &str) {
    for line in filled(&marked(about), WIDTH) {
        let line = line.replace(FIXED, " ");
        // A line that begins so would be a request.
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        let _ = writeln!(text, "{guard}{line}");
    }
}

/// `bold` between backticks, <IF> in italics.
fn marked(about: &str) -> String {
    let mut out = String::new();
    for (at, part) in about.split('`').enumerate() {
        if at % 2 == 1 {
            let part = escaped(part).replace(' ', &FIXED.to_string());
            let _ = write!(out, "\\fB{part}\\fR");
        } else {
            out.push_str(&part.replace('<', "\\fI").replace('>', "\\fR"));
        }
    }
    out
}

fn escaped(text: &str) -> String {
    text.replace('-', "\\-")
}

fn roff(token: &Token) -> String {
    let mut out = String::new();
    for span in token {
        let text = escaped(&span.text);
        let _ = match span.font {
            Font::Roman => write!(out, "{text}"),
            Font::Bold => write!(out, "\\fB{text}\\fR"),
            Font::Italic => write!(out, "\\fI{text}\\fR"),
        };
    }
    debug_assert!(!plain(token).is_empty());
    out
}

impl Outline {
    /// The words that can change while the service runs.
    pub fn live(&self) -> impl Iterator<Item = &Word> {
        self.sections.iter().flat_map(|section| &section.words).filter(|word| word.live)
    }

    /// The names in the usage line and what each stands for, in the order in which they are met.
    pub fn productions(&self) -> Vec<(&'static str, Vec<Token>)> {
        let mut found: Vec<(&'static str, Vec<Token>)> = Vec::new();
        for section in self.sections.iter().filter(|section| !section.name.is_empty()) {
            let mut tokens = Vec::new();
            words(&section.words, &mut tokens);
            match found.iter_mut().find(|(name, _)| *name == section.name) {
                Some((_, known)) => known.extend(tokens),
                None => found.push((section.name, tokens)),
            }
        }
        for section in &self.sections {
            inner(&section.words, &mut found);
        }
        found
    }
}

/// Adds the productions of the names in `words`.
fn inner(words_of: &[Word], found: &mut Vec<(&'static str, Vec<Token>)>) {
    for word in words_of {
        let named = !word.forms_name.is_empty() && word.forms.iter().any(|form| !form.is_empty());
        if named && !known(found, word.forms_name) {
            found.push((word.forms_name, alternatives(&word.forms)));
        }
        for form in &word.forms {
            if !form.group_name.is_empty() && !known(found, form.group_name) {
                found.push((form.group_name, form.group_tokens()));
            }
            inner(&form.group, found);
        }
    }
}

fn known(found: &[(&'static str, Vec<Token>)], name: &str) -> bool {
    found.iter().any(|(known, _)| *known == name)
}

impl Word {
    /// Whether the manual has no paragraph about it.
    fn is_silent(&self) -> bool {
        self.about.is_empty() && self.forms.iter().all(|form| form.about.is_empty())
    }
}

impl Way {
    /// Whether the word alone says it.
    fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.group.is_empty()
    }

    /// The words that may follow: `[a] [b]`, or `{a | b}...` where one must.
    fn group_tokens(&self) -> Vec<Token> {
        let mut tokens = Vec::new();
        if !self.needs_one {
            words(&self.group, &mut tokens);
            return tokens;
        }
        for word in &self.group {
            let begin = if tokens.is_empty() { "{" } else { "| " };
            let mut token = word.tokens().join(&roman(" "));
            token.insert(0, roman(begin));
            tokens.push(token);
        }
        if let Some(last) = tokens.last_mut() {
            last.push(roman("}..."));
        }
        tokens
    }
}
