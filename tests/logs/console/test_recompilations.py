"""Logs of code that is compiled again and again: function, sizes, limit and time."""

# ruff: noqa: E501 - lines of logs stand as they are printed
from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.findings import Finding
from truetune.checks.log.compiled_again_for_each_shape import CompiledAgainForEachShape
from truetune.logs.read_run_log import read_run

RECORD = "{'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}\n"
SIZES = (512, 640, 213, 377, 801)


def recompiled(number: int, *, is_old: bool = False) -> str:
    """One compilation as TORCH_LOGS=recompiles prints it, in this release or before."""
    prefix = f"V0612 10:1{number}:12.345000 99 site-packages/torch/_dynamo/guards.py:2830] [0/{number}] [__recompiles]"
    guard = (
        f"L['ids'].size()[1] == {SIZES[number - 1]}"
        if is_old
        else f"tensor 'L['ids']' size mismatch at index 1. expected {SIZES[number - 1]}, actual {SIZES[number]}"
    )
    return (
        f"{prefix} Recompiling function forward in /app/model.py:12\n"
        f"{prefix}     triggered by the following guard failure(s):\n{prefix}     - 0/{number - 1}: {guard}\n"
    )


def findings(tmp_path: Path, text: str) -> tuple[Finding, ...]:
    """What the rule says of a log."""
    path = tmp_path / "run.log"
    path.write_text(text, encoding="utf-8")
    return tuple(CompiledAgainForEachShape(read_run(path)).findings())


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param(RECORD + "".join(map(recompiled, range(1, 5))), "from 213 to 801", id="sizes"),
        pytest.param(RECORD + "".join(recompiled(n, is_old=True) for n in range(1, 5)), "dimension 1 of a tensor changes", id="an earlier release"),
        pytest.param(RECORD + "W0612 10:00:00.1 99 torch/_dynamo/convert_frame.py:906] [0/8] torch._dynamo hit config.cache_size_limit (8)\n"
                     "W0612 10:00:00.1 99 torch/_dynamo/convert_frame.py:906] [0/8]    function: 'forward' (/app/model.py:12)\n", "forward (/app/model.py:12)", id="the limit alone"),
        pytest.param(RECORD + "W0612 10:00:00.1 99 torch/_dynamo/convert_frame.py:1358] [2/8] torch._dynamo hit config.recompile_limit (8)\n", "gave up", id="the limit, today"),
        pytest.param(RECORD + "/x/cudagraph_trees.py:2345: UserWarning: CUDAGraph supports dynamic shapes by recording a new graph for each distinct input size. Recording too many CUDAGraphs may lead to extra overhead. We have observed 51 distinct sizes. \n", "51 different sizes", id="CUDA graphs"),
    ],
)  # fmt: skip
def test_compilations_are_named(tmp_path: Path, text: str, named: str) -> None:
    (finding,) = findings(tmp_path, text)
    assert named in finding.message


def test_what_waits_for_a_compilation_is_timed(tmp_path: Path) -> None:
    lines = (
        f"{recompiled(n)}request {n} took 21.{n} s\n" + 3 * "request took 0.4 s\n"
        for n in range(1, 5)
    )
    (finding,) = findings(tmp_path, RECORD + "".join(lines))
    assert "after a compilation take 21" in finding.evidence[0]
    assert "others 0.4 s" in finding.evidence[0]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(RECORD + recompiled(1), id="one compilation"),
        pytest.param(RECORD + "question: why does torch.compile recompile, and what is a size mismatch?\n", id="words in a row"),
        pytest.param(RECORD + "RuntimeError: size mismatch at index 1. expected 5, actual 6\n", id="another mismatch"),
    ],
)  # fmt: skip
def test_few_compilations_are_none(tmp_path: Path, text: str) -> None:
    assert findings(tmp_path, text) == ()
