//! The known word nearest to a misspelt one.

/// The candidate with the smallest edit distance, if that is at most a third of the word's length, or two.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(2);
    let scored = candidates.into_iter().map(|c| (strsim::levenshtein(word, c), c));
    scored.min().filter(|(d, _)| *d <= limit).map(|(_, c)| c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_not() {
        let known = ["listen", "port", "metrics"];
        assert_eq!(nearest("lisen", known), Some("listen"));
        assert_eq!(nearest("metric", known), Some("metrics"));
        assert_eq!(nearest("colour", known), None);
    }
}
