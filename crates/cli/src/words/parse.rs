//! The parser: one walk through a table, which stores what it reads and notes what may come next.

use super::complete::Candidate;
use super::near::{either, nearest, unknown};
use super::table::{Entry, Form, Grammar, Part, Times, Value, WordError};
use std::ops::Range;

/// Cause of an early end of a walk.
enum Stop {
    /// A word is wrong.
    Wrong(WordError),
    /// The words end before a value; only where they may.
    End,
}

type Step = Result<(), Stop>;

/// A walk through `words`.
struct Walk<'w, S> {
    words: &'w [String],
    at: usize,
    /// The state that setters fill; `None` where only the next words are asked for.
    state: Option<S>,
    /// Candidates for the word behind the last one.
    expected: Vec<Candidate>,
    /// The words of the group that has ended before the next word.
    ended: Vec<&'static str>,
    /// The place where each word of the grammar begins, values and groups apart.
    begun: Vec<(&'static str, usize)>,
}

impl<S: Default, T> Grammar<S, T> {
    /// Reads `words`.
    pub fn parse(&self, words: &[String]) -> Result<T, WordError> {
        let mut walk = Walk::new(words, Some(S::default()));
        match walk.grammar(self) {
            Ok(()) | Err(Stop::End) => {}
            Err(Stop::Wrong(error)) => return Err(error),
        }
        let whole =
            |error: anyhow::Error| WordError { at: words.len(), message: format!("{error:#}") };
        (self.finish)(walk.state.unwrap_or_default()).map_err(whole)
    }

    /// Puts the words of `changes` in the place of those of the same name in `words`.
    pub fn replace(&self, words: &[String], changes: &[String]) -> Result<Vec<String>, WordError> {
        let old = self.extents(words)?;
        let operands = old.first().map_or(words.len(), |(_, range)| range.start);
        let behind = [&words[..operands], changes].concat();
        let new = self
            .extents(&behind)
            .map_err(|error| WordError { at: error.at.saturating_sub(operands), ..error })?;
        let mut replaced = words[..operands].to_vec();
        let kept = old.iter().filter(|(name, _)| new.iter().all(|(other, _)| other != name));
        kept.for_each(|(_, range)| replaced.extend_from_slice(&words[range.clone()]));
        replaced.extend_from_slice(changes);
        Ok(replaced)
    }

    /// Names of the words and where each stands with its values.
    fn extents(&self, words: &[String]) -> Result<Vec<(&'static str, Range<usize>)>, WordError> {
        let mut walk = Walk::<S>::new(words, None);
        if let Err(Stop::Wrong(error)) = walk.grammar(self) {
            return Err(error);
        }
        let ends = walk.begun.iter().skip(1).map(|(_, at)| *at).chain([words.len()]);
        Ok(walk.begun.iter().zip(ends).map(|((name, at), end)| (*name, *at..end)).collect())
    }

    /// Returns the candidates for the word behind `words`; none where these are wrong.
    pub(super) fn expected(&self, words: &[String]) -> Vec<Candidate> {
        let mut walk = Walk::<S>::new(words, None);
        match walk.grammar(self) {
            Ok(()) | Err(Stop::End) => walk.expected,
            Err(Stop::Wrong(_)) => Vec::new(),
        }
    }
}

impl<S, T> Grammar<S, T> {
    /// A line with each word, in each of its forms.
    #[cfg(test)]
    pub(super) fn lines(&self) -> Vec<String> {
        let needed = self.operands.iter().filter(|part| !part.optional);
        let operands: Vec<_> = needed.map(|part| part.example).collect();
        let line = |entry: &Entry<S>, form: &Form<S>| {
            let values: Vec<_> = form.parts.iter().map(|part| part.example).collect();
            let (operands, values) = (operands.join(" "), values.join(" "));
            format!("{operands} {} {values} {}", entry.name, form.group_example)
        };
        let forms = |entry: &'static Entry<S>| entry.forms.iter().map(move |form| (entry, form));
        self.entries().flat_map(forms).map(|(entry, form)| line(entry, form)).collect()
    }

    /// All words that may stand behind the operands.
    fn entries(&self) -> impl Iterator<Item = &'static Entry<S>> {
        self.sections.iter().flat_map(|section| section.entries)
    }
}

impl<'w, S: 'static> Walk<'w, S> {
    fn new(words: &'w [String], state: Option<S>) -> Self {
        Walk { words, at: 0, state, expected: Vec::new(), ended: Vec::new(), begun: Vec::new() }
    }

    fn peek(&self) -> Option<&'w str> {
        self.words.get(self.at).map(String::as_str)
    }

    fn wrong<V>(&self, message: impl Into<String>) -> Result<V, Stop> {
        Err(Stop::Wrong(WordError { at: self.at, message: message.into() }))
    }

    /// A word is missing at the end. Who only asks what may come next has all of it now.
    fn missing<V>(&self, message: impl Into<String>) -> Result<V, Stop> {
        if self.state.is_none() { Err(Stop::End) } else { self.wrong(message) }
    }

    /// Calls a setter about the word at `at`.
    fn set(&mut self, at: usize, set: impl FnOnce(&mut S) -> anyhow::Result<()>) -> Step {
        let Some(state) = &mut self.state else { return Ok(()) };
        let wrong = |error| Stop::Wrong(WordError { at, message: format!("{error:#}") });
        set(state).map_err(wrong)
    }

    fn grammar<T>(&mut self, grammar: &Grammar<S, T>) -> Step {
        let command = grammar.command.rsplit(' ').next().unwrap_or_default();
        self.operands(command, grammar.operands)?;
        let mut seen = Vec::new();
        while let Some(word) = self.peek() {
            if let (Some(tail), "--") = (grammar.tail, word) {
                let (at, words) = (self.at, &self.words[self.at + 1..]);
                self.at = self.words.len();
                self.set(at, |state| tail(state, words))?;
                return self.all_required("", grammar.entries(), &seen);
            }
            match grammar.entries().find(|entry| entry.is(word)) {
                Some(entry) => {
                    self.begun.push((entry.name, self.at));
                    self.entry(entry, &mut seen)?;
                }
                None => return self.stranger(word, grammar),
            }
        }
        self.expect_entries(grammar.entries(), &seen);
        if grammar.tail.is_some() {
            self.expected.push(Candidate::word("--", "a command"));
        }
        self.all_required("", grammar.entries(), &seen)
    }

    /// Reads the values that stand first.
    fn operands(&mut self, command: &str, parts: &[Part<S>]) -> Step {
        if parts.is_empty() {
            return Ok(());
        }
        if self.peek().is_none() && !parts[0].optional {
            Candidate::push(&parts[0], &mut self.expected);
            let form: Vec<_> =
                parts.iter().filter(|part| !part.optional).map(|part| part.example).collect();
            let lacks = parts[0].name;
            return self
                .missing(format!("{command} lacks {lacks}; write {command} {}", form.join(" ")));
        }
        self.parts(command, parts)
    }

    /// A word that is not one of the grammar's.
    fn stranger<T>(&self, word: &str, grammar: &Grammar<S, T>) -> Step {
        if word == "--" {
            let command = grammar.command.rsplit(' ').next().unwrap_or_default();
            return self.wrong(format!("{command} takes no command; leave out what follows --"));
        }
        for entry in grammar.entries() {
            for form in entry.forms {
                if let Some(inner) = form.group.iter().find(|inner| inner.is(word)) {
                    let words =
                        form.parts.iter().filter(|part| matches!(part.value, Value::Literal(_)));
                    let words: String = words.map(|part| format!(" {}", part.name)).collect();
                    let outer = entry.name;
                    return self.wrong(format!(
                        "{} stands behind {outer}{words}; write {outer} {} {} …",
                        inner.name,
                        example_of(form),
                        inner.name
                    ));
                }
            }
        }
        let mut known = self.ended.clone();
        known.extend(grammar.entries().map(|entry| entry.name));
        self.wrong(unknown(word, &known))
    }

    /// The entry whose name is the next word.
    fn entry(&mut self, entry: &'static Entry<S>, seen: &mut Vec<&'static str>) -> Step {
        if entry.times == Times::Once && seen.contains(&entry.name) {
            return self.wrong(format!("{} is given twice; give it once", entry.name));
        }
        seen.push(entry.name);
        let keyword = self.peek().unwrap_or(entry.name);
        self.at += 1;
        self.ended.clear();
        let Some(word) = self.peek() else { return self.end_of(entry, keyword) };
        // Words that stand as they are come before values, which may be any word.
        let literal = |form: &&Form<S>| {
            let first = form.parts.first();
            first.is_some_and(|part| matches!(part.value, Value::Literal(_)) && part.accepts(word))
        };
        let found = entry.forms.iter().find(literal);
        match found.or_else(|| entry.forms.iter().find(|form| accepts(form, word))) {
            Some(form) => self.form(form, keyword),
            None => self.wrong(refuse(entry, keyword, word)),
        }
    }

    /// The words end behind `keyword`.
    fn end_of(&mut self, entry: &'static Entry<S>, keyword: &'w str) -> Step {
        for form in entry.forms {
            // What may be left out stands together with what follows it.
            for part in form.parts {
                Candidate::push(part, &mut self.expected);
                if !part.optional {
                    break;
                }
            }
        }
        match entry.forms.iter().find(|form| form.parts.iter().all(|part| part.optional)) {
            Some(form) => self.form(form, keyword),
            None => self
                .missing(format!("{keyword} lacks its value; write {keyword} {}", example(entry))),
        }
    }

    fn form(&mut self, form: &'static Form<S>, keyword: &'w str) -> Step {
        if let Some(begin) = form.begin {
            self.set(self.at - 1, begin)?;
        }
        let from = self.at;
        self.parts(keyword, form.parts)?;
        if form.group.is_empty() {
            return Ok(());
        }
        let to = self.at;
        let mut seen = Vec::new();
        loop {
            match self.peek().map(|word| form.group.iter().find(|entry| entry.is(word))) {
                Some(Some(entry)) => self.entry(entry, &mut seen)?,
                Some(None) => break,
                None => {
                    self.expect_entries(form.group.iter(), &seen);
                    break;
                }
            }
        }
        // With what stood before, so that a literal says which form it is.
        let literals = form.parts.iter().filter(|part| matches!(part.value, Value::Literal(_)));
        let whole: String = literals.map(|part| format!(" {}", part.name)).collect();
        let whole = format!("{keyword}{whole}");
        if seen.is_empty() && !form.group_example.is_empty() {
            // With the values, too: a name says whom it is about.
            let before: String =
                self.words[from..to].iter().map(|word| format!(" {word}")).collect();
            let whole = format!("{keyword}{before}");
            let message = format!("{whole} says nothing; write {whole} {}", form.group_example);
            let Some(word) = self.peek() else { return self.missing(message) };
            let known: Vec<_> = form.group.iter().map(|entry| entry.name).collect();
            let slip = nearest(word, &known).map(|_| unknown(word, &known));
            return self.wrong(slip.unwrap_or(message));
        }
        self.all_required(&whole, form.group.iter(), &seen)?;
        self.ended = form.group.iter().map(|entry| entry.name).collect();
        Ok(())
    }

    /// The values behind `keyword`.
    fn parts(&mut self, keyword: &str, parts: &[Part<S>]) -> Step {
        for part in parts {
            let literal = matches!(part.value, Value::Literal(_) | Value::Choice(_));
            match self.peek() {
                Some(word) if part.accepts(word) => {
                    self.at += 1;
                    self.set(self.at - 1, |state| part.store(state, word))?;
                }
                Some(word) if part.lacks_unit(word) => {
                    return self.wrong(part.refuse(keyword, word));
                }
                // The word may be left out, and the value behind it stands all the same.
                Some(_) if part.optional && literal => {}
                Some(_) if part.optional => break,
                Some(word) => return self.wrong(part.refuse(keyword, word)),
                None => {
                    Candidate::push(part, &mut self.expected);
                    if part.optional && literal {
                        continue;
                    }
                    if part.optional {
                        break;
                    }
                    let (name, example) = (part.name, part.example);
                    return self
                        .missing(format!("{keyword} lacks {name}, such as {example}; add it"));
                }
            }
        }
        Ok(())
    }

    fn expect_entries(
        &mut self,
        entries: impl Iterator<Item = &'static Entry<S>>,
        seen: &[&'static str],
    ) {
        let open =
            entries.filter(|entry| entry.times != Times::Once || !seen.contains(&entry.name));
        self.expected.extend(open.map(|entry| Candidate::word(entry.name, entry.help)));
    }

    fn all_required(
        &self,
        keyword: &str,
        entries: impl Iterator<Item = &'static Entry<S>>,
        seen: &[&'static str],
    ) -> Step {
        let mut entries = entries.peekable();
        let missing = std::iter::from_fn(|| {
            let entry = entries.next()?;
            // Of words that replace each other, `finish` checks that one stands.
            let replaced = entries.peek().is_some_and(|next| next.instead);
            Some((entry, replaced))
        })
        .find(|(entry, replaced)| entry.required && !replaced && !seen.contains(&entry.name));
        let Some((entry, _)) = missing else { return Ok(()) };
        let (name, example) = (entry.name, example(entry));
        self.missing(if keyword.is_empty() {
            format!("{name} is missing; write {name} {example}")
        } else {
            format!("{keyword} lacks {name}; add {name} {example}")
        })
    }
}

/// Whether the value of `form` may begin with `word`.
fn accepts<S>(form: &Form<S>, word: &str) -> bool {
    for part in form.parts {
        if part.accepts(word) {
            return true;
        }
        if !part.optional {
            return false;
        }
    }
    true
}

/// The error for a `word` that is the value of no form of `entry`.
fn refuse<S>(entry: &Entry<S>, keyword: &str, word: &str) -> String {
    let first = |form: &'static Form<S>| form.parts.iter().find(|part| !part.optional);
    let parts: Vec<&Part<S>> = entry.forms.iter().filter_map(first).collect();
    let literal = |part: &&&Part<S>| matches!(part.value, Value::Literal(_));
    let names = parts.iter().filter(literal).map(|part| part.name);
    match parts.iter().find(|part| !literal(part)) {
        None => format!("{keyword} {word:?} is unknown; give {}", either(names)),
        Some(part) => {
            let others: String = names.map(|name| format!(", or {name}")).collect();
            format!("{}{others}", part.refuse(keyword, word))
        }
    }
}

/// A good value of `entry`.
fn example<S>(entry: &Entry<S>) -> String {
    entry.forms.first().map_or_else(String::new, example_of)
}

fn example_of<S>(form: &Form<S>) -> String {
    let parts = form.parts.iter().filter(|part| !part.optional).map(|part| part.example);
    let mut words: Vec<_> = parts.collect();
    if !form.group_example.is_empty() {
        words.push(form.group_example);
    }
    words.join(" ")
}
