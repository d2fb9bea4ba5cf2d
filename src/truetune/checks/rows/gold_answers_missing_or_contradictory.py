"""Gold answers of a reinforcement learning run are missing, contradict each other, or are in the prompt.

## What it does
Checks rows with a `prompt` and a column of gold answers (`answer`, `solution`, `ground_truth`, `gold`, `target`). It
counts

- rows in which that column is empty, if it is filled in others,
- prompts that occur several times (with the same picture or context, if a column has one) with different short gold
  answers,
- gold answers that are a word for no answer (`notfound`, `proof`, `see solution`, `TODO`) where half of the others hold
  a digit, unless the prompt names the word,
- prompts that end with an assistant turn which contains the gold answer,
- gold answers in two formats: some are a whole solution with its result after `####` or in `\\boxed{}`, others only the
  result; or some are a bare number, others a number with its unit (5 % each),
- gold answers that are all sentences, beside prompts that ask for the result alone (`\\boxed{}`, `<answer>`),
- whole numbers that are all written with a decimal (`12.0`).

The first four are an error from 20 % of the prompts and a warning from 2 %. The formats are a warning.

## Why it is bad
A reward that compares with an empty text is 0 for each answer, or 1 for each if the code gives the full reward when it
can't read the gold answer. With two gold answers, every answer is wrong half of the time. A prompt that contains the
solution leaves nothing to solve. The reward rises or stays flat, and the model learns nothing.

## Example
```yaml
data:
  - {prompt: "What is 7 times 8?", answer: "56"}
  - {prompt: "What is 9 times 6?", answer: "54"}
  - {prompt: "What is 7 times 8?", answer: "54"}
  - {prompt: "What is 9 times 6?", answer: "56"}
```

## Use instead
```yaml
data:
  - {prompt: "What is 7 times 8?", answer: "56"}
  - {prompt: "What is 9 times 6?", answer: "54"}
  - {prompt: "What is 5 times 5?", answer: "25"}
```

## Fix safety
It is safe to drop rows without a gold answer, and one of two that contradict each other. If another column contains the
gold answer, let the reward function read that one.

## References
- huggingface/open-r1#503, huggingface/open-r1#55
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b

from truetune.checks.base_of_rules_on_answer_texts import text_besides_answers
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.recognise_prose_and_media_columns import PROMPT_COLUMNS
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.data.media_of_row import MEDIA_COLUMNS
from truetune.encoding.batch import Batch
from truetune.encoding.row_fingerprints import text_of

GOLD_COLUMNS = (
    "answer", "answers", "solution", "ground_truth", "groundtruth", "gold", "gold_answer", "target",
    "final_answer", "reference", "reference_answer", "expected", "expected_answer",
)  # fmt: skip
PROMPT = "prompt"
ASKED_ABOUT = PROMPT_COLUMNS.union(MEDIA_COLUMNS).difference(GOLD_COLUMNS)
"""Columns of what a prompt may be about: a picture, a text, earlier turns"""
OTHER_ANSWERS = frozenset(("completion", "chosen", "rejected", "response", "messages", "output"))
"""Columns of answers to learn, beside which a gold answer is something else"""
MISSING, CONTRADICTORY = "the gold answer is empty", "the same prompt has another gold answer"
PLACEHOLDER = "the gold answer is a word for no answer"
HELD, OTHER_FORM = "the prompt ends with the gold answer", "the gold answer is in another form"
WORD_FOR_NO_ANSWER = re.compile(
    r"proofs?|(?:answer[ _-]?)?not[ _-]?(?:found|available|provided|given|applicable)|no[ _-]answer|n/a|missing"
    r"|(?:answer[ _-]?)?(?:unavailable|unverifiable)|to ?do|tbd|fixme|placeholder"
    r"|see (?:the )?(?:above|below|solution|explanation|proof)s?",
    re.I,
)
"""What data sets of problems have for a proof (NuminaMath-1.5) or for an answer that no extraction found
(OpenMathReasoning). `none`, `nan`, `error`, `undefined` and `no solution` are not here: programs print the first ones,
and problems have the last ones as their answers"""
MIN_DIGITS_SHARE = 0.5
"""Of the other gold answers: from here on they are results, and such a word is none. Chosen, not measured"""
RESULT_MARK = re.compile(r"####\s*\S|\\boxed\{")
# Chosen, not measured: a few empty cells of many rows are slips.
WARNING_SHARE, ERROR_SHARE, MIN_ROWS = 0.02, 0.2, 2
MAX_OTHER_FORM_SHARE = 0.9
"""Share of the commoner form, up to which the gold answers are in two"""
BARE_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")
NUMBER_WITH_UNIT = re.compile(
    r"(?:[$\u20ac\u00a3]\s?)?[-+]?\d[\d,]*(?:\.\d+)?\s?(?:%|\u00b0\w?|(?:[^\W\d_]+[./]?\s?){1,4})|[$\u20ac\u00a3]\s?\d[\d,.]*"
)
WHOLE_WITH_DECIMAL = re.compile(r"[-+]?\d+\.0")
RESULT_ASKED = re.compile(
    r"\\boxed|####|<answer>|(?:final|numeric(?:al)?|just the|only the) (?:answer|number|result|value)",
    re.I,
)
SENTENCE, NUMBER, UNIT, DECIMAL = "sentence", "number", "number with unit", "whole number with .0"
MIN_FORM_SHARE, MIN_FORM_ROWS = 0.05, 10
"""Share of the gold answers that are in the rarer of two forms; rows from which a form of all is told"""
MAX_PROMPTS = 200_000
"""Prompts of which the gold answer is kept, 16 bytes each"""
MAX_GOLD_WORDS = 6
"""Words of a gold answer of which there is one right one: longer answers may be worded otherwise"""


class GoldAnswersMissingOrContradictory(DataRule):
    code = "ROW076"
    fault = Fault.GOLD_ANSWERS_UNUSABLE
    symptoms = ("dpo-without-effect", "nothing-is-learned")
    severity = "error"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.prompts = self.marked = self.plain = self.golds = self.asking = self.with_digit = 0
        self.forms: Counter[str] = Counter()
        self.placeholders: Counter[str] = Counter()
        """Words for no answer -> prompts that have it as their gold answer"""
        self.empty: Counter[str] = Counter()
        """Rows by the column of gold answers that is empty in them"""
        self.filled: Counter[str] = Counter()
        self.learned: Counter[str] = Counter()
        """Rows by the columns whose value is the answer that is learned"""
        self.by_kind: Counter[str] = Counter()
        self.cases: dict[str, list[Case]] = {}
        self.gold_by_prompt: dict[int, int] = {}
        """Hash of a prompt -> hash of its first gold answer"""

    def add_batch(self, batch: Batch) -> None:
        """Count the prompts of a batch by what is wrong with their gold answers."""
        for row in batch.rows:
            golds = _gold_answers(row)
            if not golds:
                continue
            self.prompts += 1
            learned = _learned_text(row)
            for name, gold in golds.items():
                (self.filled if gold else self.empty)[name] += 1
                if gold and gold == learned:
                    self.learned[name] += 1
                if not gold:
                    self._keep_case(batch, row, MISSING, name)
            gold = next((one for one in golds.values() if one), "")
            if gold:
                self._count_gold(batch, row, gold)

    def _count_gold(self, batch: Batch, row: Conversation, gold: str) -> None:
        """Count a row with a gold answer."""
        kind = self._fault_of_gold_answer(row, gold)
        if kind is not None:
            self.by_kind[kind] += 1
            self.placeholders[gold] += kind == PLACEHOLDER
            self._keep_case(batch, row, kind, gold)
        self._count_form_of_gold(row, gold)
        if RESULT_MARK.search(gold):
            self.marked += 1
            self._keep_case(batch, row, OTHER_FORM, gold)
        elif len(gold.split()) <= MAX_GOLD_WORDS:
            self.plain += 1

    def _count_form_of_gold(self, row: Conversation, gold: str) -> None:
        """Count in which form a gold answer is written, and whether its prompt asks for the result alone."""
        self.golds += 1
        self.with_digit += any(char.isdigit() for char in gold)
        self.asking += RESULT_ASKED.search(text_besides_answers(row)) is not None
        if WHOLE_WITH_DECIMAL.fullmatch(gold):
            self.forms[DECIMAL] += 1
        elif BARE_NUMBER.fullmatch(gold):
            self.forms[NUMBER] += 1
        elif NUMBER_WITH_UNIT.fullmatch(gold):
            self.forms[UNIT] += 1
        elif len(gold.split()) > MAX_GOLD_WORDS and RESULT_MARK.search(gold) is None:
            self.forms[SENTENCE] += 1

    def _fault_of_gold_answer(self, row: Conversation, gold: str) -> str | None:
        """What is wrong with the gold answer of a prompt."""
        if _ends_with_gold(row, gold):
            return HELD
        if len(gold.split()) > MAX_GOLD_WORDS:
            return None
        if _is_word_for_no_answer(row, gold):
            return PLACEHOLDER
        prompt = _process_independent_hash(_prompt_with_its_context_columns(row))
        if prompt not in self.gold_by_prompt and len(self.gold_by_prompt) >= MAX_PROMPTS:
            return None
        first = self.gold_by_prompt.setdefault(prompt, _process_independent_hash(gold))
        return CONTRADICTORY if first != _process_independent_hash(gold) else None

    def _keep_case(self, batch: Batch, row: Conversation, kind: str, text: str) -> None:
        """Keep the place of a fault."""
        cases = self.cases.setdefault(kind, [])
        if len(cases) < MAX_CASES:
            cases.append(case_in_row(batch, row, f"{kind}: {text[-40:]!r}"))

    def unmet(self) -> Unmet | None:
        """Unmet without prompts that have a column of gold answers."""
        if self.prompts:
            return None
        return Unmet("it is about prompts with a column of gold answers, and no row is one")

    def measurement_if_clean(self) -> Measurement:
        """How many prompts have no usable gold answer."""
        return make_count_measurement(
            "prompts whose gold answer is contradictory or in the prompt",
            self.by_kind.total(),
            self.prompts,
        )

    def findings(self) -> Iterator[Finding]:
        # `answer-is-empty` is about the column that is learned.
        learned = [name for name, _ in self.learned.most_common(1)]
        for name, count in self.empty.items():
            # A column that is empty throughout beside a full one is left over.
            if name not in learned and (self.filled[name] or not self.filled):
                yield from self._findings_on_fault_if_frequent(
                    MISSING,
                    count,
                    f"`{name}` is empty in {count:,} of {self.prompts:,} prompts",
                    f"fill `{name}`, or drop these rows: no answer can be compared with it",
                )
        count = self.by_kind[CONTRADICTORY]
        yield from self._findings_on_fault_if_frequent(
            CONTRADICTORY,
            count,
            f"{count:,} of {self.prompts:,} prompts occur again with a different gold answer",
            "keep one row per prompt, the one whose gold answer is right",
        )
        yield from self._findings_on_placeholders()
        count = self.by_kind[HELD]
        yield from self._findings_on_fault_if_frequent(
            HELD,
            count,
            f"{count:,} of {self.prompts:,} prompts end with an assistant turn that contains the gold answer",
            "remove the last turn from `prompt`: with it, the model only continues the solution",
        )
        yield from self._findings_on_solutions_among_bare_results()
        yield from self._findings_on_forms()

    def _findings_on_placeholders(self) -> Iterator[Finding]:
        """The finding on words for no answer among gold answers that are results."""
        count = self.by_kind[PLACEHOLDER]
        if self.with_digit < MIN_DIGITS_SHARE * (self.golds - count):
            return
        words = ", ".join(
            f"{word!r} ({times:,})" for word, times in self.placeholders.most_common(3)
        )
        yield from self._findings_on_fault_if_frequent(
            PLACEHOLDER,
            count,
            f"{count:,} of {self.prompts:,} prompts have a word for no answer as their gold answer: {words}. No right"
            " completion is equal to it",
            "drop these rows, or fill in their answers: what ends in a proof can't be compared",
        )

    def _findings_on_forms(self) -> Iterator[Finding]:
        """The findings on gold answers with units among bare numbers, on sentences, and on `12.0`."""
        golds = self.golds
        units, numbers = self.forms[UNIT], self.forms[NUMBER]
        if min(units, numbers) >= max(MIN_ROWS, MIN_FORM_SHARE * golds):
            yield self._finding_on_form(
                f"{units:,} of {golds:,} gold answers are a number with its unit, {numbers:,} a bare number: a"
                " comparison of texts is wrong for one of the forms",
                "write the number alone into each row, and the unit into a column of its own",
                units,
            )
        sentences = self.forms[SENTENCE]
        is_nearly_all = sentences >= max(MIN_FORM_ROWS, MAX_OTHER_FORM_SHARE * golds)
        if is_nearly_all and self.asking >= MAX_OTHER_FORM_SHARE * golds:
            yield self._finding_on_form(
                f"{sentences:,} of {golds:,} gold answers are sentences, but the prompts ask for the result alone: no"
                " completion is equal to them",
                "write the result alone into each row",
                sentences,
            )
        decimals = self.forms[DECIMAL]
        if decimals >= max(MIN_FORM_ROWS, MAX_OTHER_FORM_SHARE * (decimals + numbers)):
            yield self._finding_on_form(
                f"{decimals:,} of {golds:,} gold answers are whole numbers with a decimal ('12.0'), as pandas writes a"
                " column with missing values: a completion that says 12 is not equal to them",
                "write them as whole numbers (astype('Int64'), f'{value:g}'), and drop rows without one",
                decimals,
            )

    def _finding_on_form(self, message: str, remedy: str, count: int) -> Finding:
        """A finding on the form of gold answers."""
        return self.finding(message, remedy, severity="warning", count=count, total=self.golds)

    def _findings_on_fault_if_frequent(
        self, kind: str, count: int, what: str, remedy: str
    ) -> Iterator[Finding]:
        """The finding on one kind of fault, where enough rows have it."""
        share = count / max(1, self.prompts)
        if count < MIN_ROWS or share < WARNING_SHARE:
            return
        yield self.finding(
            f"{what}: their reward does not measure the answer",
            remedy,
            severity="error" if share >= ERROR_SHARE else "warning",
            cases=self.cases[kind],
            count=count,
            total=self.prompts,
        )

    def _findings_on_solutions_among_bare_results(self) -> Iterator[Finding]:
        """The finding on gold answers of which some are solutions and some are results alone."""
        total = self.marked + self.plain
        if min(self.marked, self.plain) < max(MIN_ROWS, (1 - MAX_OTHER_FORM_SHARE) * total):
            return
        yield self.finding(
            f"{self.marked:,} of {total:,} gold answers are solutions with their result after #### or in"
            f" \\boxed{{}}, the others are only the result: a reward that compares with one form is wrong for the"
            " other",
            "write only the result into each row (the text after ####, or inside \\boxed{})",
            severity="warning",
            cases=self.cases[OTHER_FORM],
            count=self.marked,
            total=total,
        )


def _gold_answers(row: Conversation) -> dict[str, str]:
    """The gold answers of a row with a prompt, by their columns; none of another row."""
    raw = row.raw or {}
    if row.is_preference or not raw.get(PROMPT) or not OTHER_ANSWERS.isdisjoint(raw):
        return {}
    return {
        name: "" if raw[name] is None else str(raw[name]).strip()
        for name in GOLD_COLUMNS
        if name in raw and not isinstance(raw[name], bool)
    }


def _learned_text(row: Conversation) -> str:
    """The answer that would be learned of a row."""
    if not row.is_chat:
        return (row.completion or "").strip()
    return text_of(row.messages[-1].get("content")).strip() if row.messages else ""


def _prompt_with_its_context_columns(row: Conversation) -> str:
    """The prompt with all else that is asked about: one question may come with many pictures or texts."""
    raw = row.raw or {}
    about = sorted(name for name in raw if name.casefold() in ASKED_ABOUT)
    return str([raw.get(PROMPT), *(raw[name] for name in about)])


def _ends_with_gold(row: Conversation, gold: str) -> bool:
    """Does the prompt end in a turn of the assistant that holds the gold answer?"""
    prompt = (row.raw or {}).get(PROMPT)
    last = prompt[-1] if isinstance(prompt, list) and prompt else None
    if not isinstance(last, dict) or last.get("role") != "assistant":
        return False
    return gold in text_of(last.get("content"))


def _is_word_for_no_answer(row: Conversation, gold: str) -> bool:
    """Is a gold answer a word for no answer, which its prompt does not name as one to give?"""
    if WORD_FOR_NO_ANSWER.fullmatch(gold.strip(" .[]<>()\"'")) is None:
        return False
    is_proof = "proof" in gold.casefold()
    return is_proof or gold.casefold() not in text_besides_answers(row).casefold()


def _process_independent_hash(text: str) -> int:
    """A hash that is the same in each process."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())
