"""What is known of a run in words: one sentence, short facts, its settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from truetune.evaluation.open_run import RunFolder
from truetune.evaluation.sample_report import Success


def summarize_run(run: RunFolder, name: str = "") -> str:
    """`Over 60 steps the loss falls from 2.06 to 1.49, held out to 1.15; 19 of 20 answers are good at the end.`"""
    said = list(_summary_parts(run))
    text = "; ".join(said) if said else "nothing of a loss or of answers was logged"
    return f"{f'{name}: {text}' if name else text[0].upper() + text[1:]}."


def _summary_parts(run: RunFolder) -> Iterator[str]:
    log = run.log
    loss, held = (log.curve(name).finite() if log else None for name in ("loss", "eval_loss"))
    if log and loss:
        part = max(1, loss.value.size // 10)
        first, last = loss.value[:part], loss.value[-part:]
        low, high = float(first.mean()), float(last.mean())
        apart = abs(high - low) > float(first.std() + last.std()) / 2
        moves = ("falls" if high < low else "rises") if apart else "goes"
        yield (
            f"over {log.last_step:,.0f} steps the loss {moves} from {low:.3g} to {high:.3g}"
            + (", means of the first and last tenth" if part > 1 else "")
            + (
                f", held out from {float(held.value[0]):.3g} to {float(held.value[-1]):.3g}"
                if held
                else ""
            )
        )
    if run.looks:
        look, limit = run.looks[-1]
        found = Success.of_look(look, limit)
        yield (
            f"at step {look.step:,} {found.good} of {found.of} answers stop by themselves without a"
            " fault"
        )


def list_facts(run: RunFolder) -> dict[str, str]:
    """Short facts on it, by name."""
    return {
        name: value
        for name, value in (
            *_facts_of_record(run.record),
            *_facts_of_log(run),
            *_facts_of_watcher(run),
        )
        if value
    }


def _facts_of_record(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Of run.json, in which anything may stand."""
    base, data, devices = (_as_mapping(record.get(name)) for name in ("base", "data", "devices"))
    counts = _as_mapping(data.get("counts"))
    yield "status", str(record.get("status") or "")
    yield "method", str(record.get("method") or "")
    yield "base model", str(base.get("name") or "")
    files = [
        str(_as_mapping(one).get("file"))
        for one in _as_list(_as_mapping(data.get("inputs")).get("data"))
    ]
    yield (
        "data",
        ", ".join(files)
        + "".join(
            f", {counts[name]:,} {said}"
            for name, said in (("rows", "rows"), ("tokens", "tokens"), ("supervised", "supervised"))
            if isinstance(counts.get(name), int)
        ),
    )
    yield (
        "trained on",
        ", ".join(map(str, _as_list(devices.get("names")))) or str(devices.get("kind") or ""),
    )
    yield "began", str(record.get("began") or "")
    if isinstance(seconds := record.get("seconds"), int | float):
        yield "took", f"{seconds:,.0f} s"
    yield (
        "resumed at",
        ", ".join(
            f"step {_as_mapping(one).get('step', one)}" for one in _as_list(record.get("resumed"))
        ),
    )
    yield (
        "stops at",
        ", ".join(str(_as_mapping(one).get("token")) for one in _as_list(record.get("stops"))),
    )
    yield (
        "versions",
        ", ".join(f"{name} {value}" for name, value in _as_mapping(record.get("versions")).items()),
    )


def _facts_of_log(run: RunFolder) -> Iterator[tuple[str, str]]:
    log = run.log
    if log is None:
        yield "log", "none: only what was watched"
        return
    yield "written by", log.format
    total = log.total_steps
    yield "steps", f"{log.last_step:,.0f}" + (f" of {total:,.0f}" if total else "")
    yield "epochs", f"{log.epochs:.3g}" if log.epochs else ""
    if loss := log.curve("loss").finite():
        yield (
            "loss",
            (
                f"{loss.value[0]:.4g} to {loss.value[-1]:.4g} in {log.curve('loss').step.size:,}"
                " records"
            ),
        )
    if held := log.curve("eval_loss").finite():
        values = [f"{held.value[0]:.4g}", f"{held.value[-1]:.4g}"]
        yield (
            "held-out loss",
            (
                f"{values[0]} to {values[1]} in {held.step.size:,} records"
                if held.step.size > 1
                else values[0]
            ),
        )
    yield "checkpoints", ", ".join(map(str, log.checkpoints[-5:]))
    yield "left out", "; ".join(log.notes)


def _facts_of_watcher(run: RunFolder) -> Iterator[tuple[str, str]]:
    if run.looks:
        first, limit = run.looks[0]
        yield (
            "answers",
            f"{len(first.samples)} prompts at {len(run.looks)} steps, at most {limit} new tokens",
        )
    if isinstance(share := run.watch.get("share_of_the_time"), int | float):
        yield "watching took", f"{share:.1%} of the time"
    yield "stopped by", str(run.watch.get("stopped_by") or "")
    yield "notes", "; ".join([*map(str, _as_list(run.watch.get("notes"))), *run.notes])


def list_settings(run: RunFolder) -> dict[str, str]:
    """What decides how it is trained, by dotted names: of run.json, else what its log says of it."""
    record, log = run.record, run.log
    known: dict[str, Any] = {
        name: record[name] for name in ("method", "seed", "versions", "devices") if name in record
    }
    if record:
        known |= {
            **_as_mapping(record.get("settings")),
            "base": _as_mapping(record.get("base")).get("name"),
        }
        known["data"] = {
            "files": _as_list(_as_mapping(record.get("settings")).get("data")),
            "counts": _as_mapping(_as_mapping(record.get("data")).get("counts")),
        }
    elif log is not None:
        known = {name: value for name, value in log.facts.items() if name != "log_history"}
    return dict(_flatten(known))


def _flatten(value: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, one in value.items():
        if isinstance(one, Mapping):
            yield from _flatten(one, f"{before}{name}.")
        else:
            yield f"{before}{name}", ", ".join(map(str, one)) if isinstance(one, list) else str(one)


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
