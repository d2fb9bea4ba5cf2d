"""AuditCallback in LLaMA-Factory: by `run_exp(callbacks=[...])`, its own interface."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

import truetune
from truetune.demo import TOKENIZER
from truetune.errors import TruetuneError

CHATS = [
    {
        "messages": [
            {"role": "user", "content": f"How many plums are in box {i}?"},
            {"role": "assistant", "content": f"There are {i + 3} plums in it."},
        ]
    }
    for i in range(8)
]


def save_small_model(folder: Path) -> None:
    """Save a Llama of one layer with the demo's tokenizer. Not `tests.auditing.tiny`, which needs a newer TRL."""
    tokenizer = AutoTokenizer.from_pretrained(str(TOKENIZER))
    shape: Any = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    heads: Any = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config: Any = LlamaConfig(vocab_size=len(tokenizer), **shape, **heads)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings of one step of LLaMA-Factory over the small model and its chats."""
    # Its bounds on the releases of other libraries are checked by its own installation, not here.
    monkeypatch.setenv("DISABLE_VERSION_CHECK", "1")
    model = tmp_path / "model"
    save_small_model(model)
    (tmp_path / "chats.json").write_text(json.dumps(CHATS))
    tags = {"role_tag": "role", "content_tag": "content", "user_tag": "user"}
    entry = {
        "file_name": "chats.json",
        "formatting": "sharegpt",
        "columns": {"messages": "messages"},
        "tags": {**tags, "assistant_tag": "assistant", "system_tag": "system"},
    }
    (tmp_path / "dataset_info.json").write_text(json.dumps({"chats": entry}))
    return {
        "model_name_or_path": str(model),
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "full",
        "dataset": "chats",
        "dataset_dir": str(tmp_path),
        "template": "chatml",
        "output_dir": str(tmp_path / "out"),
        "per_device_train_batch_size": 2,
        "max_steps": 1,
        "report_to": "none",
        "use_cpu": True,
        "preprocessing_num_workers": 1,
        "save_strategy": "no",
    }


def test_run_exp_takes_the_callback(
    settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("llamafactory", reason="LLaMA-Factory is not installed")
    from llamafactory.train.tuner import run_exp

    callback = truetune.AuditCallback(batches=1, laws="none")
    run_exp(settings, callbacks=[callback])
    assert callback.report.ledger.supervised > 0
    assert "training run" in capsys.readouterr().err
    assert (Path(settings["output_dir"]) / "trainer_state.json").exists()


def test_run_exp_is_stopped_by_findings(settings: dict[str, Any]) -> None:
    pytest.importorskip("llamafactory", reason="LLaMA-Factory is not installed")
    from llamafactory.train.tuner import run_exp

    callback = truetune.AuditCallback(batches=1, laws="none", fail_on="warning")
    with pytest.raises(TruetuneError, match="stopped the run"):
        run_exp({**settings, "train_on_prompt": True}, callbacks=[callback])
    assert not (Path(settings["output_dir"]) / "trainer_state.json").exists()
