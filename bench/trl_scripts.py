"""TRL's own scripts for trainings by rewards, reward models and distillation, audited as they are: a table of
docs/rollouts.md.

python -m bench.trl_scripts                       run those of the installed release, and print the tables
python -m bench.trl_scripts --examples FOLDER     and the examples in this folder (a checkout's examples/scripts)
python -m bench.trl_scripts --write               and write the tables into docs/rollouts.md

No script is copied or changed: each is run by `truetune run` with options alone, over models of two layers and 32 rows
that are made here. The policy was trained for some seconds, so that its answers end. Processor seconds are those of all
processes, start included, of the script alone and audited.

The trade-off: GKD and online DPO have no script in the wheel, so they need a folder from elsewhere; without it their
lines of the page stay as they are, and --write refuses.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "rollouts.md"
MARK = "<!-- table of trl scripts -->"
"""Stands before and behind the tables"""
ROWS = 32
# With these the tiny model answers like its rows, and ends its answers.
POLICY = {
    "learning_rate": 1e-2,
    "max_steps": 120,
    "per_device_train_batch_size": 16,
    "lr_scheduler_type": "constant",
}
REWARDS = """
def distinct(completions, **columns):
    return [float(len(set(one[0]["content"]))) for one in completions]
"""
COMMON = (
    "--report_to none --use_cpu --bf16 False --save_strategy no --max_steps 6 --logging_steps 1"
    " --disable_tqdm True --model_name_or_path policy"
)
SAMPLED = "--dataset_name prompts --max_completion_length 24"
GROUPS = (
    f"{SAMPLED} --per_device_train_batch_size 8 --num_generations 4 --reward_funcs rewards.distinct"
)
TAUGHT = "--teacher_model_name_or_path teacher"
JUDGED_FAMILIES = ("LAW", "ROL")
"""Those whose rules that were not judged are listed with their reasons"""


@dataclass(frozen=True)
class Script:
    """A script of TRL, and the options it is run with."""

    name: str
    trainer: str
    options: str
    is_example: bool = False
    """Is it one of the repository's examples, and none of the wheel's scripts?"""
    variant: str = ""

    @property
    def title(self) -> str:
        folder = "examples" if self.is_example else "trl"
        return f"`{folder}/scripts/{self.name}.py`" + (f", {self.variant}" if self.variant else "")


SCRIPTS = (
    Script("grpo", "GRPOTrainer", GROUPS),
    Script(
        "grpo", "GRPOTrainer", f"{GROUPS} --use_peft --beta 0.04 --num_iterations 2",
        variant="LoRA, a KL term, each rollout used twice",
    ),
    Script(
        "grpo", "GRPOTrainer",
        f"{GROUPS} --reward_model_name_or_path scores --gradient_accumulation_steps 2 --loss_type dr_grpo",
        variant="a reward model, accumulated",
    ),
    Script("rloo", "RLOOTrainer", GROUPS),
    Script("distillation", "DistillationTrainer", f"{SAMPLED} {TAUGHT}"),
    Script("reward", "RewardTrainer", "--dataset_name pairs"),
    Script(
        "reward", "RewardTrainer", "--dataset_name pairs --use_peft --lora_task_type SEQ_CLS", variant="LoRA"
    ),
    Script(
        "online_dpo", "OnlineDPOTrainer",
        "--dataset_name prompts --reward_model_path scores --max_new_tokens 24 --dtype auto", is_example=True,
    ),
    Script("gkd", "GKDTrainer", f"--dataset_name chats --max_new_tokens 24 {TAUGHT}", is_example=True),
    Script("reward_modeling", "RewardTrainer", "--dataset_name pairs", is_example=True),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What the audit of a script said, and what both runs took."""

    script: Script
    exit_code: int
    findings: tuple[str, ...]
    judged: tuple[str, ...]
    """Codes of the rules that were examined, of both reports"""
    not_judged: tuple[tuple[str, str], ...]
    """(code, reason) of rules of JUDGED_FAMILIES"""
    seconds_alone: float
    seconds_audited: float


def run_scripts(examples: Path | None) -> list[Outcome]:
    """Run each script alone and audited. Raises SystemExit where one fails without the audit."""
    import trl

    folders = {False: Path(trl.__file__).parent / "scripts", True: examples}
    outcomes = []
    with tempfile.TemporaryDirectory() as work:
        place = Path(work)
        make_inputs(place)
        for script in SCRIPTS:
            folder = folders[script.is_example]
            if folder is not None:
                outcomes.append(_run_script(script, folder / f"{script.name}.py", place))
                print(_line(outcomes[-1]), flush=True)
    return outcomes


def make_inputs(place: Path) -> None:
    """Write models, rows and a reward function into a folder."""
    from tests.auditing import tiny
    from tests.auditing.tiny_rollouts import questions

    tokenizer = tiny.tokenizer()
    trained = tiny.sft(tiny.chats(2 * ROWS), tiny.model(), **POLICY)
    trained.train()
    models = {
        "policy": trained.model,
        "teacher": tiny.model(seed=1, hidden_size=64),
        "scores": tiny.reward_model(seed=2, pad_token_id=tokenizer.pad_token_id),
    }
    for name, model in models.items():
        if model.can_generate():
            model.generation_config.eos_token_id = [tokenizer.eos_token_id]
        model.save_pretrained(place / name)
        tokenizer.save_pretrained(place / name)
    rows = {"prompts": questions(ROWS), "pairs": tiny.pairs(ROWS), "chats": tiny.chats(ROWS)}
    for name, made in rows.items():
        (place / name).mkdir()
        text = "".join(json.dumps(row) + "\n" for row in made)
        (place / name / "train.jsonl").write_text(text, encoding="utf-8")
    (place / "rewards.py").write_text(REWARDS, encoding="utf-8")


def _run_script(script: Script, path: Path, place: Path) -> Outcome:
    """Run a script alone, and audited."""
    with tempfile.TemporaryDirectory() as out:
        options = f"{COMMON} {script.options} --output_dir {out}/model".split()
        training = [sys.executable, str(path), *options]
        alone = _run(training, place)
        if alone.exit_code:
            raise SystemExit(
                f"{script.title} ended with {alone.exit_code}:\n{alone.errors[-4000:]}"
            )
        report = Path(out, "report.json")
        words = ["run", "--format", "json", "-o", str(report)]
        audited = _run([sys.executable, "-m", "truetune", *words, "--", *training], place)
        reports = [
            json.loads(file.read_text(encoding="utf-8"))
            for file in (report, report.with_stem("report-2"))
            if file.exists()
        ]
    return _outcome(script, alone, audited, reports)


def _outcome(script: Script, alone: _Run, audited: _Run, reports: list[dict[str, Any]]) -> Outcome:
    """What the reports of a script's audit say."""
    from truetune.checks.rule_catalogue import all_rules

    codes = {rule.name(): rule.code for rule in all_rules()}
    return Outcome(
        script=script,
        exit_code=audited.exit_code,
        findings=tuple(one["code"] for report in reports for one in report["findings"]),
        judged=tuple(sorted(one["code"] for report in reports for one in report["examined"])),
        not_judged=tuple(
            sorted(
                (codes[one["what"]], one["reason"])
                for report in reports
                for one in report["not_judged"]
                if codes.get(one["what"], "").startswith(JUDGED_FAMILIES)
            )
        ),
        seconds_alone=alone.seconds,
        seconds_audited=audited.seconds,
    )


@dataclass(frozen=True)
class _Run:
    """One command that ended."""

    exit_code: int
    seconds: float
    """Processor seconds of all its processes"""
    errors: str


def _run(command: list[str], place: Path) -> _Run:
    """Run a command to its end, offline."""
    before = os.times()
    done = subprocess.run(
        command,
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    after = os.times()
    seconds = after.children_user - before.children_user
    seconds += after.children_system - before.children_system
    return _Run(done.returncode, seconds, done.stderr)


def draw(outcomes: list[Outcome]) -> str:
    """Both tables: what was judged of each script, and what was not."""
    head = "| script | trainer | exit code | found | judged | CPU s alone | audited |\n|---|---|---|---|---|---|---|"
    reasons: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, one in enumerate(outcomes, 1):
        for code, reason in one.not_judged:
            reasons[reason][code].append(number)
    by_reason = [
        f"| {reason} | {_ranges(list(codes))} | {_scripts(codes)} |"
        for reason, codes in sorted(reasons.items(), key=lambda item: sorted(item[1]))
    ]
    numbered = [f"| {number}. {_line(one)[2:]}" for number, one in enumerate(outcomes, 1)]
    second = "| not judged, because | rules | scripts |\n|---|---|---|"
    return "\n".join([head, *numbered, "", second, *by_reason])


def _line(one: Outcome) -> str:
    """The line of a script."""
    cells = (
        one.script.title,
        one.script.trainer,
        str(one.exit_code),
        ", ".join(one.findings) or "nothing",
        _ranges(list(one.judged)),
        f"{one.seconds_alone:.1f}",
        f"{one.seconds_audited:.1f}",
    )
    return f"| {' | '.join(cells)} |"


def _scripts(codes: dict[str, list[int]]) -> str:
    """The numbers of the scripts of a reason."""
    return ", ".join(map(str, sorted({number for numbers in codes.values() for number in numbers})))


def _ranges(codes: list[str]) -> str:
    """Codes with those in between left out: `LAW015 to LAW020, ROL001`."""
    runs: list[list[str]] = []
    for code in sorted(set(codes)):
        follows = (
            runs and code[:3] == runs[-1][-1][:3] and int(code[3:]) == int(runs[-1][-1][3:]) + 1
        )
        if follows:
            runs[-1].append(code)
        else:
            runs.append([code])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)


def write(text: str, path: Path = PAGE) -> None:
    """Put the tables between their marks. Raises SystemExit where the page doesn't hold both."""
    parts = path.read_text(encoding="utf-8").split(MARK)
    if len(parts) != 3:
        raise SystemExit(f"{path.name}: expected {MARK} twice")
    path.write_text(f"{parts[0]}{MARK}\n{text}\n{MARK}{parts[2]}", encoding="utf-8")


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.trl_scripts", description=__doc__)
    parser.add_argument("--examples", type=Path, help="a folder with TRL's examples/scripts")
    parser.add_argument("--write", action="store_true", help="write into docs/rollouts.md")
    options = parser.parse_args()
    if options.write and options.examples is None:
        parser.error("--write needs --examples: the page has their lines, too")
    text = draw(run_scripts(options.examples and options.examples.absolute()))
    print(text)
    if options.write:
        write(text)


if __name__ == "__main__":
    main()
