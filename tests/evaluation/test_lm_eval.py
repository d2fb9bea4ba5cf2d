"""lm-eval's prompts are compared with those of the training; what runs it was tried by hand (docs/parsers.md)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.held import probes_of, saved
from truetune.errors import UsageError
from truetune.evaluation.run_lm_eval_and_compare_prompts import (
    PromptLog,
    describe_prompt_differences,
    does_tokenizer_add_bos_beside_template,
    model_class_that_records_prompts,
    run_tasks,
)
from truetune.generation.backends.model_source import find_model_source

MESSAGES = [{"role": "user", "content": "Where is the lighthouse?"}]
PROBES = probes_of()


class Plain:
    """What lm-eval's model does, as far as it is watched."""

    def __init__(self, adds: tuple[int, ...] = (), drops: int = 0) -> None:
        self.adds, self.drops = adds, drops

    def apply_chat_template(
        self, chat_history: list[dict[str, Any]], add_generation_prompt: bool = True
    ) -> str:
        template = PROBES.renderer().template
        assert template is not None
        return "".join(
            str(part)
            for part in template.render(
                chat_history,
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
            )
        )

    def ids(self, text: str) -> list[int]:
        ids = [*self.adds, *PROBES.tokenizer.backend.encode(text).ids]
        return ids[: len(ids) - self.drops]

    def _loglikelihood_tokens(self, requests: list[Any]) -> int:
        return len(requests)


def asked_by(generation: bool = True, **given: Any) -> PromptLog:
    """The ids of one chat as a likelihood is asked for."""
    asked = PromptLog()
    model = model_class_that_records_prompts(Plain, asked)(**given)
    text = model.apply_chat_template(MESSAGES, add_generation_prompt=generation)
    assert model._loglikelihood_tokens([((text, " B"), model.ids(text), [5])]) == 1
    return asked


def test_the_prompts_of_the_training_are_silent() -> None:
    assert describe_prompt_differences(asked_by(), PROBES) == ()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"adds": (1,)}, "other ids"),
        ({"generation": False}, "lack the generation prompt"),
        ({"drops": 1}, "merges with the answer"),
    ],
)
def test_other_prompts_are_told(given: dict[str, Any], says: str) -> None:
    (note,) = describe_prompt_differences(asked_by(**given), PROBES)
    assert says in note
    assert note.startswith("1 of 1 prompts")


def test_a_prompt_without_the_template_is_told() -> None:
    ids = tuple(PROBES.tokenizer.backend.encode("Question: where?").ids)
    (note,) = describe_prompt_differences(PromptLog(prompts={"Question: where?": ids}), PROBES)
    assert "not in the chat template" in note


def test_a_template_without_bos_needs_none() -> None:
    assert not does_tokenizer_add_bos_beside_template(PROBES)


def test_what_can_not_be_run(tmp_path: Path) -> None:
    place = find_model_source(str(saved(tmp_path)))
    if importlib.util.find_spec("lm_eval") is None:
        with pytest.raises(UsageError, match="pip install lm-eval"):
            run_tasks(place, ["arc_easy"])
    else:
        with pytest.raises(UsageError, match="knows no task"):
            run_tasks(place, ["arc_eazy"])
