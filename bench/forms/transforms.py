"""A script in other forms that mean the same: as projects write what a page shows in five lines.

How it works: each form takes the text of a script and gives the files of its new form, by the syntax tree. What is no
longer the same program in a form is left out: the form gives None, as it does where it has nothing to rewrite.

The trade-off: comments and layout are lost, and what only they hold (a string in two parts) with them; such pairs stand
in `exceptions.py`, each with its reason.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import json
from collections.abc import Callable, Iterable, Iterator

SCRIPT = "train.py"
Files = dict[str, str]
"""Name -> text"""
Form = Callable[[str], Files | None]
LIBRARIES = frozenset(
    (
        "transformers",
        "trl",
        "peft",
        "torch",
        "datasets",
        "accelerate",
        "vllm",
        "openai",
        "sklearn",
    )
)
"""Those whose imports `with_qualified_imports` rewrites"""
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)
NOT_MOVED = (ast.Lambda, ast.Await, ast.NamedExpr)
"""What is not taken out of a call: it may be evaluated at another time then"""


def in_main(text: str) -> Files | None:
    """The statements in `def main()`."""
    imports, definitions, statements = _parts(text)
    if not statements:
        return None
    if _stored(statements) & _loaded(definitions):
        # The functions read what is a local of main() now, so they go with it.
        statements, definitions = [*definitions, *statements], []
    main = _statements("def main():\n    pass\nif __name__ == '__main__':\n    main()")
    assert isinstance(main[0], ast.FunctionDef)
    main[0].body = statements
    return _script([*imports, *definitions, *main])


def with_other_names(text: str) -> Files | None:
    """Each variable under another name."""
    tree = ast.parse(text)
    imported = {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, IMPORTS)
        for alias in node.names
    }
    parameters = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    # A parameter may be given by its name, so it keeps it.
    renamed = _stored([tree]) - imported - parameters - set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in renamed:
            node.id = f"{node.id}_1"
        elif isinstance(node, ast.Global | ast.Nonlocal):
            node.names = [f"{name}_1" if name in renamed else name for name in node.names]
    return _script(tree.body) if renamed else None


def with_qualified_imports(text: str) -> Files | None:
    """`import transformers` and `transformers.Trainer(...)` instead of `from transformers import Trainer`."""
    tree = ast.parse(text)
    qualified: dict[str, ast.expr] = {}
    body: list[ast.stmt] = []
    for statement in tree.body:
        module = statement.module if isinstance(statement, ast.ImportFrom) else None
        if module is None or module.partition(".")[0] not in LIBRARIES:
            body.append(statement)
            continue
        assert isinstance(statement, ast.ImportFrom)
        body.append(ast.Import([ast.alias(module)]))
        for alias in statement.names:
            qualified[alias.asname or alias.name] = _expression(f"{module}.{alias.name}")
    return _script(_Replaced(qualified).in_all(body)) if qualified else None


def with_unpacked_arguments(text: str) -> Files | None:
    """`options = dict(...)` and `f(**options)` instead of `f(...)`."""
    tree = ast.parse(text)
    unpacked = _Unpacked()
    tree = unpacked.visit(tree)
    return _script(tree.body) if unpacked.count else None


def with_dataclass(text: str) -> Files | None:
    """The literals of keyword arguments as defaults of a dataclass: `f(lr=cfg.lr)`."""
    fields, imports, statements = _moved_literals(text, "cfg", (int, float, str, bool))
    if not fields:
        return None
    lines = [f"    {name}: {type(value).__name__} = {value!r}" for name, value in fields.items()]
    head = ["@dataclass", "class Config:", *lines, "cfg = Config()"]
    imports = [*_statements("from dataclasses import dataclass"), *imports]
    return _script([*imports, *_statements("\n".join(head)), *statements])


def with_command_line(text: str) -> Files | None:
    """The literals of keyword arguments as defaults of argparse: `f(lr=args.lr)`."""
    fields, imports, statements = _moved_literals(text, "args", (int, float, str))
    if not fields or {"args", "parser"} & (_stored(statements) | _bare_loads(text)):
        return None
    head = ["parser = argparse.ArgumentParser()"]
    for name, value in fields.items():
        kind = type(value).__name__
        head.append(f"parser.add_argument('--{name}', type={kind}, default={value!r})")
    head.append("args = parser.parse_args()")
    imports = [*_statements("import argparse"), *imports]
    return _script([*imports, *_statements("\n".join(head)), *statements])


def with_helpers(text: str) -> Files | None:
    """`model = make_model(base)` with a function for what was called there; it is given the variables that it reads."""
    tree = ast.parse(text)
    variables: set[str] = set()
    body: list[ast.stmt] = []
    count = 0
    for statement in tree.body:
        target = _assigned_name(statement)
        called = statement.value if isinstance(statement, ast.Assign) else None
        if target is not None and isinstance(called, ast.Call):
            count += 1
            # Sorted, for the order of a set is another in each process.
            read = sorted(_loaded([called]) & variables)
            name = f"make_{target}_{count}"
            given = ", ".join(read)
            made = f"def {name}({given}):\n    pass\n{target} = {name}({given})"
            function, call = _statements(made)
            assert isinstance(function, ast.FunctionDef)
            function.body = [ast.Return(called)]
            body += [function, call]
        else:
            body.append(statement)
        variables |= _stored([statement]) if not isinstance(statement, DEFINITIONS) else set()
    return _script(body) if count else None


def in_class(text: str) -> Files | None:
    """The statements in methods of a class, whose variables are attributes; what functions read stays global."""
    imports, definitions, statements = _parts(text)
    attributes = {name for one in statements if (name := _assigned_name(one)) is not None}
    read = _loaded(definitions)
    bound_in_comprehensions = {
        name
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.comprehension)
        for name in _stored([node.target])
    }
    attributes -= read | bound_in_comprehensions
    staying = [one for one in statements if _stored([one]) & read]
    moved = [one for one in statements if one not in staying]
    if not attributes or _loaded(staying) & _stored(moved):
        return None
    replaced = _Replaced({name: _expression(f"self.{name}") for name in attributes})
    moved = replaced.in_all(moved)
    first = next((i for i, one in enumerate(moved) if not isinstance(one, ast.Assign)), len(moved))
    outline = (
        "class Experiment:\n    def __init__(self):\n        pass\n    def run(self):\n        pass"
    )
    owner, start = _statements(f"{outline}\nExperiment().run()")
    assert isinstance(owner, ast.ClassDef)
    for method, body in zip(owner.body, (moved[:first], moved[first:]), strict=True):
        assert isinstance(method, ast.FunctionDef)
        method.body = body or method.body
    return _script([*imports, *definitions, *staying, owner, start])


def in_two_files(text: str) -> Files | None:
    """The functions and classes in a file of their own."""
    imports, definitions, statements = _parts(text)
    if not definitions or not statements or _stored(statements) & _loaded(definitions):
        return None
    names = [ast.alias(one.name) for one in definitions if isinstance(one, DEFINITIONS)]
    importing = ast.ImportFrom("helpers", names, 0)
    return {
        **_script([*imports, *definitions], "helpers.py"),
        **_script([*imports, importing, *statements]),
    }


def in_notebook(text: str) -> Files:
    """Each statement in a cell of a notebook."""
    body = ast.parse(text).body
    lines = text.splitlines()
    begins = [0, *(_first_line(statement) - 1 for statement in body[1:]), len(lines)]
    cells = [
        {
            "cell_type": "code",
            "id": f"c{number}",
            "metadata": {},
            "execution_count": number + 1,
            "outputs": [],
            "source": "\n".join(lines[begins[number] : begins[number + 1]]).replace(
                "# !pip", "!pip"
            ),
        }
        for number in range(len(body))
    ]
    metadata = {"language_info": {"name": "python"}}
    notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return {"train.ipynb": json.dumps(notebook)}


FORMS: dict[str, Form] = {
    "main": in_main,
    "names": with_other_names,
    "qualified": with_qualified_imports,
    "unpacked": with_unpacked_arguments,
    "dataclass": with_dataclass,
    "command-line": with_command_line,
    "helpers": with_helpers,
    "class": in_class,
    "two-files": in_two_files,
    "notebook": in_notebook,
}
"""Name -> the form"""


def rewrite(text: str, names: Iterable[str]) -> Files | None:
    """A script in several forms, one after the other; None where one of them has nothing to rewrite."""
    files: Files = {SCRIPT: text}
    for name in names:
        # A notebook, or a script in two files, has no further form.
        made = FORMS[name](files[SCRIPT]) if files.keys() == {SCRIPT} else None
        if made is None:
            return None
        files = made
    if SCRIPT in files:
        # The lines of comments at the top hold what pages say of releases and of files beside the script.
        files = {**files, SCRIPT: _comments_at_top(text) + files[SCRIPT]}
    return files


class _Replaced(ast.NodeTransformer):
    """Puts an expression in the place of each name."""

    def __init__(self, by_name: dict[str, ast.expr]) -> None:
        self.by_name = by_name

    def in_all(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [self.visit(statement) for statement in statements]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        put = self.by_name.get(node.id)
        if isinstance(put, ast.Attribute):
            return ast.Attribute(put.value, put.attr, node.ctx)
        return node if put is None else put


class _Unpacked(ast.NodeTransformer):
    """Takes the keyword arguments of a statement's call into a dictionary before it."""

    def __init__(self) -> None:
        self.count = 0

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        return self._unpack(node, node.value)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        return self._unpack(node, node.value)

    def _unpack(self, statement: ast.stmt, call: ast.expr) -> ast.AST | list[ast.stmt]:
        if not isinstance(call, ast.Call) or not call.keywords:
            return statement
        parts = (part for given in call.keywords for part in ast.walk(given.value))
        if any(given.arg is None for given in call.keywords) or any(
            isinstance(part, NOT_MOVED) for part in parts
        ):
            return statement
        self.count += 1
        name = f"options_{self.count}"
        (made,) = _statements(f"{name} = dict()")
        assert isinstance(made, ast.Assign)
        assert isinstance(made.value, ast.Call)
        made.value.keywords = call.keywords
        call.keywords = [ast.keyword(None, _expression(name))]
        return [made, statement]


class _MovedLiterals(ast.NodeTransformer):
    """Takes the literals of keyword arguments into the fields of an object."""

    def __init__(self, owner: str, kinds: tuple[type, ...]) -> None:
        self.owner = owner
        self.kinds = kinds
        self.fields: dict[str, object] = {}

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        self.generic_visit(node)
        value = node.value
        # By the type itself: True is an int too, and an option of the command line has no such form.
        if node.arg and isinstance(value, ast.Constant) and type(value.value) in self.kinds:
            name = node.arg if node.arg not in self.fields else f"{node.arg}_{len(self.fields)}"
            self.fields[name] = value.value
            node.value = _expression(f"{self.owner}.{name}")
        return node


def _moved_literals(
    text: str, owner: str, kinds: tuple[type, ...]
) -> tuple[dict[str, object], list[ast.stmt], list[ast.stmt]]:
    """The fields, the imports, and the other statements, which read the fields now."""
    body = ast.parse(text).body
    moved = _MovedLiterals(owner, kinds)
    imports: list[ast.stmt] = [one for one in body if isinstance(one, IMPORTS)]
    statements = [moved.visit(one) for one in body if not isinstance(one, IMPORTS)]
    return moved.fields, imports, statements


def _parts(text: str) -> tuple[list[ast.stmt], list[ast.stmt], list[ast.stmt]]:
    """The imports, the functions and classes, and the other statements of a script."""
    body = ast.parse(text).body
    imports: list[ast.stmt] = [one for one in body if isinstance(one, IMPORTS)]
    definitions: list[ast.stmt] = [one for one in body if isinstance(one, DEFINITIONS)]
    return imports, definitions, [one for one in body if not isinstance(one, IMPORTS + DEFINITIONS)]


def _names(nodes: Iterable[ast.AST], context: type[ast.expr_context]) -> Iterator[str]:
    for node in nodes:
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, context):
                yield part.id


def _stored(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that are bound."""
    return set(_names(nodes, ast.Store))


def _loaded(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that are read."""
    return set(_names(nodes, ast.Load))


def _bare_loads(text: str) -> set[str]:
    """The names that a script reads before any form is given it."""
    return _loaded([ast.parse(text)])


def _assigned_name(statement: ast.stmt) -> str | None:
    """The one name that a statement assigns to."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target = statement.targets[0]
    return target.id if isinstance(target, ast.Name) else None


def _comments_at_top(text: str) -> str:
    comments = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    return "".join(f"{line}\n" for line in comments)


def _first_line(statement: ast.stmt) -> int:
    """Where a statement begins, its decorators with it."""
    decorators = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(one.lineno for one in decorators)])


def _statements(code: str) -> list[ast.stmt]:
    return ast.parse(code).body


def _expression(code: str) -> ast.expr:
    return ast.parse(code, mode="eval").body


def _script(body: list[ast.stmt], name: str = SCRIPT) -> Files:
    """The text of statements, as a file."""
    return {name: ast.unparse(ast.fix_missing_locations(ast.Module(body, []))) + "\n"}
