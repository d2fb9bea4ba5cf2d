"""A Traced gives what str gives, and knows where each character came from."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from truetune.render import traced_string
from truetune.render.traced_json import traced_tojson
from truetune.render.traced_string import Trace, Traced

TEXT = st.text(alphabet="ab \n<>/x{}é日😀\\\"'", max_size=12)
SEPARATOR = st.sampled_from(["a", "ab", " ", "\n", "<", "é", "😀"])
PADDING = st.tuples(st.sampled_from(["center", "zfill"]), st.tuples(st.integers(0, 20)))
OPERATIONS: list[Any] = [
    st.tuples(
        st.sampled_from(["strip", "lstrip", "rstrip"]),
        st.sampled_from([(), ("\n",), ("ab",), (None,)]),
    ),
    st.tuples(st.sampled_from(["removeprefix", "removesuffix"]), st.tuples(SEPARATOR)),
    st.tuples(st.just("replace"), st.tuples(SEPARATOR, TEXT)),
    st.tuples(st.sampled_from(["upper", "lower", "title", "capitalize", "swapcase"]), st.just(())),
    PADDING,
    st.tuples(
        st.just("__getitem__"),
        st.tuples(
            st.builds(
                slice,
                st.none() | st.integers(-9, 9),
                st.none() | st.integers(-9, 9),
            )
        ),
    ),
    st.tuples(st.just("__add__"), st.tuples(TEXT)),
    st.tuples(st.just("__mul__"), st.tuples(st.integers(0, 3))),
]
STEPS = st.lists(st.one_of(OPERATIONS), max_size=6)


def check(made: str, wanted: str, field: str) -> None:
    assert traced_string.plain_text(made) == wanted
    if not isinstance(made, Traced):
        return
    at = 0
    for length, path, offset in made.all_segments():
        if path == ("field",) and offset >= 0:
            assert field[offset : offset + length].casefold() == wanted[at : at + length].casefold()
        at += length
    assert at == len(wanted)


@given(TEXT, STEPS)
def test_methods_give_what_str_gives(field: str, steps: list[tuple[str, tuple[Any, ...]]]) -> None:
    made: str = traced_string.make_traced_input_string(field, Trace(), ("field",))
    wanted = field
    for name, args in steps:
        made = getattr(made, name)(*args)
        wanted = getattr(wanted, name)(*args)
    check(made, wanted, field)


PLAIN_TEXT = st.text(alphabet="ab \n<>/x", max_size=12)
EXACT_STEPS = st.lists(
    st.one_of([step for step in OPERATIONS if step is not PADDING]).filter(
        lambda step: step[0] != "replace" or step[1][1].isascii()
    ),
    max_size=6,
)


@given(PLAIN_TEXT, EXACT_STEPS)
def test_only_padding_loses_the_offset_of_a_character(
    field: str, steps: list[tuple[str, tuple[Any, ...]]]
) -> None:
    made: str = traced_string.make_traced_input_string(field, Trace(), ("field",))
    for name, args in steps:
        made = getattr(made, name)(*args)
    if isinstance(made, Traced):
        of_field = [segment for segment in made.all_segments() if segment.path is not None]
        assert all(segment.offset >= 0 for segment in of_field if segment.length)


@given(TEXT, SEPARATOR | st.none(), st.integers(-1, 2))
def test_pieces_of_a_split(field: str, separator: str | None, limit: int) -> None:
    leaf = traced_string.make_traced_input_string(field, Trace(), ("field",))
    for made, wanted in (
        (leaf.split(separator, limit), field.split(separator, limit)),
        (leaf.rsplit(separator, limit), field.rsplit(separator, limit)),
        (leaf.splitlines(), field.splitlines()),
        (list(leaf.partition(separator or "a")), list(field.partition(separator or "a"))),
        (list(leaf.rpartition(separator or "a")), list(field.rpartition(separator or "a"))),
    ):
        assert len(made) == len(wanted)
        for mine, other in zip(made, wanted, strict=True):
            check(mine, other, field)


@given(
    st.recursive(
        TEXT | st.integers() | st.none() | st.booleans(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    ),
    st.booleans(),
)
def test_tojson(value: Any, ensure_ascii: bool) -> None:
    import json

    trace = Trace()

    def wrap(item: Any) -> Any:
        if isinstance(item, str):
            return traced_string.make_traced_input_string(item, trace, ("field",))
        if isinstance(item, dict):
            return {key: wrap(entry) for key, entry in item.items()}
        return [wrap(entry) for entry in item] if isinstance(item, list) else item

    text = traced_tojson(wrap(value), ensure_ascii=ensure_ascii)
    assert traced_string.plain_text(text) == json.dumps(value, ensure_ascii=ensure_ascii)


def test_questions_are_noted_with_their_answers() -> None:
    trace = Trace()
    leaf = traced_string.make_traced_input_string("a</think>b", trace, ("field",))
    assert "</think>" in leaf
    assert leaf.startswith("a")
    assert leaf != "x"
    assert {question for _, question, _ in trace.answers} == {
        "__contains__",
        "startswith",
        "__eq__",
    }
    assert not trace.opaque
    hash(leaf)
    assert trace.opaque
