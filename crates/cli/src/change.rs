//! Changes of the words of a running service.

use crate::words::Grammar;
use sheaf_daemon::reactor::{Parse, Parsed};
use std::sync::{Arc, Mutex, PoisonError};

/// Makes the parser of changes for a service that was started with `words`: each word of a change
/// replaces the words of the same name.
pub fn live<S, T>(grammar: &'static Grammar<S, T>, words: &[String]) -> Parse<T>
where
    S: Default,
    T: Send + 'static,
{
    let present = Arc::new(Mutex::new(words.to_vec()));
    Arc::new(move |changes, _| {
        let lock = |words: &Mutex<Vec<String>>| {
            words.lock().unwrap_or_else(PoisonError::into_inner).clone()
        };
        let changed = grammar.replace(&lock(&present), changes)?;
        let change = grammar.parse(&changed)?;
        let present = present.clone();
        // The next change begins from words that the service accepted, not from refused ones.
        let accepted = Box::new(move || {
            *present.lock().unwrap_or_else(PoisonError::into_inner) = changed;
        });
        Ok(Parsed { change, accepted })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window;
    use std::path::Path;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_word_takes_the_place_of_the_one_that_stood_there() {
        let began = words("dev eth0 capacity 20mbit upload 4mbit formula 1");
        let parse = live(&window::GRAMMAR, &began);
        let change = |line: &str| parse(&words(line), Path::new(""));
        let first = change("capacity 8mbit").unwrap();
        let mut expected = words("dev eth0 capacity 8mbit upload 4mbit formula 1");
        assert_eq!(first.change, window::GRAMMAR.parse(&expected).unwrap());
        // The first change was not accepted, so the second one begins from the old words.
        let second = change("formula 2").unwrap();
        expected = words("dev eth0 capacity 20mbit upload 4mbit formula 2");
        assert_eq!(second.change, window::GRAMMAR.parse(&expected).unwrap());
        (second.accepted)();
        let third = change("upload 1mbit capacity 3mbit").unwrap();
        expected = words("dev eth0 capacity 3mbit upload 1mbit formula 2");
        assert_eq!(third.change, window::GRAMMAR.parse(&expected).unwrap());
        let error = change("formla 2").err().unwrap().to_string();
        assert!(error.contains("did you mean \"formula\"?"), "{error}");
    }
}
