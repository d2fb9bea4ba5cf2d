"""How many processes the commands of a project start a training as."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.logs.parse_printed_records import parse_printed_record
from truetune.settings.stacks.find_who_reads_config_or_starts_script import (
    launched_process_count_and_command,
)

TRAIN = "llamafactory-cli train sft.yaml\n"


def processes(folder: Path, script: str) -> int | None:
    """The processes of settings that a script trains with."""
    (folder / "sft.yaml").write_text("stage: sft\n")
    (folder / "run.sh").write_text(script)
    found = launched_process_count_and_command(folder / "sft.yaml")
    return found[0] if found else None


@pytest.mark.parametrize(
    ("script", "number"),
    [
        (f"export NPROC_PER_NODE=8\n{TRAIN}", 8),
        (f"# once: {TRAIN}export FORCE_TORCHRUN=1\nexport NPROC_PER_NODE=4\n{TRAIN}", 4),
        (f"FORCE_TORCHRUN=1 NNODES=2 NPROC_PER_NODE=8 {TRAIN}", 16),
        (f"NPROC_PER_NODE=2\nexport NNODES=2\n{TRAIN}", 4),
        (
            "# torchrun --nproc_per_node 8 train.py sft.yaml\naccelerate launch --num_processes 2 a.py sft.yaml\n",
            2,
        ),
        (TRAIN, None),
        (f"export NPROC_PER_NODE=$GPUS\n{TRAIN}", None),
        (f"NPROC_PER_NODE=8\nNPROC_PER_NODE=4\n{TRAIN}", None),
        (f"# export NPROC_PER_NODE=8\n{TRAIN}", None),
        (f"export NPROC_PER_NODE=8\nexport NNODES=$N\n{TRAIN}", None),
    ],
)
def test_processes(tmp_path: Path, script: str, number: int | None) -> None:
    assert processes(tmp_path, script) == number


@pytest.mark.parametrize(
    ("line", "is_record"),
    [
        (
            "Initializing vllm model, with arguments: {'pretrained': 'a/b', 'max_model_len': 8192, 'util': 0.85}",
            False,
        ),
        ("{'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}", True),
        ("{'loss': '2.31', 'epoch': '0.1'}", True),
        ("{'eval_accuracy': 0.5, 'epoch': 1.0, 'name': 'dev'}", True),
        ("{'temperature': 0.7, 'max_tokens': 64, 'stop': '###'}", False),
    ],
)
def test_arguments_of_a_model_are_no_record(line: str, is_record: bool) -> None:
    assert (parse_printed_record(line) is not None) == is_record
