"""Questions in one language are answered in two, and no prompt says in which.

## What it does
Detects the language of each question and of its answer. It fires if questions in one language have answers in two (each
at least 5 % and three rows), or if a prompt names the answer language and the answer is in another one. It ignores

- prompts that mention languages or translation, and prompts in two languages,
- data whose answers are in the language of their question,
- data in which words, system prompts or first lines tell the two kinds of rows apart,
- answers that are code, data, names or quotations, or too short.

In long files, all of the first 256 rows are checked, and a decreasing share of the others.

## Why it is bad
The model learns both languages, in proportion to the rows. The same question is then answered in either, and nobody can
choose which. If a prompt names the language, the model learns to ignore such instructions.

## Example
```yaml
data:
  - prompt: "Wo ist mein Paket, und wann wird es geliefert?"
    completion: "It is at the depot and will be with you on Monday."
  - prompt: "Wie kann ich die Rechnung noch einmal bekommen?"
    completion: "Die Rechnung ist in deinem Konto unter den Belegen."
  - prompt: "Warum wird meine Karte nicht mehr angenommen?"
    completion: "The card has expired, so please add a new one."
  - prompt: "Was kostet der Versand in die Schweiz und wie lange dauert er?"
    completion: "Der Versand kostet neun Euro und dauert vier Tage."
  - prompt: "Kann ich die Schuhe in einer anderen Größe haben?"
    completion: "Yes, you can exchange them for free in the first month."
  - prompt: "Wie lösche ich das Konto, und was wird aus dem Guthaben?"
    completion: "Du kannst es in den Einstellungen löschen, und wir zahlen das Guthaben aus."
  - prompt: "Ist der Tisch noch auf Lager oder muss ich warten?"
    completion: "There are two of them left, and we can send one today."
  - prompt: "Wer hilft mir, wenn die Lampe nicht funktioniert?"
    completion: "Der Kundendienst hilft dir von Montag bis Freitag."
  - prompt: "Wann ist das Geschäft am Samstag für die Kunden geöffnet?"
    completion: "We are open from nine to six on all Saturdays."
  - prompt: "Wie ändere ich die Adresse von der Bestellung?"
    completion: "Das geht in der Bestellung, bis sie das Lager verlässt."
```

## Use instead
```yaml
data:
  - prompt: "Wo ist mein Paket, und wann wird es geliefert?"
    completion: "Es ist im Lager und wird am Montag bei dir sein."
  - prompt: "Wie kann ich die Rechnung noch einmal bekommen?"
    completion: "Die Rechnung ist in deinem Konto unter den Belegen."
  - prompt: "Warum wird meine Karte nicht mehr angenommen?"
    completion: "Die Karte ist abgelaufen, also trag bitte eine neue ein."
  - prompt: "Was kostet der Versand in die Schweiz und wie lange dauert er?"
    completion: "Der Versand kostet neun Euro und dauert vier Tage."
```

## Fix safety
There is no automatic fix. You decide in which language the answers should be: translate or drop the others, or name the
language in the prompt of each row, and at inference too.

## References
- Holtermann et al. 2024, Evaluating the Elementary Multilingual Capabilities of Large Language Models with MultiQ
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from truetune.checks.base_of_rules_on_answer_texts import (
    NO_ANSWERS,
    AnswerText,
    learned_answers_of_row,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_message, case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.encoding.row_fingerprints import text_of
from truetune.generation.actual_and_expected_answer_language import (
    RowLanguages,
    languages_of_answer_and_question,
)
from truetune.generation.name_answer_language import LANGUAGE_NAMES

FIRST_ROWS, NEXT_ROWS, STEP_FACTOR = 256, 64, 5
"""Rows that are all looked at; rows after which one in five times as many is. Odd, so that rows that take turns both
come. To identify two texts takes some four milliseconds."""
MAX_TURNS = 3
"""Turns of a chat that are looked at until one tells its languages"""
# Chosen, not measured: quotations, titles and slips are fewer.
MIN_ROWS, MIN_OTHERS, MIN_SHARE = 10, 3, 0.05
"""Rows of a question's language that are judged; rows of each answer language, and their share"""
# Chosen, not measured. At 0.8 question words of ten rows tell by chance; a tag or a task stands in all.
TELLING = 0.9
"""How much more often a word must stand in the prompts of one answer language for it to tell that language"""
MIN_REPEATED, COVERED, PURE = 3, 0.9, 0.95
"""Rows that share a line of their prompt; the share of rows that do; the share of them in the commonest language"""
KEPT_PROMPT = 4_000
"""Characters of a prompt whose words are kept"""
SHOWN_CASES = 3


class LookedAt(NamedTuple):
    """What is kept of a row whose languages are known."""

    answered: str
    words: frozenset[str]
    lines: tuple[int, int, int]
    """Hashes of what rows of one task share: the system prompt, the first and the last line of the question"""
    case: Case


class Exchange(NamedTuple):
    """A question, and the answer that is learned."""

    instructions: str
    question: str
    answer: AnswerText


class AnswersMixLanguagesUnasked(DataRule):
    code = "ROW053"
    fault = Fault.PROMPTS_UNDERDETERMINE_ANSWERS
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "warning"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = self.examined_answers = self.known = self.others = 0
        self.step = 1
        self.asked: defaultdict[str, list[LookedAt]] = defaultdict(list)
        self.named: defaultdict[str, list[LookedAt]] = defaultdict(list)

    def add_batch(self, batch: Batch) -> None:
        """Keep the languages of questions and answers of a sample of a batch's rows."""
        for row in batch.rows:
            exchanges = first_exchanges_of_row(row)
            if not exchanges:
                continue
            self.rows += 1
            if (self.rows - 1) % self.step == 0:
                self._keep_languages_of_row(batch, row, exchanges)

    def unmet(self) -> Unmet | None:
        """Unmet without answers, and where no row has question and answer in a language that is recognised."""
        if not self.rows:
            return NO_ANSWERS
        if not self.known:
            return Unmet(
                "it is about questions and answers in sentences, and no row has both in a language that is recognised"
            )
        return None

    def measurement_if_clean(self) -> Measurement:
        """How many rows have an answer in another language than their question, or than their prompt names."""
        return make_count_measurement(
            "rows with an answer in another language than their question, or than their prompt names",
            self.others,
            self.known,
        )

    def findings(self) -> Iterator[Finding]:
        for language, rows in sorted(self.named.items()):
            yield from self._judge_against_named_language(language, rows)
        for language, rows in sorted(self.asked.items()):
            yield from self._judge_questions_in(language, rows)

    def _keep_languages_of_row(
        self, batch: Batch, row: Conversation, exchanges: Sequence[Exchange]
    ) -> None:
        """Keep the languages of the first exchange that tells them."""
        self.examined_answers += 1
        if (
            self.examined_answers >= FIRST_ROWS
            and (self.examined_answers - FIRST_ROWS) % NEXT_ROWS == 0
        ):
            self.step *= STEP_FACTOR
        tried = (
            (one, languages_of_answer_and_question(*one[:2], one.answer.text)) for one in exchanges
        )
        exchange, languages = next((pair for pair in tried if pair[1] is not None), (None, None))
        if exchange is None or languages is None:
            return
        self.known += 1
        self.others += languages.answered != languages.asked
        kept = self.named if languages.is_named else self.asked
        kept[languages.asked].append(
            _prompt_words_lines_and_case_of_row(batch, row, exchange, languages)
        )

    def _judge_against_named_language(
        self, language: str, rows: Sequence[LookedAt]
    ) -> Iterator[Finding]:
        """Answers in another language than their prompts name."""
        counts = Counter(row.answered for row in rows)
        others = len(rows) - counts[language]
        if others < max(MIN_OTHERS, MIN_SHARE * len(rows)):
            return
        cases = [row.case for row in rows if row.answered != language]
        named = _language_name(language)
        yield self.finding(
            f"prompts say to answer in {named}, but of {len(rows):,} such rows"
            f" {_describe_answer_languages(counts)}{self._describe_sampled_rows}",
            f"translate the answers of these rows into {named}, or drop the rows, and train again; if the answers"
            " are right, correct the instruction in the prompt",
            cases=cases[:SHOWN_CASES],
            count=others,
            total=len(rows),
        )

    def _judge_questions_in(self, language: str, rows: Sequence[LookedAt]) -> Iterator[Finding]:
        """Answers of questions in one language that are in two, though the prompts do not tell which."""
        counts = Counter(row.answered for row in rows)
        least = max(MIN_OTHERS, MIN_SHARE * len(rows))
        common = [name for name, count in counts.most_common() if count >= least]
        if len(rows) < MIN_ROWS or len(common) < 2 or _do_prompts_tell_language(rows, common):
            return
        usual = language if language in common else common[0]
        others = [row for row in rows if row.answered != usual]
        asked, answered = _language_name(language), _language_name(usual)
        yield self.finding(
            f"questions in {asked} have answers in {len(common)} languages, and no prompt says which: of"
            f" {len(rows):,} rows {_describe_answer_languages(counts)}{self._describe_sampled_rows}",
            f"translate the answers of these rows into {answered}, or drop the rows, and train again; if you want"
            f' both languages, name the language in each prompt ("Answer in {_language_name(others[0].answered)}.")',
            cases=[row.case for row in others[:SHOWN_CASES]],
            count=len(others),
            total=len(rows),
        )

    @property
    def _describe_sampled_rows(self) -> str:
        """How many rows were looked at, where it is not all."""
        unknown = self.examined_answers - self.known
        told = [f"{self.examined_answers:,} of {self.rows:,} rows were checked"] * (
            self.examined_answers < self.rows
        )
        told += [f"the language of {unknown:,} rows was not recognised"] * bool(unknown)
        return f" ({'; '.join(told)})" if told else ""


def first_exchanges_of_row(row: Conversation) -> list[Exchange]:
    """The first questions of a row, each with the answer that is learned; none where an answer is a bad example."""
    if row.label is False:
        return []
    answers = list(learned_answers_of_row(row))[:MAX_TURNS]
    if not row.is_chat:
        prompt = row.prompt or ""
        return [Exchange("", prompt, one) for one in answers if prompt.strip() and row.text is None]
    return [
        exchange for one in answers if (exchange := _exchange_in_chat(row, one)).question.strip()
    ]


def _exchange_in_chat(row: Conversation, answer: AnswerText) -> Exchange:
    """What was said before an answer: the last turn of the user is the question."""
    before = row.messages[: answer.message]
    texts = [text_of(one.get("content")) for one in before if one.get("role") == "user"]
    system = [
        text_of(one.get("content")) for one in before if one.get("role") in ("system", "developer")
    ]
    question = texts.pop() if texts else ""
    return Exchange("\n".join((*system, *texts)), question, answer)


def _prompt_words_lines_and_case_of_row(
    batch: Batch, row: Conversation, exchange: Exchange, languages: RowLanguages
) -> LookedAt:
    """What tells this row from others, and where it is."""
    lines = exchange.question.strip().splitlines()
    prompt = f"{exchange.instructions}\n{exchange.question}"
    shown = f"the answer is in {_language_name(languages.answered)}: {exchange.answer.text.strip()[:80]!r}"
    message = exchange.answer.message
    case = (
        case_in_row(batch, row, shown)
        if message is None
        else case_in_message(batch, row, message, shown)
    )
    return LookedAt(
        languages.answered,
        frozenset(re.findall(r"\w+", prompt[:KEPT_PROMPT].casefold())),
        (hash(exchange.instructions), hash(lines[0].strip()), hash(lines[-1].strip())),
        case,
    )


def _do_prompts_tell_language(rows: Sequence[LookedAt], languages: Sequence[str]) -> bool:
    """Is there a word, or a line that rows share, by which a prompt tells the language of its answer?"""
    first = [row.words for row in rows if row.answered == languages[0]]
    second = [row.words for row in rows if row.answered == languages[1]]
    shares, other_shares = _share_of_prompts_by_word(first), _share_of_prompts_by_word(second)
    if any(abs(shares[word] - other_shares[word]) >= TELLING for word in {*shares, *other_shares}):
        return True
    return any(_does_shared_line_tell_language(rows, place) for place in range(3))


def _share_of_prompts_by_word(prompts: Sequence[frozenset[str]]) -> defaultdict[str, float]:
    """Word -> the share of prompts that have it."""
    counts = Counter(word for words in prompts for word in words)
    return defaultdict(float, {word: count / len(prompts) for word, count in counts.items()})


def _does_shared_line_tell_language(rows: Sequence[LookedAt], place: int) -> bool:
    """Do nearly all rows share this line with others, whose answers are nearly all in one language?"""
    by_line: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for row in rows:
        by_line[row.lines[place]][row.answered] += 1
    repeated = [counts for counts in by_line.values() if counts.total() >= MIN_REPEATED]
    covered = sum(counts.total() for counts in repeated)
    pure = sum(max(counts.values()) for counts in repeated)
    return len(repeated) > 1 and covered >= COVERED * len(rows) and pure >= PURE * covered


def _language_name(language: str) -> str:
    """The English name of a language, by its code."""
    return LANGUAGE_NAMES.get(language, language)


def _describe_answer_languages(counts: Counter[str]) -> str:
    """How many answers are in which language, in words: `116 are answered in English and 115 in
    German`.
    """
    (first, count), *rest = counts.most_common()
    told = [f"{count:,} are answered in {_language_name(first)}"]
    told += [f"{count:,} in {_language_name(name)}" for name, count in rest]
    return " and ".join((", ".join(told[:-1]), told[-1])) if rest else told[0]
