"""Searches the rules, known messages, guides and commands for those that a user's words are about,
the best first.

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
from truetune.checks.explaining.guides_a_question_is_not_about import (
    guides_a_question_is_not_about,
)
from truetune.checks.explaining.read_causes_from_pasted_records import (
    Proof,
    causes_excluded_by_records,
    list_proofs_of_records,
)
from truetune.checks.explaining.stem_words import NEAR_STEMS, list_stems
from truetune.logs.console.messages import MESSAGES
from truetune.logs.console.out_of_memory_message import HELD_BY_OTHERS, parse_memory_error
from truetune.package import PACKAGE_FOLDER

OUT_OF_MEMORY = "cuda-out-of-memory"
RULE_CODE = re.compile(r'^    code = "([A-Z]+\d{3})"', re.M)
RULE_PAGE = re.compile(r'\A"""(.*?)"""', re.S)
WHY = re.compile(r"^## Why it is bad\n(.*?)(?=^## |\Z)", re.S | re.M)
WHAT_AND_WHY = re.compile(r"^## (?:What it does|Why it is bad)\n(.*?)(?=^## |\Z)", re.S | re.M)
# The weights below were chosen by the questions of tests/checks/test_explaining.py and tests/docs/test_symptoms.py:
# each moves some of them into or out of the first five places. None was fitted on its own. BM25: how soon more of one
# word says no more, and how much long pages lose. 1.2 is the usual value of the first; the second is below the usual
# 0.75, for long pages of guides are long because they have many causes.
SATURATION, LENGTH_WEIGHT = 1.2, 0.5
# Weight of a word that is said for the one that was asked: at 1 a synonym would beat the word itself.
NEAR_WEIGHT = 0.35
# How far it answers for the word that was asked.
NEAR_MATCH = 0.5
# Weight of two neighbouring words: a pair is rare wherever it stands, and would outweigh its words.
PAIR_WEIGHT = 0.5
# Of the best score: what scores less is another subject.
MIN_SHARE = 0.08
# Of the score: what a topic loses for the words that it does not know, in proportion to what they say. One rare word
# alone must not win over all others together.
UNCOVERED_WEIGHT = 0.6
# What a topic gains that has the question as a user's sentence.
SENTENCE_WEIGHT = 1.5
# Of the score of a topic whose name and title have no word of the question: it speaks of something else first.
IN_PASSING_FACTOR = 0.7
# For a command of ours that another tool calls by just these words.
SAME_WORDS_FACTOR = 3.0
# Guides begin with what users see, and a rule is one cause among theirs; commands are named in many pages.
FACTOR_OF_KIND: Mapping[str, float] = {
    "guide": 1.25,
    "rule": 1.0,
    "message": 1.0,
    "command": 0.9,
    "option": 1.0,
}
# Of what a question says, how much a cause has to say as well to be shown: by the questions of tests/checks.
MIN_CAUSE_SHARE = 0.3
# Characters of a known message, and their share of the question, from which it counts as pasted. Chosen: "CUDA out of
# memory" alone is how people speak, and has 18.
MIN_PASTED_CHARS, MIN_PASTED_SHARE = 20, 0.3
# Of one guide; its page has all.
MAX_CAUSES = 2
# Weights of the fields: a name says what a page is about, a text also what it is not about.
NAME, TITLE, SENTENCE, TEXT = 4, 3, 2, 1


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
    why: str = ""
    """Of a rule: why it is bad"""


@dataclass(frozen=True, slots=True)
class IndexedTopic:
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


def list_topics(
    commands: Mapping[str, str] | None = None, called: Mapping[str, tuple[str, ...]] | None = None
) -> Iterator[Topic]:
    """Everything that can be found; `commands` are names of commands with their help, `called` what other tools call
    them."""
    yield from _list_rule_topics()
    for message in MESSAGES:
        yield Topic(
            "message",
            message.name,
            message.title,
            f"{message.cause} {message.pattern.pattern} {message.advice}",
        )
    yield from list_guide_topics()
    for name, text in (commands or {}).items():
        yield Topic(
            "command", name, text.partition("\n")[0], text, asked=(called or {}).get(name, ())
        )


def list_guide_topics() -> Iterator[Topic]:
    """The guides alone, each found by its causes too."""
    for guide in GUIDES:
        seen = tuple(cause.seen for cause in guide.causes)
        causes = " ".join(cause.text for cause in guide.causes)
        yield Topic("guide", guide.name, guide.title, causes, asked=(*guide.asked, *seen))


def search_topics(question: str, among: Iterable[Topic], most: int = 5) -> list[Hit]:
    """The topics that fit a question best, best first; none where no word of it is known.

    Args:
        question: in the user's words, or a pasted message.
        among: what is searched (`list_topics`).
        most: hits at most.
    """
    question_stems = list_stems(question)
    others = guides_a_question_is_not_about(question)
    documents = [_index_topic(topic) for topic in among if topic.name not in others]
    if not question_stems or not documents:
        return []
    scoring = Scoring(documents)
    hits = _score_all(question, question_stems, documents, scoring)
    best = [hit for hit in hits[:most] if hit.score >= MIN_SHARE * hits[0].score]
    ranked = [
        replace(hit, causes=_fitting_causes(hit.topic, question_stems, scoring)) for hit in best
    ]
    # What proves its cause goes before what only has the words; the last step has the strongest proof.
    ranked = _put_pasted_message_first(question, ranked, hits)
    ranked = _put_memory_held_by_others_first(question, ranked, hits)
    return _put_proven_by_records_first(question, ranked, documents)


def _score_all(
    question: str, question_stems: list[str], documents: list[IndexedTopic], scoring: Scoring
) -> list[Hit]:
    """All topics with a score above 0, the best first."""
    # Hits show the words as the user wrote them.
    spelling = {
        stem: word for word in re.findall(r"\w+", question.lower()) for stem in list_stems(word)
    }
    hits = []
    for document in documents:
        score, stems = scoring.score(question_stems, document)
        if document.topic.kind == "command" and question.lower() in document.topic.asked:
            score *= SAME_WORDS_FACTOR
        if score > 0:
            words = tuple(spelling.get(stem, stem) for stem in stems)
            hits.append(Hit(document.topic, score, words))
    return sorted(hits, key=lambda hit: (-hit.score, hit.topic.kind, hit.topic.name))


def _put_pasted_message_first(question: str, kept: list[Hit], hits: list[Hit]) -> list[Hit]:
    """The hits with the known message in front that the question repeats word for word.

    A pasted line is proof; words that a rule shares with it are not. A few words of a pattern may stand in anybody's
    question, so the match has to be long, and a good part of what was asked.
    """
    min_chars = max(MIN_PASTED_CHARS, MIN_PASTED_SHARE * len(question))
    lengths = {}
    for message in MESSAGES:
        match = message.pattern.search(question)
        if match is not None and len(match[0]) >= min_chars:
            lengths[message.name] = len(match[0])
    if not lengths:
        return kept
    longest = max(lengths, key=lambda name: lengths[name])
    messages = (hit for hit in hits if hit.topic.kind == "message" and hit.topic.name == longest)
    first = next(messages, None)
    if first is None:
        return kept
    others = [hit for hit in kept if hit.topic is not first.topic]
    return [first, *others[: max(len(kept) - 1, 0)]]


def _put_memory_held_by_others_first(question: str, kept: list[Hit], hits: list[Hit]) -> list[Hit]:
    """The hits with the out-of-memory message in front where its own figures say that other processes hold the GPU.

    Words alone find the usual causes, and smaller batches do not help there.
    """
    figures = parse_memory_error(question)
    message = next((hit for hit in hits if hit.topic.name == OUT_OF_MEMORY), None)
    if message is None or not figures.others_hold_most:
        return kept
    advice = f"{figures.advice_to_regain_memory_of_others()} make the step smaller"
    proven_hit = replace(
        message,
        topic=replace(message.topic, title=HELD_BY_OTHERS),
        causes=(
            Cause(
                f"{figures.line_on_memory_of_other_processes()}; {advice}",
                figures.line_on_memory_of_other_processes(),
            ),
        ),
    )
    others = [hit for hit in kept if hit.topic is not message.topic]
    return [proven_hit, *others[: max(len(kept) - 1, 0)]]


def _put_proven_by_records_first(
    question: str, kept: list[Hit], documents: list[IndexedTopic]
) -> list[Hit]:
    """The hits with what pasted records of a log prove in front: their values say more than their names."""
    topics = {document.topic.name: document.topic for document in reversed(documents)}
    proven_hits = [
        _hit_of_proof(topics[proof.topic], proof, kept)
        for proof in list_proofs_of_records(question)
        if proof.topic in topics
    ]
    names = {hit.topic.name for hit in proven_hits}
    excluded = causes_excluded_by_records(question)
    others = [
        replace(hit, causes=tuple(cause for cause in hit.causes if cause not in excluded))
        for hit in kept
        if hit.topic.name not in names
    ]
    return [*proven_hits, *others[: max(len(kept) - len(proven_hits), 0)]]


def _hit_of_proof(topic: Topic, proof: Proof, kept: list[Hit]) -> Hit:
    """A topic that a record proves, with the proof as its first cause and the best score of all."""
    own = next((hit for hit in kept if hit.topic is topic), Hit(topic, 0.0, ()))
    causes = (proof.cause, *(cause for cause in own.causes if cause != proof.cause))
    best_score = max((hit.score for hit in kept), default=1.0)
    return replace(own, score=best_score, causes=causes[:MAX_CAUSES])


def _fitting_causes(topic: Topic, question_stems: list[str], scoring: Scoring) -> tuple[Cause, ...]:
    """The causes of a guide that a question is about, the best first; of another topic none."""
    guides = (guide for guide in GUIDES if topic.kind == "guide" and guide.name == topic.name)
    guide = next(guides, None)
    if guide is None:
        return ()
    # Negative numbers: of equal shares the likelier cause, which stands earlier, is the best.
    shares = [
        (
            scoring.information_share(
                question_stems, [*list_stems(cause.text), *list_stems(cause.seen)]
            ),
            -number,
        )
        for number, cause in enumerate(guide.causes)
    ]
    fitting = sorted((one for one in shares if one[0] >= MIN_CAUSE_SHARE), reverse=True)
    return tuple(guide.causes[-number] for _, number in fitting[:MAX_CAUSES])


class Scoring:
    """How well a question fits a document, by what all documents have."""

    def __init__(self, documents: list[IndexedTopic]) -> None:
        self.count = len(documents)
        self.mean_length = sum(document.length for document in documents) / self.count
        self.having = Counter(word for document in documents for word in document.weights)
        self.having_pair = Counter(pair for document in documents for pair in document.pairs)

    def score(
        self, question_stems: list[str], document: IndexedTopic
    ) -> tuple[float, tuple[str, ...]]:
        """The score of a document, and the words of the question that it has.

        Args:
            question_stems: the stems of the question, in their order.
            document: one of those that this was made of.
        """
        words = list(dict.fromkeys(question_stems))
        matches = {word: self._match_degree_with_near_words(word, document) for word in words}
        known = tuple(word for word in words if matches[word])
        missed = sum(
            self._inverse_document_frequency(self.having[word]) * (1 - match)
            for word, match in matches.items()
        )
        total = sum(self._score_of_word(word, document) for word in known)
        total += self._score_of_neighbouring_words(question_stems, document)
        total *= 1 - UNCOVERED_WEIGHT * missed / self._information(words)
        if not _does_title_hold_any(words, document):
            total *= IN_PASSING_FACTOR
        factor = FACTOR_OF_KIND[document.topic.kind] * self._factor_for_question_like_sentence(
            set(words), document
        )
        return total * factor, known

    def information_share(self, question_stems: list[str], words: Iterable[str]) -> float:
        """How much of what the question says stands in these words too, or is said there in another way."""
        present = frozenset(words)
        total = covered = 0.0
        for word in dict.fromkeys(question_stems):
            rarity = self._inverse_document_frequency(self.having[word])
            is_near = bool(NEAR_STEMS.get(word, frozenset()) & present)
            total += rarity
            covered += rarity * (1.0 if word in present else NEAR_MATCH * is_near)
        return covered / (total or 1.0)

    def _match_degree_with_near_words(self, word: str, document: IndexedTopic) -> float:
        """1 for a word that a document has, a part where it only has another word for the same thing, else 0."""
        if word in document.weights:
            return 1.0
        is_near = any(other in document.weights for other in NEAR_STEMS.get(word, ()))
        return NEAR_MATCH if is_near else 0.0

    def _score_of_neighbouring_words(
        self, question_stems: list[str], document: IndexedTopic
    ) -> float:
        """What the neighbouring words of the question count that are neighbours in the document too."""
        common = set(pairwise(question_stems)) & document.pairs
        return PAIR_WEIGHT * sum(
            self._inverse_document_frequency(self.having_pair[pair]) for pair in common
        )

    def _score_of_word(self, word: str, document: IndexedTopic) -> float:
        """BM25 of one word, or of what is said for it."""
        near = (self._bm25(other, document) for other in NEAR_STEMS.get(word, ()))
        return max(self._bm25(word, document), NEAR_WEIGHT * max(near, default=0.0))

    def _bm25(self, word: str, document: IndexedTopic) -> float:
        """BM25 of one word in a document (Robertson and Zaragoza 2009, equation 3.15); 0 where it has it not."""
        frequency = document.weights.get(word, 0)
        if not frequency:
            return 0.0
        relative_length = document.length / self.mean_length
        length_norm = SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * relative_length)
        rarity = self._inverse_document_frequency(self.having[word])
        return rarity * frequency * (SATURATION + 1) / (frequency + length_norm)

    def _inverse_document_frequency(self, having: int) -> float:
        """The inverse document frequency of what so many documents have."""
        return math.log(1 + (self.count - having + 0.5) / (having + 0.5))

    def _factor_for_question_like_sentence(
        self, question_stems: set[str], document: IndexedTopic
    ) -> float:
        """A factor above 1 for a topic that holds the question nearly as a sentence of a user, by
        the share of what both say.
        """
        shares = [
            self._information(question_stems & sentence)
            / self._information(question_stems | sentence)
            for sentence in document.sentences
        ]
        return 1.0 + SENTENCE_WEIGHT * max(shares, default=0.0)

    def _information(self, words: Iterable[str]) -> float:
        """How much words say together: the sum of their rarities."""
        return sum(self._inverse_document_frequency(self.having[word]) for word in words)


def _does_title_hold_any(words: Iterable[str], document: IndexedTopic) -> bool:
    """Has the name or the title of a document one of these words, or what is said for it?"""
    return any(
        word in document.subject or NEAR_STEMS.get(word, frozenset()) & document.subject
        for word in words
    )


@cache
def _index_topic(topic: Topic) -> IndexedTopic:
    """A topic with its words counted; once for each topic, for tests ask hundreds of questions."""
    weights: Counter[str] = Counter()
    pairs: set[tuple[str, str]] = set()
    sentences = [list_stems(text) for text in topic.asked]
    fields = [(list_stems(topic.name), NAME), (list_stems(topic.title), TITLE)]
    fields += [(sentence, SENTENCE) for sentence in sentences]
    for words, weight in fields:
        pairs.update(pairwise(words))
        for word in words:
            weights[word] += weight
    # Pairs of the text are left out: it is long, and would have nearly any pair.
    for word in list_stems(topic.text):
        weights[word] += TEXT
    return IndexedTopic(
        topic,
        weights,
        frozenset(pairs),
        sum(weights.values()),
        frozenset(list_stems(f"{topic.name} {topic.title}")),
        tuple(frozenset(sentence) for sentence in sentences if sentence),
    )


def _list_rule_topics() -> Iterator[Topic]:
    """The pages of rules, from their files: each rule's module begins with its page and names its code."""
    seen = _symptoms_by_rule()
    for path in sorted(PACKAGE_FOLDER.glob("checks/*/*.py")):
        source = path.read_text(encoding="utf-8")
        code, page = RULE_CODE.search(source), RULE_PAGE.search(source)
        # Helper modules among the rules have no code.
        if code and page:
            name = path.stem.replace("_", "-")
            title = page[1].partition("\n")[0]
            text = " ".join(WHAT_AND_WHY.findall(page[1]))
            why = " ".join(WHY.findall(page[1]))
            yield Topic("rule", name, title, text, code[1], seen.get(name, ()), why)


def _symptoms_by_rule() -> dict[str, tuple[str, ...]]:
    """Rule -> what users see of the causes that it proves."""
    seen: dict[str, tuple[str, ...]] = {}
    for guide in GUIDES:
        for cause in guide.causes:
            for rule in cause.rules:
                seen[rule] = (*seen.get(rule, ()), cause.seen)
    return seen
