"""`truetune check PATH` finds out what a path is, and looks at all of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

import truetune
from tests.test_cli import truetune as command
from truetune.checks.reports import DataReport
from truetune.demo import DATA, TOKENIZER
from truetune.errors import DataError, UsageError

TRL = {
    "model_name_or_path": str(TOKENIZER), "dataset_name": str(DATA), "max_length": 512, "learning_rate": 2e-4,
    "num_train_epochs": 3, "per_device_train_batch_size": 8, "completion_only_loss": False, "use_peft": True,
}  # fmt: skip
SCRIPT = """\
from trl import SFTConfig, SFTTrainer

args = SFTConfig(output_dir="out", max_length=512, learning_rate=2e-4, max_steps=100, warmup_steps=500)
trainer = SFTTrainer(model="m", args=args)
"""
STATE = {
    "global_step": 60, "max_steps": 60, "num_train_epochs": 1, "epoch": 1.0, "logging_steps": 1,
    "log_history": [
        {"step": i, "epoch": i / 60, "loss": 2.0, "grad_norm": 0.0, "learning_rate": 1e-4} for i in range(1, 61)
    ],
}  # fmt: skip


def codes(report: truetune.Report) -> set[str]:
    return {finding.code for finding in report.findings if finding.severity != "info"}


def kinds(report: truetune.Report) -> list[str]:
    return [subject.kind for subject in report.subjects]


def write(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else yaml.safe_dump(value), encoding="utf-8")
    return path


def test_settings_of_a_stack_bring_their_data(tmp_path: Path) -> None:
    report = truetune.check(write(tmp_path / "sft.yaml", TRL))
    assert isinstance(report, DataReport)
    assert (report.rows, report.lengths.limit, kinds(report)) == (200, 512, ["TRL configuration"])
    assert codes(report) == set()
    broken = truetune.check(write(tmp_path / "broken.yaml", {**TRL, "warmup_steps": 5000}))
    assert codes(broken) == {"CFG004"}
    place = broken.findings[0].cases[0]
    assert (place.file, place.line) == (str(tmp_path / "broken.yaml"), 9)


def test_what_is_not_here_is_said(tmp_path: Path) -> None:
    report = truetune.check(write(tmp_path / "sft.yaml", {**TRL, "dataset_name": "acme/rows"}))
    assert not isinstance(report, DataReport)
    missing = next(part for part in report.not_judged if part.what == "the data of these settings")
    assert ("none of its files is on this machine" in missing.reason, missing.asked) == (
        True,
        False,
    )


def test_a_script(tmp_path: Path) -> None:
    report = truetune.check(write(tmp_path / "train.py", SCRIPT))
    assert (kinds(report), codes(report)) == (["Python source"], {"CFG004"})
    assert report.findings[0].cases[0].line == 3


def test_a_run_and_its_last_checkpoint(tmp_path: Path) -> None:
    for step in (30, 60):
        folder = tmp_path / "run" / f"checkpoint-{step}"
        write(folder / "trainer_state.json", json.dumps(STATE))
        write(
            folder / "adapter_config.json",
            json.dumps({"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"]}),
        )
        name = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
        shapes = {"A": (2, 8), "B": (8, 2)}
        save_file(
            {
                name.format(part): np.ones(shape, np.float32) * (part == "A")
                for part, shape in shapes.items()
            },
            folder / "adapter_model.safetensors",
        )
    report = truetune.check(tmp_path / "run")
    assert kinds(report) == ["run log", "adapter"]
    assert report.subjects[1].path.endswith("checkpoint-60")
    assert {"CKP003"} < codes(report)
    assert any(code.startswith("LOG") for code in codes(report))


def test_a_broken_tokenizer_beside_weights_keeps_nothing_else_back(tmp_path: Path) -> None:
    shutil.copytree(TOKENIZER, tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    report = truetune.check([tmp_path / "model", write(tmp_path / "train.py", SCRIPT)])
    assert {"CFG004", "CKP001"} <= codes(report)
    with pytest.raises(truetune.errors.TokenizerError):
        truetune.check(DATA, tmp_path / "model")


def test_a_project_folder(tmp_path: Path) -> None:
    write(tmp_path / "train.py", SCRIPT)
    write(
        tmp_path / "sft.yaml",
        {**TRL, "dataset_name": "acme/rows", "warmup_steps": 10, "max_steps": 5},
    )
    shutil.copy(DATA, tmp_path / "chats.jsonl")
    report = truetune.check(tmp_path)
    assert len([f for f in report.findings if f.code == "CFG004"]) == 2
    assert "data" in kinds(report) or isinstance(report, DataReport)


CACHE_OFF = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "use_cache": False}


@pytest.mark.parametrize("folder", ["merged", "out/merged"])
def test_the_json_files_of_a_model_below_a_project(tmp_path: Path, folder: str) -> None:
    write(tmp_path / "chat.py", "print(1)\n")
    (tmp_path / folder).mkdir(parents=True)
    for name in ("config.json", "generation_config.json"):
        write(tmp_path / folder / name, json.dumps(CACHE_OFF))
    for path in (tmp_path, tmp_path / folder):
        report = truetune.check(path)
        (finding,) = report.findings
        assert finding.code == "CKP022"
        assert "the whole text again for each token" in finding.message
        assert "not in this folder" in " ".join(str(report).split())
    unread = {part.what: part.reason for part in report.not_judged}
    assert unread["nan-in-weights"] == "the weights are not in this folder"


def test_a_tokenizer_beside_the_json_files_of_a_model(tmp_path: Path) -> None:
    shutil.copytree(TOKENIZER, tmp_path / "merged")
    for name in ("config.json", "generation_config.json"):
        write(tmp_path / "merged" / name, json.dumps(CACHE_OFF))
    assert "CKP022" in codes(truetune.check(tmp_path / "merged"))


def test_the_config_of_another_program_below_a_project(tmp_path: Path) -> None:
    write(tmp_path / "chat.py", "print(1)\n")
    (tmp_path / "app").mkdir()
    write(tmp_path / "app" / "config.json", '{"port": 8000, "use_cache": false}')
    assert truetune.check(tmp_path).findings == ()


def test_nothing_that_is_known(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="empty folder"):
        truetune.check(tmp_path)
    write(tmp_path / "x.bin", "\0\1")
    with pytest.raises(UsageError, match="binary file"):
        truetune.check(tmp_path / "x.bin")
    with pytest.raises(UsageError, match="no such file"):
        truetune.check(tmp_path / "nowhere.yaml")


def test_own_settings_from_file_folder_and_here(tmp_path: Path) -> None:
    settings = {
        "data": str(DATA),
        "tokenizer": str(TOKENIZER),
        "max_length": 512,
        "training": {"max_steps": 100, "warmup_steps": 500},
    }
    write(tmp_path / "truetune.yaml", settings)
    for arguments in ((), (".",), ("truetune.yaml",)):
        done = command("check", *arguments, "--format", "json", cwd=tmp_path)
        result = json.loads(done.stdout)
        assert (done.returncode, result["rows"]) == (1, 200)
        assert [finding["code"] for finding in result["findings"]] == ["CFG004"]


def test_settings_of_this_folder_do_not_reach_what_is_named(tmp_path: Path) -> None:
    write(
        tmp_path / "truetune.yaml",
        {"data": str(DATA), "tokenizer": str(TOKENIZER), "ignore": ["CFG004"]},
    )
    write(tmp_path / "train.py", SCRIPT)
    done = command("check", "train.py", "--format", "json", cwd=tmp_path)
    result = json.loads(done.stdout)
    assert (done.returncode, result["findings"], "rows" in result) == (0, [], False)


def test_a_report_without_rows_is_drawn_everywhere(tmp_path: Path) -> None:
    write(tmp_path / "train.py", SCRIPT)
    done = command("check", "train.py", "--html", "page.html", cwd=tmp_path)
    assert done.returncode == 1
    assert "train.py:3" in done.stdout
    assert "train.py:3" in (tmp_path / "page.html").read_text(encoding="utf-8")
    sarif = json.loads(command("check", "train.py", "--format", "sarif", cwd=tmp_path).stdout)
    place = sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("train.py", 3)


def test_lint_prints_a_patch_or_mends(tmp_path: Path) -> None:
    source = (
        "from transformers import AutoModelForCausalLM\n\nmodel ="
        ' AutoModelForCausalLM.from_pretrained("m")\nfor ids in batches:\n    out ='
        " model.generate(ids, max_new_tokens=5, use_cache=False)\n"
    )
    write(tmp_path / "a.py", source)
    done = command("lint", "--diff", "a.py", cwd=tmp_path)
    assert done.stdout.startswith("--- a/a.py\n+++ b/a.py\n")
    assert "1 finding would be fixed in 1 of 1 file" in done.stderr
    assert (tmp_path / "a.py").read_text() == source
    assert command("lint", "--fix", "-q", "a.py", cwd=tmp_path).stdout == ""
    assert "use_cache=True" in (tmp_path / "a.py").read_text()


def test_plan_says_what_fits(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4096,
        "vocab_size": 128256,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "dtype": "bfloat16",
    }
    write(tmp_path / "config.json", json.dumps(config))
    done = command("plan", tmp_path, "--gpu", "24GB", "--max-length", 2048, "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (1, "too large")
    small = (
        "--set",
        "lora.r=16",
        "--set",
        "load_in=4",
        "--set",
        "per_device_train_batch_size=1",
        "--set",
        "gradient_checkpointing=true",
    )
    assert command("plan", tmp_path, "--gpu", "24GB", "--max-length", 2048, *small).returncode == 0
    assert (
        command("plan", tmp_path, "--set", "lora").stderr
        == "truetune: error: --set lora: expected NAME=VALUE\n"
    )


ABSENT = "nobody/no-such-model-9b"


def stacks_with_an_absent_model(folder: Path) -> dict[str, Path]:
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"Is {i} open?"},
                {"role": "assistant", "content": f"{i} is."},
            ]
        }
        for i in range(4)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "dataset_info.json").write_text(
        json.dumps(
            {
                "rows": {
                    "file_name": "rows.jsonl",
                    "formatting": "sharegpt",
                    "columns": {"messages": "messages"},
                }
            }
        )
    )
    files: dict[str, dict[str, object]] = {
        "axolotl": {"base_model": ABSENT, "datasets": [{"path": "rows.jsonl", "type": "chat_template"}],
                    "sequence_len": 512, "micro_batch_size": 1},
        "llama-factory": {"model_name_or_path": ABSENT, "stage": "sft", "do_train": True, "dataset": "rows",
                          "dataset_dir": str(folder), "template": "qwen", "cutoff_len": 512, "finetuning_type": "lora"},
        "trl": TRL | {"model_name_or_path": ABSENT, "dataset_name": str(folder / "rows.jsonl")},
        "truetune": {"model": ABSENT, "data": ["rows.jsonl"], "max_length": 512},
    }  # fmt: skip
    paths = {}
    for name, settings in files.items():
        paths[name] = (
            folder / name / "truetune.yaml" if name == "truetune" else folder / f"{name}.yaml"
        )
        paths[name].parent.mkdir(exist_ok=True)
        paths[name].write_text(yaml.safe_dump(settings))
    (folder / "truetune" / "rows.jsonl").write_text((folder / "rows.jsonl").read_text())
    return paths


@pytest.mark.parametrize("stack", ["axolotl", "llama-factory", "trl", "truetune"])
@pytest.mark.parametrize("with_data", [False, True])
def test_a_tokenizer_stands_in_for_a_model_that_is_not_here(
    stack: str, with_data: bool, tmp_path: Path
) -> None:
    paths = stacks_with_an_absent_model(tmp_path)
    more = (str(tmp_path / "rows.jsonl"),) if with_data else ()
    done = command("check", str(paths[stack]), *more, "-t", str(TOKENIZER), "--json")
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    assert report["rows"] == 4
    (told,) = [
        item for item in report["not_judged"] if item["what"] == "the model beside the tokenizer"
    ]
    assert ABSENT in told["reason"]
    assert "hf download" in told["unlock"]
    assert not told["asked"]


@pytest.mark.parametrize("stack", ["axolotl", "llama-factory", "trl"])
def test_without_a_tokenizer_the_settings_are_judged_and_the_texts_of_the_rows(
    stack: str, tmp_path: Path
) -> None:
    done = command("check", str(stacks_with_an_absent_model(tmp_path)[stack]), "--json")
    assert done.returncode in (0, 1), done.stderr
    assert "the prompts, tokens and lengths of the data" in [
        item["what"] for item in json.loads(done.stdout)["not_judged"]
    ]


ACCELERATE = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nnum_machines:"
    " 1\nnum_processes: 1\n"
)


def test_a_launch_configuration_keeps_nothing_else_back(tmp_path: Path) -> None:
    (tmp_path / "accel.yaml").write_text(ACCELERATE)
    (tmp_path / "train.py").write_text(SCRIPT)
    report = truetune.check([tmp_path / "accel.yaml", tmp_path / "train.py"])
    assert "CFG004" in codes(report)
    (told,) = [
        item for item in report.not_judged if item.what == "the accelerate launch configuration"
    ]
    assert "num_processes: 1" in told.reason
    assert told.asked
    assert truetune.check(tmp_path / "accel.yaml").exit_code() == 3


MAPS = {
    "rows = rows.map(lambda x: {'prompt': [dict(role='user', content=x['prompt'])]})": [],
    "rows = rows.map(lambda x: {k: [{'role': 'user', 'content': x[k]}] for k in ('prompt', 'chosen', 'rejected')})": [],
    (
        "def chats(row):\n    return {'prompt': [{'role': 'user', 'content': row['prompt']}], "
        "'chosen': [{'role': 'assistant', 'content': row['chosen']}]}\nrows = rows.map(chats, num_proc=4)"
    ): [],
    (
        "def render(row):\n    return {'prompt': tok.apply_chat_template(row['messages'], tokenize=False)}\n"
        "rows = rows.filter(bool).map(function=render)"
    ): [],
    "rows = rows.map(lambda x: {'prompt': x['prompt'].strip()})": ["TPL010"],
    "rows = rows.shuffle(seed=1)": ["TPL010"],
    "names = [{'role': 'user', 'content': 'hello'}]\nrows = rows.map(str.strip)": ["TPL010"],
}


@pytest.mark.parametrize("code", MAPS)
def test_strings_that_a_script_maps_to_messages_are_not_judged(code: str, tmp_path: Path) -> None:
    rows = [
        {"prompt": f"Where is {i}?", "chosen": f"{i} is here.", "rejected": "No."} for i in range(4)
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "train.py").write_text(
        "from datasets import load_dataset\nfrom trl import DPOTrainer\nrows ="
        f" load_dataset('json', data_files='p')\n{code}\nDPOTrainer('m',"
        " train_dataset=rows).train()\n"
    )
    report = truetune.check(
        [tmp_path / "pairs.jsonl", tmp_path / "train.py"], TOKENIZER, select=["TPL010"]
    )
    assert [finding.code for finding in report.findings] == MAPS[code]
    told = [item for item in report.not_judged if item.code == "TPL010"]
    assert all("train.py, line" in item.reason for item in told)
    assert len(told) + len(MAPS[code]) == 1


def test_a_text_file_is_a_log_where_it_has_records(tmp_path: Path) -> None:
    script, log, notes = (tmp_path / name for name in ("train.py", "log.txt", "requirements.txt"))
    script.write_text(SCRIPT)
    log.write_text("".join(f"step {i} loss {2.7 if i == 0 else 'nan'}\n" for i in range(30)))
    notes.write_text("torch\ntrl==1.16\n")
    alone = truetune.check([script])
    assert codes(truetune.check([script, log])) == codes(alone) | {"LOG004"}
    beside = truetune.check([script, notes])
    assert codes(beside) == codes(alone)
    assert [part.what for part in beside.not_judged if part.place == str(notes)] == [
        "the text file"
    ]


FACTORY = "model_name_or_path: m\nstage: sft\ndo_train: true\ntemplate: qwen\ndataset: a\n"
LOGGED = "{'loss': 2.0, 'learning_rate': 1e-5, 'epoch': 0.1}\n" * 3


def test_a_folder_is_read_file_by_file(tmp_path: Path) -> None:
    """Settings, a log, a configuration of DeepSpeed, and a file that nothing reads, without a script among them."""
    laid = {
        "sft.yaml": FACTORY,
        "merge.yaml": FACTORY.replace("do_train: true\n", ""),
        "train.log": LOGGED,
        "broken.log": "\0\1\2",
        "ds.json": '{"zero_optimization": {"stage": 2}}',
        "notes.bin": "\0",
    }
    for name, text in laid.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    report = truetune.check(tmp_path)
    assert {Path(subject.path).name for subject in report.subjects} == {
        "sft.yaml",
        "merge.yaml",
        "train.log",
    }
    unread = {Path(part.what).name: part for part in report.not_judged}
    assert "no record of a run" in unread["broken.log"].reason
    assert "notes.bin" in unread["other files"].reason
    assert not any(unread[name].asked for name in ("broken.log", "other files"))


def test_one_unreadable_log_keeps_no_other_back(tmp_path: Path) -> None:
    good, bad, empty = tmp_path / "train.log", tmp_path / "bad.log", tmp_path / "empty.log"
    good.write_text(LOGGED, encoding="utf-8")
    bad.write_text("\0\1\2", encoding="utf-8")
    empty.write_text("", encoding="utf-8")
    report = truetune.check([good, bad, empty])
    assert [subject.path for subject in report.subjects] == [str(good)]
    unread = {part.place or part.what for part in report.not_judged if part.asked}
    assert {Path(name).name for name in unread} == {"bad.log", "empty.log"}
    assert report.exit_code() == 3


def test_a_broken_log_alone_and_a_path_that_is_not_there_are_errors(tmp_path: Path) -> None:
    bad, good = tmp_path / "bad.log", tmp_path / "train.log"
    bad.write_text("\0\1\2", encoding="utf-8")
    good.write_text(LOGGED, encoding="utf-8")
    with pytest.raises(DataError, match="no record of a run"):
        truetune.check(bad)
    with pytest.raises(UsageError, match="no such file"):
        truetune.check([good, tmp_path / "trian.log"])


@pytest.fixture
def factory_project(tmp_path: Path) -> Path:
    """A project as people keep it: settings, rows, logs and results each in a folder, one script that starts them."""
    for name in ("configs", "data", "logs", "saves/run1"):
        tmp_path.joinpath(name).mkdir(parents=True)
    settings = (
        "model_name_or_path: m\nstage: sft\ndo_train: true\nfinetuning_type: lora\ntemplate: qwen\n"
        "dataset: notes\ndataset_dir: data\nlearning_rate: 5.0\noutput_dir: saves/run1\n"
    )
    tmp_path.joinpath("configs", "sft.yaml").write_text(settings)
    tmp_path.joinpath("configs", "again.yaml").write_text(settings.replace("run1", "run2"))
    rows = [
        {"instruction": f"What is {number}?", "input": "", "output": "It is none."}
        for number in range(40)
    ]
    tmp_path.joinpath("data", "notes.json").write_text(json.dumps(rows))
    described = {"notes": {"file_name": "notes.json"}}
    tmp_path.joinpath("data", "dataset_info.json").write_text(json.dumps(described))
    tmp_path.joinpath("run.sh").write_text("llamafactory-cli train configs/sft.yaml\n")
    logged = [{"current_steps": step, "loss": 2.0 / step, "lr": 1e-4} for step in range(1, 30)]
    log = "".join(json.dumps(record) + "\n" for record in logged)
    tmp_path.joinpath("saves", "run1", "trainer_log.jsonl").write_text(log)
    tmp_path.joinpath("logs", "train.log").write_text(LOGGED)
    return tmp_path


def test_folders_of_a_project_are_read_too(factory_project: Path) -> None:
    report = truetune.check(factory_project)
    subjects = {
        str(Path(subject.path).relative_to(factory_project))
        for subject in report.subjects
        if Path(subject.path).is_relative_to(factory_project)
    }
    assert {"configs/sft.yaml", "configs/again.yaml", "saves/run1", "logs/train.log"} <= subjects
    assert "few-distinct-answers" in codes_by_rule(report)
    assert not any(part.what == "other files" for part in report.not_judged)


def test_what_two_settings_share_is_one_finding_with_both_places(factory_project: Path) -> None:
    report = truetune.check(factory_project)
    of_rate = [finding for finding in report.findings if "learning rate of 5" in finding.message]
    assert len(of_rate) == 1
    assert {Path(case.file or "").name for case in of_rate[0].cases} == {"sft.yaml", "again.yaml"}


def test_rows_in_a_folder_below_are_the_data_where_nothing_else_names_some(tmp_path: Path) -> None:
    tmp_path.joinpath("data").mkdir()
    tmp_path.joinpath("data", "rows.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n' * 3)
    tmp_path.joinpath("notes.bin").write_bytes(b"\0")
    report = truetune.check(tmp_path)
    assert "duplicate-rows" in codes_by_rule(report)


@pytest.mark.parametrize("name", ["a/b/c/d", "node_modules", ".hidden", "venv"])
def test_what_is_far_below_or_of_tools_is_left_alone(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir(parents=True)
    folder.joinpath("sft.yaml").write_text(FACTORY)
    tmp_path.joinpath("train.log").write_text(LOGGED)
    report = truetune.check(tmp_path)
    assert not any("sft.yaml" in subject.path for subject in report.subjects)


def codes_by_rule(report: truetune.Report) -> set[str]:
    return {finding.rule for finding in report.findings}
