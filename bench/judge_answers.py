"""The judge of answers against labels by hand: recall by kind, and false alarms.

python -m bench.judge_answers               the figures of both halves
python -m bench.judge_answers --missed      with each answer that is judged otherwise than it is labelled
python -m bench.judge_answers --write       the table in docs/bench.md
python -m bench.judge_answers --thresholds  what is found at half and at double of each threshold (about 20 minutes)

The answers are in `bench/answers`: generations of a small model, broken in known ways (`bench.broken_answers`),
read and labelled by hand; answers of public data sets, named by file and row; good ones written by hand in six more
languages; and bad
ones that are made of good ones (the question four times, a turn to another language, ...). All are judged as
predictions
without any word on what ended them, which is the hardest: nothing is told by a limit. Answers that are wrong in
their content alone, which no judge of forms can see, are not counted.

Thresholds were chosen on the first half. The generations of the second were made and labelled after that; answers from
elsewhere are parted by their question.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from bench.answers.written import GOOD
from bench.broken_answers import WAYS

FOLDER = Path(__file__).parent / "answers"
PAGE = Path(__file__).parents[1] / "docs" / "bench.md"
KINDS = ("empty", "echo", "loop", "language", "role markers", "garbage", "long")
CONTENT = "content only"
WAYS_CALLED = frozenset(way.called for way in WAYS)
HALVES = ("tuned on", "held back")
JUDGES = (
    "garbage_text",
    "identify_language",
    "answers_in_wrong_language",
    "repetition_loops",
    "score_answer",
)
"""Modules of `truetune.generation` with thresholds"""
PUBLIC = {
    "en": ("llamafactory/alpaca_en_demo.json", 3, 7, 260, 56),
    "zh": ("llamafactory/alpaca_zh_demo.json", 3, 7, 110, 50),
}
"""File, first row, step, longest answer in characters, and how many were read and found good"""
NOT_GOOD = {("zh", 185): "language"}
"""Rows of these files that are not: an English answer to a Chinese question"""
TURNS = (
    ("en", "zh"),
    ("zh", "en"),
    ("en", "ru"),
    ("de", "en"),
    ("fr", "en"),
    ("es", "zh"),
    ("ru", "en"),
    ("ja", "en"),
    ("ar", "en"),
    ("en", "ja"),
    ("de", "ru"),
    ("fr", "ar"),
)
"""First and second language of an answer that turns"""


@dataclass(frozen=True)
class Labelled:
    """An answer, and what it is."""

    language: str
    question: str
    answer: str
    reference: str
    label: str
    made: str
    later: bool = False
    """A generation that was made after the thresholds were chosen"""

    @property
    def half(self) -> str:
        """By when a generation was made; of other answers by the question."""
        if self.made in WAYS_CALLED:
            return HALVES[self.later]
        return HALVES[sha256(f"{self.language}{self.question}".encode()).digest()[0] % 2]


def labelled() -> list[Labelled]:
    """All answers."""
    return [*_generated(), *_written(), *_public(), *_labelled_answers()]


def verdicts(row: Labelled) -> tuple[str, ...]:
    """What the judge says is wrong with an answer."""
    from truetune.data.read_predictions import Prediction
    from truetune.evaluation.score_predictions import build_sample
    from truetune.generation.answer_samples import NO_LIMIT
    from truetune.generation.answer_verdicts import answer_faults

    return answer_faults(
        build_sample(Prediction(row.answer, row.question, row.reference), 0), NO_LIMIT
    )


def _generated() -> Iterator[Labelled]:
    for later, name in enumerate(("labelled.jsonl", "labelled-later.jsonl")):
        for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            yield Labelled(
                row["lang"],
                row["question"],
                row["answer"],
                "",
                row["label"],
                row["made"],
                bool(later),
            )


def _written() -> Iterator[Labelled]:
    for language, rows in GOOD.items():
        for question, answer, reference in rows:
            yield Labelled(language, question, answer, reference, "good", "written by hand")


def _public() -> Iterator[Labelled]:
    from tests.parts import data

    for language, (name, first, step, longest, count) in PUBLIC.items():
        rows = json.loads(data(name).read_text(encoding="utf-8"))
        short = [at for at in range(first, len(rows), step) if len(rows[at]["output"]) < longest]
        for at in short[:count]:
            question = f"{rows[at]['instruction']} {rows[at]['input']}".strip()
            label = NOT_GOOD.get((language, at), "good")
            yield Labelled(language, question, rows[at]["output"], "", label, f"{name}, row {at}")


def _labelled_answers() -> Iterator[Labelled]:
    """Bad answers that are made of good ones."""
    prose = {
        language: [(q, a) for q, a, _ in rows if _is_prose(a)] for language, rows in GOOD.items()
    }
    for language, rows in GOOD.items():
        for question, answer, _ in [row for row in rows if len(row[1]) > 4][:3]:
            again = question if re.search(r"[?？。.؟]$", question) else f"{question}."
            yield Labelled(
                language, question, " ".join([again] * 4), "", "echo", "the question four times"
            )
            word = max(re.findall(r"[^\W\d_]+", answer), key=len)[:12]
            many = ("" if language in ("zh", "ja") else " ").join(
                [word] * (7 if language in ("zh", "ja") else 5)
            )
            yield Labelled(
                language, question, f"{many}.", "", "loop", "one word over and over, then a stop"
            )
            inside = answer.replace(word, many, 1)
            yield Labelled(
                language,
                question,
                inside,
                "",
                "loop",
                "one word over and over inside of a good answer",
            )
        question, answer, reference = next(row for row in rows if row[2] and len(row[2]) > 1)
        others = [text for q, text in prose[language]] * 6
        long = " ".join([answer, *others])[: 1500 if language not in ("zh", "ja") else 700]
        yield Labelled(
            language, question, f"{long}.", reference, "long", "a good answer, and others after it"
        )
    for first, second in TURNS:
        for at in range(2):
            question, answer = prose[first][at % len(prose[first])]
            strange = " ".join(text for _, text in prose[second][:2])
            yield Labelled(
                first,
                question,
                f"{answer} {strange}",
                "",
                "language",
                f"a turn from {first} to {second}",
            )
            yield Labelled(
                first,
                question,
                strange,
                "",
                "language",
                f"a good answer in {second}, asked in {first}",
            )


def _is_prose(answer: str) -> bool:
    """Is it one line without code, long enough to show its language?"""
    letters = sum(character.isalpha() for character in answer)
    return (
        "\n" not in answer
        and "{" not in answer
        and letters >= (14 if re.search("[\u3040-\u9fff]", answer) else 40)
    )


@dataclass
class Figures:
    """Of one half, or of all."""

    good: int
    alarms: int
    bad: Counter[str]
    found: Counter[str]
    named: Counter[str]
    """Found, and by the kind that it is labelled with"""


def figures(rows: Sequence[tuple[Labelled, tuple[str, ...]]]) -> Figures:
    """Count what was found."""
    good = [said for row, said in rows if row.label == "good"]
    made = Figures(len(good), sum(map(bool, good)), Counter(), Counter(), Counter())
    for row, said in rows:
        if row.label in KINDS:
            made.bad[row.label] += 1
            made.found[row.label] += bool(said)
            made.named[row.label] += row.label in said
    return made


def table(judged: Sequence[tuple[Labelled, tuple[str, ...]]]) -> str:
    """Recall by kind and false alarms, of both halves, in Markdown."""
    halves = {half: figures([pair for pair in judged if pair[0].half == half]) for half in HALVES}
    lines = [
        f"| | {' | '.join(f'{half}: found, by its kind' for half in HALVES)} |",
        "|---|---|---|",
    ]
    for kind in KINDS:
        cells = [f"{f.found[kind]} of {f.bad[kind]}, {f.named[kind]}" for f in halves.values()]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    cells = [_share(f.found.total(), f.bad.total()) for f in halves.values()]
    lines.append(f"| **all bad ones** | {' | '.join(cells)} |")
    cells = [_share(f.alarms, f.good) for f in halves.values()]
    lines.append(f"| **false alarms on good ones** | {' | '.join(cells)} |")
    return "\n".join(lines)


def try_thresholds(rows: Sequence[Labelled]) -> Iterator[str]:
    """For each number that a module of the judge names: how many more bad answers are found, and how many good ones are
    called bad, with half and with double of it. The comments beside the thresholds say what came of it."""
    base = figures([(row, verdicts(row)) for row in rows])
    for name in JUDGES:
        module = importlib.import_module(f"truetune.generation.{name}")
        for constant, value in vars(module).copy().items():
            if not constant.isupper() or type(value) not in (int, float):
                continue
            changes = []
            for factor in (0.5, 2):
                # A count below 1 is none: then everything is found.
                changed = max(1, round(value * factor)) if type(value) is int else value * factor
                setattr(module, constant, changed)
                try:
                    result = figures([(row, verdicts(row)) for row in rows])
                finally:
                    setattr(module, constant, value)
                found = result.found.total() - base.found.total()
                changes.append(f"{changed:g}: {found:+d} found, {result.alarms} false alarms")
            yield f"{name}.{constant} {value:g}; {'; '.join(changes)}"


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.1f} %)"


def _by_language(judged: Sequence[tuple[Labelled, tuple[str, ...]]]) -> str:
    parts = defaultdict(list)
    for row, said in judged:
        parts[row.language].append((row, said))
    lines = []
    for language, rows in parts.items():
        found = figures(rows)
        lines.append(
            f"{language}: {found.found.total()} of {found.bad.total()} found, {found.alarms} of"
            f" {found.good} false"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--missed", action="store_true")
    parser.add_argument("--half", choices=HALVES)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--thresholds", action="store_true")
    asked = parser.parse_args()
    if asked.thresholds:
        for line in try_thresholds(labelled()):
            print(line, flush=True)
        return
    judged = [(row, verdicts(row)) for row in labelled()]
    for row, said in judged if asked.missed else ():
        wrong = bool(said) if row.label == "good" else not said and row.label in KINDS
        if wrong and (asked.half is None or row.half == asked.half):
            place = f"{row.half} {row.label} said {said} {row.language} [{row.made}]"
            print(f"{place} {row.question[:40]!r}: {row.answer[:160]!r}")
    counts = Counter(row.label for row, _ in judged)
    print(
        f"{len(judged)} answers: "
        + ", ".join(f"{label} {count}" for label, count in counts.most_common())
    )
    print(table(judged))
    print(_by_language(judged))
    if asked.write:
        text = PAGE.read_text(encoding="utf-8")
        begin, end = "<!-- judge-answers -->\n", "<!-- end of judge-answers -->"
        before, _, rest = text.partition(begin)
        PAGE.write_text(
            f"{before}{begin}\n{table(judged)}\n\n{end}{rest.partition(end)[2]}", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
