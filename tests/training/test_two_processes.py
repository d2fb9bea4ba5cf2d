"""Two processes on CPUs (gloo) do what one does: gradients, losses, losses by source, evaluations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.training import ranks

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What `ranks` finds in one process, and in two."""
    folder = tmp_path_factory.mktemp("ranks")
    line = ["torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "tests.training.ranks"]
    with subprocess.Popen(
        [sys.executable, "-m", *line, str(folder / "2.npz")], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    ) as two:  # fmt: skip
        ranks.main(folder / "1.npz")
        said, _ = two.communicate()
    assert two.returncode == 0, said
    found = [dict(np.load(folder / f"{count}.npz")) for count in (1, 2)]
    return found[0], found[1]


@pytest.mark.parametrize("name", ranks.NAMES)
@pytest.mark.parametrize("what", ["gradients", "losses", "by source", "held out"])
def test_two_processes_are_one(
    both: tuple[dict[str, np.ndarray], dict[str, np.ndarray]], name: str, what: str
) -> None:  # fmt: skip
    one, two = (found[f"{name}/{what}"] for found in both)
    assert one.shape == two.shape
    assert np.abs(one).max() > 1e-3
    np.testing.assert_allclose(one, two, rtol=0, atol=2e-6 * np.abs(one).max())


def test_the_ranks_had_unequal_shares_and_an_uneven_end() -> None:
    rows = ranks.rows(ranks.ROWS, False)
    supervised = [sum(label != -100 for label in row["labels"]) for row in rows]
    assert len(set(supervised)) > 1
    assert len(rows) % ranks.BATCH not in (0, ranks.BATCH // 2)


def test_one_process_goes_first_and_may_be_alone(both: tuple[dict[str, np.ndarray], ...]) -> None:
    assert both[1]["alone"].tolist() == [1, 2]
    assert both[1]["outcomes"].tolist() == ["ZeroDivisionError", "Elsewhere"]
    assert both[0]["outcomes"].tolist() == ["ZeroDivisionError"]
