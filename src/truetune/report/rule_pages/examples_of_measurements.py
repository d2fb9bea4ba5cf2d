"""Examples of rules on what models, servers and environments were seen to do: the facts that
truetune measures.

Nobody writes these, so an example lists them, one a line. Where they are rows or a command, they
are shown as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from truetune.report.rule_pages.example_files import (
    Example,
    ExampleFile,
    fact_lines,
    file_of_measured_facts,
    jsonl_file,
)

ANSWERS = "answers.jsonl"
PROMPTS = 8
"""Of a sampling pass, unless the example says it"""
COUNTED: Mapping[str, str] = {
    "stopped": "answers that end with a stop token",
    "empty": "empty answers",
    "looped": "answers that repeat themselves",
    "echoed": "answers that begin with their prompt",
    "markers": "answers with markers of the template",
    "escapes": "answers with escape sequences",
    "switched": "answers in another language",
    "exact": "answers equal to their reference",
    "parsed": "answers that the parser reads",
    "garbage": "garbage answers",
    "too_long": "answers that are too long",
}
"""Facts that hold for some of the answers of a sampling pass"""
TEXTS = ("questions", "references", "answers")
WORDS: Mapping[str, str] = {"questions": "question", "references": "reference", "answers": "answer"}
NAMES_OF_FACTS: Mapping[str, str] = {
    "twins": "answers of two models",
    "other": "compared with",
    "seen": "rows that were trained on",
    "judged": "verdicts of the judge",
    "stops": "stop tokens",
}
"""What to call facts of an evaluation, where their key in an example does not say it"""
PASSES: Mapping[str, str] = {
    "look": "sampled",
    "base": "sampled from the base",
    "greedy": "sampled greedily",
}


def example_of_answers(block: Mapping[str, Any]) -> Example:
    """An example of a rule on sampled answers: the answers themselves, or what was counted in them."""
    files: list[ExampleFile] = []
    lines = [line for losses in block.get("losses", ()) for line in _lines_on_losses(losses)]
    for sampled in block.get("looks", ()):
        when = f"step {sampled['step']}"
        if isinstance(sampled.get("answers"), list):
            files.append(jsonl_file(ANSWERS, list(_rows_of_answers(sampled))))
        lines += [f"{when}: {line}" for line in _lines_on_answers(sampled)]
    rest = {name: block[name] for name in ("total", "limit") if name in block}
    return Example(
        (
            *files,
            *_file_of_measured_lines(
                "sampled answers", [*lines, *(fact_lines(rest) if rest else ())]
            ),
        )
    )


def _rows_of_answers(sampled: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    lists = {WORDS[name]: sampled[name] for name in TEXTS if isinstance(sampled.get(name), list)}
    for number in range(sampled.get("prompts", PROMPTS)):
        yield {name: texts[number % len(texts)] for name, texts in lists.items()}


def _lines_on_answers(sampled: Mapping[str, Any]) -> Iterator[str]:
    prompts = sampled.get("prompts", PROMPTS)
    for name, value in sampled.items():
        if name in ("step", "prompts") or (name in TEXTS and isinstance(value, list)):
            continue
        if name in COUNTED and not isinstance(value, list):
            yield f"{COUNTED[name]}: {value} of {prompts}"
        elif name in TEXTS:
            yield f"{name}: {'all different' if value == 'differ' else f'all {value!r}'}"
        else:
            yield from fact_lines({name: value})


def _lines_on_losses(losses: Mapping[str, Any]) -> Iterator[str]:
    for name, loss in losses.items():
        if name != "step":
            yield f"step {losses['step']}: loss of {name}: {loss}"


def example_of_cause(block: Mapping[str, Any]) -> Example:
    """An example of a rule on causes of bad answers."""
    lines: list[str] = []
    for name, value in block.items():
        if name in PASSES:
            lines += [f"{PASSES[name]}: {line}" for line in _lines_on_answers(value)]
        else:
            lines += fact_lines({name: value})
    return Example(tuple(_file_of_measured_lines("what truetune measures", lines)))


def example_of_evaluation(block: Mapping[str, Any]) -> Example:
    """An example of a rule on an evaluation: a parser and the golds that it is tried on, or
    measured figures.
    """
    files: list[ExampleFile] = []
    if "golds" in block:
        answers = block.get("answers")
        rows = [{"gold": gold} for gold in block["golds"]]
        if answers:
            rows = [{**row, "answer": said} for row, said in zip(rows, answers, strict=True)]
        files.append(jsonl_file("held-out.jsonl", rows))
    rest = {name: value for name, value in block.items() if name not in ("golds", "answers")}
    if not rest.get("rows", 1):
        del rest["rows"]
    facts = [line for name, value in rest.items() for line in _lines_on_measure(name, value)]
    return Example((*files, *_file_of_measured_lines("what truetune measures", facts)))


def _lines_on_measure(name: str, value: Any) -> Iterator[str]:
    if name == "changes":
        for source, change in value.items():
            yield f"loss of {source}, against the other model: {_interval(change)}"
    elif name == "prompts":
        yield f"loss of the prompts, against the other model: {_interval(value)}"
    else:
        yield from fact_lines({NAMES_OF_FACTS.get(name, name): value})


def _interval(change: list[float]) -> str:
    difference, low, high, p = change
    return f"{difference:+} (95 % CI {low:+} to {high:+}, p = {p})"


def example_of_serving(block: Mapping[str, Any]) -> Example:
    """An example of a rule on servers: what the server was seen to do."""
    return Example((file_of_measured_facts("what the server does", block),))


def example_of_reward(block: Mapping[str, Any]) -> Example:
    """An example of a rule on reward functions: the function, and the rows that it is tried on."""
    return Example(
        (ExampleFile("rewards.py", block["reward"]), jsonl_file("rows.jsonl", block["rows"]))
    )


def example_of_environment(block: Mapping[str, Any]) -> Example:
    """An example of a rule on environments: installed packages, variables, and other facts."""
    files: list[ExampleFile] = []
    if "packages" in block:
        pins = [f"{name}=={version}\n" for name, version in block["packages"].items()]
        files.append(ExampleFile("requirements.txt", "".join(pins)))
    if "variables" in block:
        exports = [f"export {name}={value}\n" for name, value in block["variables"].items()]
        files.append(ExampleFile("run.sh", "".join(exports)))
    rest = {key: value for key, value in block.items() if key not in ("packages", "variables")}
    lines = [line for key, value in rest.items() for line in _lines_on_environment(key, value)]
    return Example((*files, *_file_of_measured_lines("the environment", lines)))


def _lines_on_environment(key: str, value: Any) -> Iterator[str]:
    if key == "loads":
        for module, error in value.items():
            yield f"import {module}: {error or 'works'}"
    elif key == "requirements":
        for package, other, specifier in value:
            yield f"{package} requires {other} {specifier}"
    else:
        yield from fact_lines({key: value})


def _file_of_measured_lines(name: str, lines: list[str]) -> Iterator[ExampleFile]:
    if lines:
        yield ExampleFile(name, "".join(f"{line}\n" for line in lines), is_measured=True)
