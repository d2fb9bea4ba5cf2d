"""Rules on settings that find nothing show the values that they compared, or say what they lack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checks.pages import block, sections
from tests.checks.pages.config import config_of
from truetune.checks.judgement import Judgement
from truetune.checks.rule import Rule
from truetune.checks.rule_catalogue import all_rules
from truetune.checks.rule_runner import run_rules
from truetune.settings.stacks.read_config_of_any_stack import read_config

NOT_APPLYING = (
    "pretokenized-rows-bypass-masking",
    "completion-loss-without-completion",
    "rows-left-out-by-limit",
    "settings-evaluate-head-of-sorted-file",
    "rows-padded-to-the-limit",
    "rows-of-uneven-length-padded",
    "demo-data-trained-own-rows-unused",
    "own-rows-are-rare",
)
"""Rules that do not apply to the fixed example of their page: the fix takes the setting out"""


def judgement(rule: type[Rule[Any]], text: str, folder: Path) -> Judgement:
    return run_rules(config_of(yaml.safe_load(text), folder), [rule])


@pytest.mark.parametrize("rule", all_rules("config"), ids=lambda rule: rule.name())
def test_a_rule_that_finds_nothing_gives_its_figure(rule: type[Rule[Any]], tmp_path: Path) -> None:
    judged = judgement(rule, block(sections(rule)["Use instead"]), tmp_path)
    assert not judged.findings
    if rule.name() in NOT_APPLYING:
        (lacking,) = judged.not_judged
        assert lacking.reason.startswith("it is about ")
        return
    (part,) = judged.examined
    assert part.figure
    if part.count is not None:
        assert f": {part.count:,} of {part.of:,}" in part.figure


SETTINGS = {
    "axolotl": "base_model: some/model\ndatasets:\n  - path: some/data\n    type: chat_template\nsequence_len: 2048\n",
    "llama-factory": "model_name_or_path: some/model\nstage: sft\ndo_train: true\nfinetuning_type: lora\n"
    "dataset: some\ntemplate: qwen\noutput_dir: out\n",
    "trl": "model_name_or_path: some/model\ndataset_name: some/data\noutput_dir: out\nuse_peft: true\n"
    "completion_only_loss: true\nmax_length: 2048\n",
}  # fmt: skip


@pytest.mark.parametrize("stack", SETTINGS)
def test_what_is_not_here_is_not_called_fine(stack: str, tmp_path: Path) -> None:
    """A model, a tokenizer and data of a hub: each rule that needs them says so, and what would let it judge."""
    path = tmp_path / "config.yaml"
    path.write_text(SETTINGS[stack], encoding="utf-8")
    config = read_config(path)
    assert config.stack == stack
    judged = run_rules(config, all_rules("config"))
    for part in judged.examined:
        assert part.figure, part.rule
        assert part.of != 0
    for lacking in judged.not_judged:
        assert lacking.reason.startswith("it is about ") or lacking.unlock, str(lacking)
    fine = {part.rule for part in judged.examined}
    assert not fine & {
        "length-beyond-the-model",
        "lora-rank-beyond-the-matrix",
        "served-template-differs",
        "pad-set-to-stop-token",
        "prepared-rows-older-than-data",
        "rows-left-out-by-limit",
        "pad-masks-eos-in-pretraining",
        "resume-from-missing-checkpoint",
        "completion-loss-without-completion",
        "pretokenized-rows-bypass-masking",
        "steps-beyond-the-run",
        "sample-packing-trains-no-step",
    }


def test_the_values_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        SETTINGS["axolotl"] + "warmup_ratio: 0.1\nlr_scheduler: cosine\nbf16: true\n",
        encoding="utf-8",
    )
    figures = {
        part.rule: part.figure
        for part in run_rules(read_config(path), all_rules("config")).examined
    }
    assert (
        figures["warmup-ignored-by-schedule"]
        == "warmup_steps: not set, warmup_ratio: 0.1, lr_scheduler: cosine"
    )
    assert figures["precision-set-twice"] == "bf16: true, fp16: not set"
