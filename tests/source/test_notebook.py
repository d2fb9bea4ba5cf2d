"""Code cells of notebooks, and changes in them."""

from __future__ import annotations

import ast
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.source.modules import notebook
from truetune.errors import DataError
from truetune.source import make_source_edits
from truetune.source.parsed_source_file import parse_module


def test_cells_are_one_text_and_magics_are_blank() -> None:
    text = notebook(
        "%pip install trl\n!ls \\\n  -l\nimport os\n",
        "%%bash\necho hi",
        "x = !ls\ny = %timeit 1\nif x:\n    !pwd\nos.path?\nz = 3 \\\n % 2",
        "%%time\nprint(os)",
        'a = "%s"\nb = ("x"\n%c\n)' if False else "print('%s'\n      % 3)",
    )
    made = parse_module(text, "n.ipynb")
    assert not made.broken
    names = [n.id for n in made.nodes(ast.Name) if isinstance(n.ctx, ast.Store)]
    assert names == ["x", "y", "z"]
    for cell in made.cells:
        assert made.text[cell.start : cell.start + len(cell.text)].count("\n") == cell.text.count(
            "\n"
        )


@pytest.mark.parametrize(
    "line",
    [
        "pip install trl",
        "pip install -q 'trl==1.0' peft\n",
        "\nconda install x -y",
        "cd ../data",
        "ls",
        "pwd",
    ],
)
def test_a_cell_of_one_magic_needs_no_percent_sign(line: str) -> None:
    made = parse_module(notebook(line, "a = 1"), "n.ipynb")
    assert not made.broken
    assert "a" in [n.id for n in made.nodes(ast.Name)]


@pytest.mark.parametrize(
    "cell",
    [
        "pip install trl\nimport trl",
        "# first\npip install trl",
        "curl localhost \\\n -d x",
        "pip",
        "installs x",
    ],
)
def test_magics_without_a_percent_sign_run_alone_or_not_at_all(cell: str) -> None:
    assert bool(parse_module(notebook(cell), "n.ipynb").broken) is (cell != "pip")


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        (" a = 1", ["a"]),
        ("    a = 1\n    if a:\n        b = 2\n    c = 3", ["a", "b", "c"]),
        ("\n\n\ta = 1\n\tb = 2\nc = 3\n", ["a", "b", "c"]),
        ("  !ls\n  a = !pwd\n  b = 1", ["a", "b"]),
    ],
)
def test_the_indent_of_the_first_line_goes(cell: str, names: list[str]) -> None:
    made = parse_module(notebook(cell), "n.ipynb")
    assert not made.broken
    stored = [n for n in made.nodes(ast.Name) if isinstance(n.ctx, ast.Store)]
    assert [n.id for n in stored] == names
    for node in stored:
        line, column = made.place(node)
        assert made.file_text.splitlines()[line - 1][column - 1 :].startswith(node.id)


def test_an_indent_that_does_not_go_is_broken() -> None:
    assert parse_module(notebook("a = 1\n  b = 2"), "n.ipynb").broken
    assert parse_module(notebook("  a = 1\n    b = 2"), "n.ipynb").broken


def test_a_statement_in_an_indented_cell_gets_neighbours_of_its_indent() -> None:
    made = parse_module(notebook("    a = 1\n    b = f(a)"), "n.ipynb")
    statement = next(n for n in made.nodes(ast.Assign) if isinstance(n.value, ast.Call))
    after = make_source_edits.apply_changes(
        made.file_text,
        make_source_edits.convert_changes_to_file_positions(
            made, make_source_edits.insert_statements_before(made, statement, "c = 2")
        ),
    )
    assert after == notebook("    a = 1\n    c = 2\n    b = f(a)")


def test_a_place_is_one_of_the_file() -> None:
    text = notebook("a = 1\n", "b = 2\nc = f(b)")
    made = parse_module(text, "n.ipynb")
    call = next(made.nodes(ast.Call))
    line, column = made.place(call)
    assert text.splitlines()[line - 1][column - 1 :].startswith("f(b)")
    assert made.describe_cell_and_line_of_node(call) == "cell 2, line 2"


@pytest.mark.parametrize("indent", [1, 2, 4])
@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("listed", [True, False])
def test_a_change_touches_its_cell_alone(indent: int, ascii_only: bool, listed: bool) -> None:
    code = 'ü = "\\n"\nt = f(\n    "é🙂",\n    b,\n)\nlast = 1'
    text = notebook("first = 1", code, indent=indent, ascii_only=ascii_only, listed=listed)
    made = parse_module(text, "n.ipynb")
    call = next(made.nodes(ast.Call))
    changes = make_source_edits.append_argument(made, call, 'k="ö\\n"')
    after = make_source_edits.apply_changes(
        text, make_source_edits.convert_changes_to_file_positions(made, changes)
    )
    wanted = code.replace("    b,\n", '    b,\n    k="ö\\n",\n')
    expected = notebook("first = 1", wanted, indent=indent, ascii_only=ascii_only, listed=listed)
    assert after == expected


def test_a_line_that_goes_leaves_no_empty_string() -> None:
    text = notebook("a = 1\nx = 2\nb = 3")
    made = parse_module(text, "n.ipynb")
    statement = list(made.nodes(ast.Assign))[1]
    assert make_source_edits.apply_changes(
        text,
        make_source_edits.convert_changes_to_file_positions(
            made, make_source_edits.delete_statement(made, statement)
        ),
    ) == notebook("a = 1\nb = 3")


def test_one_broken_cell_does_not_hide_the_others() -> None:
    made = parse_module(notebook("a = 1", "print 'x'", "c = 3"), "n.ipynb")
    assert [b.line for b in made.broken] == [2]
    assert len(list(made.nodes(ast.Assign))) == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", "{", '{"a": ' * 100_000])
def test_what_is_no_notebook_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="not a notebook"):
        parse_module(text, "n.ipynb")


def test_other_languages_are_left_alone() -> None:
    whole = json.loads(notebook("x <- 1"))
    whole["metadata"] = {"kernelspec": {"language": "R", "name": "ir"}}
    assert parse_module(json.dumps(whole), "n.ipynb").cells == ()


@given(
    st.lists(
        st.text(
            alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=30
        ),
        max_size=4,
    )
)
def test_every_character_is_found_in_the_file(cells: list[str]) -> None:
    cells = [f"# {' '.join(cell.split())} é" for cell in cells]
    for ascii_only in (True, False):
        text = notebook(*cells, ascii_only=ascii_only)
        made = parse_module(text, "n.ipynb")
        assert [cell.text for cell in made.cells] == cells
        for cell in made.cells:
            for i, sign in enumerate(cell.text):
                raw = text[cell.spots[i] : cell.spots[i + 1]]
                assert json.loads(f'"{raw}"') == sign
