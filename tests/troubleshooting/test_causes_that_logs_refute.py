"""Causes of a flat loss beside one that fell, demo data beside own data, and lines that show no added token."""

from __future__ import annotations

import numpy as np
import pytest

from tests.troubleshooting.test_ruled_out import log, reason
from truetune.checks.correct_findings_by_other_files import _without_repeated_advice
from truetune.checks.explaining.recognise_project_traits_behind_causes import (
    Trait,
    traits_shown_by_line,
)

FALLING = list(np.linspace(2.0, 0.6, 9))
FLAT = [2.0, 1.98, 2.01, 1.99, 2.0, 2.02, 1.97, 2.0, 1.99]
OF_A_FLAT_LOSS = (
    "the settings train no weight",
    "the output shows that hardly more than a norm or two of the model is trained",
)


@pytest.mark.parametrize("cause", OF_A_FLAT_LOSS)
def test_a_loss_that_fell_refutes_causes_of_a_flat_one(cause: str) -> None:
    assert "fell from" in reason(cause, "", log("loss", FALLING))
    assert not reason(cause, "", log("loss", FLAT))
    assert not reason(cause, "", log("loss", FALLING), log("loss", FLAT))
    assert not reason(cause, "")


@pytest.mark.parametrize(
    ("text", "is_out"),
    [
        ("trainer = SFTTrainer(model)\n", True),
        ("finetuning_type: lora\nlora_target: all\n", True),
        ("trainer = SFTTrainer(model)\nLoraConfig(layers_to_transform=[30, 31, 32])\n", False),
        ("finetuning_type: freeze\nfreeze_trainable_layers: 4\n", False),
        ("trainer = SFTTrainer(model)\nif 'layers.40' in name: p.requires_grad = True\n", False),
        ("trainer = SFTTrainer(model)\nfor block in model.model.layers[28:]:\n", False),
        (
            "unfrozen_parameters:\n  - model.layers.4[0-9]\nnum_epochs: 2\nmicro_batch_size: 2\n",
            False,
        ),
        ("print('nothing trains here')\n", False),
    ],
)
def test_no_line_names_layers_by_numbers(text: str, is_out: bool) -> None:
    cause = "settings select layers by numbers that the model does not have"
    assert bool(reason(cause, text)) == is_out


@pytest.mark.parametrize(
    ("text", "is_out"),
    [
        ("dataset: support_extract\n", True),
        ("datasets:\n  - path: data/tone.jsonl\n", True),
        ("dataset: identity,alpaca_en_demo\n", False),
        ("dataset: mine,identity\n", False),
        ("datasets:\n  - path: mhenrichsen/alpaca_2k_test\n", False),
        ("learning_rate: 1e-4\n", False),
    ],
)
def test_own_data_are_no_demo(text: str, is_out: bool) -> None:
    cause = "the configuration trains the demo data of its framework, and no row of your own"
    assert bool(reason(cause, text)) == is_out


@pytest.mark.parametrize(
    ("line", "trait", "is_shown"),
    [
        ("max_new_tokens: 4096", Trait.ADDED_TOKENS, False),
        ("out = model.generate(ids, max_new_tokens=120)", Trait.ADDED_TOKENS, False),
        ("min_new_tokens = 8", Trait.ADDED_TOKENS, False),
        ("new_tokens = ['<a>', '<b>']", Trait.ADDED_TOKENS, True),
        ("tokenizer.add_special_tokens({})", Trait.ADDED_TOKENS, True),
        ("    image: vllm/vllm-openai:v0.10", Trait.VISION, False),
        ('"image": "registry.local:5000/app"', Trait.VISION, False),
        ("revision = 'main'", Trait.VISION, False),
        ("LogitsProcessor(", Trait.VISION, False),
        ("images = [load(one) for one in paths]", Trait.VISION, True),
        ("batch = processor(text=texts)", Trait.VISION, True),
        ("freeze_vision_tower: true", Trait.VISION, True),
    ],
)
def test_lines_that_show_a_trait(line: str, trait: Trait, is_shown: bool) -> None:
    assert (trait in set(traits_shown_by_line(line))) == is_shown


@pytest.mark.parametrize(
    ("advice", "given", "rest"),
    [
        (
            "call model.train() after it; plan again",
            "call model.train() before the step",
            "plan again",
        ),
        (
            "call model.train(), and empty_cache()",
            "call model.train()",
            "call model.train(), and empty_cache()",
        ),
        ("halve the batch; plan again", "call model.train()", "halve the batch; plan again"),
        ("call model.train() after it", "model.train() first", ""),
    ],
)
def test_advice_is_not_said_twice(advice: str, given: str, rest: str) -> None:
    assert _without_repeated_advice(advice, given) == rest
