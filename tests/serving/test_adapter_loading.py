"""The verdict from headers against what the real loaders did: vLLM 0.32.0 (its CPU build) and llama.cpp's converter.

The records beside this file hold what each loader made of some 30 adapters on each of 60 architectures: refused, or how
many of its modules got a change, and by what scale (`tests.serving.record_vllm`, `tests.serving.record_llama_cpp`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.engine_loaders_page import PAGE, page
from tests.serving.adapter_variants import AdapterVariant, HfModule, adapter_variants
from truetune.checkpoint.engine_adapter_loaders.predict_adapter_loading import (
    PredictedLoading,
    predict_adapter_loading,
)
from truetune.checkpoint.engine_adapter_loaders.read_engine_loaders import (
    ENGINES,
    EngineLoader,
    known_releases,
    read_engine_loader,
)
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor

RECORDS = Path(__file__).parent / "real_loaders"
Case = tuple[str, AdapterVariant, Any]


def read_record(name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((RECORDS / f"{name}.json").read_text("utf-8"))
    return record


def recorded_cases(engine: str) -> Iterator[Case]:
    """(architecture, adapter, what the real loader did) of each case."""
    modules = read_record("modules")
    for architecture, entry in read_record(engine)["architectures"].items():
        own = [
            HfModule(pattern, kind, name, tuple(shape))
            for pattern, kind, name, shape in modules[architecture]
        ]
        for variant in adapter_variants(own):
            if variant.name in entry["outcomes"]:
                yield architecture, variant, entry["outcomes"][variant.name]


def predict(loader: EngineLoader, architecture: str, variant: AdapterVariant) -> PredictedLoading:
    tensors = {
        name: StoredTensor(name, "F32", shape, Path("adapter_model.safetensors"), 0, 0)
        for name, shape in variant.shapes.items()
    }
    return predict_adapter_loading(
        loader, loader.architectures[architecture], tensors, variant.whole_config
    )


def loader_of(engine: str, release: str) -> EngineLoader:
    loader = read_engine_loader(engine, release)
    assert loader is not None
    return loader


def served_engine_modules(predicted: PredictedLoading, packed: dict[str, list[str]]) -> set[str]:
    """The engine's modules that get a change: q, k and v are one where it packs them."""
    parents = {child: parent for parent, children in packed.items() for child in children}
    served = {fate.tensor.module for fate in predicted.with_effect("served")}
    return {
        ".".join([*module.split(".")[:-1], parents.get(leaf := module.split(".")[-1], leaf)])
        for module in served
    }


def test_vllm_does_what_is_predicted() -> None:
    loader = loader_of("vllm", "0.32.0")
    packed = {name: entry["packed"] for name, entry in read_record("vllm")["architectures"].items()}
    wrong, count = [], 0
    for architecture, variant, outcome in recorded_cases("vllm"):
        count += 1
        predicted = predict(loader, architecture, variant)
        expected: Any = (
            "refused"
            if predicted.is_refused
            else len(served_engine_modules(predicted, packed[architecture]))
        )
        if expected != (outcome if outcome == "refused" else outcome[0]):
            wrong.append((architecture, variant.name, outcome, expected))
    assert not wrong, (len(wrong), count, wrong[:40])
    assert count > 1500


def test_llama_cpp_does_what_is_predicted() -> None:
    loader = loader_of("llama.cpp", "0c1e57098")
    wrong, count = [], 0
    for architecture, variant, outcome in recorded_cases("llama_cpp"):
        count += 1
        predicted = predict(loader, architecture, variant)
        expected: Any = "refused"
        if not predicted.is_refused:
            expected = bool(predicted.with_effect("served"))
        if expected != (outcome if outcome == "refused" else outcome > 0):
            wrong.append((architecture, variant.name, outcome, expected))
    assert not wrong, (len(wrong), count, wrong[:40])
    assert count > 1500


def test_facts_have_their_source_and_the_page_is_written_from_them() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `python -m tests.engine_loaders_page`"
    for engine in ENGINES:
        for release in known_releases(engine):
            loader = loader_of(engine, release)
            assert loader.architectures, (engine, release)
            sources = [fact.source for fact in loader.facts.values()]
            assert all(source.rpartition(":")[2].isdigit() for source in sources), (engine, release)


def test_rslora_is_served_at_the_trained_scale() -> None:
    loader = loader_of("vllm", "0.32.0")
    scales = set()
    for architecture, variant, outcome in recorded_cases("vllm"):
        if variant.name in ("rsLoRA", "all linear modules of layers") and outcome != "refused":
            predicted = predict(loader, architecture, variant)
            # Where a part is left out, the sum of what was applied tells no scale.
            if len(predicted.with_effect("served")) == len(predicted.fates):
                scales.add((variant.name, outcome[1]))
    # 8 / sqrt(4), and 8 / 4 without it: what vLLM 0.32.0 multiplied the factors by.
    assert scales == {("rsLoRA", 4.0), ("all linear modules of layers", 2.0)}
