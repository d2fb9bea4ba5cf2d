"""YAML and JSON with places: what is told of each key, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from truetune.errors import SpecError
from truetune.settings.located_document import (
    MAX_CONFIG_BYTES,
    parse_located_document,
    read_located_document,
)

YAML = """\
# settings
base: &base
  rate: 1e-4
datasets:
  - path: a.jsonl
    type: alpaca
  - {path: b.jsonl}
run:
  <<: *base
  steps: 10
steps: 1
steps: 2
"""


def test_places_of_yaml() -> None:
    document = parse_located_document(YAML, "a.yaml")
    assert document.position_of_key("datasets", 0, "type") == (6, 5)
    assert document.position_of_key("datasets", 1) == (7, 5)
    assert document.position_of_key("datasets", 1, "path") == (7, 6)
    assert document.position_of_key("run", "rate") == (3, 3)
    assert document.position_of_key("run", "steps") == (10, 3)
    assert document.position_of_key("nothing") is None
    assert document.value["run"] == {"rate": "1e-4", "steps": 10}
    assert document.value["steps"] == 2
    assert document.twice == ((("steps",), (11, 1), (12, 1)),)


def test_places_of_json() -> None:
    text = '{\n\t"a": {"b": [1, {"c": "x\\/{"}], "d": 1e-5},\n\t"a": 2\n}'
    document = parse_located_document(text, "a.json")
    assert document.value == {"a": 2}
    assert document.position_of_key("a", "b", 1, "c") == (2, 18)
    assert document.position_of_key("a", "d") == (2, 33)
    assert document.twice == ((("a",), (2, 2), (3, 2)),)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text(), values), st.sampled_from((None, 2)))
def test_every_key_of_json_has_its_place(value: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    document = parse_located_document(text, "a.json")
    assert document.value == value
    lines = text.split("\n")

    def look(item: Any, keys: tuple[Any, ...]) -> None:
        for key in (
            item if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ()
        ):
            spot = document.spots[(*keys, key)]
            if isinstance(key, str):
                assert lines[spot.line - 1][spot.column - 1 :].startswith(
                    json.dumps(key, ensure_ascii=False)
                )
            look(item[key], (*keys, key))

    look(value, ())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\n\tb: 2\n", ":2: not YAML"),
        ("a: [1, 2\nb: 3\n", ":2: not YAML"),
        (
            "a: !!python/object/apply:os.system [ls]\n",
            ":1: not YAML: could not determine a constructor",
        ),
        ("? [a, b]\n: 1\n" * 2 + "{", "not YAML"),
        ("a: *nowhere\n", ":1: not YAML: found undefined alias"),
        ("--- 1\n--- 2\n", ":2: not YAML: but found another document"),
        ("a: " + "[" * 200 + "]" * 200, ":1: not YAML: nested more than 64 deep"),
        ("a: &a [*a]\n", ":1: not YAML: the alias *a is inside of what it repeats"),
        ("a: 2026-13-45\n", "not YAML: month must be in 1..12"),
    ],
)
def test_broken_yaml(text: str, said: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_located_document(text, "a.yaml")
    assert said in str(error.value)
    assert str(error.value).startswith("a.yaml")


def test_an_alias_bomb_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    with pytest.raises(SpecError, match="more than 50,000 values"):
        parse_located_document("\n".join(lines), "bomb.yaml")
    merged = ["a0: &a0 {k: 1}"] + [
        f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)
    ]
    with pytest.raises(SpecError, match="more than 50,000 values"):
        parse_located_document("\n".join(merged), "bomb.yaml")


def test_broken_files(tmp_path: Path) -> None:
    def refused(name: str, content: bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(SpecError) as error:
            read_located_document(path)
        return str(error.value).removeprefix(str(path))

    assert refused("a.yaml", b"\x7fELF\0\0\1") == ": a binary file; expected YAML or JSON, as UTF-8"
    assert refused("b.yaml", b"a: 1\nb: \xff\n") == ":2: not UTF-8; save it as UTF-8"
    assert (
        refused("c.yaml", b"a: 1\n" * (MAX_CONFIG_BYTES // 4))
        == ": larger than 1 MiB, so it is no configuration"
    )
    assert refused("d.json", b'{"a": 1,\n "b": }') == ":2: not JSON: Expecting value"
    assert refused("e.json", b'{"a": ' + b"[" * 100_000) == ":1: not JSON: nested more than 64 deep"
    with pytest.raises(SpecError, match="No such file"):
        read_located_document(tmp_path / "none.yaml")


def test_a_byte_order_mark_and_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes("\ufeffa: 1\n".encode())
    assert read_located_document(path).value == {"a": 1}
    path.write_bytes(b"# nothing\n")
    assert read_located_document(path).value is None
