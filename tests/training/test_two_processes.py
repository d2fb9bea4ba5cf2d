"""Two processes on CPUs (gloo) do what one does: gradients, losses, losses by source, evaluations."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from torch.utils.data import RandomSampler

from tests.preloaded import libraries_python
from tests.training import ranks
from truetune.training.coordinate_processes_of_run import make_even_sampler

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def both(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What `ranks` finds in one process, and in two."""
    folder = tmp_path_factory.mktemp("ranks")
    line = [
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
        "-m",
        "tests.training.ranks",
    ]
    python = libraries_python()
    line = [python, "-m", *line, str(folder / "2.npz")]
    with subprocess.Popen(
        line,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHON_EXEC": python},
    ) as two:
        ranks.main(folder / "1.npz")
        said, _ = two.communicate()
    assert two.returncode == 0, said
    found = [dict(np.load(folder / f"{count}.npz")) for count in (1, 2)]
    return found[0], found[1]


@pytest.mark.parametrize("name", ranks.NAMES)
@pytest.mark.parametrize("what", ["gradients", "losses", "by source", "held out"])
def test_two_processes_are_one(
    both: tuple[dict[str, np.ndarray], dict[str, np.ndarray]], name: str, what: str
) -> None:
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
    assert both[1]["outcomes"].tolist() == ["ZeroDivisionError", "FirstProcessFailed"]
    assert both[0]["outcomes"].tolist() == ["ZeroDivisionError"]


def test_shares_are_even_and_nothing_is_counted_twice() -> None:
    epoch = [0]
    args = SimpleNamespace(world_size=2, dataloader_drop_last=False, seed=3, data_seed=None)
    rows = ranks.rows(ranks.ROWS, False)
    sampler = make_even_sampler(RandomSampler(rows), args, 2, lambda: epoch[0])
    first = list(sampler)
    assert len(first) == len(sampler) == 12
    assert sorted(first) == list(range(12))
    assert first[ranks.ROWS :] == [9, 10, 11]
    assert list(sampler) == first
    epoch[0] = 1
    assert list(sampler) != first
    assert all((rows[number]["labels"] == -100).all() for number in first[ranks.ROWS :])
    assert len(list(rows)) == ranks.ROWS
    alone = RandomSampler(rows)
    assert (
        make_even_sampler(
            alone, SimpleNamespace(world_size=1, dataloader_drop_last=False), 2, lambda: 0
        )
        is alone
    )
