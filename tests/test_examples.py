"""The pages under examples/ are true: each is followed in a copy of its folder, block by block.

`console` and `sh` blocks are run, and outputs are compared as those of the documents are
(tests/docs/shown.py). The `diff` block is applied to the files of the copy, so the outputs below it
are those of the fixed example. What a page calls "not run here" is in its text and in no block.
Trade-off: the tiny model makes a training run cheap, and says nothing about the figures of a real
one; the pages say so.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.docs import reading, running, shown
from tests.docs.blocks import Block, blocks_of
from tests.generation.serving import shared

pytest.importorskip("trl")
EXAMPLES = Path(__file__).parents[1] / "examples"
TRAINED = ("pytorch", "transformers", "trl")
"""Stacks that the tests have: their pages start the script itself, twice, at 6 to 9 s of processor time."""
STATIC = ("axolotl", "lightning", "llama-factory", "torchtune", "unsloth")
NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))
MAKE_MODEL = "python ../make_model.py"
LINK = re.compile(r"\]\(([^)#:]+)\)")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make_model.py` writes, made once for all workers."""
    folder = shared(tmp_path_factory) / "examples"
    folder.mkdir(exist_ok=True)
    with FileLock(folder / "made.lock"):
        if not (folder / "model").exists():
            code = (EXAMPLES / "make_model.py").read_text(encoding="utf-8")
            ran = running.python(code, [], folder, "make_model.py")
            assert ran.code == 0, ran.said
    return folder / "model"


@pytest.mark.parametrize(
    "stack", [*STATIC, *(pytest.param(stack, marks=pytest.mark.slow) for stack in TRAINED)]
)
def test_page_of_an_example_is_true(stack: str, tiny_model: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(EXAMPLES / stack, tmp_path / stack))
    page = list(blocks_of(EXAMPLES / stack / "README.md"))
    for block in page:
        if block.language == "diff":
            apply_diff(block.text, folder)
        else:
            assert block.language in ("console", "sh"), block.id
            follow_block(block, folder, tiny_model)
    languages = [block.language for block in page]
    fix = languages.index("diff")
    assert "console" in languages[:fix], "the page shows no output before the fix"
    assert "console" in languages[fix:], "the page shows no output after the fix"


def follow_block(block: Block, folder: Path, tiny_model: Path) -> None:
    """Run the commands of a block in a folder, and compare what they print with what the page shows.

    Args:
        block: Of `console` or `sh`.
        folder: The copy of the example.
        tiny_model: What stands for the command that makes a model.

    Raises:
        AssertionError: Where a command ends with another code than 0 or 1 (findings), or prints something else.
    """
    outputs = [output for _, output in shown.turns(block)]
    for number, line in enumerate(reading.lines(block)):
        if line == MAKE_MODEL:
            shutil.copytree(tiny_model, folder / "model")
            continue
        arguments = reading.arguments(line)
        assert arguments, f"{block.id}: {line} is no command of truetune"
        view = arguments[0] == "view"
        ran = (running.served if view else running.truetune)(arguments, folder)
        assert ran.code in (0, 1), f"{block.id} {line}\n{ran.said}"
        if outputs:
            missing = shown.wrong(outputs[number], ran.said, line, folder)
            assert missing is None, (
                f"{block.id} {line}\n{missing}\n\nis not in:\n{ran.said[-8000:]}"
            )


def apply_diff(text: str, folder: Path) -> None:
    """Edit the file that a diff names: each part below `@@` must match at exactly one place."""
    head, *parts = re.split(r"^@@\n", text, flags=re.M)
    path = folder / head.splitlines()[0].removeprefix("--- ")
    content = path.read_text(encoding="utf-8")
    for part in parts:
        lines = part.splitlines()
        before = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
        after = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
        assert content.count(before) == 1, f"{path.name} has not exactly one\n{before}"
        content = content.replace(before, after)
    path.write_text(content, encoding="utf-8")


def test_diff_that_does_not_match_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\n")
    apply_diff("--- a.py\n+++ a.py\n@@\n one\n-two\n+three\n", tmp_path)
    assert (tmp_path / "a.py").read_text() == "one\nthree\n"
    with pytest.raises(AssertionError, match="exactly one"):
        apply_diff("--- a.py\n+++ a.py\n@@\n-two\n+three\n", tmp_path)


def test_every_example_is_tested_and_in_the_index() -> None:
    stacks = {page.parent.name for page in EXAMPLES.glob("*/README.md")}
    assert stacks == {*STATIC, *TRAINED}
    linked = set(LINK.findall((EXAMPLES / "README.md").read_text(encoding="utf-8")))
    notebooks = {f"notebooks/{path.name}" for path in NOTEBOOKS}
    jobs = {"../docs/howto/jobs.md"}
    assert linked == {f"{stack}/README.md" for stack in stacks} | notebooks | jobs


def test_data_sets_are_those_of_their_script(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    kept = {path.relative_to(EXAMPLES): path.read_bytes() for path in EXAMPLES.rglob("*.jsonl")}
    for path in kept:
        (tmp_path / "examples" / path).unlink()
    subprocess.run([sys.executable, tmp_path / "examples" / "make_data.py"], check=True)
    for path, content in kept.items():
        assert (tmp_path / "examples" / path).read_bytes() == content, path
    assert all(20 <= content.count(b"\n") <= 40 for content in kept.values())


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_read_and_has_its_outputs(path: Path, tmp_path: Path) -> None:
    """Jupyter is not among the tests' packages, so a notebook is linted and parsed here, and was executed by hand."""
    shutil.copy(path, tmp_path)
    ran = running.truetune(["lint", path.name], tmp_path)
    assert path.name in ran.said
    assert "no findings" in ran.said, ran.said
    # A warning of a library brings the path of the machine on which the notebook was executed.
    assert "site-packages" not in path.read_text(encoding="utf-8")
    for cell in code_cells(path):
        ast.parse(re.sub(r"^[%!].*$", "", "".join(cell["source"]), flags=re.M))
        assert cell["execution_count"], cell["source"]
        assert not [out for out in cell["outputs"] if out["output_type"] == "error"]
    assert any(cell["outputs"] for cell in code_cells(path))


def code_cells(path: Path) -> list[dict[str, Any]]:
    """The cells of a notebook that hold code."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]
