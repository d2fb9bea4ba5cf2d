"""What two rules say is said once, and what follows from a cause is not said beside it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.checks.pages.cause import inquest
from truetune.checks.find_causes_of_bad_answers import find_causes
from truetune.generation.evidence_on_causes_of_answers import StopEstimate, TrainingEffect
from truetune.settings.run_spec import RunSpec

ENDLESS: dict[str, Any] = {
    "look": {"stopped": 0, "stop_probability": 0.00002}, "trained": ["<|im_end|>"], "served": ["<|im_end|>"],
    "stopping": {"probability": 0.00002, "rank": 811}, "base_stopping": {"probability": 0.00001, "rank": 1033},
}  # fmt: skip
NOTHING = TrainingEffect(0.0, -2.0, -2.0, 100)


def rules(example: dict[str, Any], **changes: Any) -> list[tuple[str, str]]:
    return [
        (finding.rule, finding.severity)
        for finding in find_causes(replace(inquest(example), **changes)).findings
    ]


def test_a_sound_model_has_none() -> None:
    assert (
        rules(
            {"kind": "adapter", "effect": {"difference": 0.5, "model": -1, "base": -2, "tokens": 9}}
        )
        == []
    )


def test_stopping_never_learned() -> None:
    assert rules(ENDLESS) == [("stopping-never-learned", "error")]


def test_without_a_base_no_cause_is_named() -> None:
    """The base may be what does not stop: it is a warning, and says what was not tried."""
    (finding,) = find_causes(replace(inquest(ENDLESS), base_stopping=None)).findings
    assert (finding.rule, finding.severity) == ("stopping-never-learned", "warning")
    assert "never learned" not in finding.message
    assert "--base" in finding.remedy
    assert any(
        line.startswith("not tried: the base (name it with --base)") for line in finding.evidence
    )


def test_a_cause_says_which_rivals_were_tried() -> None:
    (finding,) = find_causes(replace(inquest(ENDLESS), contract=True, reference_loss=1.2)).findings
    assert (
        finding.evidence[-1]
        == "tried: stopping under the base; the prompts compared with those of the training; the"
        " references under the model"
    )


@pytest.mark.parametrize(
    ("base", "reference_loss", "named"),
    [
        ({"garbage": 8}, 2.0, False),  # the base babbles too
        ({"stopped": 0}, 6.0, False),  # the answers are not known either
        ({"stopped": 0}, None, False),
        ({"stopped": 0}, 1.5, True),  # the answers are known, and what follows them is garbage
    ],
)
def test_a_model_that_babbles_lacks_more_than_a_stop(
    base: dict[str, int], reference_loss: float | None, named: bool
) -> None:
    look = ENDLESS["look"] | {"garbage": 8}
    found = [
        rule
        for rule, _ in rules({**ENDLESS, "look": look, "base": base}, reference_loss=reference_loss)
    ]
    assert ("stopping-never-learned" in found) is named


def test_stopping_that_was_learned_in_part() -> None:
    assert rules(ENDLESS, stopping=StopEstimate(0.03, 4, 8)) == [
        ("stopping-never-learned", "warning")
    ]
    assert rules(ENDLESS, stopping=StopEstimate(0.3, 1, 8)) == [
        ("stopping-never-learned", "warning")
    ]


def test_stopping_that_was_unlearned() -> None:
    (finding,) = find_causes(
        replace(inquest(ENDLESS), base_stopping=StopEstimate(0.9, 0, 8))
    ).findings
    assert finding.message.startswith("stopping was unlearned")


def test_answers_that_the_limit_cuts_are_judged_by_the_probability_of_stopping() -> None:
    found = inquest(ENDLESS)
    cut = replace(found, watched=replace(found.watched, limit=2))
    assert [finding.rule for finding in find_causes(cut).findings] == ["stopping-never-learned"]
    assert find_causes(replace(cut, stopping=StopEstimate(0.9, 0, 8))).findings == ()


def test_what_follows_from_a_cause_is_not_said() -> None:
    assert rules(ENDLESS, kind="adapter", effect=NOTHING) == [
        ("adapter-without-effect-on-answers", "error")
    ]
    assert rules(ENDLESS, prompts=("1 turn: other",)) == [
        ("prompt-is-not-the-trained-one", "error")
    ]


def test_the_base_answers_where_nothing_was_trained() -> None:
    assert rules(ENDLESS, effect=NOTHING) == [("model-is-the-base", "warning")]
    assert rules(ENDLESS, effect=NOTHING, run=True) == [("model-is-the-base", "error")]


def test_a_stop_that_is_neither_served_nor_learned() -> None:
    """It does not stand in the answers, and is not likely: serving it would not help."""
    assert rules({**ENDLESS, "served": ["<|endoftext|>"]}) == [("stopping-never-learned", "error")]


def test_nan_is_found() -> None:
    nan = float("nan")
    assert rules({}, reference_loss=nan, effect=TrainingEffect(nan, nan, -2.0, 9)) == [
        ("worse-than-its-base", "error"),
        ("no-language-left", "error"),
    ]


def test_the_files_are_named_before_what_was_measured(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4})
    )
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    zeros = {
        f"{name}A.weight": np.zeros((2, 8), np.float32),
        f"{name}B.weight": np.zeros((8, 2), np.float32),
    }
    save_file(zeros, tmp_path / "adapter_model.safetensors")
    found = find_causes(
        replace(inquest(ENDLESS), kind="adapter", effect=NOTHING, folder=tmp_path)
    ).findings
    assert [finding.rule for finding in found if finding.severity == "error"] == [
        "adapter-file-empty"
    ]
    assert any("exactly as likely without it" in line for line in found[0].evidence)


def test_rules_can_be_chosen() -> None:
    assert find_causes(inquest(ENDLESS), RunSpec(ignore=("stopping-never-learned",))).findings == ()
