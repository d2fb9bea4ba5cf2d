"""Says from files alone whether an engine will serve an adapter as it was trained: `truetune serve-check --static`.

Only the header of the adapter's file, its adapter_config.json and the base's config.json are read; no weights, no GPU
and no server are needed. What the engine's loader does is looked up in a table of its real behaviour. The trade-off: a
release, an architecture or a property that the table does not have is not judged, and never called fine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from truetune.checkpoint.engine_adapter_loaders.predict_adapter_loading import (
    PredictedLoading,
    predict_adapter_loading,
)
from truetune.checkpoint.engine_adapter_loaders.read_engine_loaders import (
    EngineLoader,
    known_releases,
    read_engine_loader,
)
from truetune.checkpoint.load_checkpoint import Checkpoint, read_checkpoint
from truetune.checks.judgement import Judgement, NotJudged
from truetune.checks.reports import Report, Subject
from truetune.checks.rule import AdapterLoadingRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.errors import UsageError
from truetune.settings.run_spec import RunSpec

TRY_IT = "try the adapter on the server (truetune serve-check --endpoint)"
# Chosen for one line of a terminal; all are in the page on serve-check.
SHOWN_RELEASES = 8
"""Releases that a report names where the asked one is not known"""


def predict_adapter_service(
    folder: str | os.PathLike[str],
    engine: str,
    release: str,
    *,
    base: str | os.PathLike[str] | None = None,
    spec: RunSpec | None = None,
) -> Report:
    """Whether a release of an engine will serve an adapter as it was trained.

    Args:
        folder: of the adapter.
        engine: `vllm`, `sglang`, `llama.cpp`, `ollama` or `tgi`.
        release: of the engine, as it names it; for llama.cpp the commit.
        base: folder of the base model, of which config.json is read; else adapter_config.json names it.
        spec: which rules judge.

    Raises:
        UsageError: the folder holds no adapter, there is no such base, or no such engine.
    """
    started = time.perf_counter()
    spec = spec or RunSpec()
    adapter = read_checkpoint(folder, base=base)
    if adapter.kind != "adapter":
        raise UsageError(
            f"{adapter.folder}: expected the folder of an adapter (adapter_config.json)"
        )
    loader = read_engine_loader(engine, release)
    missing = _why_not_judged(adapter, loader, engine, release)
    facts = {"engine": f"{engine} {release}"}
    if missing is not None:
        judgement = Judgement(not_judged=(missing,))
    else:
        assert loader is not None
        loading = _predict(adapter, loader)
        facts |= _describe_loading(loading)
        judgement = Judgement.of(
            [
                run_rules(loading, choose_rules(spec, AdapterLoadingRule)),
                Judgement(not_judged=tuple(_unknown_parts(loading))),
            ]
        )
    return Report(
        spec=spec,
        subjects=(Subject("adapter", str(adapter.folder), tuple(facts.items())),),
        findings=judgement.findings,
        examined=judgement.examined,
        not_judged=judgement.not_judged,
        seconds=time.perf_counter() - started,
    )


def predict_loading_or_raise(adapter: Checkpoint, engine: str, release: str) -> PredictedLoading:
    """What a release of an engine makes of an adapter. Raises UsageError where that is not known."""
    loader = read_engine_loader(engine, release)
    missing = _why_not_judged(adapter, loader, engine, release)
    if missing is not None or loader is None:
        raise UsageError(f"{adapter.folder}: {missing}")
    return _predict(adapter, loader)


def _why_not_judged(
    adapter: Checkpoint, loader: EngineLoader | None, engine: str, release: str
) -> NotJudged | None:
    """Why nothing can be said of an adapter for an engine; None where something can."""
    what = f"{engine} {release}"
    if loader is None:
        known = known_releases(engine)
        return NotJudged(
            what,
            f"what this release does with adapters is not known; known are {', '.join(known[:SHOWN_RELEASES])}"
            + (", ..." if len(known) > SHOWN_RELEASES else ""),
            unlock=TRY_IT,
        )
    kind = adapter.adapter_config.get("peft_type", "LORA")
    if kind != "LORA":
        return NotJudged(what, f"the adapter is {kind}, and only LoRA is known")
    if not adapter.tensors:
        return NotJudged(
            what, "no tensor of the adapter could be read", unlock="save it as safetensors"
        )
    name = _architecture_of_base(adapter)
    if name is None:
        return NotJudged(
            what,
            "the base's architecture is not known: its config.json is not on this machine",
            unlock="name the folder of the base with --base; config.json alone is enough",
        )
    if name not in loader.architectures:
        return NotJudged(
            what,
            f"what it does with adapters on {name} is not known",
            unlock=TRY_IT,
        )
    return None


def _predict(adapter: Checkpoint, loader: EngineLoader) -> PredictedLoading:
    """What the loader makes of an adapter whose architecture it has."""
    name = _architecture_of_base(adapter)
    assert name is not None
    config: Mapping[str, Any] = adapter.base.config if adapter.base is not None else {}
    text = config.get("text_config")
    layers = (text if isinstance(text, dict) else config).get("num_hidden_layers")
    # Of a model of several parts the outer value counts; one that is not written is the class's own.
    is_tied = config.get("tie_word_embeddings")
    return predict_adapter_loading(
        loader,
        loader.architectures[name],
        adapter.tensors,
        adapter.adapter_config,
        layers if isinstance(layers, int) else None,
        is_tied if isinstance(is_tied, bool) else None,
    )


def _architecture_of_base(adapter: Checkpoint) -> str | None:
    """The class of the base model, from its config.json; None where that is not there."""
    if adapter.base is None:
        return None
    architectures = adapter.base.config.get("architectures")
    if not isinstance(architectures, list) or not architectures:
        return None
    return str(architectures[0])


def _unknown_parts(loading: PredictedLoading) -> Iterator[NotJudged]:
    """The settings and tensors of which the table does not say what becomes of them."""
    for name, effect in loading.properties.items():
        if effect is None:
            yield NotJudged(name, f"what {loading.engine_name} does with it is not known")
    unknown = loading.with_effect(None)
    if unknown:
        yield NotJudged(
            f"{len(unknown):,} of {len(loading.fates):,} tensors",
            f"what {loading.engine_name} makes of {unknown[0].tensor.tensor.name} is not known",
            unlock=TRY_IT,
        )


def _describe_loading(loading: PredictedLoading) -> dict[str, str]:
    """Short facts: the architecture, and how many tensors have which fate."""
    counts = {
        "served": len(loading.with_effect("served")),
        "left out": len(loading.with_effect("ignored")),
        "refused": len(loading.with_effect("refused")),
        "not known": len(loading.with_effect(None)),
    }
    return {
        "architecture": f"{loading.architecture.name} ({loading.architecture.source})",
        "tensors": ", ".join(f"{count:,} {name}" for name, count in counts.items() if count),
        "rank": str(loading.rank),
    }
