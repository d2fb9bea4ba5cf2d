"""Settings that pad every row to the limit, over rows of some length."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import truetune

AXOLOTL = {
    "base_model": "org/m", "datasets": [{"path": "rows.jsonl", "type": "chat_template"}], "adapter": "lora",
    "lora_target_linear": True, "micro_batch_size": 2, "num_epochs": 1, "sequence_len": 4096,
    "sample_packing": False,
}  # fmt: skip
TRL = {
    "model_name_or_path": "org/m", "datasets": [{"path": "json", "data_files": "rows.jsonl"}],
    "learning_rate": 2e-5, "max_length": 4096,
    "completion_only_loss": False, "output_dir": "o",
}  # fmt: skip


def found(folder: Path, settings: dict[str, object], words: int) -> list[str]:
    chat = [
        {"role": "user", "content": "why?"},
        {"role": "assistant", "content": "so it is " * words},
    ]
    rows = "".join(json.dumps({"messages": chat}) + "\n" for _ in range(20))
    (folder / "rows.jsonl").write_text(rows, encoding="utf-8")
    (folder / "run.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    report = truetune.check(
        [str(folder / "run.yaml")], select=["rows-padded-to-the-limit"], allow_unjudged=True
    )
    return [finding.message for finding in report.findings]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (AXOLOTL | {"pad_to_sequence_len": True}, 10),
        (AXOLOTL | {"pad_to_sequence_len": True, "sequence_len": 2048}, 20),
        (AXOLOTL | {"pad_to_sequence_len": True, "sequence_len": 32768}, 500),
        (TRL | {"pad_to_multiple_of": 2048}, 10),
        (TRL | {"pad_to_multiple_of": 1024}, 3),
    ],
)
def test_short_rows_that_are_padded(
    tmp_path: Path, settings: dict[str, object], words: int
) -> None:
    assert len(found(tmp_path, settings, words)) == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (AXOLOTL, 10),
        (AXOLOTL | {"pad_to_sequence_len": False}, 10),
        (AXOLOTL | {"pad_to_sequence_len": True, "sample_packing": True}, 10),
        (AXOLOTL | {"pad_to_sequence_len": True}, 1500),
        # 2,300 bytes: a tokenizer of single characters makes as many tokens.
        (AXOLOTL | {"pad_to_sequence_len": True}, 250),
        (
            AXOLOTL
            | {
                "pad_to_sequence_len": True,
                "datasets": [{"path": "org/hub", "type": "chat_template"}],
            },
            10,
        ),
        (TRL | {"pad_to_multiple_of": 8}, 10),
        (TRL, 10),
    ],
)
def test_sound_settings(tmp_path: Path, settings: dict[str, object], words: int) -> None:
    assert found(tmp_path, settings, words) == []
