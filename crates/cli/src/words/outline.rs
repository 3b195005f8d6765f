//! A grammar as text: what `--help` and the manual are written from.

use super::table::{Entry, Form, Grammar, Part, Section, Times, Value};

/// A grammar without its functions.
#[derive(Clone, Debug)]
pub struct Outline {
    /// The words that lead here.
    pub command: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// The values that stand first.
    pub operands: Vec<Piece>,
    /// A line about that.
    pub operand_help: &'static str,
    /// A paragraph about that.
    pub operand_about: &'static str,
    /// The words that may follow.
    pub sections: Vec<Chapter>,
    /// Whether a command may follow behind `--`.
    pub tail: bool,
}

/// A section.
#[derive(Clone, Debug)]
pub struct Chapter {
    /// Heading.
    pub title: &'static str,
    /// A sentence below it.
    pub about: &'static str,
    /// Its name in a usage line.
    pub name: &'static str,
    /// The words.
    pub words: Vec<Word>,
}

/// An entry.
#[derive(Clone, Debug)]
pub struct Word {
    /// The word.
    pub name: &'static str,
    /// Number of times that it may stand.
    pub times: Times,
    /// Whether it cannot be left out.
    pub required: bool,
    /// Whether it stands in place of the one before it.
    pub instead: bool,
    /// Whether it can change while the service runs.
    pub live: bool,
    /// The ways to write its value.
    pub forms: Vec<Way>,
    /// The name of all of them.
    pub forms_name: &'static str,
    /// A line of help.
    pub help: &'static str,
    /// A paragraph.
    pub about: &'static str,
}

/// A form.
#[derive(Clone, Debug)]
pub struct Way {
    /// The values in their order.
    pub pieces: Vec<Piece>,
    /// Words that may follow.
    pub group: Vec<Word>,
    /// Their name in a usage line.
    pub group_name: &'static str,
    /// Whether one of them at least must follow.
    pub needs_one: bool,
    /// A paragraph.
    pub about: &'static str,
}

/// A value.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Its name, or the words that it may be.
    pub names: Vec<&'static str>,
    /// Whether the names stand as they are.
    pub literal: bool,
    /// Whether it may be left out.
    pub optional: bool,
}

/// A run of characters in one font.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The characters.
    pub text: String,
    /// Their font.
    pub font: Font,
}

/// Fonts of the manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Font {
    /// Brackets.
    Roman,
    /// Words that stand as they are.
    Bold,
    /// Names of values.
    Italic,
}

/// No line is broken inside brackets with at most so many characters.
const TOGETHER: usize = 48;

/// Spans between which no line is broken.
pub type Token = Vec<Span>;

impl Outline {
    /// The outline of `grammar`.
    pub fn of<S, T>(grammar: &Grammar<S, T>) -> Outline {
        let chapter = |section: &&Section<S>| Chapter {
            title: section.title,
            about: section.about,
            name: section.name,
            words: section.entries.iter().map(Word::of).collect(),
        };
        Outline {
            command: grammar.command,
            about: grammar.about,
            operands: grammar.operands.iter().map(Piece::of).collect(),
            operand_help: grammar.operand_help,
            operand_about: grammar.operand_about,
            sections: grammar.sections.iter().map(chapter).collect(),
            tail: grammar.tail.is_some(),
        }
    }

    /// The usage line behind the command.
    pub fn usage(&self) -> Vec<Token> {
        let mut tokens: Vec<Token> = self.operands.iter().map(Piece::token).collect();
        let mut named = "";
        for section in &self.sections {
            if section.name.is_empty() {
                words(&section.words, &mut tokens);
            } else if section.name != named {
                named = section.name;
                tokens.push(vec![italic(named)]);
            }
        }
        if self.tail {
            tokens.push(vec![roman("["), bold("--"), roman(" "), italic("COMMAND"), roman("...]")]);
        }
        tokens
    }
}

impl Word {
    fn of<S>(entry: &Entry<S>) -> Word {
        Word {
            name: entry.name,
            times: entry.times,
            required: entry.required,
            instead: entry.instead,
            live: entry.live,
            forms: entry.forms.iter().map(Way::of).collect(),
            forms_name: entry.forms_name,
            help: entry.help,
            about: entry.about,
        }
    }

    /// The word and its value.
    pub fn tokens(&self) -> Vec<Token> {
        let mut tokens = vec![vec![bold(self.name)]];
        if !self.forms_name.is_empty() {
            tokens.push(vec![italic(self.forms_name)]);
            return tokens;
        }
        let simple = self.forms.iter().all(|form| form.is_one());
        if simple && self.forms.len() > 1 {
            // a|b|c in one piece.
            let forms: Vec<_> = self.forms.iter().map(|form| form.tokens().concat()).collect();
            tokens.push(forms.join(&roman("|")));
        } else if self.forms.len() > 1 {
            tokens.push(vec![roman("{")]);
            tokens.extend(alternatives(&self.forms));
            tokens.push(vec![roman("}")]);
            close_up(&mut tokens);
        } else {
            tokens.extend(self.forms.iter().flat_map(Way::tokens));
        }
        tokens
    }
}

impl Way {
    fn of<S>(form: &Form<S>) -> Way {
        Way {
            pieces: form.parts.iter().map(Piece::of).collect(),
            group: form.group.iter().map(Word::of).collect(),
            group_name: form.group_name,
            needs_one: !form.group_example.is_empty(),
            about: form.about,
        }
    }

    /// Whether it is one word.
    pub fn is_one(&self) -> bool {
        self.pieces.len() == 1 && self.group.is_empty()
    }

    /// The values: `TIME [JITTER [CORRELATION]]`, and what may follow.
    pub fn tokens(&self) -> Vec<Token> {
        let (mut tokens, mut open) = (Vec::new(), 0);
        for piece in &self.pieces {
            let mut token = piece.bare();
            if piece.optional {
                token.insert(0, roman("["));
                if piece.literal {
                    token.push(roman("]"));
                } else {
                    open += 1;
                }
            }
            tokens.push(token);
        }
        if let (Some(last), true) = (tokens.last_mut(), open > 0) {
            last.push(roman(&"]".repeat(open)));
        }
        if !self.group_name.is_empty() {
            tokens.push(vec![italic(self.group_name)]);
        } else {
            words(&self.group, &mut tokens);
        }
        tokens
    }
}

impl Piece {
    fn of<S>(part: &Part<S>) -> Piece {
        let (names, literal) = match &part.value {
            Value::Literal(_) => (vec![part.name], true),
            Value::Choice(choices) => (choices.iter().map(|(name, _)| *name).collect(), true),
            _ => (part.name.split('|').collect(), false),
        };
        Piece { names, literal, optional: part.optional }
    }

    fn bare(&self) -> Token {
        let name = |name: &&str| vec![if self.literal { bold(name) } else { italic(name) }];
        self.names.iter().map(name).collect::<Vec<_>>().join(&roman("|"))
    }

    /// The value in its brackets.
    pub fn token(&self) -> Token {
        let mut token = self.bare();
        if self.optional {
            token.insert(0, roman("["));
            token.push(roman("]"));
        }
        token
    }
}

/// `a | b`.
pub fn alternatives(forms: &[Way]) -> Vec<Token> {
    let mut tokens = Vec::new();
    for form in forms {
        if !tokens.is_empty() {
            tokens.push(vec![roman("|")]);
        }
        tokens.extend(form.tokens());
    }
    tokens
}

/// Words in their brackets: `a [b] {c | d}... [e]...`.
pub fn words(words: &[Word], tokens: &mut Vec<Token>) {
    let mut rest = words;
    while let Some((first, others)) = rest.split_first() {
        let more = others.iter().take_while(|word| word.instead).count();
        let (chain, after) = rest.split_at(1 + more);
        rest = after;
        let mut inside = Vec::new();
        for word in chain {
            if !inside.is_empty() {
                inside.push(vec![roman("|")]);
            }
            inside.extend(together(word.tokens()));
        }
        let many = chain.iter().any(|word| word.times == Times::Many);
        let (open, close) = match (first.required, more > 0 || many) {
            (true, false) => ("", ""),
            (true, true) => ("{", "}"),
            (false, _) => ("[", "]"),
        };
        let (last, close) = (inside.len() - 1, format!("{close}{}", if many { "..." } else { "" }));
        if !open.is_empty() {
            inside[0].insert(0, roman(open));
        }
        if !close.is_empty() {
            inside[last].push(roman(&close));
        }
        tokens.extend(together(inside));
    }
}

/// Tokens as a single one where that is short.
fn together(tokens: Vec<Token>) -> Vec<Token> {
    let len: usize = tokens.iter().map(|token| plain(token).chars().count() + 1).sum();
    if len <= TOGETHER { vec![tokens.join(&roman(" "))] } else { tokens }
}

/// Joins a brace that stands alone with its neighbour.
fn close_up(tokens: &mut Vec<Token>) {
    let mut joined: Vec<Token> = Vec::new();
    for token in tokens.drain(..) {
        let alone = |token: &Token, brace: &str| token.len() == 1 && token[0].text == brace;
        match joined.last_mut() {
            Some(last) if alone(last, "{") || alone(&token, "}") => last.extend(token),
            _ => joined.push(token),
        }
    }
    *tokens = joined;
}

/// The characters of a token.
pub fn plain(token: &Token) -> String {
    token.iter().map(|span| span.text.as_str()).collect()
}

/// Tokens in lines of at most `width` characters, of which the first has `first` already.
pub fn wrap(tokens: Vec<Token>, first: usize, width: usize) -> Vec<Vec<Token>> {
    let (mut lines, mut used) = (vec![Vec::new()], first);
    for token in tokens {
        let len = plain(&token).chars().count() + 1;
        if used + len > width && lines.last().is_some_and(|line: &Vec<Token>| !line.is_empty()) {
            lines.push(Vec::new());
            used = first;
        }
        used += len;
        if let Some(line) = lines.last_mut() {
            line.push(token);
        }
    }
    lines
}

fn span(text: &str, font: Font) -> Span {
    Span { text: text.to_owned(), font }
}

pub fn roman(text: &str) -> Span {
    span(text, Font::Roman)
}

fn bold(text: &str) -> Span {
    span(text, Font::Bold)
}

fn italic(text: &str) -> Span {
    span(text, Font::Italic)
}
