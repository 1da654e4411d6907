//! README's five figures, beside the bounds of what `perf` promises.

use super::case::{Op, PROMISED, bound_for};

/// A row of README's table.
struct Claim {
    what: &'static str,
    figure: &'static str,
    command: &'static str,
    /// The operations and their size, and the greatest ratio that the row names, where `perf` bounds it.
    bounded: Option<(&'static [Op], usize, &'static str)>,
}

const CLAIMS: [Claim; 5] = [
    Claim {
        what: "put, get of 8 bytes in a heap",
        figure: "1.2, 0.8 × `memcpy` of 8 bytes",
        command: "`perf put`, `perf get`",
        bounded: Some((&[Op::Put, Op::Get], 8, "1.2")),
    },
    Claim {
        what: "put, get of 1 to 16 MiB in a heap",
        figure: "0.75 to 1.01 × one `memcpy`",
        command: "`perf put` or `get`, `--size 1M`",
        bounded: Some((&[Op::Put, Op::Get], 1 << 20, "1.01")),
    },
    Claim {
        what: "get of 64 KiB of private memory",
        figure: "6 µs",
        command: "`perf get --memory private --size 64K`",
        bounded: None,
    },
    Claim {
        what: "Active Message and reply",
        figure: AM_FIGURE,
        command: "`perf am`",
        bounded: Some((&[Op::Am], 0, AM_MOST)),
    },
    Claim {
        what: "get of 1 MiB in a heap, TCP",
        figure: "1.00 to 1.15 × the bare read",
        command: "`perf get --size 1M --transport ofi:tcp`",
        bounded: None,
    },
];

const AM_FIGURE: &str = "0.7 to 1.1 × a word passed there and back, each side working 25 ns";
const AM_MOST: &str = "1.1";

#[test]
fn readme_has_these_five_figures() {
    let page = include_str!("../../../../README.md");
    let (_, below) = page.split_once("## Five figures").expect("the section");
    let (table, _) = below.split_once("\n## ").expect("another section");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    let claimed = CLAIMS.map(|claim| format!("| {} | {} | {} |", claim.what, claim.figure, claim.command));
    assert_eq!(rows, claimed);
}

#[test]
fn what_readme_claims_is_within_what_perf_promises() {
    for claim in CLAIMS {
        let Some((ops, size, most)) = claim.bounded else { continue };
        assert!(claim.figure.contains(most), "{}", claim.what);
        for op in ops {
            let case = PROMISED.iter().find(|case| case.op == *op && case.size == size).expect("promised");
            let bound = bound_for(case).expect("promised");
            let most: f64 = most.parse().expect("a number");
            assert!(most <= bound, "{}: {most} is beyond perf's {bound}", claim.what);
        }
    }
}
