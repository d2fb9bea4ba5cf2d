"""Section `grpo`: `truetune train` with `method: grpo` beside TRL's own GRPOTrainer.

python -m bench.gpu.grpo RUN.json RESULT.json    make one run and write what it came to: for vLLM, which no process
                                                 that has started it gives back

Both take the same weights, prompts, reward, seed and settings: TRL's GRPOConfig is made of the recipe of `truetune
train`. Once transformers samples; and, where vLLM is installed and a card is there, vLLM does in the same process.
truetune goes first, so that what only the first run pays for speaks against it. Timed are the steps after those that
the audit records; what the audit costs is measured by itself. The vocabulary is the tokenizer's: random weights over a
larger one would sample ids that no tokenizer has.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from bench.gpu.early_letters import early_letters
from bench.gpu.entries import Budget, Entry, Value, free_memory, measure_guarded
from bench.gpu.material import SEED, make_questions
from bench.gpu.memory import GIB, MAX_ERROR
from bench.gpu.size import ALL_LINEAR, RewardRace, Size
from bench.memory import SHAPES

SECTION = "grpo"
Contender = Literal["truetune", "TRL"]
Sampler = Literal["transformers", "vLLM"]
CONTENDERS: tuple[Contender, ...] = ("truetune", "TRL")
SAMPLERS: tuple[Sampler, ...] = ("transformers", "vLLM")
SKIPPED = 4
"""First steps, which are not timed: two generations. The audit records no more than the first three steps of them."""
ITERATIONS = 2
"""Steps that learn from one rollout. With one, the loss takes its own log-probabilities as the old ones, and there is
no first ratio to judge."""
FIRST_RATIO, SAMPLER_DIFFERENCE = "ROL008", "ROL010"
NEEDS_VLLM = "needs a GPU and vLLM"


@dataclass(frozen=True)
class RunFiles:
    """One run that is to be made, and where its inputs are."""

    race: RewardRace
    contender: Contender
    sampler: Sampler
    model: Path
    """Folder of weights and tokenizer"""
    data: Path
    """Chats, whose last answers are no part of the prompts"""
    max_length: int
    """Tokens of the longest prompt with its answer. A longer limit would change no batch, and the plan reckons with
    rows of that length."""
    out: Path
    """Folder that it writes to"""

    def to_json(self) -> str:
        """For the process that makes it."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> RunFiles:
        """What `to_json` wrote."""
        values = json.loads(text)
        folders = {name: Path(values[name]) for name in ("model", "data", "out")}
        return cls(**{**values, **folders, "race": RewardRace(**values["race"])})


@dataclass(frozen=True)
class AuditOutcome:
    """What the audit of the first rollouts said, and what it took."""

    completions: int
    verdicts: Mapping[str, str]
    """Code of a rule -> what it measured, its finding, or why it did not judge"""
    judged: tuple[str, ...]
    """Codes of all rules that looked and found nothing"""
    found: tuple[str, ...]
    """Codes of all rules that have a finding"""
    noting_s: float
    """Seconds, beside the work that the trainer had to do anyway"""
    judging_s: float
    """Seconds"""

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> AuditOutcome:
        """What JSON makes of one."""
        codes = {name: tuple(values[name]) for name in ("judged", "found")}
        return cls(**{**values, **codes})

    def are_clean(self, codes: Sequence[str]) -> bool:
        """Did these rules judge, and find nothing?"""
        return set(codes) <= set(self.judged)


@dataclass(frozen=True)
class RunResult:
    """What one run came to."""

    tokens: float
    """Sampled in the timed steps"""
    steps: int
    """Timed ones"""
    seconds: float
    """Of the timed steps"""
    start_s: float
    """Seconds before the first step: model, data, engine, and what truetune checks"""
    all_s: float
    """Seconds of the whole run, its saved weights included where it saves any"""
    peak: float | None
    """Bytes on the card; None on a CPU"""
    mean_rewards: tuple[float, ...]
    """Of each generation"""
    audit: AuditOutcome | None = None
    """None for TRL alone"""
    said: tuple[str, ...] = ()
    """Lines that `truetune train` shows"""

    def to_json(self) -> str:
        """For the process that has asked for it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RunResult:
        """What `to_json` wrote."""
        values = json.loads(text)
        audit = values["audit"]
        return cls(
            **{
                **values,
                "mean_rewards": tuple(values["mean_rewards"]),
                "said": tuple(values["said"]),
                "audit": audit and AuditOutcome.from_values(audit),
            }
        )


def measure(size: Size, budget: Budget) -> Iterator[Entry]:
    """For each race and sampler one entry a contender, the ratios, the plan and the audit."""
    for race in size.reward_races:
        with tempfile.TemporaryDirectory() as work:
            yield from _measure_race(race, Path(work), budget)


def _measure_race(race: RewardRace, work: Path, budget: Budget) -> Iterator[Entry]:
    """All entries of one race."""
    title = f"{race.shape} {race.trains}"
    if budget.left < len(CONTENDERS) * race.expected_s:
        yield Entry(SECTION, title, "not run", note="the time of the section was used up")
        return
    make_files = _make_inputs(race, work)
    for sampler in SAMPLERS:
        name = f"{title}, {sampler}"
        if sampler == "vLLM" and not _has_card_and_vllm():
            yield Entry(SECTION, name, "not run", note=NEEDS_VLLM)
            continue
        ours, theirs = (make_files(contender, sampler) for contender in CONTENDERS)
        yield from _compare(ours, theirs, name, budget)


def _compare(ours: RunFiles, theirs: RunFiles, name: str, budget: Budget) -> Iterator[Entry]:
    """Both runs by one sampler, their ratio, and what the audit and the plan say of truetune's."""
    results: dict[Contender, RunResult] = {}
    race = ours.race
    expected = race.expected_s if ours.sampler == "transformers" else race.expected_with_vllm_s
    for files in (ours, theirs):
        run = partial(_measure_run, files, name, results, budget)
        yield measure_guarded(SECTION, f"{name}: {files.contender}", budget, expected, run)
    yield _ratios(f"{name}: truetune / TRL", results)
    if "truetune" not in results:
        return
    yield _audit_entry(f"{name}: audit", results["truetune"], ours.sampler)
    plan = partial(_plan_entry, f"{name}: plan", ours, results["truetune"].peak, _card_gib())
    yield measure_guarded(SECTION, f"{name}: plan", budget, 0, plan)


def _has_card_and_vllm() -> bool:
    import torch

    return torch.cuda.is_available() and importlib.util.find_spec("vllm") is not None


def _card_gib() -> float | None:
    import torch

    if not torch.cuda.is_available():
        return None
    return float(torch.cuda.get_device_properties(0).total_memory / GIB)


def _make_inputs(race: RewardRace, work: Path) -> Callable[[Contender, Sampler], RunFiles]:
    """Weights from the seed with their tokenizer in one folder, and a file of chats: what each run of a race takes."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    generations = (race.steps + SKIPPED) // ITERATIONS
    prompts = race.batch * race.accumulation // race.group
    # Each prompt is asked once, so that the longest one is among them, and no run begins a second epoch.
    data, tokenizer = make_questions(work, count=generations * prompts)
    stop = tokenizer.convert_tokens_to_ids("<|im_end|>")
    shape = {**SHAPES[race.shape], "vocab_size": len(tokenizer)}
    config = AutoConfig.for_model(
        shape.pop("model_type"),
        **shape,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=stop,
        max_position_embeddings=4096,
    )
    torch.manual_seed(SEED)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        # As models are published: truetune and TRL make float32 of them where all weights are trained.
        model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    folder = work / "model"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(str(folder))
    del model
    free_memory()
    longest = _longest_prompt(data, tokenizer)

    def make_files(contender: Contender, sampler: Sampler) -> RunFiles:
        return RunFiles(
            race,
            contender,
            sampler,
            folder,
            data,
            longest + race.max_completion_length,
            work / f"{sampler}-{contender}",
        )

    return make_files


def _longest_prompt(data: Path, tokenizer: Any) -> int:
    """Tokens."""
    return max(
        len(
            tokenizer.apply_chat_template(
                row["prompt"], add_generation_prompt=True, return_dict=False
            )
        )
        for row in _prompts(data)
    )


def _measure_run(
    files: RunFiles, name: str, results: dict[Contender, RunResult], budget: Budget
) -> Entry:
    """Make one run; its result is put into `results`."""
    result = _make_run_in_child(files, budget) if files.sampler == "vLLM" else make_run(files)
    results[files.contender] = result
    figures: dict[str, Value] = {
        "sampled tokens/s": round(result.tokens / result.seconds, 1),
        "steps/min": round(60 * result.steps / result.seconds, 2),
        "seconds before the first step": round(result.start_s, 2),
        "seconds in all": round(result.all_s, 2),
        "peak GiB": None if result.peak is None else round(result.peak / GIB, 2),
        "mean reward": round(statistics.mean(result.mean_rewards), 4),
    }
    return Entry(SECTION, f"{name}: {files.contender}", "measured", figures)


def write_request(files: RunFiles) -> tuple[Path, Path]:
    """The file that asks a process for a run, and the one that it will write."""
    # Beside the run's folder: `truetune train` refuses one that holds files of others.
    asked, result = (files.out.with_suffix(f".{name}.json") for name in ("asked", "result"))
    asked.write_text(files.to_json(), encoding="utf-8")
    return asked, result


def _make_run_in_child(files: RunFiles, budget: Budget) -> RunResult:
    """Make one run in a process of its own. Raises RuntimeError with the end of its output where it failed."""
    asked, result = write_request(files)
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu.grpo", str(asked), str(result)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=max(5.0, budget.left),
        check=False,
    )
    # By the result and not by the exit code: an engine that fails while it is shut down has measured all the same.
    if not result.is_file():
        raise RuntimeError(f"its process ended with {done.returncode}: {done.stdout[-4000:]}")
    return RunResult.from_json(result.read_text(encoding="utf-8"))


def _ratios(name: str, results: Mapping[Contender, RunResult]) -> Entry:
    """How many times TRL's sampled tokens a second truetune makes, and whether both sampled the same."""
    if len(results) < len(CONTENDERS):
        return Entry(SECTION, name, "not run", note="one of the two has no timing")
    ours, theirs = results["truetune"], results["TRL"]
    figures: dict[str, Value] = {
        "ratio of tokens/s": round(
            ours.tokens / ours.seconds / (theirs.tokens / theirs.seconds), 3
        ),
        "ratio of the whole time": round(ours.all_s / theirs.all_s, 3),
        "the same rewards": ours.mean_rewards == theirs.mean_rewards,
    }
    return Entry(SECTION, name, "measured", figures)


def _audit_entry(name: str, result: RunResult, sampler: Sampler) -> Entry:
    """The verdict on the first rollouts, and its cost. It passes where both rules looked and found nothing; where
    transformers samples by the trainer's own model, that is the first ratio alone."""
    audit = result.audit
    if audit is None:
        note = "the run ended without a verdict on its rollouts"
        return Entry(SECTION, name, "error", note=note, text="\n".join(result.said))
    cost = audit.noting_s + audit.judging_s
    figures: dict[str, Value] = {
        "completions": audit.completions,
        f"first ratio ({FIRST_RATIO})": audit.verdicts[FIRST_RATIO],
        f"sampler and trainer ({SAMPLER_DIFFERENCE})": audit.verdicts[SAMPLER_DIFFERENCE],
        # Random weights end hardly any answer, and a rule says so.
        "rules with findings": ", ".join(audit.found),
        "seconds to note": round(audit.noting_s, 3),
        "seconds to judge": round(audit.judging_s, 3),
        "share of the run": round(cost / result.all_s, 4),
    }
    codes = (FIRST_RATIO, SAMPLER_DIFFERENCE) if sampler == "vLLM" else (FIRST_RATIO,)
    holds = audit.are_clean(codes) and SAMPLER_DIFFERENCE not in audit.found
    return Entry(SECTION, name, "passed" if holds else "failed", figures)


def _plan_entry(name: str, files: RunFiles, peak: float | None, card: float | None) -> Entry:
    """The plan's largest moment beside what torch had allocated at the peak.

    Args:
        name: of the entry.
        files: of the run.
        peak: bytes; None on a CPU.
        card: GiB of the card, of which an engine reserves a share; None on a CPU.
    """
    from truetune.memory.plan_memory import plan_memory

    plan = plan_memory(_recipe(files).spec, model=files.model, gpu_memory=card)
    moment = max(plan.estimate.moments, key=lambda moment: moment.allocated)
    figures: dict[str, Value] = {
        "predicted GiB": round(moment.allocated / GIB, 3),
        "moment": moment.name,
        "total with CUDA and margin GiB": round(plan.estimate.peak.total / GIB, 2),
    }
    if peak is None:
        return Entry(SECTION, name, "not run", figures, note="needs a GPU")
    ratio = moment.allocated / peak
    figures |= {
        "measured GiB": round(peak / GIB, 3),
        "predicted / measured": round(ratio, 3),
    }
    holds = abs(ratio - 1) <= MAX_ERROR
    return Entry(SECTION, name, "passed" if holds else "failed", figures)


def make_run(files: RunFiles) -> RunResult:
    """Make one run in this process."""
    import torch

    on_card = torch.cuda.is_available()
    free_memory()
    if on_card:
        torch.cuda.reset_peak_memory_stats()
    clock: Any = _make_clock()
    started = time.perf_counter()
    audit, said = None, list[str]()
    if files.contender == "truetune":
        audit = _train_by_truetune(files, clock, said.append)
    else:
        _train_by_trl(files, clock)
    _synchronize()
    ended = time.perf_counter()
    return RunResult(
        tokens=sum(
            length * files.race.batch * files.race.accumulation
            for step, length in clock.mean_lengths
            if step > SKIPPED
        ),
        steps=len(clock.step_ends) - SKIPPED,
        seconds=clock.step_ends[-1] - clock.step_ends[SKIPPED - 1],
        start_s=clock.began - started,
        all_s=ended - started,
        peak=float(torch.cuda.max_memory_allocated()) if on_card else None,
        mean_rewards=tuple(clock.mean_rewards),
        audit=audit,
        said=tuple(said),
    )


def _make_clock() -> Any:
    """A callback that notes when steps end, and what TRL logs of each generation."""
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.began = 0.0
            self.step_ends: list[float] = []
            self.mean_lengths: list[tuple[int, float]] = []
            """Step, and tokens of an answer sampled in it, on average"""
            self.mean_rewards: list[float] = []

        def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            _synchronize()
            self.began = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            _synchronize()
            self.step_ends.append(time.perf_counter())

        def on_log(
            self, args: Any, state: Any, control: Any, logs: Any = None, **parts: Any
        ) -> None:
            # Only the lines of steps that sampled have it: the others learn from the rollout before.
            if "completions/mean_length" in logs:
                self.mean_lengths.append((state.global_step, logs["completions/mean_length"]))
                self.mean_rewards.append(logs["reward"])

    return Clock()


def _train_by_truetune(
    files: RunFiles, clock: Any, say: Callable[[str], None]
) -> AuditOutcome | None:
    """`truetune train`, with all that it checks but the rehearsal; what its audit said and took.

    `say` is given the lines that a user would see.
    """
    from truetune.checks.reports import Report, RolloutReport
    from truetune.training.progress_listeners import SilentListener
    from truetune.training.run_training import train_run

    reports: list[RolloutReport] = []

    class ReportKeeper(SilentListener):
        def say(self, line: str) -> None:
            say(line)

        def draw(self, report: Report) -> None:
            if isinstance(report, RolloutReport):
                reports.append(report)

    with _timed_notes() as noting:
        # Random weights give findings (no answer ends), and the run has to come to its end.
        train_run(_settings(files), force=True, listener=ReportKeeper(), callbacks=[clock])
    if not reports:
        return None
    (report,) = reports
    codes = (FIRST_RATIO, SAMPLER_DIFFERENCE)
    return AuditOutcome(
        completions=report.completions,
        verdicts={code: _verdict_of_rule(report, code) for code in codes},
        judged=tuple(examined.code for examined in report.examined),
        found=tuple(dict.fromkeys(finding.code for finding in report.findings)),
        noting_s=sum(noting),
        judging_s=report.seconds,
    )


def _verdict_of_rule(report: Any, code: str) -> str:
    """What a rule found, what it measured where it found nothing, or why it did not judge."""
    for finding in report.findings:
        if finding.code == code:
            return f"found: {finding.message}"
    for examined in report.examined:
        if examined.code == code:
            return str(examined.figure) or "clean"
    for part in report.not_judged:
        if part.code == code:
            return f"not judged: {part.reason}"
    return "not judged"


@contextmanager
def _timed_notes() -> Iterator[list[float]]:
    """The seconds of each note that rollouts are recorded by, while this lasts."""
    from truetune.probe import record_rollouts_of_trl_trainer as recording

    seconds: list[float] = []
    own = recording.run_contained

    def timed(*arguments: Any, **settings: Any) -> Any:
        # A note copies from the card, and would wait there for the work of the trainer.
        _synchronize()
        started = time.perf_counter()
        try:
            return own(*arguments, **settings)
        finally:
            seconds.append(time.perf_counter() - started)

    vars(recording)["run_contained"] = timed
    try:
        yield seconds
    finally:
        vars(recording)["run_contained"] = own


def _train_by_trl(files: RunFiles, clock: Any) -> None:
    """TRL's GRPOTrainer, with the arguments that `truetune train` would give it."""
    from datasets import Dataset
    from transformers import (
        AutoModelForCausalLM,
        AutoTokenizer,
        PrinterCallback,
        ProgressCallback,
        set_seed,
    )
    from trl import GRPOConfig, GRPOTrainer

    from truetune.training.make_or_load_adapter import make_lora_config
    from truetune.training.trainer_arguments import make_trainer_arguments
    from truetune.training.training_recipe import trainer_arguments_of_recipe

    recipe = _recipe(files)
    arguments = trainer_arguments_of_recipe(recipe, evaluates=False) | {"save_strategy": "no"}
    set_seed(recipe.seed)
    model: Any = AutoModelForCausalLM.from_pretrained(
        files.model, dtype=str(recipe.training.dtype), attn_implementation="sdpa"
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[early_letters],
        args=make_trainer_arguments(GRPOConfig, arguments),
        train_dataset=Dataset.from_list(_prompts(files.data)),
        processing_class=AutoTokenizer.from_pretrained(files.model),
        peft_config=make_lora_config(recipe.training.lora, model),
    )
    for kind in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(kind)
    trainer.add_callback(clock)
    # As `truetune train` does before its first step: both draw the same numbers from here on.
    set_seed(recipe.seed)
    trainer.train()


def _prompts(data: Path) -> list[dict[str, Any]]:
    """Of each chat what stands before its last answer."""
    lines = data.read_text(encoding="utf-8").splitlines()
    return [{"prompt": json.loads(line)["messages"][:-1]} for line in lines]


def _settings(files: RunFiles) -> Any:
    """What a user would write into truetune.yaml."""
    from truetune.settings.run_spec import RunSpec

    race = files.race
    training: dict[str, Any] = {
        "method": "grpo",
        "rewards": f"{Path(__file__).with_name('early_letters.py')}:early_letters",
        "num_generations": race.group,
        "max_completion_length": race.max_completion_length,
        "per_device_train_batch_size": race.batch,
        "gradient_accumulation_steps": race.accumulation,
        "gradient_checkpointing": False,
        "attn_implementation": "sdpa",
        "max_steps": race.steps + SKIPPED,
        "logging_steps": 1,
        "save_steps": race.steps + SKIPPED,
        "val_size": 0,
        "output_dir": str(files.out),
    }
    if race.trains == "lora":
        training["lora"] = ALL_LINEAR
    trainer: dict[str, Any] = {"report_to": "none", "disable_tqdm": True}
    trainer["num_iterations"] = ITERATIONS
    if files.sampler == "vLLM":
        trainer |= {"use_vllm": True, "vllm_mode": "colocate"}
    return RunSpec.model_validate(
        {
            "model": str(files.model),
            "tokenizer": str(files.model),
            "data": str(files.data),
            "max_length": files.max_length,
            "watch": {"prompts": 0},
            # A training of its own, in miniature; `truetune rehearse` is measured elsewhere.
            "rehearsal": False,
            "trainer": trainer,
            "training": training,
        }
    )


def _recipe(files: RunFiles) -> Any:
    """The settings as `truetune train` fills them on this machine."""
    import torch

    from truetune.training.training_recipe import make_recipe

    gpu = torch.cuda.is_available()
    rows = len(files.data.read_text(encoding="utf-8").splitlines())
    bf16 = gpu and torch.cuda.is_bf16_supported()
    return make_recipe(_settings(files), rows=rows, gpu=gpu, bf16=bf16)


def _synchronize() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    """Make the run of a file, and write its result into another."""
    asked, result = map(Path, sys.argv[1:3])
    made = make_run(RunFiles.from_json(asked.read_text(encoding="utf-8")))
    result.write_text(made.to_json(), encoding="utf-8")


if __name__ == "__main__":
    main()
