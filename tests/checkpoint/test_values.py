"""Values by their bits, against torch; and sampling beyond the budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checkpoint.compare import compare, sample
from truetune.checkpoint.safetensors import Tensor, read_header
from truetune.checkpoint.values import BLOCK, blocks, scan

DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize("dtype", DTYPES)
def test_counts_are_those_of_torch(dtype: str, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    kind = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(40, 50, generator=generator)
    odd = values.clone()
    odd[0, :7], odd[1, :5], odd[2, :3] = torch.nan, torch.inf, -torch.inf
    tensors = {
        "odd": odd,
        "plain": values,
        "negative": -values.abs(),
        "zero": torch.zeros(9),
        "one": torch.ones(4, 4),
    }
    tensors["signed"] = torch.tensor([0.0, -0.0, 0.0])
    tensors = {name: tensor.to(kind) for name, tensor in tensors.items()}
    save_file(tensors, tmp_path / "a.safetensors")
    found = scan(read_header(tmp_path / "a.safetensors").tensors)
    for name, tensor in tensors.items():
        wide = tensor.to(torch.float64)
        assert (found[name].nan, found[name].inf) == (
            int(wide.isnan().sum()),
            int(wide.isinf().sum()),
        ), name
        assert found[name].zero == bool((wide == 0).all()), name
        assert found[name].seen == tensor.numel()
    assert found["one"].constant
    assert not found["plain"].constant


def test_beyond_the_budget_blocks_are_spread(tmp_path: Path) -> None:
    assert blocks(10, 0.1) == [(0, 10)]
    picked = blocks(100 * BLOCK + 5, 0.05)
    assert len(picked) == 5
    assert picked[0] == (0, BLOCK)
    assert picked[-1] == (100 * BLOCK, 5)
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(20 * BLOCK)
        file.seek(20 * BLOCK - 4)
        file.write(b"\xff\xff\xff\xff")
    tensor = Tensor("a", "F32", (5 * BLOCK,), path, 0, 20 * BLOCK)
    values = scan([tensor], budget=2 * BLOCK)["a"]
    assert (values.seen, values.nan) == (2 * BLOCK // 4, 1)
    assert scan([tensor])["a"].seen == 5 * BLOCK


def test_samples_of_long_tensors(tmp_path: Path) -> None:
    import numpy as np

    (tmp_path / "a").write_bytes(np.arange(1 << 20, dtype=np.float32).tobytes())
    tensor = Tensor("a", "F32", (1024, 1024), tmp_path / "a", 0, 4 << 20)
    seen = sample(tensor)
    assert (seen[0], seen[-1]) == (0, (1 << 20) - 1)
    moved = compare(tensor, tensor)
    assert (moved.same, moved.change) == (moved.seen, 0)
    assert moved.cosine == pytest.approx(1)
