//! The names of a node's handlers, as it shares them with its peers: sorted, each ended by a zero byte.

/// The shared form of sorted names.
pub(crate) fn join<'a>(sorted: impl Iterator<Item = &'a str>) -> Vec<u8> {
    sorted.flat_map(|name| name.bytes().chain([0])).collect()
}

/// The place of `name` among the shared names.
pub(crate) fn find(names: &[u8], name: &str) -> Option<usize> {
    split(names).position(|known| known == name.as_bytes())
}

fn split(names: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ended = names.strip_suffix(&[0]).unwrap_or(names);
    ended.split(|byte| *byte == 0).filter(|name| !name.is_empty())
}

/// The first name that one list has and the other has not, in words.
pub(crate) fn difference(ours: &[u8], theirs: &[u8]) -> String {
    let only = |a, b: &[u8]| {
        let name = split(a).find(|name| split(b).all(|other| other != *name))?;
        Some(String::from_utf8_lossy(name).into_owned())
    };
    match (only(ours, theirs), only(theirs, ours)) {
        (Some(name), _) => format!("{name:?} is registered here, not there"),
        (None, Some(name)) => format!("{name:?} is registered there, not here"),
        (None, None) => "the same names in another order".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_where_they_stand() {
        let names = join(["aa", "m", "x"].into_iter());
        assert_eq!((find(&names, "aa"), find(&names, "x")), (Some(0), Some(2)));
        assert_eq!((find(&names, "a"), find(&names, "")), (None, None));
        assert_eq!(find(&[], "aa"), None);
    }

    #[test]
    fn the_difference_is_named() {
        let ours = join(["get", "put"].into_iter());
        let theirs = join(["put", "steal"].into_iter());
        assert_eq!(difference(&ours, &theirs), "\"get\" is registered here, not there");
        assert_eq!(difference(&[], &theirs), "\"put\" is registered there, not here");
    }
}
