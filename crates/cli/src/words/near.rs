//! "Did you mean …?"

use std::fmt::Write;

/// The word of `known` that `word` is a slip of the hand for.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let slips = |name: &str| strsim::osa_distance(&word.to_lowercase(), name);
    let nearest = known.iter().min_by_key(|name| slips(name))?;
    // A word of which half is wrong is not a slip of the hand.
    (slips(nearest) * 2 <= word.chars().count().max(4)).then_some(nearest)
}

/// Words that have another name now, and what to write in their place.
const RENAMED: [(&str, &str, &str); 1] = [("quic", "rest", "rest mark")];

/// The error for a word that is not one of `known`.
pub fn unknown(word: &str, known: &[&str]) -> String {
    let renamed = RENAMED.iter().find(|(old, new, _)| *old == word && known.contains(new));
    if let Some((old, new, instead)) = renamed {
        return format!("{old} is called {new} now; write {instead} in place of it");
    }
    match nearest(word, known) {
        Some(nearest) => format!("unknown keyword {word:?}; did you mean {nearest:?}?"),
        None if known.is_empty() => format!("{word:?} is one word too many; leave it out"),
        None => format!("unknown keyword {word:?}; give one of {}", known.join(", ")),
    }
}

/// `a`, `a or b`, `a, b or c`.
pub fn either<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.into_iter().collect();
    let mut text = String::new();
    for (at, name) in names.iter().enumerate() {
        let between = match at {
            0 => "",
            at if at + 1 == names.len() => " or ",
            _ => ", ",
        };
        let _ = write!(text, "{between}{name}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_an_unknown_word_names_the_nearest_known_one() {
        let known = ["timeout", "hold", "policy", "peer"];
        for (word, nearest) in [("timout", "timeout"), ("per", "peer"), ("polciy", "policy")] {
            let error = unknown(word, &known);
            assert_eq!(error, format!("unknown keyword {word:?}; did you mean {nearest:?}?"));
        }
        assert!(unknown("xyzzy", &known).ends_with("give one of timeout, hold, policy, peer"));
        assert!(unknown("quic", &["rest"]).contains("write rest mark"));
        assert!(!unknown("quic", &known).contains("rest mark"), "another command's word");
        assert_eq!(unknown("v1", &[]), "\"v1\" is one word too many; leave it out");
    }

    #[test]
    fn alternatives_are_joined_as_in_a_sentence() {
        assert_eq!(either(["on"]), "on");
        assert_eq!(either(["on", "off"]), "on or off");
        assert_eq!(either(["auto", "kernel", "user"]), "auto, kernel or user");
    }
}
