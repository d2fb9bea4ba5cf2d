"""`truetune init`: what it looks at, what it proposes, and that its file is read back as it was meant."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

import truetune
from tests.recipes_page import DATA as OF_RECIPE
from tests.recipes_page import PAGE, SHAPE, furnish, page, rows
from truetune.checks.judge_settings import judge_settings
from truetune.cli.init_run_settings_command import RECIPES as NAMES
from truetune.cli.init_run_settings_command import init
from truetune.demo import DATA
from truetune.errors import UsageError
from truetune.memory.plan_memory import plan_memory
from truetune.settings import settings_schema
from truetune.settings.read_truetune_settings import find_own_settings_and_file, validate_settings
from truetune.settings.run_spec import Encoding, Learn, RunSpec, Watch
from truetune.settings.stacks.read_config_of_any_stack import read_config
from truetune.settings.training_settings import Lora, Training
from truetune.training.propose_settings import (
    RECIPE_MEANINGS,
    RECIPES,
    propose_recipe_name,
    propose_settings,
)
from truetune.training.setting_conflicts import OTHER_STACKS
from truetune.training.settings_as_explained_yaml import ALWAYS_SET, LAYOUT, SHORT_MEANINGS
from truetune.training.settings_as_explained_yaml import render_settings_yaml as sheet
from truetune.training.survey_data_and_model_for_init import (
    MAX_ROWS_SURVEYED,
    survey_data_and_model_config,
)
from truetune.training.training_recipe import make_recipe

HIDDEN = {
    "mask_by", "response_marker", "append_eos", "trained_by", "encode.file_format", "encode.sources",
    "encode.preferences", "media_dir",
    "encode.trainer", "encode.record_root", "training.warmup_ratio", "training.packing", "training.packing_strategy",
    "training.padding_free", "training.use_reentrant", "training.fsdp", "training.deepspeed_stage",
    "training.added_tokens", "training.special_tokens", "training.resize_vocab", "training.logging_nan_inf_filter",
    "training.eval_accumulation_steps", "training.resume_from_checkpoint", "training.no_length_limit",
    "training.open_length_limit",
}  # fmt: skip
"""Settings of other trainers, of rows that `truetune train` does not train (pictures), and what it decides itself"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a model, and data for each recipe."""
    furnish(tmp_path, 40)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def data_of(name: str) -> str:
    return OF_RECIPE.get(name, "chats.jsonl")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(init, arguments, catch_exceptions=False)


def written(name: str, *more: str, file: str = "truetune.yaml") -> str:
    done = run(file, "--recipe", name, "--model", "model", "--data", data_of(name), *more)
    assert done.exit_code == 0
    return Path(file).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_the_file_means_what_was_proposed(name: str, folder: Path) -> None:
    text = written(name, "-o", "outputs/first")
    settings, source = find_own_settings_and_file(None, folder)
    assert source == folder / "truetune.yaml"
    spec = validate_settings(settings, "test")
    asked = validate_settings(
        {
            "model": "model",
            "tokenizer": "model",
            "data": data_of(name),
            "training": {"output_dir": "outputs/first"},
        },
        "test",
    )
    made = propose_settings(asked, survey_data_and_model_config(asked), name, gpu=False)
    gpu = made.recipe.gpu
    again = make_recipe(spec, rows=made.recipe.rows, gpu=gpu, bf16=gpu)
    assert again.training == made.recipe.training
    assert (again.max_length, again.packing) == (made.recipe.max_length, made.recipe.packing)
    assert spec.data == (str(folder / data_of(name)),)
    assert (spec.model, spec.tokenizer) == (str(folder / "model"),) * 2
    first, *rest = text.splitlines()
    assert first == "# yaml-language-server: $schema=truetune.schema.json"
    Draft202012Validator(
        json.loads(Path(settings_schema.SCHEMA_NAME).read_text(encoding="utf-8"))
    ).validate(yaml.safe_load(text))
    shown = [line for line in rest if re.match(r"\s*(# +)?\w+: \S", line)]
    assert len(shown) > 60
    assert [line for line in shown if not re.search(r"\S +# \w", line)] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_rules_find_nothing_in_it(name: str, folder: Path) -> None:
    written(name)
    config = read_config("truetune.yaml")
    judged = judge_settings(config, config.spec)
    assert (judged.findings, [part for part in judged.not_judged if part.asked]) == ((), [])
    assert judged.examined
    assert (config.unknown, config.repeated, config.missing) == ((), (), ())
    assert not [note for note in plan_memory(config).notes if "is set" in note]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_commented_out_is_right_too(name: str, folder: Path) -> None:
    """All settings of the sheet at once are understood, and those that are no examples change nothing."""
    lines = written(name).splitlines()
    opened = []
    for line in lines:
        setting, _, meaning = line.partition(" # ")
        bare = setting.replace("# ", "", 1) if setting.lstrip().startswith("# ") else setting
        opened.append(bare if meaning or bare.rstrip().endswith(":") else "")
    settings = yaml.safe_load("\n".join(opened))
    spec = validate_settings(settings, "test")
    if spec.training.loss_type is not None:
        assert spec.training.loss_type == {"dpo": "sigmoid", "kto": "kto"}[name]
    shown = {path for _, paths in LAYOUT for path in paths}
    assert set(_paths(settings)) <= shown


def _paths(settings: dict[str, Any], parent: str = "") -> list[str]:
    found = []
    for key, value in settings.items():
        path = f"{parent}{key}"
        inner = isinstance(value, dict) and path in (
            "learn",
            "encode",
            "training",
            "training.lora",
            "watch",
        )
        found += _paths(value, f"{path}.") if inner else [path]
    return found


def test_every_setting_is_shown_or_known_to_be_hidden() -> None:
    parts: dict[str, Any] = {
        "learn": Learn,
        "encode": Encoding,
        "training": Training,
        "watch": Watch,
        "training.lora": Lora,
    }
    every = {name for name in RunSpec.model_fields if name not in parts}
    every |= {f"{part}.{name}" for part, model in parts.items() for name in model.model_fields} - {
        "training.lora"
    }
    shown = [path for _, paths in LAYOUT for path in paths]
    assert len(shown) == len(set(shown))
    assert every - set(shown) == HIDDEN | {f"training.{name}" for name in OTHER_STACKS}
    assert ALWAYS_SET | set(SHORT_MEANINGS) <= set(shown) <= every
    assert tuple(RECIPES) == tuple(RECIPE_MEANINGS) == NAMES


def test_nothing_is_overwritten(folder: Path) -> None:
    first = written("lora")
    with pytest.raises(
        UsageError,
        match=r"truetune.yaml: already exists and is not to be overwritten without --force",
    ):
        written("sft")
    assert Path("truetune.yaml").read_text(encoding="utf-8") == first
    assert written("sft", "--force") != first
    with pytest.raises(UsageError, match=r"there is no folder .*nowhere"):
        written("sft", file="nowhere/truetune.yaml")


def test_paths_stand_beside_the_file(folder: Path) -> None:
    (folder / "runs").mkdir()
    done = run(
        "runs/a.yaml",
        "--model",
        "model",
        "--data",
        "c*s.jsonl",
        "--eval-data",
        str(folder / "chats.jsonl"),
    )
    assert done.exit_code == 0
    plain = yaml.safe_load(Path("runs/a.yaml").read_text(encoding="utf-8"))
    assert (plain["model"], plain["data"]) == ("../model", "../c*s.jsonl")
    assert plain["eval_data"] == str(folder / "chats.jsonl")
    spec = validate_settings(find_own_settings_and_file("runs/a.yaml", folder)[0], "test")
    assert Path(str(spec.model)).resolve() == folder / "model"
    assert (folder / "runs" / settings_schema.SCHEMA_NAME).is_file()


def test_a_path_from_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    assert run("--model", "~/model", "--data", "~/chats.jsonl").exit_code == 0
    settings = find_own_settings_and_file(None, folder)[0]
    assert (settings["model"], settings["data"]) == (
        str(folder / "model"),
        str(folder / "chats.jsonl"),
    )


def test_what_it_needs_and_nobody_to_ask(folder: Path) -> None:
    with pytest.raises(
        UsageError, match="--model and --data: not given, and there is no terminal to ask at"
    ):
        run()
    with pytest.raises(UsageError, match="--data: not given"):
        run("--model", "model", "--yes")
    assert not Path("truetune.yaml").exists()


def test_it_asks_at_a_terminal(folder: Path) -> None:
    leader, follower = pty.openpty()
    code = (
        "import sys; from truetune.cli.init_run_settings_command import init; init.main([], standalone_mode=False); "
        "assert not {'torch', 'transformers'} & sys.modules.keys()"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(truetune.__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=follower,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
    )
    os.write(leader, b"model\nchats.jsonl\n\ndora\n")
    said = process.communicate(timeout=120)[0].decode()
    os.close(leader)
    os.close(follower)
    assert process.returncode == 0, said
    settings = find_own_settings_and_file(None, folder)[0]
    assert settings["training"]["lora"]["use_dora"]
    assert settings["training"]["output_dir"] == "outputs"
    assert "Recipe (sft, lora, qlora, dora, dpo, orpo, kto, grpo) [lora]" in said


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (
            "dpo",
            "chats.jsonl",
            "dpo needs pairs (columns chosen and rejected); these rows are messages",
        ),
        (
            "kto",
            "pairs.jsonl",
            "kto needs answers with a label (true or false); these rows are preference",
        ),
        (
            "lora",
            "pairs.jsonl",
            "lora learns from answers; these rows are preference: take dpo or orpo",
        ),
        ("sft", "judged.jsonl", "sft learns from answers; these rows are kto: take kto"),
        (
            "grpo",
            "pairs.jsonl",
            "grpo learns from rewards for its own answers to prompts; these rows are preference: take dpo or orpo",
        ),
    ],
)
def test_rows_that_a_recipe_is_not_for(name: str, data: str, message: str, folder: Path) -> None:
    with pytest.raises(UsageError, match="these rows are") as raised:
        run("--recipe", name, "--model", "model", "--data", data)
    assert str(raised.value) == f"{data}: {message}"


@pytest.mark.parametrize(
    ("answers", "reward"),
    [
        (["12", "$1,230.", "3 * 4 = 12\n#### 12"], "agrees:number"),
        (["yes", "no", "Paris in 1999 was lovely"], "exact"),
    ],
)
def test_a_reward_is_proposed_that_fits_the_answers(
    answers: list[str], reward: str, folder: Path
) -> None:
    rows = [{"prompt": "How many?", "answer": answer} for answer in answers]
    Path("problems.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    training = yaml.safe_load(written("grpo"))["training"]
    assert training["rewards"] == reward
    assert training["num_generations"] == 8


def test_a_reward_of_ones_own_is_taken_and_needed_where_rows_have_no_answer(folder: Path) -> None:
    rows = [{"messages": [{"role": "user", "content": "Write a poem."}]}] * 4
    Path("problems.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(UsageError, match="these rows have no answer to compare with"):
        written("grpo")
    assert (
        yaml.safe_load(written("grpo", "--reward", "mine.py:rhymes"))["training"]["rewards"]
        == "mine.py:rhymes"
    )
    with pytest.raises(UsageError, match="take grpo"):
        written("lora", "--reward", "mine.py:rhymes", file="other.yaml")


def test_what_is_found(folder: Path) -> None:
    spec = validate_settings({"data": "pairs.jsonl", "tokenizer": "model"}, "test")
    found = survey_data_and_model_config(spec)
    assert (found.format, found.rows, found.exact, found.notes, propose_recipe_name(found)) == (
        "preference",
        40,
        True,
        (),
        "dpo",
    )
    assert found.lengths is not None
    assert found.shape is not None
    assert (found.lengths.examples, found.shape.positions) == (40, 4096)
    assert found.lengths.most == found.lengths.longest
    poor = survey_data_and_model_config(
        validate_settings({"data": "chats.jsonl", "tokenizer": "nowhere"}, "test")
    )
    assert (poor.lengths, poor.shape, propose_recipe_name(poor)) == (None, None, "lora")
    assert ["not known" in note for note in poor.notes] == [True, True]
    made = propose_settings(
        validate_settings({"data": "chats.jsonl", "tokenizer": "nowhere"}, "test"),
        poor,
        "lora",
        gpu=False,
    )
    assert (made.plan, made.recipe.max_length, made.notes) == (None, 2048, poor.notes)


def test_more_rows_than_are_looked_at(folder: Path) -> None:
    count = 3 * MAX_ROWS_SURVEYED
    (folder / "many.jsonl").write_text(
        "".join(f"{json.dumps(row)}\n" for row in rows("chats.jsonl", count))
    )
    found = survey_data_and_model_config(
        validate_settings({"data": "many.jsonl", "tokenizer": "model"}, "test")
    )
    assert not found.exact
    assert found.lengths is not None
    assert found.lengths.examples == MAX_ROWS_SURVEYED
    assert 0.9 * count < found.rows < 1.3 * count


def test_a_length_for_all_but_a_few(folder: Path) -> None:
    few = [
        {
            "messages": [
                {"role": "user", "content": "Hm?"},
                {"role": "assistant", "content": "word " * words},
            ]
        }
        for words in [10] * 39 + [3000]
    ]
    (folder / "few.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in few))
    spec = validate_settings({"data": "few.jsonl", "tokenizer": "model"}, "test")
    found = survey_data_and_model_config(spec)
    assert found.lengths is not None
    made = propose_settings(spec, found, "lora", gpu=False)
    assert found.lengths.longest > 2048 > made.recipe.max_length == 1024
    assert made.notes == (
        "examples longer than 1,024 tokens are left out and counted (encode.overflow)",
    )


def test_a_gpu(folder: Path) -> None:
    wide = {**SHAPE, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32}
    Path("model/config.json").write_text(json.dumps(wide), encoding="utf-8")
    spec = validate_settings(
        {"model": "model", "tokenizer": "model", "data": "chats.jsonl"}, "test"
    )
    found = survey_data_and_model_config(spec)
    for size, verdict in ((2**30, "too large, see `truetune plan`"), (2**40, "fits")):
        made = propose_settings(spec, found, "lora", gpu=True, gpu_memory=size)
        assert made.recipe.training.bf16
        assert made.summary_lines[-1].endswith(f"GiB on a GPU: {verdict}")
    assert (
        yaml.safe_load(sheet(made, folder, settings_schema.SCHEMA_NAME))["training"][
            "gradient_checkpointing"
        ]
        is True
    )


def test_the_schema_alone(folder: Path) -> None:
    assert run("--schema", "-").output == settings_schema.settings_schema_text()
    assert run("--schema", "given.json").exit_code == 0
    assert Path("given.json").read_text(encoding="utf-8") == settings_schema.settings_schema_text()
    assert not Path("truetune.yaml").exists()


def test_the_demo_data(folder: Path) -> None:
    done = run("--model", "model", "--data", str(DATA))
    assert done.exit_code == 0
    assert "data: 200 rows (messages), 95 of 100 at most" in done.output
    assert (
        "wrote truetune.yaml; next: `truetune check truetune.yaml`, `truetune train truetune.yaml`"
        in done.output
    )


def test_the_page_shows_what_is_written() -> None:
    assert page(PAGE.read_text(encoding="utf-8")) == PAGE.read_text(encoding="utf-8"), (
        "python -m tests.recipes_page"
    )
