//! Tests of the options of `perf`, and of its tables and JSON.

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    perf: PerfArgs,
}

#[test]
fn a_size_may_have_a_unit() {
    let line = Line::try_parse_from(["perf", "put", "--size", "64K"]).expect("a size");
    assert_eq!(cases(&line.perf).expect("one case")[0].size, 65_536);
    assert!(Line::try_parse_from(["perf", "put", "--size", "64Q"]).is_err());
}

#[test]
fn over_a_network_puts_and_gets_are_measured() {
    let line = Line::try_parse_from(["perf", "get", "--transport", "ofi:tcp"]).expect("a transport");
    let network = |name| Transport::parse(name).expect("a transport");
    let tcp = network("ofi:tcp");
    let far = far_cases(&cases(&line.perf).expect("one case"), true, &tcp).expect("it can be measured");
    assert_eq!((far.len(), far[0].bound), (1, None));
    let verbs = network("ofi:verbs;ofi_rxm");
    let far = far_cases(&cases(&line.perf).expect("one case"), true, &verbs).expect("it can be measured");
    assert_eq!((far.len(), far[0].bound), (1, Some(1.1)), "8 bytes, by the card alone");
    let line = Line::try_parse_from(["perf", "am", "--transport", "ofi"]).expect("a transport");
    let error = far_cases(&cases(&line.perf).expect("one case"), true, &tcp).expect_err("no measure of it");
    assert!(error.to_string().contains("unset STANDPIPE_TRANSPORT"), "{error}");
    assert!(Line::try_parse_from(["perf", "--transport", "pigeon"]).is_err());
    let tcp = far_cases(PROMISED, false, &tcp).expect("some");
    assert!(tcp.len() > 4 && tcp.iter().all(|case| case.bound.is_none()));
    let verbs = far_cases(PROMISED, false, &verbs).expect("some");
    let words = verbs.iter().filter(|case| case.bound == Some(1.1)).count();
    assert_eq!(words, 2 * 2 * 3 * 3, "put and get, two memories, three sizes, three targets");
    let of_bulk = |case: &&Case| case.size > 16 || matches!(case.op, Op::PutSignal);
    assert_eq!(verbs.iter().filter(of_bulk).count() + words, verbs.len(), "none is there twice");
}

#[test]
fn a_count_is_refused_by_its_own_name() {
    for n in ["-n", "--n"] {
        let Err(error) = Line::try_parse_from(["perf", "strided", n, "0"]) else {
            panic!("none are too few")
        };
        let text = error.to_string();
        assert!(text.contains("--n") && !text.contains("--transport"), "{text}");
    }
}

#[test]
fn each_figure_stands_in_one_place() {
    let row = Row::new(&PROMISED[0], &Samples::new("memcpy", 1, vec![4.0], vec![2.0]));
    let one = to_json(std::slice::from_ref(&row), true, &[]).expect("numbers and words");
    let keys = [
        "op",
        "size",
        "n",
        "memory",
        "target",
        "transport",
        "median_ns",
        "p99_ns",
        "limit_name",
        "limit_ns",
        "ratio",
    ];
    assert!(keys.iter().all(|key| one.get(key).is_some()) && one.get("rows").is_none(), "{one}");
    let page = include_str!("../../../../docs/PERF.md");
    let named = |key: &String| page.contains(&format!("`{key}`"));
    assert!(one.as_object().is_some_and(|all| all.keys().all(named)), "the page names them all: {one}");
    let all = to_json(&[row.clone(), row], false, &[Placement::Far]).expect("numbers and words");
    assert!(keys.iter().all(|key| all["rows"][1].get(key).is_some() && all.get(key).is_none()), "{all}");
    assert!(one["machine"].is_object() && all["machine"].is_object());
    let machine = &all["machine"];
    assert!(machine["core_count"].is_u64() && machine["memory_bytes"].is_u64(), "{machine}");
    assert!(all["busy"].is_boolean() && !machine["load_average"].is_string(), "{machine}");
    assert!(one["build"] == machine::BUILD && all["build"] == machine::BUILD);
    let bulk = PROMISED.iter().find(|case| case.size == 1 << 20).expect("promised");
    let bulk = Row::new(bulk, &Samples::new("memcpy", 1, vec![4.0], vec![2.0]));
    let bulk = to_json(&[bulk], true, &[]).expect("numbers and words");
    assert!(bulk["gbps"].is_number() && bulk["limit_gbps"].is_number());
}

#[test]
fn the_table_says_in_how_many_jobs_a_row_holds() {
    let case = PROMISED.iter().find(|case| case.op == Op::Am).expect("promised");
    let limit = "a word passed there and back, each side working 25 ns";
    let job = |(ours, bare)| Row::new(case, &Samples::new(limit, 9, vec![ours], vec![bare]));
    let row = |jobs: [(f64, f64); 3]| Row::over_jobs(&jobs.map(job)).expect("three jobs");
    let rows = [row([(100.0, 100.0); 3]), row([(90.0, 50.0), (100.0, 100.0), (200.0, 150.0)])];
    let narrow = Layout { columns: 80, ..Layout::FILE };
    let text = to_table(&rows, false).text(narrow);
    assert_eq!(text.lines().filter(|line| line.contains("──")).count(), 1, "one table: {text}");
    let wide = to_table(&rows, false).text(Layout { columns: 200, ..Layout::FILE });
    assert!(wide.contains("holds in 3 of 3 jobs") && wide.contains("unsteady: 1 of 3 jobs"), "{wide}");
    let (legend, short) = (legend(&rows, narrow), legend(&[job((1.0, 1.0))], narrow));
    assert!(legend.contains("unsteady") && !short.contains("unsteady"), "{legend}");
}

#[test]
fn idling_is_shown_as_a_share_and_opening_as_a_time() {
    let row = |op: Op, name, ours, limit| {
        let case = PROMISED.iter().find(|case| case.op == op).expect("promised");
        Row::new(case, &Samples::new(name, 1, vec![ours], vec![limit]))
    };
    let text = to_table(
        &[row(Op::Idle, worker::IDLE_LIMIT, 250_000.0, 1e7), row(Op::Open, worker::OPEN_LIMIT, 2e7, 1e8)],
        false,
    );
    let text = text.text(Layout::FILE);
    for part in ["0.0250 % of a core", "1.0000 % of a core", "20.00 ms", "100.00 ms"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn floods_and_streams_are_measured_everywhere() {
    let line = Line::try_parse_from(["perf", "flood", "--threads", "2", "--size", "1K"]).expect("options");
    let flood = cases(&line.perf).expect("a case");
    assert_eq!(describe(&Case { placement: None, ..flood[0] }), "flood 1 KiB by 2 threads");
    let tcp = Transport::parse("ofi:tcp").expect("a transport");
    let far = far_cases(&flood, true, &tcp).expect("over a network, too");
    assert_eq!((far.len(), far[0].placement, far[0].flow), (1, None, flood[0].flow));
    for refused in [
        &["flood", "--same-core"][..],
        &["flood", "-n", "2"],
        &["flood", "--size", "1G"],
        &["bandwidth", "--size", "0"],
        &["bandwidth", "--moves", "medium", "--size", "1M"],
        &["am", "--reply"],
        &["--window", "1"],
    ] {
        let line = Line::try_parse_from([&["perf"], refused].concat()).expect("options");
        assert!(cases(&line.perf).is_err(), "{refused:?}");
    }
    let samples = Samples::new("slots", 9, vec![1024.0], vec![512.0]);
    let threads = samples.of_threads([vec![500.0], vec![2000.0]]);
    let row = Row::over_jobs(&[Row::new(&flood[0], &threads)]).expect("a job");
    let text = row.threads_in_words().expect("two threads");
    assert!(text.starts_with("Of 2 threads the fastest sent a message in 500 ns, 2.00 million"), "{text}");
    let json = to_json(std::slice::from_ref(&row), true, &[]).expect("numbers and words");
    let page = include_str!("../../../../docs/PERF.md");
    let named = |key: &String| page.contains(&format!("`{key}`"));
    let unnamed: Vec<&String> = json.as_object().expect("one").keys().filter(|key| !named(key)).collect();
    assert!(unnamed.is_empty(), "the page names all keys: {unnamed:?}");
    assert_eq!(
        (&json["threads"], &json["moves"], &json["ways"]),
        (&2.into(), &"medium".into(), &"one".into())
    );
}

#[test]
fn both_ways_move_twice_the_bytes() {
    let line =
        Line::try_parse_from(["perf", "bandwidth", "--moves", "put", "--size", "1K"]).expect("options");
    let rows = cases(&line.perf).expect("two ways");
    let rate = |case: &Case| Row::new(case, &Samples::new("memcpy", 9, vec![1024.0], vec![512.0])).gbps;
    assert_eq!(rows.iter().map(rate).collect::<Vec<_>>(), [Some(1.0), Some(2.0)]);
}

#[test]
fn a_list_of_grants_says_what_memory_each_takes() {
    let case = PROMISED.iter().find(|case| case.op == Op::ShareMany).expect("promised");
    assert_eq!((case.processes(), case.bound), (1, Some(1.0)));
    for (bytes, within) in [(133.0, "within"), (161.0, "beyond")] {
        let samples = Samples { bytes_each: Some(bytes), ..Samples::new("set", 1, vec![80.0], vec![100.0]) };
        let row = Row::new(case, &samples);
        assert_eq!((row.holds, row.bytes_each), (Some(true), Some(bytes)));
        let words = row.bytes_in_words().expect("some");
        assert!(words.contains(&format!("{bytes} bytes")) && words.contains(within), "{words}");
    }
    assert_eq!(Row::new(case, &Samples::new("set", 1, vec![80.0], vec![100.0])).bytes_in_words(), None);
}
