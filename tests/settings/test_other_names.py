"""Settings by other stacks' names lead to ours in one line."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from truetune.errors import SpecError
from truetune.settings.advise_unknown_setting import (
    FIELD_OF_OTHER_NAME,
    LINES,
    NOT_NEEDED,
    VALUES,
    advise_unknown_setting,
    all_settings,
)
from truetune.settings.read_truetune_settings import validate_settings
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks import read_axolotl_yaml, read_llama_factory_settings
from truetune.settings.stacks.known_keys import load_known_keys

PLACES = {".".join(setting.place) for setting in all_settings()}
MOST = 200
"""Characters of an advice"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pretokenize: true", "remove it: the rows are always encoded before the first step"),
        ("use_peft: true", "write training: {lora: {r: 16}}"),
        ("use_lora: false", "remove it: it is off without training: {lora: {r: 16}}"),
        ("training: {use_lora: true}", "write training: {lora: {r: 16}}"),
        ("lora: {r: 32}", "write training: {lora: {r: 32}}"),
        ("adapter: qlora", "write training: {load_in: 4, lora: {r: 16}}"),
        ("adapter: runs/one", "write training: {adapter: runs/one}"),
        ("learning_rate: 0.0001", "write training: {learning_rate: 0.0001}"),
        ("learning_rte: 0.0001", "did you mean training.learning_rate?"),
        ("gradient_accumulation_stps: 8", "did you mean training.gradient_accumulation_steps?"),
        ("training: {max_length: 512}", "write max_length: 512"),
        ("sample_packing: true", "write encode: {packing: best-fit}"),
        ("packing: true", "write encode: {packing: best-fit}"),
        ("datasets: [{path: a.jsonl}]", "write data: ..."),
        ("seed: 7", "write trainer: {seed: 7}"),
        ("training: {report_to: wandb}", "write trainer: {report_to: wandb}"),
        ("pre_tokenise: true", "remove it: the rows are always encoded before the first step"),
        ("trainr: trl", "did you mean trainer?"),
        ("watch: {evry: 3}", "did you mean every?"),
        (
            "watch: {colour: red}",
            "watch has prompts, every, max_new_tokens, budget, parser and 1 more",
        ),
        (
            "reasoning_effort: high",
            "alike are learn.reasoning; docs/reference/settings.md lists all",
        ),
        (
            "api_key: 'a secret, with: spaces'",
            "there are data, eval_data, tokenizer, model, format and 16 more",
        ),
    ],
)
def test_the_line_that_is_said(text: str, said: str) -> None:
    with pytest.raises(SpecError) as error:
        validate_settings(yaml.safe_load(text), "job.yaml")
    told = str(error.value)
    assert said in told
    assert told.count("\n") == 0
    assert "secret" not in told


@pytest.mark.parametrize("line", sorted({*LINES.values(), *VALUES.values()}))
def test_what_is_said_to_be_written_is_understood(line: str) -> None:
    validate_settings(yaml.safe_load(line), "here")


def test_other_names_lead_to_settings_that_there_are() -> None:
    assert set(FIELD_OF_OTHER_NAME.values()) <= PLACES
    others = [*FIELD_OF_OTHER_NAME, *LINES, *NOT_NEEDED]
    assert len(others) == len(set(others))
    own = set(RunSpec.model_fields)
    assert own.isdisjoint(others)


KNOWN = [
    *(
        (key, f"training.{field}")
        for field, key in (
            *read_axolotl_yaml.FIELD_KEYS.items(),
            *read_llama_factory_settings.FIELD_KEYS.items(),
        )
    ),
    *(
        (key, f"training.lora.{field}")
        for field, key in (
            *read_axolotl_yaml.LORA_KEYS.items(),
            *read_llama_factory_settings.LORA_KEYS.items(),
        )
    ),
]
ELSEWHERE = {"training.packing": "encode", "training.adapter": "training"}


@pytest.mark.parametrize(("key", "place"), KNOWN)
def test_the_keys_of_other_stacks_lead_to_the_field_that_their_readers_fill(
    key: str, place: str
) -> None:
    told = advise_unknown_setting([key], 1)
    if key in NOT_NEEDED:
        assert told.startswith("remove it: ")
    elif place in ELSEWHERE:
        assert f"write {ELSEWHERE[place]}: {{" in told
    else:
        assert f"{place.rpartition('.')[2]}: 1" in told


def test_every_key_of_every_stack_gets_one_short_line() -> None:
    for package in ("axolotl", "llama-factory", "transformers", "trl"):
        for keys in load_known_keys(package).classes.values():
            for key in keys:
                for place in ([key], ["training", key]):
                    told = advise_unknown_setting(place, [{"path": "a" * 500}])
                    assert told
                    assert len(told) < MOST + len(key), told


@pytest.mark.parametrize("value", [None, {}, {1: 2}, "x" * 9_999, "a\nb", ["a"], 1e400, True])
def test_any_value_is_shown_in_one_line(value: Any) -> None:
    told = advise_unknown_setting(["lr"], value)
    assert told.startswith("write training: {learning_rate: ")
    assert len(told) < MOST
    assert "\n" not in told
