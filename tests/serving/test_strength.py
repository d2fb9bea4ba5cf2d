"""How much of an adapter is served is measured, and a wrong scaling is named; all models are real ones."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from tests.auditing import tiny
from tests.generation.serving import transformers_serve  # noqa: F401
from truetune.checks.findings import Finding
from truetune.generation.backends.http_client import Server
from truetune.generation.backends.model_source import ModelSource, find_model_source
from truetune.generation.backends.open_backend import Options, open_backend
from truetune.generation.server_observations import AdapterStrength, ServerObservations
from truetune.serving.check_server import judge_server
from truetune.serving.load_contract_of_trained_prompts import load_training_record
from truetune.serving.measure_adapter_effect_on_server import (
    measure_served_strength,
    select_strength_prompts,
)
from truetune.serving.measure_adapter_effect_on_server import strength_from_logprobs as of_logprobs
from truetune.serving.server_client import ServerClient
from truetune.serving.wrong_adapter_scalings import make_rescaled_adapter
from truetune.settings.run_spec import RunSpec

CPU = Options(device="cpu")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    tiny.model(initializer_range=0.3).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random, rsLoRA, of a size at which log-probabilities grow with the scaling."""
    folder = tmp_path_factory.mktemp("adapter")
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    torch.manual_seed(1)
    config = LoraConfig(
        r=16,
        lora_alpha=16,
        use_rslora=True,
        target_modules="all-linear",
        init_lora_weights=False,
        base_model_name_or_path=str(base),
    )
    tuned: Any = get_peft_model(model, config)
    for name, weight in tuned.named_parameters():
        if "lora_B" in name:
            weight.data *= 0.1
    tuned.save_pretrained(str(folder))
    tuned.merge_and_unload().save_pretrained(folder / "merged")
    tiny.tokenizer().save_pretrained(folder / "merged")
    return folder


def measured(
    adapter: Path, served: ModelSource, url: str = "http://127.0.0.1:9", model: str = ""
) -> Any:
    """What is found where `served` answers in the place of a server."""
    place = find_model_source(str(adapter))
    made = place.prepared()
    prompts = select_strength_prompts(load_training_record(place, made).prompts, 6)
    client = ServerClient(Server(url, model), seconds=60, concurrency=2, bos=None)
    with open_backend(
        served, made.tokenizer, replace(CPU, served_model=model, route="completions")
    ) as server:
        return measure_served_strength(
            place, server, client, prompts, made.tokenizer, CPU, frozenset({3})
        )[1:]


def judged(strength: AdapterStrength) -> tuple[Finding, ...]:
    return judge_server(ServerObservations("", strength=strength), RunSpec()).findings


def test_full_strength(adapter: Path) -> None:
    strength, notes = measured(adapter, find_model_source(str(adapter)))
    assert (round(strength.factor, 5), round(strength.cosine, 5)) == (1, 1)
    assert strength.effect > 0.1
    assert judged(strength) == () == tuple(notes)


def test_the_base_is_served(adapter: Path, base: Path) -> None:
    strength, _ = measured(adapter, find_model_source(str(base)))
    (finding,) = judged(strength)
    assert (finding.code, strength.factor) == ("SRV008", 0)


@pytest.mark.parametrize(
    ("scale", "named"),
    [
        (0.25, "alpha/r instead of alpha/sqrt(r): use_rslora was not read"),
        (2.0, "twice the scaling"),
    ],
)
def test_a_wrong_scaling_is_named(adapter: Path, scale: float, named: str) -> None:
    with make_rescaled_adapter(find_model_source(str(adapter)), scale) as other:
        strength, _ = measured(adapter, other)
    (finding,) = judged(strength)
    assert (finding.code, finding.severity) == ("SRV009", "error")
    assert named in finding.message
    assert strength.explained_distance < 1e-4


def test_a_scaling_without_a_name() -> None:
    base = np.array([-3, -2, -4, -1], np.float32)
    effect = np.array([1, -0.5, 2, 0.7], np.float32)
    strength = of_logprobs(base + 0.7 * effect, base + effect, base, adapter=True)
    assert strength is not None
    assert (round(strength.factor or 0, 4), round(strength.cosine or 0, 4)) == (0.7, 1)
    (finding,) = judged(strength)
    assert (finding.code, finding.severity) == ("SRV009", "warning")


def test_another_adapter(adapter: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(adapter, other, ignore=shutil.ignore_patterns("merged"))
    config = json.loads((other / "adapter_config.json").read_text())
    (other / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": -16}))
    strength, _ = measured(adapter, find_model_source(str(other)))
    assert strength.factor < 0
    assert [finding.code for finding in judged(strength)] == ["SRV010"]


@pytest.mark.parametrize("merged", [True, False])
def test_by_answers(adapter: Path, base: Path, transformers_serve: str, merged: bool) -> None:
    """`transformers serve` tells no log-probabilities."""
    model = str(adapter / "merged" if merged else base)
    strength, _ = measured(
        adapter,
        find_model_source(transformers_serve, tokenizer=str(base)),
        transformers_serve,
        model,
    )
    assert strength.by == "answers"
    assert (strength.as_tuned, strength.as_base)[not merged] == strength.places >= 3
    assert [finding.code for finding in judged(strength)] == ([] if merged else ["SRV008"])
