"""The movement manifest: exact figures, and each way in which a change is lost told by name."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tests.checkpoint import make
from truetune.checkpoint.compare_tensor_samples import map_tensor_into_memory
from truetune.checkpoint.load_checkpoint import read_checkpoint
from truetune.checkpoint.summarise_floats_by_bits import to_float32
from truetune.checkpoint.weight_diff import TensorMovement, compare_weights, round_to_format
from truetune.checks.weight_diff_report import movement
from truetune.cli.merge_export_movement_commands import movement as command
from truetune.errors import UsageError

ADAPTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "lora": ("base", {}),
    "rslora": ("base", {"use_rslora": True, "r": 16}),
    "dora": ("base", {"use_dora": True}),
    "ranks": (
        "base",
        {
            "target_modules": "all-linear",
            "rank_pattern": {"q_proj": 2},
            "alpha_pattern": {"q_proj": 4},
        },
    ),
    "rows": ("base", {"trainable_token_indices": {"embed_tokens": [6, 5]}}),
    "rows-tied": ("tied", {"trainable_token_indices": [5, 6]}),
    "on-embedding": ("base", {"target_modules": ["q_proj", "embed_tokens", "lm_head"]}),
    "head-tied": ("tied", {"modules_to_save": ["lm_head"]}),
    "heads-tied": (
        "tied",
        {"modules_to_save": ["embed_tokens", "lm_head"], "ensure_weight_tying": True},
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two bases, adapters on them, and each adapter merged by peft."""
    folder = tmp_path_factory.mktemp("made")
    make.base(folder / "base")
    make.base(folder / "tied", tie_word_embeddings=True)
    make.base(folder / "bf16", dtype="bfloat16")
    for name, (base, settings) in ADAPTERS.items():
        make.adapter(folder / base, folder / name, **settings)
        merge(folder / base, folder / name, folder / f"{name}-merged")
    return folder


def merge(
    base: Path, adapter: Path, to: Path, *, dtype: str = "float32", times: float = 1.0
) -> Path:
    """As people merge: peft, in float32; `times` is a scale that is wrong."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model: Any = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), str(adapter)
    )
    for module in model.modules():
        scaling: Any = getattr(module, "scaling", None)
        if isinstance(scaling, dict):
            vars(module)["scaling"] = {name: scale * times for name, scale in scaling.items()}
    model.merge_and_unload().to(getattr(torch, dtype)).save_pretrained(to)
    return make.with_tokenizer(to)


def tensors(folder: Path) -> dict[str, np.ndarray]:
    return {
        n: to_float32(map_tensor_into_memory(t), t.dtype)
        for n, t in read_checkpoint(folder).tensors.items()
    }


def one(report: Any, name: str) -> TensorMovement:
    return next(t for t in report.manifest.tensors if t.name == name)


def told(report: Any) -> dict[str, str]:
    return {f.rule: f.severity for f in report.findings}


@pytest.mark.parametrize("name", ADAPTERS)
def test_what_an_adapter_makes_is_what_peft_merges(name: str, made: Path) -> None:
    base = made / ADAPTERS[name][0]
    report = movement(made / f"{name}-merged", base=base, adapter=made / name)
    assert told(report) == {}
    assert report.manifest.merged is not None
    assert report.manifest.merged.error < 1e-5
    assert report.manifest.merged.kept == pytest.approx(1, abs=1e-5)
    assert report.manifest.merged.lost == 0
    assert report.manifest.left_out == ()
    alone = movement(made / name, base=base).manifest
    assert {t.name for t in alone.tensors} >= {t.name for t in report.manifest.tensors if t.merged}


def test_figures_of_one_tensor(made: Path) -> None:
    name = "model.layers.0.self_attn.q_proj.weight"
    before, after = tensors(made / "base")[name], tensors(made / "lora-merged")[name]
    found = one(movement(made / "lora-merged", base=made / "base"), name)
    assert found.kind == "self_attn.q_proj.weight"
    assert found.same == int((before == after).sum())
    assert found.change == pytest.approx(
        np.sqrt(((after - before) ** 2).mean() / (before**2).mean()), rel=1e-5
    )
    still = one(movement(made / "lora-merged", base=made / "base"), "model.norm.weight")
    assert (still.share, still.change) == (1, 0)


def test_stretches_add_up(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = movement(made / "rows-merged", base=made / "base", adapter=made / "rows")
    monkeypatch.setattr("truetune.checkpoint.weight_diff.STRETCH_VALUES", 100)
    parts = movement(made / "rows-merged", base=made / "base", adapter=made / "rows")
    for a, b in zip(whole.manifest.tensors, parts.manifest.tensors, strict=True):
        assert (a.name, a.same) == (b.name, b.same)
        assert a.change == pytest.approx(b.change, rel=1e-5)
        assert (a.merged is None) == (b.merged is None)


def test_rows_of_tokens(made: Path) -> None:
    found = one(
        movement(made / "rows-merged", base=made / "base"), "model.embed_tokens.weight"
    ).rows
    assert found is not None
    assert np.flatnonzero(~found.same).tolist() == [5, 6]
    assert (found.change > 0).nonzero()[0].tolist() == [5, 6]


def test_rounding_is_that_of_torch() -> None:
    import torch

    values = np.random.default_rng(0).normal(size=4096).astype(np.float32)
    values[:4] = [1 + 2**-8, 1 + 3 * 2**-8, 0.0, -0.0]
    for dtype, kind in (("BF16", torch.bfloat16), ("F16", torch.float16), ("F32", torch.float32)):
        assert (
            round_to_format(values, dtype) == torch.from_numpy(values).to(kind).float().numpy()
        ).all()


@pytest.mark.parametrize(
    ("times", "text"),
    [
        (0.25, "contain the adapter's change 0.25 times, not once: use_rslora was ignored"),
        (2.0, "change 2 times"),
        (0.0, "base's"),
    ],
)
def test_a_wrong_scale_is_named(times: float, text: str, made: Path, tmp_path: Path) -> None:
    merged = merge(made / "base", made / "rslora", tmp_path / "merged", times=times)
    report = movement(merged, base=made / "base", adapter=made / "rslora")
    assert report.failed()
    assert text in next(
        f.message for f in report.findings if f.rule == "merge-is-not-base-plus-adapter"
    )


def test_another_adapter_is_told(made: Path) -> None:
    report = movement(made / "lora-merged", base=made / "base", adapter=made / "rslora")
    assert "another adapter or another base" in report.findings[0].message


def test_a_change_below_the_grid_is_told(made: Path, tmp_path: Path) -> None:
    adapter = make.adapter(made / "bf16", tmp_path / "small", lr=1e-5)
    merged = merge(made / "bf16", adapter, tmp_path / "merged", dtype="bfloat16")
    report = movement(merged, base=made / "bf16", adapter=adapter)
    assert told(report) == {"merge-is-not-base-plus-adapter": "warning"}
    assert "rounded away in BF16" in report.findings[0].message
    kept = report.manifest.merged
    assert kept is not None
    assert kept.lost == kept.least > 0.75 * kept.changed
    assert movement(merged, base=made / "bf16").findings
    whole = merge(made / "bf16", adapter, tmp_path / "whole")
    assert told(movement(whole, base=made / "bf16", adapter=adapter)) == {}


def test_norms_frozen_by_bare_bfloat16(tmp_path: Path) -> None:
    """Real AdamW steps, with and without a float32 copy, with a learning rate below the grid at 1."""
    import torch

    base = make.base(tmp_path / "base", dtype="bfloat16", hidden_size=64, intermediate_size=128)
    found = {}
    for kind, lr in (("bfloat16", 1e-5), ("float32", 3e-3)):
        model = make.steps(
            make.llama(hidden_size=64, intermediate_size=128).to(getattr(torch, kind)), 20, lr
        )
        model.to(torch.bfloat16).save_pretrained(tmp_path / kind)
        found[kind] = movement(tmp_path / kind, base=base)
    assert told(found["bfloat16"]) == {
        "norms-never-moved": "warning",
        "bf16-updates-rounded-away": "warning",
    }
    assert [f.count for f in found["bfloat16"].findings if f.rule == "norms-never-moved"] == [5]
    assert told(found["float32"]) == {}
    norms = [t for t in found["bfloat16"].manifest.tensors if "norm" in t.name]
    assert all(t.share == 1 for t in norms)


def test_dead_adapter_and_untouched_rows(made: Path, tmp_path: Path) -> None:
    dead = make.adapter(made / "base", tmp_path / "dead", count=0)
    report = movement(dead, base=made / "base")
    assert told(report) == {"adapter-file-empty": "error"}
    assert all(t.share == 1 and t.merged is None for t in report.manifest.tensors)


def test_without_a_base(made: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--base"):
        movement(made / "base")
    make.edit(
        _copy(made / "lora", tmp_path / "lora") / "adapter_config.json",
        base_model_name_or_path="nobody/nothing",
    )
    alone = movement(tmp_path / "lora").manifest
    assert len(alone.tensors) == 4
    assert all(math.isnan(t.change) for t in alone.tensors)


def test_the_command(made: Path, tmp_path: Path) -> None:
    run = CliRunner()
    given = [
        str(made / "lora-merged"),
        "--base",
        str(made / "base"),
        "--adapter",
        str(made / "lora"),
    ]
    done = run.invoke(command, [*given, "--json"], standalone_mode=False)
    assert done.return_value == 0
    assert (
        run.invoke(command, [*given, "-o", str(tmp_path / "m.json")], standalone_mode=False).output
        == ""
    )
    value = json.loads(done.output)
    assert value == json.loads((tmp_path / "m.json").read_text()) | {"seconds": value["seconds"]}
    assert value["schema"] == "truetune.movement/1"
    assert value["merged"]["changed"] == sum(
        t["merged"]["changed"] for t in value["tensors"] if t["merged"]
    )
    drawn = run.invoke(
        command, [*given[:3], "--adapter", str(made / "rslora")], standalone_mode=False
    )
    assert drawn.return_value == 1
    assert "self_attn.q_proj" in drawn.output
    assert "CKP028" in drawn.output


def test_progress_reaches_its_end(made: Path) -> None:
    seen: list[tuple[int, int]] = []
    compare_weights(
        read_checkpoint(made / "lora-merged", base=made / "base"),
        progress=lambda *at: seen.append(at),
    )
    assert seen[-1][0] == seen[-1][1] > 0
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


def _copy(source: Path, to: Path) -> Path:
    import shutil

    return Path(shutil.copytree(source, to))


def test_tensors_that_cannot_be_read_are_named(made: Path, tmp_path: Path) -> None:
    """An adapter in float8, which numpy has no type for: its effect is not left out without a word."""
    import torch
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "adapter"
    shutil.copytree(made / "lora", folder)
    file = folder / "adapter_model.safetensors"
    weights = load_file(file)
    name = next(name for name in weights if "lora_A" in name)
    weights[name] = weights[name].to(torch.float8_e4m3fn)
    save_file(weights, file)
    left_out = movement(folder, base=made / "base").manifest.left_out
    assert {text.partition(":")[0] for text in left_out} == {name, name.replace("lora_A", "lora_B")}
