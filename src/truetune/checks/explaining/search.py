"""search: the rules, messages, guides and commands that a user's words are about, best first.

BM25 (Robertson and Zaragoza 2009, doi:10.1561/1500000019) over fields of different weight: a word that many pages have
counts little. Pairs of neighbouring words count as words of their own. Words that are said for one another count as a
part of a hit. A rule is found by what users see, too: by the causes of the guides that it proves. Pages of rules are
read from their files: importing 350 modules takes longer than the search may.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Literal

from truetune.checks.explaining.guides import GUIDES, Cause
from truetune.checks.explaining.pasted_record import excluded_by_records, proofs_of_records
from truetune.checks.explaining.words import NEAR, stems
from truetune.logs.console.memory_error import HELD_BY_OTHERS, read_memory_error
from truetune.logs.console.messages import MESSAGES
from truetune.package import PACKAGE_FOLDER

OUT_OF_MEMORY = "cuda-out-of-memory"
CODE = re.compile(r'^    code = "([A-Z]+\d{3})"', re.M)
PAGE = re.compile(r'\A"""(.*?)"""', re.S)
WHY = re.compile(r"^## (?:What it does|Why it is bad)\n(.*?)(?=^## |\Z)", re.S | re.M)
K, B = 1.2, 0.5
NEAR_WEIGHT = 0.35
"""Of a word that is said for the one that was asked"""
NEAR_MATCH = 0.5
"""How far it answers for the word that was asked"""
PAIR_WEIGHT = 0.5
"""Of two neighbouring words: a pair is rare wherever it stands, and would outweigh its words"""
MIN_SHARE = 0.08
"""Of the best score: what scores less is another subject"""
UNCOVERED = 0.6
"""Of the score: what a topic loses for the words that it does not know, in proportion to what they say. One rare word
alone must not win over all others together"""
WHOLE_SENTENCE = 1.5
"""What a topic gains that has the question as a user's sentence"""
IN_PASSING = 0.7
"""Of the score of a topic whose name and title have no word of the question: it speaks of something else first"""
SAME_WORDS = 3.0
"""For a command of ours that another tool calls by just these words"""
FOR_KIND: Mapping[str, float] = {
    "guide": 1.25,
    "rule": 1.0,
    "message": 1.0,
    "command": 0.9,
    "option": 1.0,
}
MIN_CAUSE_SHARE = 0.3
"""Of what a question says, how much a cause has to say as well to be shown: by the questions of tests/checks"""
MIN_PASTED, MIN_PASTED_SHARE = 20, 0.3
"""Characters of a known message, and their share of the question, from which it counts as pasted (chosen: "CUDA out of
memory" alone is how people speak, and has 18)"""
MAX_CAUSES = 2
"""Of one guide; its page has all"""
NAME, TITLE, SENTENCE, TEXT = 4, 3, 2, 1
"""Weights of the fields"""


@dataclass(frozen=True, slots=True)
class Topic:
    """One page that can be found."""

    kind: Literal["rule", "message", "guide", "command", "option"]
    name: str
    title: str
    text: str
    """What is searched besides name and title"""
    code: str = ""
    asked: tuple[str, ...] = ()
    """Whole sentences in which users say it"""


@dataclass(frozen=True, slots=True)
class Indexed:
    """A topic's words, counted."""

    topic: Topic
    weights: Mapping[str, int]
    """Stem -> how often it stands in the topic, by the weight of the field"""
    pairs: frozenset[tuple[str, str]]
    """Stems that stand beside each other in a name, a title or a sentence"""
    length: int
    """The sum of the weights"""
    subject: frozenset[str]
    """The stems of name and title"""
    sentences: tuple[frozenset[str], ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """A topic, and why it is one."""

    topic: Topic
    score: float
    words: tuple[str, ...]
    """Of the question, those that it is about"""
    causes: tuple[Cause, ...] = ()
    """Of a guide, those that fit the question"""


def topics(
    commands: Mapping[str, str] | None = None, called: Mapping[str, tuple[str, ...]] | None = None
) -> Iterator[Topic]:
    """Everything that can be found; `commands` are names of commands with their help, `called` what other tools call
    them."""
    yield from _rules()
    for message in MESSAGES:
        yield Topic(
            "message",
            message.name,
            message.title,
            f"{message.cause} {message.pattern.pattern} {message.advice}",
        )
    for guide in GUIDES:
        seen = tuple(cause.seen for cause in guide.causes)
        causes = " ".join(cause.text for cause in guide.causes)
        yield Topic("guide", guide.name, guide.title, causes, asked=(*guide.asked, *seen))
    for name, text in (commands or {}).items():
        yield Topic(
            "command", name, text.partition("\n")[0], text, asked=(called or {}).get(name, ())
        )


def search(question: str, among: Iterable[Topic], most: int = 5) -> list[Hit]:
    """The topics that fit a question best, best first; none where no word of it is known."""
    asked = stems(question)
    documents = [_index(topic) for topic in among]
    if not asked or not documents:
        return []
    scoring = Scoring(documents)
    spelled = {stem: word for word in re.findall(r"\w+", question.lower()) for stem in stems(word)}
    hits = []
    for document in documents:
        score, words = scoring.score(asked, document)
        if document.topic.kind == "command" and question.lower() in document.topic.asked:
            score *= SAME_WORDS
        if score > 0:
            hits.append(
                Hit(document.topic, score, tuple(spelled.get(word, word) for word in words))
            )
    hits.sort(key=lambda hit: (-hit.score, hit.topic.kind, hit.topic.name))
    kept = [hit for hit in hits[:most] if hit.score >= MIN_SHARE * hits[0].score]
    found = [replace(hit, causes=_causes(hit.topic, asked, scoring)) for hit in kept]
    found = _pasted_message_first(question, found, hits)
    found = _memory_of_others_first(question, found, hits)
    return _proven_by_records_first(question, found, documents)


def _pasted_message_first(question: str, kept: list[Hit], hits: list[Hit]) -> list[Hit]:
    """The hits with the known message in front that the question repeats word for word.

    A pasted line is proof; words that a rule shares with it are not. A few words of a pattern may stand in anybody's
    question, so the match has to be long, and a good part of what was asked.
    """
    least = max(MIN_PASTED, MIN_PASTED_SHARE * len(question))
    lengths = {}
    for message in MESSAGES:
        match = message.pattern.search(question)
        if match is not None and len(match[0]) >= least:
            lengths[message.name] = len(match[0])
    if not lengths:
        return kept
    longest = max(lengths, key=lambda name: lengths[name])
    first = next(
        (hit for hit in hits if hit.topic.kind == "message" and hit.topic.name == longest), None
    )
    if first is None:
        return kept
    others = [hit for hit in kept if hit.topic is not first.topic]
    return [first, *others[: max(len(kept) - 1, 0)]]


def _memory_of_others_first(question: str, kept: list[Hit], hits: list[Hit]) -> list[Hit]:
    """The hits with the out-of-memory message in front where its own figures say that other processes hold the GPU.

    Words alone find the usual causes, and smaller batches do not help there.
    """
    figures = read_memory_error(question)
    message = next((hit for hit in hits if hit.topic.name == OUT_OF_MEMORY), None)
    if message is None or not figures.is_mostly_others:
        return kept
    advice = f"{figures.advice()} make the step smaller"
    proven = replace(
        message,
        topic=replace(message.topic, title=HELD_BY_OTHERS),
        causes=(Cause(f"{figures.sharing()}; {advice}", figures.sharing()),),
    )
    others = [hit for hit in kept if hit.topic is not message.topic]
    return [proven, *others[: max(len(kept) - 1, 0)]]


def _proven_by_records_first(question: str, kept: list[Hit], documents: list[Indexed]) -> list[Hit]:
    """The hits with what pasted records of a log prove in front: their values say more than their names."""
    proven = []
    for proof in proofs_of_records(question):
        topic = next((one.topic for one in documents if one.topic.name == proof.topic), None)
        if topic is not None:
            own = next((hit for hit in kept if hit.topic is topic), Hit(topic, 0.0, ()))
            causes = (proof.cause, *(cause for cause in own.causes if cause != proof.cause))
            first = max((hit.score for hit in kept), default=1.0)
            proven.append(replace(own, score=first, causes=causes[:MAX_CAUSES]))
    names = {hit.topic.name for hit in proven}
    excluded = excluded_by_records(question)
    others = [
        replace(hit, causes=tuple(cause for cause in hit.causes if cause not in excluded))
        for hit in kept
        if hit.topic.name not in names
    ]
    return [*proven, *others[: max(len(kept) - len(proven), 0)]]


def _causes(topic: Topic, asked: list[str], scoring: Scoring) -> tuple[Cause, ...]:
    """The causes of a guide that a question is about, the best first; of another topic none."""
    guide = next((one for one in GUIDES if topic.kind == "guide" and one.name == topic.name), None)
    if guide is None:
        return ()
    shares = [
        (scoring.share(asked, [*stems(cause.text), *stems(cause.seen)]), -number)
        for number, cause in enumerate(guide.causes)
    ]
    best = sorted((one for one in shares if one[0] >= MIN_CAUSE_SHARE), reverse=True)
    return tuple(guide.causes[-number] for _, number in best[:MAX_CAUSES])


class Scoring:
    """How well a question fits a document, by what all documents have."""

    def __init__(self, documents: list[Indexed]) -> None:
        self.count = len(documents)
        self.mean_length = sum(document.length for document in documents) / self.count
        self.having = Counter(word for document in documents for word in document.weights)
        self.having_pair = Counter(pair for document in documents for pair in document.pairs)

    def score(self, asked: list[str], document: Indexed) -> tuple[float, tuple[str, ...]]:
        """The score of a document, and the words of the question that it has.

        Args:
            asked: the stems of the question, in their order.
            document: one of those that this was made of.
        """
        words = list(dict.fromkeys(asked))
        matches = {word: self._match(word, document) for word in words}
        known = tuple(word for word in words if matches[word])
        said = self._says(words)
        missed = sum(
            self._rarity(self.having[word]) * (1 - share) for word, share in matches.items()
        )
        total = sum(self._word(word, document) for word in known) + self._pairs(asked, document)
        total *= 1 - UNCOVERED * missed / said
        if not any(
            word in document.subject or NEAR.get(word, frozenset()) & document.subject
            for word in words
        ):
            total *= IN_PASSING
        return total * FOR_KIND[document.topic.kind] * self._whole(set(words), document), known

    def share(self, asked: list[str], words: Iterable[str]) -> float:
        """How much of what the question says stands in these words too, or is said there in another way."""
        there = frozenset(words)
        parts = [
            (word, 1.0 if word in there else NEAR_MATCH * bool(NEAR.get(word, frozenset()) & there))
            for word in dict.fromkeys(asked)
        ]
        said = sum(self._rarity(self.having[word]) for word, _ in parts)
        return sum(self._rarity(self.having[word]) * part for word, part in parts) / (said or 1.0)

    def _match(self, word: str, document: Indexed) -> float:
        """1 for a word that a document has, a part for one of which it has what is said for it, else 0."""
        if word in document.weights:
            return 1.0
        return NEAR_MATCH if any(other in document.weights for other in NEAR.get(word, ())) else 0.0

    def _pairs(self, asked: list[str], document: Indexed) -> float:
        """What the neighbouring words of the question count that are neighbours in the document too."""
        both = set(pairwise(asked)) & document.pairs
        return PAIR_WEIGHT * sum(self._rarity(self.having_pair[pair]) for pair in both)

    def _word(self, word: str, document: Indexed) -> float:
        """BM25 of one word, or of what is said for it."""
        near = max((self._exact(other, document) for other in NEAR.get(word, ())), default=0.0)
        return max(self._exact(word, document), NEAR_WEIGHT * near)

    def _exact(self, word: str, document: Indexed) -> float:
        often = document.weights.get(word, 0)
        if not often:
            return 0.0
        length = K * (1 - B + B * document.length / self.mean_length)
        return self._rarity(self.having[word]) * often * (K + 1) / (often + length)

    def _rarity(self, having: int) -> float:
        """The inverse document frequency of what so many documents have."""
        return math.log(1 + (self.count - having + 0.5) / (having + 0.5))

    def _whole(self, asked: set[str], document: Indexed) -> float:
        """More for a topic that has the question nearly as a user's sentence: by the share of what both say."""
        shares = [
            self._says(asked & sentence) / self._says(asked | sentence)
            for sentence in document.sentences
        ]
        return 1.0 + WHOLE_SENTENCE * max(shares, default=0.0)

    def _says(self, words: Iterable[str]) -> float:
        return sum(self._rarity(self.having[word]) for word in words)


@cache
def _index(topic: Topic) -> Indexed:
    """Count a topic's words."""
    weights: Counter[str] = Counter()
    pairs: set[tuple[str, str]] = set()
    sentences = []
    for text, weight in (
        (topic.name, NAME),
        (topic.title, TITLE),
        *((text, SENTENCE) for text in topic.asked),
    ):
        words = stems(text)
        pairs.update(pairwise(words))
        for word in words:
            weights[word] += weight
        if weight == SENTENCE and words:
            sentences.append(frozenset(words))
    subject = frozenset(stems(f"{topic.name} {topic.title}"))
    for word in stems(topic.text):
        weights[word] += TEXT
    return Indexed(
        topic, weights, frozenset(pairs), sum(weights.values()), subject, tuple(sentences)
    )


def _rules() -> Iterator[Topic]:
    seen = _seen_by_rule()
    for path in sorted(PACKAGE_FOLDER.glob("checks/*/*.py")):
        source = path.read_text(encoding="utf-8")
        code, page = CODE.search(source), PAGE.search(source)
        if code and page:
            name = path.stem.replace("_", "-")
            text = " ".join(WHY.findall(page[1]))
            yield Topic("rule", name, page[1].partition("\n")[0], text, code[1], seen.get(name, ()))


def _seen_by_rule() -> dict[str, tuple[str, ...]]:
    """Rule -> what users see of the causes that it proves."""
    seen: dict[str, tuple[str, ...]] = {}
    for guide in GUIDES:
        for cause in guide.causes:
            for rule in cause.rules:
                seen[rule] = (*seen.get(rule, ()), cause.seen)
    return seen
