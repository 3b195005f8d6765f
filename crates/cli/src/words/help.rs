//! `--help`, made from the tables.

use super::outline::{Piece, Token, Way, Word, plain, wrap};
use super::spelling::Spelling;
use std::fmt::Write;

/// Characters of a line.
const WIDTH: usize = 100;
/// The column in which explanations begin.
const COLUMN: usize = 24;

/// The usage of all `grammars` of one command, their words, `notes`, and `examples`.
pub fn help(grammars: &[&dyn Spelling], notes: &[&str], examples: &[&str]) -> String {
    let outlines: Vec<_> = grammars.iter().map(|grammar| grammar.outline()).collect();
    let mut text = String::new();
    for (at, outline) in outlines.iter().enumerate() {
        let begin = if at == 0 { "Usage: " } else { "       " };
        usage(&mut text, &format!("{begin}sheaf {}", outline.command), outline.usage(), " ");
        // One command's words need no line that says so.
        if outlines.len() > 1 {
            let _ = writeln!(text, "{:12}{}", "", outline.about);
        }
    }
    for outline in outlines.iter().filter(|outline| !outline.operand_help.is_empty()) {
        text.push('\n');
        let operands = outline.operands.iter().map(Piece::token).collect();
        row(&mut text, 2, operands, outline.operand_help);
    }
    let mut shown = Vec::new();
    for section in outlines.iter().flat_map(|outline| &outline.sections) {
        // Several grammars share sections.
        let key = (section.title, section.words.first().map(|word| word.name));
        if shown.contains(&key) {
            continue;
        }
        shown.push(key);
        let continues = section.title.is_empty() && !outlines[0].operand_help.is_empty();
        if !continues {
            text.push('\n');
        }
        match (section.title, section.name) {
            ("", _) => {}
            (title, "") => _ = writeln!(text, "{title}:"),
            (title, name) => _ = writeln!(text, "{title} ({name}):"),
        }
        rows(&mut text, &section.words, 2, &mut Vec::new());
    }
    for note in notes {
        let _ = write!(text, "\n{note}");
    }
    if !notes.is_empty() {
        text.push('\n');
    }
    for (at, example) in examples.iter().enumerate() {
        let begin = if at == 0 { "\nExample:" } else { "        " };
        let _ = write!(text, "{begin} {example}");
        text.push(if at + 1 == examples.len() { ' ' } else { '\n' });
    }
    text.trim_end().to_owned()
}

fn usage(text: &mut String, begin: &str, tokens: Vec<Token>, between: &str) {
    let indent = begin.chars().count() + between.len();
    for (at, line) in wrap(tokens, indent, WIDTH).iter().enumerate() {
        let line: Vec<_> = line.iter().map(plain).collect();
        let lead = if at == 0 { format!("{begin}{between}") } else { " ".repeat(indent) };
        let _ = writeln!(text, "{}", format!("{lead}{}", line.join(" ")).trim_end());
    }
}

/// A row for each word: the word, its value, and the line of help.
fn rows(text: &mut String, words: &[Word], indent: usize, explained: &mut Vec<&'static str>) {
    for word in words {
        row(text, indent, word.tokens(), word.help);
        let named = !word.forms_name.is_empty() && !word.forms.iter().all(Way::is_one);
        if named && !explained.contains(&word.forms_name) {
            explained.push(word.forms_name);
            for form in &word.forms {
                // Of a word that begins another of the same there is nothing to list.
                if form.tokens().is_empty() {
                    continue;
                }
                row(text, indent + 2, form.tokens(), "");
                if !form.group_name.is_empty() && !explained.contains(&form.group_name) {
                    explained.push(form.group_name);
                    rows(text, &form.group, indent + 4, explained);
                }
                inner(text, &form.group, indent + 4, explained);
            }
            continue;
        }
        for form in word.forms.iter().filter(|form| !form.group.is_empty()) {
            if form.group_name.is_empty() || !explained.contains(&form.group_name) {
                explained.push(form.group_name);
                rows(text, &form.group, indent + 2, explained);
            }
        }
    }
}

/// Rows of groups that have a name of their own, further in.
fn inner(text: &mut String, words: &[Word], indent: usize, explained: &mut Vec<&'static str>) {
    for form in words.iter().flat_map(|word| &word.forms) {
        if !form.group_name.is_empty() && !explained.contains(&form.group_name) {
            explained.push(form.group_name);
            rows(text, &form.group, indent, explained);
        }
    }
}

fn row(text: &mut String, indent: usize, tokens: Vec<Token>, help: &str) {
    let lead = " ".repeat(indent);
    let lines = wrap(tokens, indent, WIDTH);
    let mut column = 0;
    for (at, line) in lines.iter().enumerate() {
        let line: Vec<_> = line.iter().map(plain).collect();
        let more = if at == 0 { "" } else { "    " };
        let line = format!("{lead}{more}{}", line.join(" "));
        column = line.chars().count();
        text.push_str(&line);
        if at + 1 < lines.len() {
            text.push('\n');
        }
    }
    if help.is_empty() {
        text.push('\n');
        return;
    }
    // Two spaces at least part a word from what it is for.
    if column + 2 > COLUMN {
        text.push('\n');
        column = 0;
    }
    for line in filled(help, WIDTH - COLUMN) {
        let _ = writeln!(text, "{}{line}", " ".repeat(COLUMN - column));
        column = 0;
    }
}

/// `text` in lines of at most `width` characters.
pub(super) fn filled(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
