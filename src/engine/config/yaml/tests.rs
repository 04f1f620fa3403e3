use proptest::prelude::*;
use serde::Deserialize;
use serde_json::json;

use super::*;

fn value(text: &str) -> Value {
    parse(text).expect("the text is sound").0
}

fn refusal(text: &str) -> String {
    parse(text).expect_err("the text is refused").to_string()
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    #[serde(default)]
    plugins: Vec<Plugin>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Plugin {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    weight: u32,
}

fn misfit(text: &str) -> String {
    decode::<Document>(text).expect_err("the text does not fit").to_string()
}

#[test]
fn scalars_follow_the_core_schema_of_yaml_1_2() {
    let text = "[8000, '8000', \"8000\", 0x1F, 0o17, 0123, +5, -7, 1.5, .5, 1., 1e3, true, ~, null, \
                yes, on, 1_000, 1:30, 0.0.0.0, e5, 0xz]";

    assert_eq!(
        value(text),
        json!([
            8000, "8000", "8000", 31, 15, 123, 5, -7, 1.5, 0.5, 1.0, 1000.0, true, null, null, "yes", "on", "1_000",
            "1:30", "0.0.0.0", "e5", "0xz"
        ])
    );
}

#[test]
fn integers_keep_all_their_digits_as_far_as_64_bits_go() {
    assert_eq!(
        value("[18446744073709551615, -9223372036854775808]"),
        json!([u64::MAX, i64::MIN])
    );
    assert_eq!(value("18446744073709551616"), json!(18_446_744_073_709_551_616.0));
}

#[test]
fn a_number_without_end_is_refused_and_in_quotes_it_is_text() {
    assert_eq!(
        refusal("a: 1\nb: .inf"),
        "line 2: `.inf` is not a finite number; put it in quotes if text is meant"
    );
    assert_eq!(value("'.inf'"), json!(".inf"));
    assert!(refusal("1e999").contains("`1e999` is not a finite number"));
}

#[test]
fn a_tag_says_how_a_scalar_is_read() {
    assert_eq!(value("[!!str 8000, ! 12, !!float 1]"), json!(["8000", "12", 1]));
    assert_eq!(refusal("!!int abc"), "line 1: `abc` is not what its tag `!!int` says");
    assert_eq!(
        refusal("a: !secret x"),
        "line 1: tag `!secret` is not known here; leave it out"
    );
    assert_eq!(
        refusal("a: !!set {x}"),
        "line 1: tag `tag:yaml.org,2002:!set` is not known here; leave it out"
    );
}

#[test]
fn json_is_read_as_what_it_is() {
    let text = "{\n\t\"a\": [1, -2.5e3, \"x\\/\\u00e9\\n\"],\n\t\"b\": {\"c\": null, \"d\": false}\n}\n";

    assert_eq!(value(text), serde_json::from_str::<Value>(text).unwrap());
}

#[test]
fn text_without_a_document_is_null() {
    for text in ["", "# nothing\n", "---\n", "\u{feff}"] {
        assert_eq!(value(text), Value::Null, "{text:?}");
    }
}

#[test]
fn text_after_a_document_is_an_error_unless_it_is_another_document() {
    for text in ["{a: 1} trailing", "[1]\nb: 2\n", "{\"a\": 1}}"] {
        assert!(matches!(parse(text), Err(YamlError::Syntax { .. })), "{text}");
    }
    for text in ["{a: 1}\n# the end\n", "{a: 1}\n...\n", "{a: 1}\n---\nb: 2\n"] {
        assert!(parse(text).is_ok(), "{text}");
    }
}

#[test]
fn only_the_first_document_of_a_stream_is_read() {
    assert_eq!(value("a: 1\n---\nb: [\n"), json!({"a": 1}));
}

#[test]
fn the_line_of_a_second_document_is_known() {
    for (text, line) in [
        ("a: 1\n", None),
        ("---\na: 1\n...\n", None),
        ("a: [\n---\nb: 2\n", None),
        ("---\na: 1\n---\nb: 2\n---\nc: 3\n", Some(3)),
        ("a: 1\n--- [\n", Some(2)),
    ] {
        assert_eq!(second_document(text), line, "{text}");
    }
}

#[test]
fn all_documents_of_a_stream_have_their_own_lines() {
    let text = "# before\na: 1\n---\n# between\nb:\n- c: 2\n...\n---\n{d: 3}\n--- 4\n---\n";

    let documents = parse_all(text).unwrap();

    let values: Vec<_> = documents.iter().map(|(value, _)| value.clone()).collect();
    assert_eq!(
        values,
        [
            json!({"a": 1}),
            json!({"b": [{"c": 2}]}),
            json!({"d": 3}),
            json!(4),
            Value::Null
        ]
    );
    let lines = |n: usize, paths: &[&str]| -> Vec<_> { paths.iter().map(|path| documents[n].1.line(path)).collect() };
    assert_eq!(lines(0, &["", "a"]), [2, 2]);
    assert_eq!(lines(1, &["", "b", "b[0].c", "a"]), [5, 5, 6, 5]);
    assert_eq!(lines(2, &["d"]), [9]);
    assert_eq!(lines(3, &[""]), [10]);
}

#[test]
fn text_without_a_document_has_none_and_json_is_one() {
    for text in ["", " \n", "# nothing\n", "\u{feff}"] {
        assert!(parse_all(text).unwrap().is_empty(), "{text:?}");
    }
    assert_eq!(parse_all("---\n").unwrap().len(), 1);
    assert_eq!(parse_all("{\"a\": [1]}\n").unwrap().len(), 1);
}

#[test]
fn one_document_that_is_wrong_is_an_error_for_the_stream() {
    let refusal = |text: &str| parse_all(text).unwrap_err().to_string();

    assert_eq!(
        refusal("a: 1\n---\nb: 1\nb: 2\n"),
        "line 4: key `b` is already there on line 3; a key can be given once"
    );
    assert!(refusal("a: 1\n---\nb: [\n").starts_with("line "));
}

#[test]
fn the_same_keys_and_anchors_may_be_in_every_document_but_no_alias_leaves_its_own() {
    let values: Vec<_> = parse_all("a: &x 1\nb: *x\n---\na: &x 2\nb: *x\n")
        .unwrap()
        .into_iter()
        .map(|(value, _)| value)
        .collect();

    assert_eq!(values, [json!({"a": 1, "b": 1}), json!({"a": 2, "b": 2})]);
    assert_eq!(
        parse_all("a: &x 1\n---\nb: *x\n").unwrap_err().to_string(),
        "line 3: the alias names a value of another document; write the value out"
    );
}

#[test]
fn the_copies_of_all_documents_count_together() {
    let one = format!("a: &a {}\nb: [{}]\n---\n", "x".repeat(10_000), "*a, ".repeat(60));

    assert!(parse_all(&one).is_ok());
    assert!(matches!(
        parse_all(&one.repeat(2)),
        Err(YamlError::TooMuchCopied { line: 5 })
    ));
}

#[test]
fn keys_are_text_whatever_they_look_like() {
    assert_eq!(
        value("8000: a\ntrue: b\n~: c"),
        json!({"8000": "a", "true": "b", "~": "c"})
    );
    assert_eq!(
        refusal("a: 1\n? [b]\n: 2"),
        "line 2: a key is not plain text; write it as a word or in quotes"
    );
    assert!(refusal("a: &x 1\n*x : 2").contains("line 2: a key is not plain text"));
}

#[test]
fn a_key_given_twice_is_refused_with_both_lines() {
    assert_eq!(
        refusal("a:\n  b: 1\n  c: 2\n  b: 3\n"),
        "line 4: key `b` is already there on line 2; a key can be given once"
    );
    assert!(refusal(r#"{"x": 1, "x": 1}"#).contains("key `x` is already there on line 1"));
    assert_eq!(value("[{a: 1}, {a: 2}]"), json!([{"a": 1}, {"a": 2}]));
}

#[test]
fn text_that_is_not_yaml_is_refused_with_line_and_column() {
    let error = parse("a: 1\nb: [1, 2\nc: 3\n").unwrap_err();

    assert!(matches!(error, YamlError::Syntax { line: 3, .. }), "{error}");
}

#[test]
fn an_alias_stands_for_its_anchor() {
    let (value, positions) = parse("a: &x\n  k: [1]\nb: *x\n").unwrap();

    assert_eq!(value, json!({"a": {"k": [1]}, "b": {"k": [1]}}));
    assert_eq!(positions.line("b"), 3);
    assert_eq!(
        positions.line("b.k"),
        2,
        "the parts of a copy stand where they are written"
    );
}

#[test]
fn an_alias_within_its_own_anchor_is_refused() {
    assert_eq!(
        refusal("a: &x\n  - *x\n"),
        "line 2: the alias stands within the value that it names"
    );
}

#[test]
fn aliases_of_aliases_do_not_fill_the_memory() {
    let mut text = String::from("a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n");
    for n in 1..30 {
        let before = format!("*a{}, ", n - 1).repeat(9);
        text += &format!("a{n}: &a{n} [{before}*a{}]\n", n - 1);
    }

    assert!(matches!(parse(&text), Err(YamlError::TooMuchCopied { .. })));
}

#[test]
fn a_long_text_cannot_be_copied_without_end() {
    let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(10_000), "*a, ".repeat(200));

    assert_eq!(parse(&text).unwrap_err(), YamlError::TooMuchCopied { line: 2 });
}

#[test]
fn nesting_has_an_end_with_aliases_and_without() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let by_alias = format!("a: &a {}\nb: [*a]\nc: [[*a]]\n", deep(MAX_DEPTH - 2));

    assert!(parse(&deep(MAX_DEPTH)).is_ok());
    assert_eq!(parse(&deep(MAX_DEPTH + 1)).unwrap_err(), YamlError::TooDeep { line: 1 });
    assert_eq!(parse(&by_alias).unwrap_err(), YamlError::TooDeep { line: 3 });
    assert!(parse(&"[".repeat(1 << 20)).is_err());
}

#[test]
fn the_line_of_a_path_is_that_of_the_nearest_part_that_is_there() {
    let text = "plugins:\n- type: a\n- type: b\n  parameters:\n    x: 1\n    llm-d.ai/role: y\n    'a[0]': z\n";
    let positions = parse(text).unwrap().1;
    let lines = [
        ("", 1),
        ("plugins", 1),
        ("plugins[0]", 2),
        ("plugins[1].type", 3),
        ("plugins[1].parameters", 4),
        ("plugins[1].parameters.x", 5),
        ("plugins[1].parameters.x.y[2]", 5),
        ("plugins[1].parameters.llm-d.ai/role", 6),
        ("plugins[1].parameters.a[0]", 7),
        ("plugins[1].parameters.missing", 4),
        ("plugins[7].type", 1),
        ("elsewhere", 1),
    ];

    for (path, line) in lines {
        assert_eq!(positions.line(path), line, "{path}");
    }
}

#[test]
fn a_document_that_fits_is_read() {
    let plugin = Plugin {
        kind: "a".to_owned(),
        weight: 2,
    };

    let document: Document = decode("plugins: [{type: a, weight: 2}]").unwrap();

    assert_eq!(document, Document { plugins: vec![plugin] });
}

#[test]
fn a_field_of_the_wrong_type_is_named_with_its_line() {
    assert_eq!(
        misfit("plugins:\n- type: a\n- type: b\n  weight: '2'\n"),
        "line 4: field `plugins[1].weight`: invalid type: string \"2\", expected u32"
    );
}

#[test]
fn an_unknown_field_is_named_with_its_own_line() {
    assert_eq!(
        misfit("plugins:\n- type: a\n  weight: 1\n  wieght: 2\n"),
        "line 4: field `plugins[0].wieght`: unknown field `wieght`, expected `type` or `weight`"
    );
    assert_eq!(
        misfit("plugins: []\nPlugins: []\n"),
        "line 2: field `Plugins`: unknown field `Plugins`, expected `plugins`"
    );
}

#[test]
fn a_missing_field_is_reported_where_it_should_be() {
    assert_eq!(
        misfit("plugins:\n- weight: 1\n"),
        "line 2: field `plugins[0]`: missing field `type`"
    );
    assert_eq!(
        misfit("text"),
        "line 1: invalid type: string \"text\", expected struct Document"
    );
}

#[test]
fn part_of_a_document_is_read_with_the_path_of_the_whole() {
    let (mut value, positions) = parse("plugins:\n- type: a\n  parameters:\n    weight: -1\n    type: x\n").unwrap();
    let parameters = value["plugins"][0]["parameters"].take();

    let error = decode_at::<Plugin>(parameters, &positions, "plugins[0].parameters").unwrap_err();

    assert_eq!((error.line, error.path.as_str()), (4, "plugins[0].parameters.weight"));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(|x: f64| Value::from(x)),
        "[ -~]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map("[ -~]{0,8}", inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_json_document_is_read_as_a_json_parser_reads_it(document in any_json()) {
        prop_assert_eq!(value(&document.to_string()), document.clone());
        prop_assert_eq!(value(&format!("{document:#}")), document);
    }

    #[test]
    fn a_stream_is_its_documents_one_after_the_other(
        documents in proptest::collection::vec(any_json(), 0..5),
    ) {
        let text: String = documents.iter().map(|document| format!("---\n{document:#}\n")).collect();

        let read: Vec<_> = parse_all(&text).unwrap().into_iter().map(|(value, _)| value).collect();

        prop_assert_eq!(read, documents);
    }

    #[test]
    fn no_text_panics_and_every_line_that_is_named_exists(text in "([a-c]|[\\[\\]{}:,&*!?|>'\"#~\n -]){0,60}") {
        let lines = text.lines().count() + 1;
        match parse(&text) {
            Ok((_, positions)) => prop_assert!((1..=lines).contains(&positions.line("a"))),
            Err(error) => prop_assert!((1..=lines).contains(&error.line()), "{} of {}", error, lines),
        }
        match parse_all(&text) {
            Ok(all) => prop_assert!(all.iter().all(|(_, positions)| (1..=lines).contains(&positions.line("a")))),
            Err(error) => prop_assert!((1..=lines).contains(&error.line()), "{} of {}", error, lines),
        }
    }
}
