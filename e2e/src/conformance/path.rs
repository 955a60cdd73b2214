//! Paths into a response: `.a.b[0].c`, `.items[metadata.name=apps].kind`, `.metadata.annotations[a.b/c]`.

use serde_json::Value;

/// The value at `path`; the whole value for an empty path.
pub(super) fn find<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let mut found = value;
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (word, behind) = inner.split_once(']')?;
            found = select(found, word)?;
            rest = behind;
        } else {
            let name = rest.strip_prefix('.').unwrap_or(rest);
            let end = name.find(['.', '[']).unwrap_or(name.len());
            if end == 0 {
                return None;
            }
            found = found.get(&name[..end])?;
            rest = &name[end..];
        }
    }
    Some(found)
}

/// Like [`find`], but `[*]` selects the value in each element, null where it is missing.
pub(super) fn find_all(value: &Value, path: &str) -> Option<Value> {
    let Some((list, rest)) = path.split_once("[*]") else { return find(value, path).cloned() };
    let elements = find(value, list)?.as_array()?;
    Some(elements.iter().map(|it| find_all(it, rest).unwrap_or(Value::Null)).collect())
}

fn select<'a>(value: &'a Value, word: &str) -> Option<&'a Value> {
    if let Ok(number) = word.parse::<usize>() {
        return value.get(number);
    }
    match word.split_once('=') {
        Some((path, wanted)) if value.is_array() => {
            value.as_array()?.iter().find(|it| find(it, path).is_some_and(|it| plain(it) == wanted))
        }
        _ => value.get(word.trim_matches('"')),
    }
}

/// A string without quotes, anything else as JSON.
pub(super) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_select_by_name_number_and_member() {
        let value = json!({ "a": { "x.y/z": 1, "b": [{ "n": "p", "v": 2 }, { "n": "q", "v": 3 }] } });
        for (path, wanted) in
            [(".a[x.y/z]", "1"), (".a.b[0].n", "p"), (".a.b[n=q].v", "3"), (".a.b[1]", r#"{"n":"q","v":3}"#)]
        {
            assert_eq!(find(&value, path).map(plain).as_deref(), Some(wanted), "{path}");
        }
        for path in [".b", ".a.b[2]", ".a.b[n=r]", ".", ".a.b.c"] {
            assert_eq!(find(&value, path), None, "{path}");
        }

        let all = |path: &str| find_all(&value, path).map(|it| it.to_string());
        assert_eq!(all(".a.b[*].n").as_deref(), Some(r#"["p","q"]"#));
        assert_eq!(all(".a.b[*].z").as_deref(), Some("[null,null]"));
        assert_eq!((all(".a[*].n"), all(".c[*]")), (None, None));
    }
}
