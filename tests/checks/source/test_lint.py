"""Files, folders, comments that keep quiet, and input that is broken or hostile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.source.modules import notebook
from truetune.checks.lint import lint
from truetune.checks.rule_catalogue import all_rules
from truetune.errors import UsageError

RULE = "apply-chat-template-returns-dict"
HEAD = "from transformers import AutoTokenizer\n\ntok = AutoTokenizer.from_pretrained('x')\n"


def count(path: Path, text: str) -> tuple[int, int]:
    """Findings and suppressed findings."""
    path.write_text(text, encoding="utf-8")
    report = lint([path], select=[RULE])
    return len(report.findings), report.suppressed


@pytest.mark.parametrize("suffix", [".py", ".ipynb"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n = len(tok.apply_chat_template(m))\n", (1, 0)),
        ("n = len(tok.apply_chat_template(m))  # truetune: ignore\n", (0, 1)),
        ("n = len(tok.apply_chat_template(m))  # truetune:ignore[SRC010]\n", (0, 1)),
        (f"n = len(tok.apply_chat_template(m))  # truetune: ignore[ENV010, {RULE}]\n", (0, 1)),
        ("n = len(tok.apply_chat_template(m))  # truetune: ignore[ENV010]\n", (1, 0)),
        (
            "n = len(\n    tok.apply_chat_template(\n        m\n    )\n)  # truetune: ignore\n",
            (0, 1),
        ),
        ("n = len(  # truetune: ignore\n    tok.apply_chat_template(m)\n)\n", (0, 1)),
        ("# truetune: ignore\nn = len(tok.apply_chat_template(m))\n", (1, 0)),
        ("n = len(tok.apply_chat_template(m)), '# truetune: ignore'\n", (1, 0)),
        ("if True:  # truetune: ignore\n    n = len(tok.apply_chat_template(m))\n", (1, 0)),
        ("if len(tok.apply_chat_template(m)):  # truetune: ignore\n    pass\n", (0, 1)),
    ],
)
def test_comments_keep_quiet(
    text: str, expected: tuple[int, int], suffix: str, tmp_path: Path
) -> None:
    whole = HEAD + text
    assert (
        count(tmp_path / f"a{suffix}", whole if suffix == ".py" else notebook("1", whole))
        == expected
    )


def test_folders(tmp_path: Path) -> None:
    bad = HEAD + "n = len(tok.apply_chat_template(m))\n"
    for name in (
        "a.py",
        "b/c.py",
        ".git/d.py",
        "venv/e.py",
        "node_modules/f.py",
        "mine/pyvenv.cfg",
        "mine/g.py",
        "b/__pycache__/h.py",
        "unsloth_compiled_cache/u.py",
        "notes.txt",
        "k.pyi",
        "b/.hidden.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(bad)
    (tmp_path / "n.ipynb").write_text(notebook(bad))
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "again.py").symlink_to(tmp_path / "a.py")
    report = lint([tmp_path, tmp_path / "a.py", tmp_path / "venv" / "e.py"], select=[RULE])
    found = sorted(str(Path(f.cases[0].file or "").relative_to(tmp_path)) for f in report.findings)
    assert found == ["a.py", "b/c.py", "n.ipynb", "venv/e.py"]
    assert report.files == 4
    with pytest.raises(UsageError, match="no such file"):
        lint([tmp_path / "missing.py"])
    with pytest.raises(UsageError, match="no rule is called"):
        lint([tmp_path], select=["no-such-rule"])


@pytest.mark.parametrize(
    ("body", "line", "reason"),
    [
        (b"x = 1\nprint 'python 2'\n", 2, "Missing parentheses"),
        (b"x = (\n", 1, "never closed"),
        (b"x = 1\n\xff\xfe\n", 1, "not text"),
        (b"# coding: no-such-codec\n", 1, "not text"),
        (b"x = '\x00'\n", 1, "null byte"),
        (b"x = " + b"(" * 5000 + b")" * 5000, 1, ""),
        (b"x = " + b"-" * 200_000 + b"1", 1, ""),
        (b"x" * ((4 << 20) + 1), 1, "not looked at"),
    ],
)
def test_what_is_not_python_is_one_finding(
    body: bytes, line: int, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(body)
    report = lint([path], fix=True)
    assert [(f.rule, f.cases[0].line) for f in report.findings] == [("source-not-parsed", line)]
    assert reason in report.findings[0].message
    assert path.read_bytes() == body


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "x = " + "f(" * 60 + ")" * 60,
        "x = " + "+".join(["a"] * 2000),
        "x = y = z\ny = x\nz = y\n" * 200,
        "def f(a):\n    return f(f(a))\n" + "f(f)\n" * 100,
        "d = {**d}\nf(**d)\n",
        "def f(d):\n    f({**d, 'a': 1})\n    g(**d)\n",
        "class A(A):\n    x = x\nA.x\nclass B(C): pass\nclass C(B): pass\nB()\n",
        "from x import *\nfrom y import *\nfoo_bar(Baz)\n",
        "async def f():\n    async with a as b:\n        async for c in b:\n            await c\n",
        "match x:\n    case {'a': b, **c}:\n        b(c)\n",
        "a: int\nb: int = (c := 3)\ndel a\nglobal z\nz = 1\n",
        "lambda x=1, *a, k=2, **b: (x, a, k, b)\n",
        "if a:\n" + "".join("  " * i + " if a:\n" for i in range(1, 60)) + "  " * 60 + " pass\n",
        "f = f.f.f.f(f)[f](*f, **f)\n" * 50,
        "x = [[[y for y in x] for x in z] for z in x]\n",
        "t = AutoTokenizer\nt.pad_token = t.eos_token = t.pad_token\n",
    ],
)
def test_any_code_comes_to_an_end(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(text)
    report = lint([path], fix=True, unsafe=True)
    assert not [f for f in report.findings if f.rule == "source-not-parsed"]
    assert path.read_text() == text


def test_settings_in_scripts_are_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "from trl import SFTConfig\n\nSTEPS = 500\nargs = SFTConfig('out', max_steps=5,"
        " warmup_steps=STEPS)\n"
    )
    found = {f.rule: f for f in lint([path]).findings}
    assert found["warmup-longer-than-run"].cases[0].line == 4


def test_rules_do_not_depend_on_each_other(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(HEAD + "n = len(tok.apply_chat_template(m))\n")
    alone = [f for rule in all_rules("source") for f in lint([path], select=[rule.name()]).findings]
    assert sorted(f.code for f in alone) == sorted(
        f.code for f in lint([path], select=["SRC"]).findings
    )


def test_a_use_in_a_comprehension_is_shown_where_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(
        HEAD
        + "ids = tok.apply_chat_template(m)\ntexts = [\n    tok.decode([token])\n    for token in"
        " ids\n]\n"
    )
    (finding,) = lint([path], select=[RULE]).findings
    line = finding.cases[0].line
    assert line is not None
    assert path.read_text().splitlines()[line - 1].strip() == "for token in ids"


PAIR = (
    "def encode(row):\n    prompt = tok.apply_chat_template(row['prompt'],"
    " add_generation_prompt=True)\n    whole = tok.apply_chat_template(row['prompt'] +"
    " row['answer'])\n"
)


@pytest.mark.parametrize(
    ("uses", "count", "edits"),
    [
        ("    if whole[: len(prompt)] != prompt:\n        raise ValueError\n", 1, 2),
        ("    return [0] * len(prompt) + [1] * (len(whole) - len(prompt))\n", 1, 2),
        ("    n = len(prompt)\n    return whole[n:]\n", 2, 1),
        ("    return len(prompt)\n", 1, 1),
    ],
)
def test_two_renderings_that_one_statement_compares_are_one_finding(
    uses: str, count: int, edits: int, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "from transformers import AutoTokenizer\ntok = AutoTokenizer.from_pretrained('x')\n"
        + PAIR
        + uses
    )
    findings = lint([path], select=["SRC010"]).findings
    assert [len(finding.fix.edits) for finding in findings if finding.fix] == [edits] * count
