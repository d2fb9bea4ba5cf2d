"""Changes leave everything else as it is."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.source.modules import module
from truetune.source import make_source_edits
from truetune.source.parsed_source_file import parse_module


def keyword(text: str, name: str = "k", value: str = "1") -> str:
    made = parse_module(text, "x.py")
    call = next(c for c in made.all_calls if made.text_of(c.node.func) == "f")
    return make_source_edits.apply_changes(
        text, make_source_edits.set_keyword(made, call, name, value)
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()", "f(k=1)"),
        ("f(a)", "f(a, k=1)"),
        ("f(a,)", "f(a, k=1)"),
        ("f((a))", "f((a), k=1)"),
        ("f(a, b=(1,))", "f(a, b=(1,), k=1)"),
        ("f(k=2)  # c", "f(k=1)  # c"),
        ("f(a, **d)", "f(a, **d, k=1)"),
        ("f(*a)", "f(*a, k=1)"),
        ("f(x for x in y)", "f(x for x in y)"),
        ("f(a,  # one\n  b)", "f(a,  # one\n  b, k=1)"),
        ("f(\n    a,\n    b,\n)", "f(\n    a,\n    b,\n    k=1,\n)"),
        ("f(\n    a,\n    b\n)", "f(\n    a,\n    b,\n    k=1\n)"),
        (
            "f(\n    a,\n    b,  # last, of all\n)",
            "f(\n    a,\n    b,  # last, of all\n    k=1,\n)",
        ),
        ("f(\n    a,\n    b  # last\n)", "f(\n    a,\n    b,  # last\n    k=1\n)"),
        ("f(\r\n    a,\r\n    b=2,\r\n)", "f(\r\n    a,\r\n    b=2,\r\n    k=1,\r\n)"),
        ("f(\n\ta,\n)", "f(\n\ta,\n\tk=1,\n)"),
        ("f(\n    **d,\n)", "f(\n    **d,\n    k=1,\n)"),
        ("ü = f(ä)", "ü = f(ä, k=1)"),
        ("f('''a\n)''', g(x))", "f('''a\n)''', g(x), k=1)"),
        ("d = {'k': 2}\nf(**d)", "d = {'k': 2}\nf(**d)"),
    ],
)
def test_keyword(before: str, after: str) -> None:
    assert keyword(before) == after
    compile(after, "x", "exec")


def test_parameter() -> None:
    for before, after in (
        ("def f(self, a, b=1):\n    pass\n", "def f(self, a, b=1, k=None):\n    pass\n"),
        (
            "def f(\n    self,\n    a: int = (1),  # c\n):\n    pass\n",
            "def f(\n    self,\n    a: int = (1),  # c\n    k=None,\n):\n    pass\n",
        ),
        ("def f(self, **kw):\n    pass\n", "def f(self, **kw):\n    pass\n"),
    ):
        made = parse_module(before, "x.py")
        function = next(made.nodes(ast.FunctionDef))
        assert (
            make_source_edits.apply_changes(
                before, make_source_edits.append_parameter_with_default(made, function, "k=None")
            )
            == after
        )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a = 1\nx = 2  # why\nb = 3\n", "a = 1\nb = 3\n"),
        ("if a:\n    x = 2\nb = 3\n", "if a:\n    pass\nb = 3\n"),
        ("a = 1; x = 2\n", "a = 1; pass\n"),
        ("if a: x = 2\n", "if a: pass\n"),
        ("a = 1\r\nx = (\r\n  2)\r\nb = 3", "a = 1\r\nb = 3"),
        ("a = 1\nx = 2", "a = 1\n"),
    ],
)
def test_delete(before: str, after: str) -> None:
    made = parse_module(before, "x.py")
    statement = next(s for s in made.nodes(ast.Assign) if made.text_of(s.targets[0]) == "x")
    assert (
        make_source_edits.apply_changes(before, make_source_edits.delete_statement(made, statement))
        == after
    )
    compile(after, "x", "exec")


def test_lines_beside_a_statement() -> None:
    text = "if a:\r\n    x = 1  # c\r\n    y = 2\r\n"
    made = parse_module(text, "x.py")
    first = next(made.nodes(ast.Assign))
    assert (
        make_source_edits.apply_changes(
            text, make_source_edits.insert_statements_after(made, first, "z = 3")
        )
        == "if a:\r\n    x = 1  # c\r\n    z = 3\r\n    y = 2\r\n"
    )
    assert (
        make_source_edits.apply_changes(
            text, make_source_edits.insert_statements_before(made, first, "z = 3")
        )
        == "if a:\r\n    z = 3\r\n    x = 1  # c\r\n    y = 2\r\n"
    )
    assert (
        make_source_edits.insert_statements_after(
            parse_module("x = 1; y = 2\n", "x.py"),
            parse_module("x = 1; y = 2\n", "x.py").tree.body[0],
            "z",
        )
        == ()
    )


def test_overlapping_changes_are_refused() -> None:
    with pytest.raises(ValueError, match="overlap"):
        make_source_edits.apply_changes(
            "abcdef", (make_source_edits.Change(0, 3, "x"), make_source_edits.Change(2, 4, "y"))
        )


SPACES = st.sampled_from(["", " ", "\n    ", "\r\n\t", ' # note, (with) "signs"\n  '])
ARGUMENT = st.sampled_from(
    ["a", "(b)", "g(1, 2,)", "x[1:2]", "'s, )'", "lambda: 0", "c=(1, 2)", 'd=f"{a}"', "*e", "**h"]
)


@given(st.lists(st.tuples(SPACES, ARGUMENT, SPACES), max_size=4), st.booleans(), SPACES)
def test_any_call_takes_one_more(parts: list[tuple[str, str, str]], comma: bool, end: str) -> None:
    rank = {"*": 0, "c": 1, "d": 1}
    seen = {a for _, a, _ in parts}
    ordered = sorted(
        (p for p in parts if p[1] in seen),
        key=lambda p: 2 if p[1] == "**h" else rank.get(p[1][:1], 0),
    )
    unique = list({p[1]: p for p in ordered}.values())
    text = (
        "f("
        + ",".join(b + a + e for b, a, e in unique)
        + ("," if comma and unique else "")
        + end
        + ")\n"
    )
    before = ast.parse(text).body[0]
    after = ast.parse(keyword(text)).body[0]
    assert isinstance(before, ast.Expr)
    assert isinstance(after, ast.Expr)
    one, two = before.value, after.value
    assert isinstance(one, ast.Call)
    assert isinstance(two, ast.Call)
    assert [*map(ast.dump, one.keywords), ast.dump(ast.keyword("k", ast.Constant(1)))] == [
        *map(ast.dump, two.keywords)
    ]
    assert [*map(ast.dump, one.args)] == [*map(ast.dump, two.args)]


def test_text_of_a_node_counts_characters_not_bytes() -> None:
    made = module(
        dedent("""
        s = "日本語🙂"; t = f("é", x)
    """)
    )
    assert made.text_of(next(made.all_calls.__iter__()).node) == 'f("é", x)'
