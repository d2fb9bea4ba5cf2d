"""Each way of breaking a sound model is named, and the sound model is not accused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from tests.auditing import tiny
from tests.evaluation.answering import LIMIT, saved, written
from truetune.checkpoint.base_fingerprint import write_base_fingerprint
from truetune.checkpoint.load_checkpoint import read_checkpoint
from truetune.checks.find_causes_of_bad_answers import find_causes
from truetune.checks.findings import Finding
from truetune.checks.judge_answers import findings_on_sampled_answers
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.demo import TOKENIZER
from truetune.evaluation.gather_evidence_on_causes_of_answers import gather_evidence
from truetune.generation.answer_samples import Answer, Prompt, Sample, SamplingPass
from truetune.generation.backends.backend import Backend, Decoding, Progress
from truetune.generation.backends.model_source import find_model_source, serving_stops
from truetune.generation.backends.open_backend import open_backend
from truetune.generation.build_prompts import build_prompts
from truetune.generation.evidence_on_causes_of_answers import ModelEvidence
from truetune.generation.score_answer_by_prompt_and_reference import score_answer
from truetune.render.serving_contract import make_serving_contract
from truetune.render.template_probes import load_tokenizer_and_template_of_run
from truetune.settings.run_spec import RunSpec

ROWS = tiny.chats(8)
TARGETS = ["q_proj", "v_proj", "up_proj", "down_proj", "lm_head"]
SPEC = RunSpec(ignore=("settings-make-generation-slow",))
"""The time of a token says nothing here: other tests run beside this one."""


def trained(model: Any, *, stops: bool, steps: int) -> Any:
    """On the answers, with or without their stop tokens in the labels."""
    tokenizer = tiny.tokenizer()
    encoded = tiny.encoded(ROWS)
    longest = max(len(row["input_ids"]) for row in encoded)
    ids = torch.tensor(
        [
            row["input_ids"] + [tokenizer.pad_token_id] * (longest - len(row["input_ids"]))
            for row in encoded
        ]
    )
    labels = torch.tensor(
        [row["labels"] + [-100] * (longest - len(row["labels"])) for row in encoded]
    )
    if not stops:
        labels[labels == tokenizer.eos_token_id] = -100
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for _ in range(steps):
        model(
            input_ids=ids, attention_mask=ids.ne(tokenizer.pad_token_id), labels=labels
        ).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def adapter(base: Path, folder: Path, *, stops: bool) -> Path:
    torch.manual_seed(0)
    lora = LoraConfig(r=8, lora_alpha=32, target_modules=TARGETS, task_type="CAUSAL_LM")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), lora)
    trained(model, stops=stops, steps=40).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`base` knows the answers and no end of them; on it stand the adapters `right` and `padeos`."""
    home = tmp_path_factory.mktemp("home")
    written(home / "rows.jsonl", ROWS)
    eos = tiny.tokenizer().eos_token_id
    for seed, name in enumerate(("base", "stranger")):
        saved(trained(tiny.model(eos_token_id=eos, seed=seed), stops=False, steps=60), home / name)
    adapter(home / "base", home / "right", stops=True)
    adapter(home / "base", home / "padeos", stops=False)
    write_base_fingerprint(home / "right", read_checkpoint(home / "base"))
    contract = make_serving_contract(
        load_tokenizer_and_template_of_run(
            RunSpec(tokenizer=str(TOKENIZER), model=str(home / "base"))
        )
    )
    (home / "right" / "contract.json").write_text(json.dumps(contract), encoding="utf-8")
    return home


@pytest.fixture
def right(home: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(home / "right", tmp_path / "adapter"))


def asked(
    folder: Path, base: Path | None, tokenizer: Path | None = None, backend: Backend | None = None
) -> ModelEvidence:
    rows = folder.parent / "rows.jsonl" if base is None else base.parent / "rows.jsonl"
    place = find_model_source(
        str(folder),
        base=str(base) if base else None,
        tokenizer=str(tokenizer) if tokenizer else None,
    )
    probes = place.prepared()
    prompts = build_prompts(probes.spec, read_conversations([str(rows)]), count=8, probes=probes)
    with backend or open_backend(place, probes.tokenizer) as answering:
        said = answering.answers(
            prompts, Decoding(serving_stops(probes.tokenizer), max_new_tokens=LIMIT)
        )
        samples = tuple(
            Sample(p, a, score_answer(p, a))
            for p, a in zip(prompts, said, strict=True)
            if a is not None
        )
        return gather_evidence(
            place, probes, prompts, SamplingPass(0, samples, 1.0), answering, limit=LIMIT
        )


def named(found: ModelEvidence) -> dict[str, Finding]:
    return {finding.rule: finding for finding in find_causes(found, SPEC).findings}


def test_a_sound_model_is_not_accused(home: Path, right: Path) -> None:
    found = asked(right, home / "base")
    assert sum(sample.scores.stopped for sample in found.watched.looks[-1].samples) == 8
    assert named(found) == {}
    assert found.contract
    assert found.stopping is not None
    assert found.base_stopping is not None
    assert found.stopping.probability > 0.9 > 0.1 > found.base_stopping.probability
    assert found.effect is not None
    assert found.effect.model > found.effect.base
    assert found.notes == ()


def test_stopping_never_learned(home: Path) -> None:
    found = asked(home / "padeos", home / "base")
    causes = named(found)
    assert list(causes) == ["stopping-never-learned"]
    assert causes["stopping-never-learned"].severity == "error"
    assert "under the base model it is" in causes["stopping-never-learned"].evidence[1]
    assert "ANS001" in {finding.code for finding in findings_on_sampled_answers(found.watched)}


def test_a_trained_stop_that_is_not_served(home: Path, right: Path) -> None:
    (right / "generation_config.json").write_text('{"eos_token_id": 0}', encoding="utf-8")
    found = asked(right, home / "base")
    assert (
        {"trained-stop-not-served"}
        <= set(named(found))
        <= {"trained-stop-not-served", "special-token-ids-differ-from-base"}
    )
    assert found.stopping is not None
    assert found.stopping.probability > 0.9


def test_an_adapter_of_scale_zero(home: Path, right: Path) -> None:
    config = json.loads((right / "adapter_config.json").read_text("utf-8"))
    (right / "adapter_config.json").write_text(
        json.dumps(config | {"lora_alpha": 0}), encoding="utf-8"
    )
    found = asked(right, home / "base")
    assert found.effect is not None
    assert found.effect.difference == 0
    assert sorted(named(found)) == [
        "adapter-scale-out-of-range",
        "adapter-without-effect-on-answers",
    ]


def test_an_adapter_on_another_base(home: Path, right: Path) -> None:
    causes = named(asked(right, home / "stranger"))
    assert "adapter-on-another-base" in causes
    assert "stopping-never-learned" not in causes


def test_another_template(home: Path, right: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(TOKENIZER, tmp_path / "other"))
    name = next(
        path
        for path in other.iterdir()
        if "im_start" in path.read_text("utf-8") and path.suffix == ".jinja"
    )
    name.write_text(
        name.read_text("utf-8").replace("+ message", "+ 'dear ' + message"), encoding="utf-8"
    )
    causes = named(asked(right, home / "base", other))
    assert list(causes) == ["prompt-is-not-the-trained-one"]


def test_a_model_that_is_its_base(home: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(home / "base", tmp_path / "copy"))
    config = json.loads((copy / "config.json").read_text("utf-8"))
    (copy / "config.json").write_text(
        json.dumps(config | {"_name_or_path": str(home / "base")}), encoding="utf-8"
    )
    assert list(named(asked(copy, home / "base"))) == ["weights-equal-the-base"]


class Padded(Backend):
    """Gives each prompt of a batch the answer of another one."""

    kind = "transformers"

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner.name)
        self.inner = inner
        self.score = inner.score  # type: ignore[method-assign]

    def answers(
        self, prompts: Sequence[Prompt], decoding: Decoding, progress: Progress | None = None
    ) -> list[Answer | None]:
        if len(prompts) == 1:
            return self.inner.answers(prompts, decoding)
        rolled = [
            replace(prompt, ids=other.ids)
            for prompt, other in zip(prompts, prompts[::-1], strict=True)
        ]
        return self.inner.answers(rolled, decoding)


def test_a_padded_batch_that_answers_otherwise(home: Path) -> None:
    place = find_model_source(str(home / "right"), base=str(home / "base"))
    with open_backend(place, place.prepared().tokenizer) as inner:
        found = asked(home / "right", home / "base", backend=Padded(inner))
    assert "padded-batch-answers-otherwise" in named(found)
    assert max(parted.nats or 0 for parted in found.divergent_answers) > 1


def test_what_can_not_be_asked_is_a_note(home: Path) -> None:
    place = find_model_source(str(home / "right"), base=str(home / "base"))

    class Silent(Backend):
        kind = "server"

        def answers(
            self, prompts: Any, decoding: Decoding, progress: Progress | None = None
        ) -> list[Answer | None]:
            return [Answer((5,), "On", min(decoding.stops)) for _ in prompts]

    found = asked(home / "right", home / "base", backend=Silent(place.name))
    assert found.stopping is None
    assert found.effect is None
    assert any("log-probabilities" in note for note in found.notes)
    assert named(found) == {}
