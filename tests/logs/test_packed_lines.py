"""Steps of logs whose lines hold several rows, and out of memory by pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.count_optimizer_steps import steps_of_ended_log
from truetune.checks.diagnose_log import diagnose
from truetune.logs.read_run_log import read_run

TOKENIZED = (
    "Tokenizing Prompts (num_proc=16): 100%|####| 260/260 [00:01<00:00, 184.22 examples/s]\n"
)
SUMMARY = (
    "{{'train_runtime': 118.4406, 'train_samples_per_second': {rate}, 'train_steps_per_second': 0.025,"
    " 'train_loss': 2.63, 'epoch': 3.0}}\n"
)
RECORDS = "".join(
    f"{{'loss': {2.69 - n / 20}, 'grad_norm': 1.1, 'learning_rate': 0.0002, 'epoch': {n}.0}}\n"
    for n in (1, 2, 3)
)
TRACE = """Traceback (most recent call last):
  File "/home/fe/vl/train.py", line 96, in <module>
    trainer.train()
  File "/venv/lib/python3.11/site-packages/transformers/trainer.py", line 4009, in training_step
    loss = self.compute_loss(model, inputs)
  File "/venv/lib/python3.11/site-packages/transformers/loss/loss_utils.py", line 54, in ForCausalLMLoss
    logits = logits.float()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.86 GiB. GPU 0 has a total capacity of 23.53 GiB of \
which 6.02 GiB is free. Including non-PyTorch memory, this process has 17.50 GiB memory in use. Of the \
allocated memory 16.71 GiB is allocated by PyTorch, and 402.10 MiB is reserved by PyTorch but unallocated.
"""
SHAPES = "{'input_ids': (1, 15686), 'pixel_values': (62208, 1176), 'labels': (1, 15686)}\n"


@pytest.mark.parametrize(
    ("tokenized", "rate", "packed"),
    [(TOKENIZED, 0.203, 260), (TOKENIZED, 6.585, None), ("", 0.203, None)],
)
def test_lines_of_packed_rows(
    tmp_path: Path, tokenized: str, rate: float, packed: int | None
) -> None:
    path = tmp_path / "nohup.out"
    path.write_text(tokenized + RECORDS + SUMMARY.format(rate=rate), encoding="utf-8")
    made = steps_of_ended_log(read_run(path))
    assert made is not None
    assert made.packed_rows == packed
    assert made.is_packed == (packed is not None)
    assert ("rows are packed" in made.why) == (packed is not None)


def advice(folder: Path, text: str) -> str:
    """The help of the exception that ends an output."""
    path = folder / "nohup.out"
    path.write_text(text, encoding="utf-8")
    (found,) = (one for one in diagnose(path).findings if one.code == "LOG030")
    return found.remedy


def test_pictures_that_fill_the_memory(tmp_path: Path) -> None:
    assert "max_pixels" in advice(tmp_path, SHAPES + TRACE)
    assert "max_pixels" not in advice(tmp_path, TRACE)
    small = SHAPES.replace("62208", "2000")
    assert "max_pixels" not in advice(tmp_path, small + TRACE)
