/// True when the whole of `text` matches a pattern in the syntax of Go's `filepath.Match`: `*`, `?`, `[a-z]`, `[^a]`,
/// `\c`, of which none matches a `/`. A malformed pattern matches nothing.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut at, mut read) = (0, 0);
    // The position after the last star, and the end of the text that it matches so far.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&'*') {
            star = Some((at + 1, read));
            at += 1;
            continue;
        }
        let step = match (pattern.get(at), text.get(read)) {
            (None, None) => return true,
            (Some(_), Some(letter)) => match_one(&pattern[at..], *letter),
            _ => None,
        };
        match (step, star) {
            (Some(length), _) => {
                at += length;
                read += 1;
            }
            // The last star matches one more character. Earlier stars need no change.
            (None, Some((after, reaches))) if text.get(reaches).is_some_and(|it| *it != '/') => {
                star = Some((after, reaches + 1));
                (at, read) = (after, reaches + 1);
            }
            (None, _) => return false,
        }
    }
}

/// Matches one character against the beginning of a pattern. Returns the length of the pattern's part that matches.
fn match_one(pattern: &[char], letter: char) -> Option<usize> {
    match pattern {
        ['?', ..] => (letter != '/').then_some(1),
        ['\\', escaped, ..] => (*escaped == letter).then_some(2),
        ['\\'] => None,
        ['[', rest @ ..] => match_class(rest, letter).map(|it| it + 1),
        [plain, ..] => (*plain == letter).then_some(1),
        [] => None,
    }
}

/// Matches one character against the class after a `[`. Returns the length up to the `]` if it matches.
fn match_class(rest: &[char], letter: char) -> Option<usize> {
    let negated = rest.first() == Some(&'^');
    let mut at = usize::from(negated);
    let mut inside = false;
    let begin = at;
    loop {
        if rest.get(at)? == &']' && at > begin {
            return (inside != negated && letter != '/').then_some(at + 1);
        }
        let (low, next) = class_bound(rest, at)?;
        at = next;
        let mut high = low;
        if rest.get(at) == Some(&'-') {
            (high, at) = class_bound(rest, at + 1)?;
        }
        inside |= (low..=high).contains(&letter);
    }
}

/// One bound of a range, and the position after it.
fn class_bound(rest: &[char], at: usize) -> Option<(char, usize)> {
    match rest.get(at)? {
        '-' | ']' => None,
        '\\' => Some((*rest.get(at + 1)?, at + 2)),
        plain => Some((*plain, at + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_are_gos() {
        for (pattern, text, want) in [
            ("abc", "abc", true),
            ("*", "abc", true),
            ("*", "", true),
            ("*c", "abc", true),
            ("a*", "a", true),
            ("a*", "ab/c", false),
            ("a*/b", "abc/b", true),
            ("a*b*c*d*e*/f", "axbxcxdxe/f", true),
            ("a*b*c*d*e*/f", "axbxcxdxexxx/fff", false),
            ("a*b?c*x", "abxbbxdbxebxczzx", true),
            ("a*b?c*x", "abxbbxdbxebxczzy", false),
            ("ab[c]", "abc", true),
            ("ab[b-d]", "abc", true),
            ("ab[e-g]", "abc", false),
            ("ab[^c]", "abc", false),
            ("ab[^e-g]", "abc", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "ab", false),
            ("a?b", "a☺b", true),
            ("a[^a]b", "a☺b", true),
            ("[a-ζ]*", "α", true),
            ("a?b", "a/b", false),
            ("[\\]a]", "]", true),
            ("[\\-]", "-", true),
            ("[x\\-]", "z", false),
            ("[]a]", "]", false),
            ("[-]", "-", false),
            ("[", "a", false),
            ("[^", "a", false),
            ("[^bc", "a", false),
            ("a[", "a", false),
            ("\\", "\\", false),
            ("*x", "xxx", true),
            ("namespace_controller::*", "namespace_controller::sync", true),
        ] {
            assert_eq!(matches(pattern, text), want, "{pattern} {text}");
        }
    }
}
