"""Summarizes a training run in words: one sentence, short facts, its settings.

Record and watcher's file are read as anybody may have written them: every value is taken only in the form that it
should have. The trade-off: a field in another form is left out without a word, for a summary is no check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from truetune.evaluation.open_training_run_folder import RunFolder
from truetune.evaluation.sample_report import Success
from truetune.logs.run_log import Curve


def summarize_run(run: RunFolder, name: str = "") -> str:
    """`Over 60 steps the loss falls from 2.06 to 1.49, held out to 1.15; 19 of 20 answers are good at the end.`

    Args:
        run: what is told of.
        name: to begin with, where there are several.
    """
    parts = list(_loss_and_answers_in_words(run))
    text = "; ".join(parts) if parts else "nothing of a loss or of answers was logged"
    return f"{f'{name}: {text}' if name else text[0].upper() + text[1:]}."


def _loss_and_answers_in_words(run: RunFolder) -> Iterator[str]:
    """What the loss did (of a training by rewards: the reward), and how many answers are good at the end."""
    # A loss of NaN is left out here: a rule says what it means.
    log = run.log
    loss = log.curve("loss").finite() if log else None
    reward = log.curve("reward").finite() if log else None
    held_out = log.curve("eval_loss").finite() if log else None
    if log and reward:
        # The loss of such a training is near 0 in healthy runs and in broken ones.
        yield _course_in_words("reward", reward, log.last_step, "quarter")
    elif log and loss:
        text = _course_in_words("loss", loss, log.last_step, "tenth")
        if held_out:
            first_held_out, last_held_out = float(held_out.value[0]), float(held_out.value[-1])
            text += f", held out from {first_held_out:.3g} to {last_held_out:.3g}"
        yield text
    if run.looks:
        sampling_pass, limit = run.looks[-1]
        success = Success.of_pass(sampling_pass, limit)
        yield (
            f"at step {sampling_pass.step:,} {success.good} of {success.of} answers stop by themselves without a"
            " fault"
        )


def _course_in_words(
    name: str, curve: Curve, last_step: float, portion: Literal["tenth", "quarter"]
) -> str:
    """How a curve goes from its first records to its last ones.

    Single steps scatter by more than a run improves, so that means are compared: over a tenth of the records, and over
    a quarter of rewards, since each step has other prompts.
    """
    part = max(1, curve.value.size // {"tenth": 10, "quarter": 4}[portion])
    first, last = curve.value[:part], curve.value[-part:]
    start, end = float(first.mean()), float(last.mean())
    # A change that is smaller than half of the scatter at both ends is called none.
    is_change = abs(end - start) > float(first.std() + last.std()) / 2
    verb = "goes"
    if is_change:
        verb = "falls" if end < start else "rises"
    text = f"over {last_step:,.0f} steps the {name} {verb} from {start:.3g} to {end:.3g}"
    return f"{text}, means of the first and last {portion}" if part > 1 else text


def list_facts(run: RunFolder) -> dict[str, str]:
    """Short facts on a run, by name; those that are not known are left out."""
    facts = (*_facts_of_record(run.record), *_facts_of_log(run), *_facts_of_watcher(run))
    return {name: value for name, value in facts if value}


def _facts_of_record(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(name, fact) of run.json, in which anything may stand."""
    base, data = _as_mapping(record.get("base")), _as_mapping(record.get("data"))
    for name in ("status", "method"):
        yield name, str(record.get(name) or "")
    yield "base model", str(base.get("name") or "")
    yield "data", _describe_data(data)
    yield "trained on", _describe_devices(_as_mapping(record.get("devices")))
    yield "began", str(record.get("began") or "")
    seconds = record.get("seconds")
    if isinstance(seconds, int | float):
        yield "took", f"{seconds:,.0f} s"
    # Older records have the step alone.
    steps = [_as_mapping(one).get("step", one) for one in _as_list(record.get("resumed"))]
    yield "resumed at", ", ".join(f"step {step}" for step in steps)
    stops = [_as_mapping(one).get("token") for one in _as_list(record.get("stops"))]
    yield "stops at", ", ".join(map(str, stops))
    versions = _as_mapping(record.get("versions"))
    yield "versions", ", ".join(f"{name} {value}" for name, value in versions.items())


def _describe_devices(devices: Mapping[str, Any]) -> str:
    """The names of the GPUs, else the kind of device: a CPU has no name in the record."""
    names = ", ".join(map(str, _as_list(devices.get("names"))))
    return names or str(devices.get("kind") or "")


def _describe_data(data: Mapping[str, Any]) -> str:
    """Files of the training with their counts, by the record."""
    entries = _as_list(_as_mapping(data.get("inputs")).get("data"))
    files = ", ".join(str(_as_mapping(entry).get("file")) for entry in entries)
    counts = _as_mapping(data.get("counts"))
    known = [name for name in ("rows", "tokens", "supervised") if isinstance(counts.get(name), int)]
    return files + "".join(f", {counts[name]:,} {name}" for name in known)


def _facts_of_log(run: RunFolder) -> Iterator[tuple[str, str]]:
    """(name, fact) of the log."""
    log = run.log
    if log is None:
        yield "log", "none: only what was watched"
        return
    yield "written by", log.format
    total = log.planned_steps
    yield "steps", f"{log.last_step:,.0f}" + (f" of {total:,.0f}" if total else "")
    yield "epochs", f"{log.epochs_at_end:.3g}" if log.epochs_at_end else ""
    loss = log.curve("loss").finite()
    if loss:
        records = log.curve("loss").step.size
        yield "loss", f"{loss.value[0]:.4g} to {loss.value[-1]:.4g} in {records:,} records"
    held_out = log.curve("eval_loss").finite()
    if held_out:
        text = f"{held_out.value[0]:.4g}"
        if held_out.step.size > 1:
            text += f" to {held_out.value[-1]:.4g} in {held_out.step.size:,} records"
        yield "held-out loss", text
    # The last five: the others are mostly removed by the trainer.
    yield "checkpoints", ", ".join(map(str, log.checkpoints[-5:]))
    yield "left out", "; ".join(log.notes)


def _facts_of_watcher(run: RunFolder) -> Iterator[tuple[str, str]]:
    """(name, fact) of what was watched while it ran."""
    if run.looks:
        first, limit = run.looks[0]
        yield (
            "answers",
            f"{len(first.samples)} prompts at {len(run.looks)} steps, at most {limit} new tokens",
        )
    share = run.watch.get("share_of_the_time")
    if isinstance(share, int | float):
        yield "watching took", f"{share:.1%} of the time"
    yield "stopped by", str(run.watch.get("stopped_by") or "")
    yield "notes", "; ".join([*map(str, _as_list(run.watch.get("notes"))), *run.notes])


def list_settings(run: RunFolder) -> dict[str, str]:
    """What decides how it is trained, by dotted names: of run.json, else what its log says of it."""
    record, log = run.record, run.log
    if record:
        own_settings = _as_mapping(record.get("settings"))
        names = ("method", "seed", "versions", "devices")
        known: dict[str, Any] = {name: record[name] for name in names if name in record}
        known |= {**own_settings, "base": _as_mapping(record.get("base")).get("name")}
        known["data"] = {
            "files": _as_list(own_settings.get("data")),
            "counts": _as_mapping(_as_mapping(record.get("data")).get("counts")),
        }
        return dict(_flatten_settings(known))
    # log_history is the log itself, thousands of entries.
    facts = log.facts if log is not None else {}
    return dict(
        _flatten_settings({name: value for name, value in facts.items() if name != "log_history"})
    )


def _flatten_settings(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(dotted name, text) of nested settings."""
    for name, one in value.items():
        if isinstance(one, Mapping):
            yield from _flatten_settings(one, f"{prefix}{name}.")
        else:
            text = ", ".join(map(str, one)) if isinstance(one, list) else str(one)
            yield f"{prefix}{name}", text


def _as_mapping(value: Any) -> Mapping[str, Any]:
    """The value where it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def _as_list(value: Any) -> list[Any]:
    """The value where it is a list, else an empty one."""
    return value if isinstance(value, list) else []
