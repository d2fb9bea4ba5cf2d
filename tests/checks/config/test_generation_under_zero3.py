"""Settings and scripts that generate while ZeRO-3 holds the weights in parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import truetune
from truetune.checks.lint import lint

PREDICT = {
    "model_name_or_path": "some/model",
    "stage": "sft",
    "do_predict": True,
    "predict_with_generate": True,
    "finetuning_type": "full",
    "eval_dataset": "chats",
    "template": "qwen",
    "output_dir": "out",
}
STAGE = {stage: json.dumps({"zero_optimization": {"stage": stage}}) for stage in (2, 3)}


@pytest.mark.parametrize(
    ("change", "stage", "count"),
    [
        ({"deepspeed": "ds.json"}, 3, 1),
        ({"deepspeed": "ds.json", "do_train": True}, 3, 1),
        ({"deepspeed": "ds.json"}, 2, 0),
        ({}, 2, 0),
        ({"deepspeed": "ds.json", "predict_with_generate": False}, 3, 0),
    ],
)
def test_predictions_of_llama_factory(
    change: dict[str, object], stage: int, count: int, tmp_path: Path
) -> None:
    (tmp_path / "ds.json").write_text(STAGE[stage])
    (tmp_path / "predict.yaml").write_text(yaml.safe_dump(PREDICT | change))
    found = truetune.check([str(tmp_path / "predict.yaml")]).findings
    assert sum(one.rule == "zero3-gathers-weights-for-each-token" for one in found) == count


SEQ2SEQ = """
from transformers import AutoModelForSeq2SeqLM, Seq2SeqTrainer, Seq2SeqTrainingArguments
args = Seq2SeqTrainingArguments("out", predict_with_generate={generates}, deepspeed="ds.json")
Seq2SeqTrainer(AutoModelForSeq2SeqLM.from_pretrained("google/flan-t5-xl"), args, train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("generates", "stage", "count"), [(True, 3, 1), (True, 2, 0), (False, 3, 0)]
)
def test_predictions_of_a_script(generates: bool, stage: int, count: int, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(STAGE[stage])
    (tmp_path / "train.py").write_text(SEQ2SEQ.format(generates=generates))
    found = lint([tmp_path / "train.py"], select=("generation-under-zero3",)).findings
    assert len(found) == count


LOOP = """
from accelerate import Accelerator
from transformers import AutoModelForCausalLM
import deepspeed
accelerator = Accelerator()
model, optimizer, loader = accelerator.prepare(AutoModelForCausalLM.from_pretrained("m"), optimizer, loader)
for batch in loader:
    accelerator.backward(model(**batch).loss)
    optimizer.step()
    optimizer.zero_grad()
{ask}
"""
PLAIN = "print(model.generate(**prompts, max_new_tokens=64))"
GATHERED = f"with deepspeed.zero.GatheredParameters(list(model.parameters())):\n    {PLAIN}"
ACCELERATE = "distributed_type: DEEPSPEED\ndeepspeed_config: {{zero_stage: {stage}}}\n"


@pytest.mark.parametrize(
    ("ask", "stage", "launch", "count"),
    [
        (PLAIN, 3, "accelerate launch --config_file ds.yaml train.py\n", 1),
        (PLAIN, 2, "accelerate launch --config_file ds.yaml train.py\n", 0),
        (GATHERED, 3, "accelerate launch --config_file ds.yaml train.py\n", 0),
        (PLAIN, 3, "", 0),  # the file may belong to another script
    ],
)
def test_a_loop_that_generates(
    ask: str, stage: int, launch: str, count: int, tmp_path: Path
) -> None:
    (tmp_path / "ds.yaml").write_text(ACCELERATE.format(stage=stage))
    (tmp_path / "run.sh").write_text(launch)
    (tmp_path / "train.py").write_text(LOOP.format(ask=ask))
    found = lint([tmp_path / "train.py"], select=("generation-under-zero3",)).findings
    assert len(found) == count
