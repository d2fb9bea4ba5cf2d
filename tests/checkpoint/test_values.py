"""Values by their bits, against torch; and sampling beyond the budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checkpoint.compare_tensor_samples import compare_tensor_sample, sample_values
from truetune.checkpoint.read_and_check_safetensors_header import (
    StoredTensor,
    read_safetensors_header,
)
from truetune.checkpoint.scan_tensors_for_nan_zeros_and_constants import (
    BLOCK_BYTES,
    choose_blocks,
    scan_tensor_values,
)

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
    found = scan_tensor_values(read_safetensors_header(tmp_path / "a.safetensors").tensors)
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
    assert choose_blocks(10, 0.1) == [(0, 10)]
    picked = choose_blocks(100 * BLOCK_BYTES + 5, 0.05)
    assert len(picked) == 5
    assert picked[0] == (0, BLOCK_BYTES)
    assert picked[-1] == (100 * BLOCK_BYTES, 5)
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(20 * BLOCK_BYTES)
        file.seek(20 * BLOCK_BYTES - 4)
        file.write(b"\xff\xff\xff\xff")
    tensor = StoredTensor("a", "F32", (5 * BLOCK_BYTES,), path, 0, 20 * BLOCK_BYTES)
    values = scan_tensor_values([tensor], budget=2 * BLOCK_BYTES)["a"]
    assert (values.seen, values.nan) == (2 * BLOCK_BYTES // 4, 1)
    assert scan_tensor_values([tensor])["a"].seen == 5 * BLOCK_BYTES


def test_samples_of_long_tensors(tmp_path: Path) -> None:
    import numpy as np

    (tmp_path / "a").write_bytes(np.arange(1 << 20, dtype=np.float32).tobytes())
    tensor = StoredTensor("a", "F32", (1024, 1024), tmp_path / "a", 0, 4 << 20)
    seen = sample_values(tensor)
    assert (seen[0], seen[-1]) == (0, (1 << 20) - 1)
    moved = compare_tensor_sample(tensor, tensor)
    assert (moved.same, moved.change) == (moved.seen, 0)
    assert moved.cosine == pytest.approx(1)
