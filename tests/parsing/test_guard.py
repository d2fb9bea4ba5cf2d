"""What the guard lets through, what it refuses, and where it says that the fault stands."""

from __future__ import annotations

import json
import threading
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.parsing.readers import compressed
from truetune.cli.shared_options import _parse_json_or_text
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.data.split_lines_into_stretches import cut_stretches
from truetune.errors import MAX_SHOWN, DataError, UsageError, format_name_list
from truetune.logs.read_run_log import read_run
from truetune.parsing import InputLimitError, input_limits
from truetune.parsing.decompress_within_limits import open_decompressed
from truetune.parsing.input_limits import MAX_NESTING, ROW, SETTINGS
from truetune.parsing.parse_json_within_limits import RowDecoder, find_duplicate_key, parse_json
from truetune.parsing.parse_python_within_limits import parse_literal, parse_python
from truetune.parsing.parse_toml_within_limits import parse_toml
from truetune.parsing.parse_yaml_within_limits import YamlError, parse_yaml
from truetune.parsing.read_files_within_limits import lines_within_limit, read_bytes_within_limit

keys = st.sampled_from(["a", "b", 'a"', ":", ' ":', "a:", "\t", ""])
texts = st.text(st.sampled_from('ab":\\{}[], \n\t'), max_size=8)


def spelled(pairs: list[tuple[str, str]], colon: str) -> str:
    return "{" + ", ".join(json.dumps(key) + colon + value for key, value in pairs) + "}"


@st.composite
def objects(draw: st.DrawFn, depth: int = 2) -> tuple[str, bool]:
    """(JSON text, does one of its objects have a key twice?)"""
    pairs, twice = [], False
    for key in draw(st.lists(keys, max_size=4)):
        kind = draw(st.integers(0, 3 if depth else 1))
        if kind < 2:
            value = json.dumps(draw(texts), ensure_ascii=draw(st.booleans()))
        else:
            value, inner = draw(objects(depth - 1))
            value = f"[{value}]" if kind == 3 else value
            twice = twice or inner
        pairs.append((key, value))
    names = [key for key, _ in pairs]
    colon = draw(st.sampled_from([":", ": ", " :", "\t: ", " \n:\r"]))
    return spelled(pairs, colon), twice or len(set(names)) < len(names)


@settings(max_examples=400, deadline=None)
@given(objects())
def test_no_duplicate_key_is_missed_and_none_is_made_up(case: tuple[str, bool]) -> None:
    text, twice = case
    found = RowDecoder().read_line(text)
    assert (found.duplicate_key is not None) == twice
    assert (find_duplicate_key(" " + text + " ") is not None) == twice
    assert found.value == json.loads(text)


def test_a_row_with_a_key_twice_is_a_malformed_row(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"prompt": "q", "completion": "a"}\n{"prompt": "q", "completion": "a", "completion":'
        ' "b"}\n'
    )
    first, second = read_conversations([str(path)])
    assert not first.problems
    assert [problem.kind for problem in second.problems] == ["duplicate-key"]
    assert "'completion' occurs twice" in second.problems[0].text
    array = tmp_path / "a.json"
    array.write_text('[{"text": "a"}, {"text": "b", "text": "c"}]')
    assert [len(row.problems) for row in read_conversations([str(array)])] == [0, 1]


@pytest.mark.parametrize("opener", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [MAX_NESTING + 1, 900, 200_000])
def test_json_that_is_nested_too_deeply(opener: str, depth: int) -> None:
    for text in (opener * depth, f'{{"x": {opener * depth}'):
        with pytest.raises(InputLimitError, match="nested more than 64 deep: line 1"):
            parse_json(text, input_limits.RESULT)
        with pytest.raises(InputLimitError):
            RowDecoder().read_line(text)


def test_depth_is_counted_outside_of_strings_alone() -> None:
    value = {"a": "[" * 500 + '\\"{' * 500, "b": [[[1]]] * 100}
    assert parse_json(json.dumps(value), ROW) == value
    deep = "[" * MAX_NESTING + "]" * MAX_NESTING
    assert parse_json(deep, ROW) == json.loads(deep)
    with pytest.raises(InputLimitError, match="line 3"):
        parse_json('{"a": "[[[[",\n"b":\n' + "[" * MAX_NESTING, ROW)


def test_the_decoder_stops_by_itself_in_a_thread() -> None:
    """Of a text whose end is not known the depth is checked afterwards: Python's decoder must not crash before."""
    raised: list[BaseException] = []

    def decode() -> None:
        try:
            RowDecoder().read_at("[" * 1_000_000, 0)
        except ValueError as error:
            raised.append(error)

    thread = threading.Thread(target=decode)
    thread.start()
    thread.join()
    assert isinstance(raised[0], InputLimitError)


def test_strings_with_many_escaped_quotes_take_linear_time() -> None:
    with pytest.raises(InputLimitError):
        parse_json("[" * 65 + '"' + '\\"' * 2_000_000, input_limits.RESULT)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{" * 30_000, "nested more than 64 deep: line 1"),
        ("a:\n  - " + "- " * 100, "nested more than 64 deep: line 2"),
        ("data: &d [*d]", "the alias [*]d is inside of what it repeats: line 1"),
        ("x: 1\na: 1" + "0" * 400, "a whole number of 401 characters.*: line 2"),
        ("a: 0x" + "f" * 17, "a whole number"),
        ("a: 99999999999999999999", "a whole number"),
        ("a: " + ":".join(["1"] * 500), "a whole number"),
        ("a: !!timestamp x", "does not fit its tag"),
        ("a: !!bool x", "does not fit its tag"),
        ('a: !!int ""', "does not fit its tag"),
        ("!!set {a, b}", "of the kind set"),
        ('a: "\\ud800"', "half of a surrogate pair"),
        ("a: b\0c", "control characters|special characters"),
        ("- x\n" * 60_000, "more than 50,000 values.*: line 50000"),
        (
            "a: &a " + "x" * 500_000 + "\nb: [" + ",".join(["*a"] * 50) + "]",
            "aliases repeat more text.*: line 2",
        ),
    ],
)
def test_yaml_that_is_refused(text: str, said: str) -> None:
    with pytest.raises((InputLimitError, YamlError), match=said):
        parse_yaml(text)


def test_bombs_of_aliases_and_merge_keys_are_counted_before_they_grow() -> None:
    aliases = "a0: &a0 [x]\n" + "".join(
        f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 40)
    )
    merges = "a0: &a0 {k: 1}\n" + "".join(
        f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 60)
    )
    for text in (aliases, merges):
        with pytest.raises(InputLimitError, match="those of aliases included"):
            parse_yaml(text)
    assert parse_yaml("a: &a {k: [1, 2]}\nb: {<<: *a, c: *a}").value["b"] == {
        "k": [1, 2],
        "c": {"k": [1, 2]},
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = " + "[" * 5_000, "nested more than 64 deep|recursion"),
        (".".join(["a"] * 70) + " = 1", "a key of more than 64 parts: line 1"),
        ("a = 1" + "0" * 400, "a whole number"),
        ("a = 0x" + "f" * 9000, "a whole number"),
        ("[" + ".".join(["a"] * 5_000) + "]", "a key of more than 64 parts"),
    ],
)
def test_toml_that_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_toml(text)


def test_python_that_is_nested_too_deeply_and_literals() -> None:
    for text in (
        "x = a" + ".b" * 10_000,
        "x = " + "+".join(["1"] * 5_000),
        "x = " + "-" * 100_000 + "1",
    ):
        with pytest.raises((InputLimitError, SyntaxError)):
            parse_python(text)
    parse_python("if a:\n    pass\n" + "elif b:\n    pass\n" * 60)
    for text in ("[" * 5_000, "-" * 50_000 + "1", "{'a': {[]: 1}}"):
        with pytest.raises(InputLimitError):
            parse_literal(text)


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst"])
def test_compressed_streams(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"".join(b"%d line\n" % i for i in range(50_000))
    packed = compressed(kind, body)
    assert (
        open_decompressed(BytesIO(packed + compressed(kind, b"end")), f".{kind}").read()
        == body + b"end"
    )
    with pytest.raises((EOFError, OSError)):
        open_decompressed(BytesIO(packed[:-9]), f".{kind}").read()
    monkeypatch.setattr("truetune.parsing.decompress_within_limits.MIN_DECOMPRESSED_BYTES", 1 << 20)
    bomb = open_decompressed(BytesIO(compressed(kind, b"\n" * (8 << 20))), f".{kind}")
    with pytest.raises(OSError, match="decompression bomb"):
        sum(len(line) for line in bomb)


def test_lines_and_files_have_a_length(tmp_path: Path) -> None:
    found = list(lines_within_limit(BytesIO(b"a\n" + b"x" * 50 + b"\nb"), 10))
    assert found == [(b"a\n", 2), (b"", 51), (b"b", 1)]
    path = tmp_path / "a"
    path.write_bytes(b"x" * (SETTINGS.max_bytes + 1))
    with pytest.raises(InputLimitError, match="larger than 1 MiB, the limit for a settings file"):
        read_bytes_within_limit(path, SETTINGS)


BLANKS = {
    "newlines.jsonl": "\n" * 200_000,
    "spaces.jsonl": '{"text": "a"}\n' + "  \n" * 200_000,
    "set-apart.jsonl": ("\n" * 90_000 + '{"text": "a"}\n') * 3,
    "table.csv": "text\na\n" + "\r\n" * 200_000,
    "field.csv": 'text\n"a' + "\n" * 200_000 + '"\n',
}
"""Files that hold hardly anything; `set-apart` has no long run of blank lines, and costs the same"""


@pytest.mark.parametrize("name", BLANKS)
@pytest.mark.parametrize("packed", ["", ".bz2"])
def test_a_file_of_blank_lines_is_an_error_that_names_the_line(
    name: str, packed: str, tmp_path: Path
) -> None:
    path = tmp_path / f"{name}{packed}"
    body = BLANKS[name].encode()
    path.write_bytes(compressed("bz2", body) if packed else body)
    with pytest.raises(
        DataError, match=r":\d+: 100,\d+ of .* lines up to here are blank, the limit is 100,000"
    ) as raised:
        list(read_conversations([str(path)]))
    assert str(raised.value).startswith(f"{path}:100")


def test_a_file_of_blank_lines_is_an_error_where_it_is_cut_into_stretches() -> None:
    with pytest.raises(DataError, match=r"a.jsonl:\d+: .* are blank"):
        list(cut_stretches(BytesIO(b"\n" * 200_000), 1 << 16, Path("a.jsonl")))


def test_a_log_of_blank_lines_is_read_as_far_as_it_has_some(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "loss": 2.0}\n' + "\n" * 200_000 + '{"step": 2, "loss": 1.0}\n')
    log = read_run(path)
    assert list(log.curves["loss"].step) == [1]
    assert any("the rest is left out" in note and "are blank" in note for note in log.notes)


def test_rows_set_apart_by_blank_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n\n\n\n' * 50_000)
    assert sum(1 for _ in read_conversations([str(path)])) == 50_000


def test_a_csv_has_as_many_columns_as_a_table_may_have(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    most = ["text", *(f"c{i}" for i in range(input_limits.MAX_TABLE_COLUMNS - 1))]
    path.write_text(",".join(most) + "\n" + "," * (len(most) - 1) + "\n")
    assert len(list(read_conversations([str(path)]))) == 1
    path.write_text(",".join([*most, "more"]) + "\n")
    with pytest.raises(DataError, match=r"a.csv:1: 20,001 columns, the limit is 20,000"):
        list(read_conversations([str(path)]))


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("a.csv", ",".join(f"column{i}" for i in range(9_000)) + "\n" + "x," * 8_999 + "x\n"),
        ("a.csv", "x" * 90_000 + "\n" + "y\n"),
        ("a.csv", "x" * 90_000 + "," + "x" * 90_000 + "\n"),
        ("a.jsonl", json.dumps({f"column{i}": 1 for i in range(9_000)}) + "\n"),
    ],
)
def test_a_message_lists_few_columns(name: str, body: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(body)
    with pytest.raises(DataError) as raised:
        list(read_conversations([str(path)]))
    assert len(str(raised.value)) < 600 + len(str(path))
    with pytest.raises(DataError) as raised:
        list(read_conversations([str(path)], columns={"prompt": "nowhere"}))
    assert len(str(raised.value)) < 600 + len(str(path))


def test_a_problem_of_a_row_lists_few_keys_and_the_beginning_of_a_value(tmp_path: Path) -> None:
    wide = {f"key{i}": i for i in range(9_000)}
    messages = [
        wide,
        {"role": "x" * 90_000, "content": "a"},
        {"role": "user", "content": "a", "weight": "x" * 90_000},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"messages": messages}) + "\n")
    (row,) = read_conversations([str(path)])
    assert [problem.kind for problem in row.problems] == [
        "unknown-role",
        "no-content",
        "unknown-role",
        "not-a-number",
    ]
    assert max(len(problem.text) for problem in row.problems) < 400


def test_a_list_of_names_says_how_many_there_are() -> None:
    assert format_name_list([]) == "none"
    assert format_name_list("abcdefghij") == "a, b, c, d, e, f, g, h, i, j"
    assert format_name_list(["a"] * 1_500).endswith(", a and 1,490 more")
    assert len(format_name_list(["x" * 1_000])) == MAX_SHOWN


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv"])
def test_a_row_that_is_too_long_is_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    long = "x" * (ROW.max_bytes + 1)
    begin = {
        "a.jsonl": '{"text": "a"}\n{"text": "',
        "a.json": '[{"text": "a"},\n{"text": "',
        "a.csv": 'text\na\n"',
    }[name]
    path.write_text(begin + long)
    with pytest.raises(DataError, match=r"longer than 16 MiB, the limit for one row") as raised:
        list(read_conversations([str(path)]))
    assert str(raised.value).startswith(f"{path}:{3 if name == 'a.csv' else 2}: ")


def test_values_on_the_command_line() -> None:
    assert _parse_json_or_text("x", '{"a": 1}') == {"a": 1}
    assert _parse_json_or_text("x", "plain text") == "plain text"
    for text in ('"\\ud800"', "[" * 900 + "]" * 900, '{"a": 1, "a": 2}'):
        with pytest.raises(UsageError, match="--template-kwarg x: "):
            _parse_json_or_text("x", text)


def test_the_table_of_the_documents_is_that_of_the_code() -> None:
    text = Path(__file__).parents[2].joinpath("docs", "limits.md").read_text(encoding="utf-8")
    for known in vars(input_limits).values():
        if isinstance(known, input_limits.Limits):
            assert (
                f"| {known.name} | {input_limits.size_in_binary_units(known.max_bytes)} | {known.max_values:,} |"
                in text
            )
    assert f"at most {MAX_NESTING} deep" in text
