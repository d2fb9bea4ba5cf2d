"""Merging: what comes out is what base and adapter make, or nothing comes out."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from tests.checkpoint import make
from truetune.checkpoint.base_fingerprint import write_base_fingerprint
from truetune.checkpoint.load_checkpoint import read_checkpoint
from truetune.checkpoint.read_run_and_check_checkpoints import RUN_FILE, list_files_with_digests
from truetune.checks.inspect_checkpoint import checkpoint_report
from truetune.cli.merge_export_movement_commands import merge as command
from truetune.errors import UsageError
from truetune.generation.prompts_to_compare_model_forms import (
    prepare_proof_prompts,
    read_template_and_stop_facts,
)
from truetune.report.merge_and_export_terminal import merge_page_values
from truetune.report.page import html_page_of_json
from truetune.training.atomic_folder import (
    MARK_FILE,
    MODEL_FOLDER,
    _work_folder_mark_file_content,
    write_folder_atomically,
)
from truetune.training.merge import MERGE_FILE, merge
from truetune.training.prove_merge_or_export import (
    compare_form_with_adapter_on_base,
    make_proof_of_form_comparisons,
    observe_greedy_answers_and_logits,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base in float32 and one in bfloat16, and adapters on them."""
    folder = tmp_path_factory.mktemp("made")
    make.base(folder / "base")
    make.base(folder / "tied", tie_word_embeddings=True, seed=1)
    make.base(folder / "bf16", dtype="bfloat16")
    make.adapter(folder / "base", folder / "lora")
    make.adapter(
        folder / "base",
        folder / "kinds",
        use_rslora=True,
        use_dora=True,
        modules_to_save=["lm_head"],
    )
    make.adapter(folder / "tied", folder / "tied-rows", trainable_token_indices=[5, 6])
    make.adapter(folder / "bf16", folder / "small", lr=1e-5)
    resized(folder / "base", folder / "resized")
    return folder


def resized(base: Path, folder: Path) -> None:
    """Two tokens more than the base has rows, and only they are trained."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.add_tokens([f"<new{i}>" for i in range(2050 - len(tokenizer))])
    model = AutoModelForCausalLM.from_pretrained(base)
    model.resize_token_embeddings(2112)
    rows = {"embed_tokens": list(range(2000, 2050))}
    config = LoraConfig(
        r=4, target_modules=["q_proj"], task_type="CAUSAL_LM", trainable_token_indices=rows
    )
    make.steps(get_peft_model(model, config)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.mark.parametrize("name", ["lora", "kinds", "tied-rows", "resized"])
def test_a_healthy_merge_is_silent(name: str, made: Path, tmp_path: Path) -> None:
    done = merge(made / name, out=tmp_path / "m", prompts=1)
    assert not done.failed
    assert [f.rule for f in done.findings if f.rule != "new-token-on-untrained-spare-row"] == []
    assert done.proof is not None
    assert done.proof.effect > 1e-4
    assert [r.name for r in done.proof.rungs] == ["merged, float32", "saved and reloaded"]
    for step in done.proof.rungs:
        assert step.kept == pytest.approx(1, abs=1e-3)
        assert step.answers == 1
        assert step.difference < 1e-4
    assert (done.proof.rungs[1].template, done.proof.rungs[1].special) == (True, True)
    assert {p.name for p in tmp_path.iterdir()} == {"m"}
    there = read_checkpoint(tmp_path / "m")
    assert there.kind == "model"
    for file in ("tokenizer.json", "chat_template.jinja", "tokenizer_config.json"):
        assert (tmp_path / "m" / file).read_bytes() == (made / name / file).read_bytes()


@pytest.mark.parametrize(
    ("dtype", "stored"), [("bfloat16", "BF16"), ("float32", "F32"), (None, "BF16")]
)
def test_dtypes(dtype: str | None, stored: str, made: Path, tmp_path: Path) -> None:
    done = merge(made / "small", out=tmp_path / "m", dtype=dtype, prove=False)
    assert {t.dtype for t in read_checkpoint(tmp_path / "m").tensors.values()} == {stored}
    kept = done.manifest.merged
    assert kept is not None
    assert (kept.lost > 0.75 * kept.changed) == (stored == "BF16")
    assert [f.severity for f in done.findings] == (["warning"] if stored == "BF16" else [])
    assert not [f for f in checkpoint_report(tmp_path / "m").findings if f.severity == "error"]


def test_an_effect_that_is_rounded_away_fails(made: Path, tmp_path: Path) -> None:
    """The change of `small` is far below the grid of bfloat16."""
    done = merge(made / "small", out=tmp_path / "m", prompts=1)
    assert done.failed
    assert done.proof is not None
    memory, disk = done.proof.rungs
    assert memory.faults == ()
    assert "of the effect is there" in done.proof.faults[0]
    assert disk.kept < 0.5
    assert list(tmp_path.iterdir()) == []


def test_a_proof_that_fails_without_a_finding_is_said_to_have_failed(
    made: Path, tmp_path: Path
) -> None:
    done = merge(made / "lora", out=tmp_path / "m", prompts=1)
    assert done.proof is not None
    lost = merge_page_values(replace(done, proof=replace(done.proof, effect=0.0)))
    assert (lost["failed"], lost["findings"]) == (True, [])
    for value, fine in ((lost, False), (merge_page_values(done), True)):
        text = html_page_of_json(value)
        headlines = ('headline fine">No findings' in text, 'headline error">Failed' in text)
        assert headlines == (fine, not fine)


def test_the_same_merge_is_found_again(made: Path, tmp_path: Path) -> None:
    merge(made / "lora", out=tmp_path / "m", prove=False)
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "m").iterdir()}
    assert merge(made / "lora", out=tmp_path / "m", prove=False).reused
    assert {p.name: p.stat().st_mtime_ns for p in (tmp_path / "m").iterdir()} == before
    for settings in ({"dtype": "bfloat16", "prove": False}, {"prompts": 1}):
        with pytest.raises(UsageError, match="already exists"):
            merge(made / "lora", out=tmp_path / "m", **settings)
    record = json.loads((tmp_path / "m" / MERGE_FILE).read_text())
    assert record["kept"]["kept"] == pytest.approx(1, abs=1e-4)


def broken(made: Path, folder: Path, **changes: Any) -> Path:
    copied = Path(shutil.copytree(made / "lora", folder))
    make.edit(copied / "adapter_config.json", **changes)
    return copied


def test_a_wrong_base_is_refused(made: Path, tmp_path: Path) -> None:
    adapter = broken(made, tmp_path / "a")
    write_base_fingerprint(adapter, read_checkpoint(made / "base"))
    other = make.base(tmp_path / "other", seed=7)
    with pytest.raises(UsageError, match="adapter-on-another-base"):
        merge(adapter, base=other, out=tmp_path / "m", prove=False)
    assert not merge(adapter, out=tmp_path / "m", prove=False).failed


def test_a_changed_alpha_is_told_by_the_record(made: Path, tmp_path: Path) -> None:
    adapter = broken(made, tmp_path / "a")
    (adapter / RUN_FILE).write_text(
        json.dumps({"format": 1, "status": "finished", "files": list_files_with_digests(adapter)})
    )
    assert "settings were changed" not in merge(adapter, out=tmp_path / "m", prove=False).notes[0]
    make.edit(adapter / "adapter_config.json", lora_alpha=64)
    assert "adapter_config.json has" in merge(adapter, out=tmp_path / "other", prove=False).notes[0]
    shutil.copy(made / "kinds" / "adapter_model.safetensors", adapter)
    with pytest.raises(UsageError, match="weights are not those that the run wrote"):
        merge(adapter, out=tmp_path / "third", prove=False)


def test_a_dead_adapter_is_refused(made: Path, tmp_path: Path) -> None:
    adapter = make.adapter(made / "base", tmp_path / "a", count=0)
    with pytest.raises(UsageError, match="adapter-file-empty"):
        merge(adapter, out=tmp_path / "m")


def test_a_quantized_base_is_refused(made: Path, tmp_path: Path) -> None:
    base = Path(shutil.copytree(made / "base", tmp_path / "base"))
    make.edit(
        base / "config.json",
        quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True},
    )
    with pytest.raises(UsageError, match=r"quantized \(bitsandbytes\).*--base"):
        merge(made / "lora", base=base, out=tmp_path / "m")


def test_what_is_no_adapter_or_has_no_base(made: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no adapter"):
        merge(made / "base")
    adapter = broken(made, tmp_path / "a", base_model_name_or_path="nobody/nothing")
    with pytest.raises(UsageError, match="nobody/nothing is not on this machine"):
        merge(adapter)
    pickled = broken(made, tmp_path / "p")
    (pickled / "adapter_model.safetensors").rename(pickled / "adapter_model.bin")
    with pytest.raises(UsageError, match="are a pickle"):
        merge(pickled)


def test_a_generation_config_of_the_run_is_kept(made: Path, tmp_path: Path) -> None:
    adapter = broken(made, tmp_path / "a")
    (adapter / "generation_config.json").write_text('{"eos_token_id": [3, 4]}')
    done = merge(adapter, out=tmp_path / "m", prompts=1)
    assert not done.failed
    assert read_template_and_stop_facts(tmp_path / "m").stops == {3, 4}


def test_the_ladder_tells_what_another_scale_does(made: Path, tmp_path: Path) -> None:
    """alpha changed, on the way from memory to disk: half and twice, and none of the effect."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    asked = prepare_proof_prompts(made / "lora", made / "base", count=2)
    seen: dict[Any, Any] = {}
    for alpha in (0, 2, 8, 16):
        adapter = broken(made, tmp_path / str(alpha), lora_alpha=alpha)
        model = PeftModel.from_pretrained(
            AutoModelForCausalLM.from_pretrained(made / "base"), str(adapter)
        ).eval()
        seen[alpha] = observe_greedy_answers_and_logits(model, asked, seen.get(0))
    steps = {
        alpha: compare_form_with_adapter_on_base(
            "other", seen[8], seen[0], seen[alpha], prompts=asked
        )
        for alpha in (2, 8, 16)
    }
    assert steps[8].faults == ()
    assert steps[2].kept == pytest.approx(0.25, abs=0.05)
    assert steps[16].kept == pytest.approx(2, abs=0.2)
    assert steps[2].faults
    assert steps[16].faults
    none = make_proof_of_form_comparisons(seen[0], seen[0], [])
    assert none.faults == ("the adapter does not change a single logit",)


def test_other_ids_and_templates_are_told(made: Path) -> None:
    asked = prepare_proof_prompts(made / "lora", made / "base", count=1)
    model = make.llama()
    seen = observe_greedy_answers_and_logits(model, asked)
    same = asked.facts
    for facts, text in (
        (replace(same, template="0"), "another chat template"),
        (replace(same, stops=frozenset({9})), "other special or stop ids"),
        (replace(same, special=()), "other special or stop ids"),
    ):
        assert compare_form_with_adapter_on_base(
            "x", seen, None, seen, prompts=asked, facts=facts
        ).faults == (text,)
    assert (
        compare_form_with_adapter_on_base("x", seen, None, seen, prompts=asked, facts=same).faults
        == ()
    )


def test_prompts_of_data(made: Path, tmp_path: Path) -> None:
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"Question {i}"},
                {"role": "assistant", "content": "Yes"},
            ]
        }
        for i in range(3)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    asked = prepare_proof_prompts(
        made / "lora", made / "base", count=2, data=[str(tmp_path / "rows.jsonl")]
    )
    assert {prompt.question for prompt in asked.prompts} < {f"Question {i}" for i in range(3)}


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Longer ones can't be written, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_nothing_half_is_left(made: Path, tmp_path: Path) -> None:
    left = tmp_path / ".m.999999999.part"
    (left / MODEL_FOLDER).mkdir(parents=True)
    (left / MARK_FILE).write_bytes(_work_folder_mark_file_content("999999999"))
    (left / MODEL_FOLDER / "model.safetensors").write_bytes(b"half")
    with pytest.raises(UsageError, match="nothing of it was left"), files_of_at_most(100_000):
        merge(made / "lora", out=tmp_path / "m", prove=False)
    assert list(tmp_path.iterdir()) == []
    with (
        pytest.raises(KeyboardInterrupt),
        write_folder_atomically(tmp_path / "m", size=0, inputs=[]) as part,
    ):
        _stopped(part)
    with (
        pytest.raises(UsageError, match="are free"),
        write_folder_atomically(tmp_path / "m", size=1 << 60, inputs=[]),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def _stopped(part: Path) -> None:
    (part / "config.json").write_text("x")
    raise KeyboardInterrupt


def test_a_folder_that_only_looks_left_over_stays(tmp_path: Path) -> None:
    """One without our mark, and in one with it what has no name of a model's file."""
    bare, marked = tmp_path / ".m.999999999.part", tmp_path / ".m.999999998.part"
    (bare / MODEL_FOLDER).mkdir(parents=True)
    (bare / MODEL_FOLDER / "model.safetensors").write_bytes(b"mine")
    (marked / MODEL_FOLDER).mkdir(parents=True)
    (marked / MARK_FILE).write_bytes(_work_folder_mark_file_content("999999998"))
    (marked / MODEL_FOLDER / "thesis.tex").write_text("mine")
    (marked / MODEL_FOLDER / "model.safetensors").write_bytes(b"half")
    with write_folder_atomically(tmp_path / "m", size=0, inputs=[]) as part:
        (part / "config.json").write_text("{}")
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {
        ".m.999999999.part/model/model.safetensors",
        ".m.999999998.part/model/thesis.tex",
        "m/config.json",
        ".m.999999998.part/truetune-work.json",
    }


def test_the_command(made: Path, tmp_path: Path) -> None:
    run = CliRunner()
    done = run.invoke(
        command,
        [str(made / "lora"), "-o", str(tmp_path / "m"), "--prompts", "1"],
        standalone_mode=False,
    )
    assert done.return_value == 0
    assert "saved and reloaded" in done.output
    assert "is ready" in done.output
    page = tmp_path / "page.html"
    given = [str(made / "lora"), "-o", str(tmp_path / "j"), "--prompts", "1", "--html", str(page)]
    done = run.invoke(command, [*given, "--json"], standalone_mode=False)
    value = json.loads(done.stdout)
    assert (value["schema"], value["failed"], value["proof"]["faults"]) == (
        "truetune.merge/1",
        False,
        [],
    )
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (
        run.invoke(command, [*given, "-q"], standalone_mode=False).stdout == f"{tmp_path / 'j'}\n"
    )
    done = run.invoke(
        command,
        [str(made / "small"), "-o", str(tmp_path / "s"), "--prompts", "1"],
        standalone_mode=False,
    )
    assert done.return_value == 1
    assert "CKP028" in done.output
    assert "not written" in done.output
    assert not (tmp_path / "s").exists()
    assert torch.get_default_dtype() == torch.float32
