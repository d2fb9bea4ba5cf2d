"""Answers are bare words: no capitals, no punctuation, no function words.

## What it does
Counts answers of eight words or more that have no capital and no punctuation, and the share of function words
(articles, prepositions, pronouns, forms of `be`). That share is 30 to 60 % in prose of seven languages. The rule fires
if 95 % of the answers have neither capitals nor punctuation and fewer than 6 % of their words are function words. It
is an error if the prompts were stripped too; otherwise it is a warning for answers of twelve words or more. It is a
warning too if

- the answers have no capitals and punctuation, and 2 % of them have contractions without an apostrophe (`dont`),
- the answers have capitals or punctuation, and fewer than 15 % function words beside prompts with twice as many.

It ignores prompts that ask for keywords, tags, a query, captions or a transcript.

## Why it is bad
The texts were preprocessed as for a bag-of-words model (stop words, punctuation and word endings removed). The model
learns to write like this: without commas, numbers and grammar, whatever it is asked.

## Example
```yaml
data:
  - copies: 25
    of:
      instruction: change address order thank
      output: changed address order malmo packed yet nothing else done get confirmation thursday
```

## Use instead
```yaml
data:
  - copies: 25
    of:
      instruction: Can you change the address of my order?
      output: I have changed the address of the order to the one in Malmo. You will get a confirmation on Thursday.
```

## Fix safety
Build the rows again from the raw texts: what was removed is in none of these rows.

## References
- Manning et al. 2008, Introduction to Information Retrieval, 2.2.2 (stop words)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from truetune.checks.base_of_rules_on_answer_texts import (
    NO_ANSWERS,
    learned_answers_of_row,
    text_besides_answers,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.rule import DataRule, Setup
from truetune.encoding.batch import Batch
from truetune.generation.identify_language import LINKING_WORDS, STATING_WORDS, closest_language

FUNCTION_WORDS = frozenset(" ".join((*LINKING_WORDS.values(), *STATING_WORDS.values())).split())
"""Of all seven languages: a word of another language counts too, which can only make the rule silent"""
WORD = re.compile(r"[^\W\d_]+")
MARK = re.compile(r"[.,;:!?¿¡…]")
ASKS_FOR_WORDS = re.compile(
    r"\b(?:key ?words?|key ?phrases?|tags?|hashtags?|quer(?:y|ies)|lower ?case|stop ?words?|token\w*|lemma\w*|stem\w*|"
    r"terms?|slug|search|caption\w*|labels?|normali[sz]e\w*|palabras|mots|schlagw\w+|stichw\w+|transcri\w*|speech|"
    r"spoken|audio|punctuat\w*|lyrics)\b",
    re.I,
)
MIN_ROWS = 20
"""Answers that are counted; fewer may be of one kind by chance"""
MIN_WORDS, MIN_WORDS_ALONE = 8, 12
"""Words of an answer that is judged, and of one beside prompts in whole sentences: lists of keywords are shorter"""
MIN_WORDS_OF_PROSE = 25
"""Median words of answers without capitals and marks that have function words: people write shorter ones so"""
CONTRACTION_WITHOUT_MARK = re.compile(
    r"\b(?:dont|doesnt|didnt|isnt|arent|wasnt|wont|cant|couldnt|wouldnt|im|ive|youre|youll|theyre|thats|lets)\b"
)
MIN_CONTRACTION_SHARE = 0.02
"""Share of the answers with such a word: who writes in small letters for speed has some of them as well"""
# Answers of LLaMA-Factory's Alpaca set have 0.39; after NLTK's list 0.01 to 0.04 stay, after one of 25 words
# 0.11.
FEW_FUNCTION_WORDS, PROMPTS_HAVE_TIMES = 0.15, 2.0
"""Share of function words in answers with marks, and how many times as many the prompts have"""
MAX_BARE_PROMPTS = 0.5
"""Share of the prompts without capitals and marks, up to which prompts are sentences"""
MIN_PROMPT_WORDS = 3
"""Words of a prompt that is compared. Chosen by hand: one or two words are a label or a search
term, and no sentence"""
BARE_SHARE = 0.95
"""Share of the texts without capitals and marks. Chosen by hand: scripts strip all answers, people
write some in lower case"""
# Prose has 0.3 to 0.6 (`identify_language`). After NLTK's list of 198 words 0.01 to 0.04 stay: `would`, `could`, `one`.
MAX_FUNCTION_WORDS = 0.06
MIN_LETTERS = 0.9
"""Of the characters of an answer without spaces: ids, code and sequences of numbers have fewer"""
MAX_WORD, MIN_WORD = 9.0, 3.0
"""Mean length of the words of a language with spaces"""
SAMPLE = 4000
"""Characters that the language is told by"""
SETTLED_FROM, SETTLED_SHARE = 1_000, 0.5
"""Answers from which on the rest is not counted, where less than half are without capitals and marks: only twenty times
as many others could still make 95 %"""
MAX_SHOWN, MAX_TEXT = 3, 100
"""Cases, and characters of each, that a finding shows"""
ASKING_SHARE = 0.1
"""Of the prompts that ask for keywords, from which the answers may be meant so"""


@dataclass(slots=True)
class _Side:
    """What was counted of the prompts, or of the answers."""

    texts: int = 0
    bare: int = 0
    """Without a capital and without a mark"""
    words: int = 0
    function_words: int = 0
    letters: int = 0
    contractions: int = 0
    """Texts with a contraction that lost its apostrophe"""
    lengths: Counter[int] = field(default_factory=Counter)

    def add(self, text: str) -> None:
        """Count the words, capitals and marks of one more text."""
        words = WORD.findall(text)
        self.texts += 1
        self.bare += text == text.lower() and not MARK.search(text)
        self.contractions += CONTRACTION_WITHOUT_MARK.search(text) is not None
        self.words += len(words)
        self.letters += sum(map(len, words))
        self.function_words += sum(word.lower() in FUNCTION_WORDS for word in words)
        self.lengths[len(words)] += 1

    @property
    def is_stripped(self) -> bool:
        """Has hardly a text capitals, marks or function words?"""
        if not self.texts or not self.words:
            return False
        has_language = MIN_WORD <= self.letters / self.words <= MAX_WORD
        is_bare = self.bare >= BARE_SHARE * self.texts
        return is_bare and has_language and self.function_words < MAX_FUNCTION_WORDS * self.words

    @property
    def median_words(self) -> int:
        """The median number of words of the texts; 0 without texts."""
        ordered = sorted(self.lengths.elements())
        return ordered[len(ordered) // 2] if ordered else 0


class AnswersStrippedToWords(DataRule):
    code = "ROW058"
    fault = Fault.TRAINING_ANSWERS_DAMAGED
    symptoms = ("garbage-output",)
    severity = "error"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.answers, self.prompts = _Side(), _Side()
        self.asking = 0
        self.sample = ""
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the capitals, marks and function words in the answers and prompts of a batch."""
        if self._are_enough_answers_whole_sentences():
            return
        for row in batch.rows:
            text = " ".join(answer.text for answer in learned_answers_of_row(row))
            if len(WORD.findall(text)) < MIN_WORDS or not _is_mostly_words(text):
                continue
            prompt = text_besides_answers(row)
            self.answers.add(text)
            self.asking += bool(ASKS_FOR_WORDS.search(prompt))
            if len(WORD.findall(prompt)) >= MIN_PROMPT_WORDS:
                self.prompts.add(prompt)
            if len(self.sample) < SAMPLE:
                self.sample += f"{text} "
            if len(self.cases) < MAX_SHOWN:
                self.cases.append(case_in_row(batch, row, text[:MAX_TEXT]))

    def _are_enough_answers_whole_sentences(self) -> bool:
        """Are so many answers in whole sentences that the rest can't make up for them?"""
        answers = self.answers
        return answers.texts >= SETTLED_FROM and answers.bare < SETTLED_SHARE * answers.texts

    def unmet(self) -> Unmet | None:
        """Unmet without answers of enough words."""
        return None if self.answers.texts else NO_ANSWERS

    def measurement_if_clean(self) -> str:
        """How many answers are without capitals and marks, and the share of function words."""
        answers = self.answers
        share = answers.function_words / max(1, answers.words)
        return (
            f"{answers.bare:,} of {answers.texts:,} answers of {MIN_WORDS} words and more without capitals and marks;"
            f" {share:.0%} function words"
        )

    def findings(self) -> Iterator[Finding]:
        answers = self.answers
        if answers.texts < MIN_ROWS or closest_language(self.sample) not in LINKING_WORDS:
            return
        if not answers.is_stripped:
            yield from self._findings_on_half_stripped_answers()
            return
        are_both = self.prompts.is_stripped
        if not are_both and (
            answers.median_words < MIN_WORDS_ALONE or self.asking > ASKING_SHARE * answers.texts
        ):
            return
        share = answers.function_words / answers.words
        beside = "; the prompts are stripped too" if are_both else ""
        yield self.finding(
            f"{answers.bare:,} of {answers.texts:,} answers are bare words: no capitals, no punctuation, and"
            f" {share:.1%} function words (prose has 30 to 60 %){beside}. The model learns to write so",
            "build the rows again from the raw texts, without lower(), without removing stop words, punctuation or"
            " digits, and without stemming or lemmatizing",
            severity="error" if are_both else "warning",
            cases=self.cases,
            count=answers.bare,
            total=answers.texts,
        )

    def _findings_on_half_stripped_answers(self) -> Iterator[Finding]:
        """The finding on answers that lost either their marks or their function words, beside prompts in sentences."""
        answers, prompts = self.answers, self.prompts
        is_asked_for = self.asking > ASKING_SHARE * answers.texts
        if is_asked_for or not prompts.texts or prompts.bare > MAX_BARE_PROMPTS * prompts.texts:
            return
        share = answers.function_words / max(1, answers.words)
        prompt_share = prompts.function_words / max(1, prompts.words)
        has_lost_marks = answers.contractions >= MIN_CONTRACTION_SHARE * answers.texts
        is_bare = answers.bare >= BARE_SHARE * answers.texts and has_lost_marks
        if is_bare and answers.median_words >= MIN_WORDS_OF_PROSE:
            lost = "have neither capitals nor punctuation nor apostrophes, and their prompts have"
            remedy = "without lower() and without removing punctuation"
        elif (
            answers.median_words >= MIN_WORDS_ALONE
            and share < FEW_FUNCTION_WORDS
            and prompt_share >= PROMPTS_HAVE_TIMES * share
        ):
            lost = f"have {share:.1%} function words, and their prompts {prompt_share:.0%}"
            remedy = "without removing stop words"
        else:
            return
        yield self.finding(
            f"{answers.texts:,} answers of {MIN_WORDS} words and more {lost}: the model learns to write so",
            f"build the answers again from the raw texts, {remedy}",
            severity="warning",
            cases=self.cases,
            count=answers.texts,
            total=answers.texts,
        )


def _is_mostly_words(text: str) -> bool:
    """Is a text words for the most part, and no code or numbers?"""
    characters = [one for one in text if not one.isspace()]
    return sum(map(str.isalpha, characters)) >= MIN_LETTERS * len(characters)
