"""Answers that answer, and then continue with the turns of a whole dialogue: `Customer: ...`, `Agent: ...`.

How it works: a label at the beginning of a line (`Word:`, `**Word:**`, `[Word]`, `<word>`) behind some text may be a
speaker's name, or that of a field (`Name:`, `Date:`). One answer seldom tells; many do. Two labels are speakers where
both are words for sides of a talk, or where they take turns in several answers, in whole sentences, with questions
among them. A prompt that asks for a dialogue, or holds labels itself, is left alone. A prompt that ends with a label
is a transcript, and its answer is one turn: each label of the prompt's that follows begins another.

The trade-off: one answer with unknown names tells nothing, so that a set of a few rows is judged by the words of
ROLE_WORDS alone; a form with two fields and questions in them may be taken for a talk.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

ROLE_WORDS = frozenset(  # a text reads better than 90 quoted words
    """
    user human customer client caller visitor patient student guest buyer agent assistant bot chatbot ai support
    advisor adviser operator representative rep doctor tutor teacher system q a question answer model
    kunde kundin nutzer nutzerin benutzer berater beraterin mitarbeiter assistent frage antwort mensch
    usuario cliente asistente agente pregunta respuesta utilisateur conseiller conseillère utente assistente domanda
    risposta usuário atendente pergunta resposta gebruiker klant medewerker vraag antwoord klient konsultant
    пользователь клиент ассистент оператор вопрос ответ помощник
    用户 助手 客户 客服 问 答 顧客 ユーザー アシスタント お客様 担当者 사용자 상담원 고객 도우미
    """.split()  # noqa: SIM905
)
"""Sides of a talk, as logs of chats name them"""
LABEL = re.compile(
    r"^[ \t]{0,4}(?:#{1,4} )?(?P<open>\*\*|__|\[|<\|?|【)?(?P<name>[^\W\d_]\w{0,24}(?:[ -]\w{1,20}){0,2})"
    r"(?P<early>[:：])?(?P<close>\*\*|__|\]|\|?>|】)?(?P<late>[:：])?(?P<text>[^\n]{0,400})$",
    re.MULTILINE,
)
WRITING_VERB = (
    r"writ|creat|generat|make|draft|compos|continue|simulat|invent|produce|list|give me|provide|schreib|erstell"
    r"|verfass|erfinde|escrib|redact|crea|écri|rédig|génèr|invent|scriv|escrev|напиш|придум|состав|写|编|生成|作成|作って|써"
)
DIALOGUE_NOUN = (
    r"dialog|conversation|script|scene|\bplay\b|skit|sketch|interview|transcript|role-?play|\bchat\b|debate|podcast|faq"
    r"|q ?[&/] ?a\b|quiz|flash ?card|exercise|questions|gespräch|drehbuch|szene|fragen|diálog|conversaci|guion"
    r"|entrevista|preguntas"
    r"|scène|entretien|dialogo|intervista|диалог|разговор|сцен|интервью|对话|對話|剧本|采访|问答|会話|対話|台本|대화"
)
ASKS_FOR_DIALOGUE = re.compile(
    rf"(?:{WRITING_VERB})[^\n]{{0,120}}?(?:{DIALOGUE_NOUN})"
    rf"|(?:{DIALOGUE_NOUN})\w{{0,4}} (?:between|zwischen|entre|among|tra)\b",
    re.IGNORECASE,
)
SENTENCE_END = re.compile(r"[.?!。？！…][\"'”»)*]{0,3}\s*$")
# Chosen for speed, not measured: the turns of a dialogue show in its first ones, and each line is tried.
MAX_CHARACTERS = 20_000
"""Characters of an answer, and of the end of its prompt, that are searched"""
MAX_LABELS = 200
"""Labels of an answer that are looked at"""
# The next three are chosen, not measured. A form (`Name:`, `Date:`) has the same labels in many answers too, but asks
# nothing and ends few of its values as sentences do (tests/checks/test_dialogues_and_json.py).
MIN_ANSWERS = 3
"""Answers in which two labels take turns, until words that name no side of a talk are taken for speakers"""
MIN_QUESTION_SHARE = 0.2
"""Share of such answers with a question in a turn: fields of a list have none"""
MIN_SENTENCE_SHARE = 0.6
"""Share of the turns that end as sentences do"""


@dataclass(frozen=True, slots=True)
class TurnsBehindAnswer:
    """Labels that follow the text of an answer, as turns of two sides might."""

    labels: tuple[str, ...]
    """The one or two names without their case, in the order in which they stand"""
    written: tuple[str, ...]
    """The same as they are written, with a colon"""
    start: int
    """The first character of the first label"""
    first_turn: str
    """The label and what follows it, as it stands"""
    turn_count: int
    has_question: bool
    sentence_share: float
    """Share of the turns that end as a sentence"""
    is_in_transcript: bool = False
    """The prompt is a transcript that ends with a label: its names are speakers"""

    @property
    def are_names_role_words(self) -> bool:
        """Are the names words for sides of a talk?"""
        return all(name in ROLE_WORDS for name in self.labels)


def find_turns_behind_answer(prompt: str, answer: str) -> TurnsBehindAnswer | None:
    """The labels that take turns behind the text of one answer; None where none do, or a dialogue was asked for."""
    text = answer[:MAX_CHARACTERS]
    end_of_prompt = prompt[-MAX_CHARACTERS:]
    speakers = _speakers_of_transcript(end_of_prompt)
    labels = _labels_behind_text(text)
    if speakers:
        labels = _labels_of_speakers(labels, speakers)
    if not labels or ASKS_FOR_DIALOGUE.search(end_of_prompt):
        return None
    names = [_normalised_name_in_label(match) for match in labels]
    distinct = tuple(dict.fromkeys(names))
    if len(distinct) > 2 or not _does_no_name_follow_itself(names):
        return None
    if not speakers and _does_prompt_show_turns_of_names(end_of_prompt, distinct):
        return None
    turns = _texts_behind_labels(text, labels)
    return TurnsBehindAnswer(
        distinct,
        tuple(dict.fromkeys(f"{match['name'].strip()}:" for match in labels))[:2],
        labels[0].start(),
        labels[0][0].strip()[:60],
        len(turns),
        _has_question(turns),
        sum(SENTENCE_END.search(turn) is not None for turn in turns) / len(turns),
        is_in_transcript=bool(speakers),
    )


def _labels_of_speakers(
    labels: Sequence[re.Match[str]], speakers: tuple[str, ...]
) -> list[re.Match[str]]:
    """The labels of a transcript's speakers; empty where the first is the answering side's own."""
    spoken = [match for match in labels if _normalised_name_in_label(match) in speakers]
    # `Answer: 7` at the end of an answer is a part of it; the next turn is the other side's.
    return spoken if spoken and _normalised_name_in_label(spoken[0]) != speakers[-1] else []


def _does_no_name_follow_itself(names: Sequence[str]) -> bool:
    """Does no name follow itself?"""
    return all(one != other for one, other in pairwise(names))


def _has_question(turns: Sequence[str]) -> bool:
    """Does one of the turns ask something?"""
    return any("?" in turn or "？" in turn for turn in turns)


def _speakers_of_transcript(prompt: str) -> tuple[str, ...]:
    """The sides of a talk whose last turn a prompt opens (`Human: ...`, `Assistant:`), the answering one last.

    Empty where it opens none.
    """
    text = prompt.rstrip()
    labels = [match for match in LABEL.finditer(text) if _is_speaker_label(match)]
    if not labels or labels[-1].end() < len(text) or labels[-1]["text"].strip(" *_"):
        return ()
    answering = _normalised_name_in_label(labels[-1])
    others = {_normalised_name_in_label(match) for match in labels} - {answering, "system"}
    is_talk = len(others) == 1 and {answering, *others} <= ROLE_WORDS
    return (*others, answering) if is_talk else ()


def _texts_behind_labels(text: str, labels: Sequence[re.Match[str]]) -> list[str]:
    """The text of each label's turn: up to the next label, or to the end."""
    ends = [match.start() for match in labels[1:]] + [len(text)]
    return [
        text[match.start("text") : end].strip() for match, end in zip(labels, ends, strict=True)
    ]


def _labels_behind_text(text: str) -> list[re.Match[str]]:
    """The labels of an answer; empty where no text stands before the first, or it introduces what follows."""
    if "\n" not in text or "```" in text:
        return []
    labels = [match for match in LABEL.finditer(text) if _is_speaker_label(match)][:MAX_LABELS]
    before = text[: labels[0].start()].strip() if labels else ""
    # `Here is the scene:` introduces what follows.
    is_introduced = before.endswith((":", "："))
    return [] if not before or is_introduced or _begins_with_label(before) else labels


def _is_speaker_label(match: re.Match[str]) -> bool:
    """Is it a name with a colon, or one in brackets?"""
    colon = match["late"] or match["early"]
    if colon:
        # `12:30` and `http://` have no space behind their colon; the wide one needs none.
        return colon == "：" or match["text"][:1] in ("", " ", "\t", "*", "_")
    opened, closed = match["open"] or "", match["close"] or ""
    return (
        opened[:1] in ("[", "<", "【")
        and closed[-1:] in ("]", ">", "】")
        and opened != "" != closed
    )


def _begins_with_label(before: str) -> bool:
    """Does the text before the first label begin with one itself? Then all of it is a form."""
    match = LABEL.match(before.partition("\n")[0])
    return match is not None and _is_speaker_label(match)


def _does_prompt_show_turns_of_names(prompt: str, names: Sequence[str]) -> bool:
    """Does a prompt show turns of the same names, so that the answer continues them as it was asked to?"""
    return any(
        _is_speaker_label(match) and _normalised_name_in_label(match) in names
        for match in LABEL.finditer(prompt)
    )


def _normalised_name_in_label(match: re.Match[str]) -> str:
    """The name in a label, without case and spaces around it."""
    return match["name"].strip().casefold()


class SpeakerCounts:
    """Tells from many answers which labels are speakers."""

    def __init__(self) -> None:
        self._found: Counter[frozenset[str]] = Counter()
        self._repeated: Counter[frozenset[str]] = Counter()
        self._asking: Counter[frozenset[str]] = Counter()
        self._sentences: Counter[frozenset[str]] = Counter()

    def add(self, turns: TurnsBehindAnswer) -> None:
        """Count the labels of one answer."""
        pair = frozenset(turns.labels)
        self._found[pair] += 1
        self._repeated[pair] += turns.turn_count > len(pair) > 1
        self._asking[pair] += turns.has_question
        self._sentences[pair] += turns.sentence_share >= MIN_SENTENCE_SHARE

    def are_labels_of_speakers(self, turns: TurnsBehindAnswer) -> bool:
        """Are the labels of this answer those of two who talk?"""
        if turns.is_in_transcript:
            return True
        pair = frozenset(turns.labels)
        if any(pair <= known for known in self._sure_speaker_pairs):
            return True
        return (
            turns.are_names_role_words
            and turns.sentence_share >= MIN_SENTENCE_SHARE
            and len(pair) > 1
        )

    @property
    def _sure_speaker_pairs(self) -> list[frozenset[str]]:
        """The pairs that are surely speakers."""
        return [
            pair
            for pair, count in self._found.items()
            if len(pair) == 2
            and self._repeated[pair] >= MIN_ANSWERS
            and self._asking[pair] >= MIN_QUESTION_SHARE * count
            and self._sentences[pair] >= MIN_SENTENCE_SHARE * count
        ]


def find_continued_dialogues(pairs: Sequence[tuple[str, str]]) -> dict[int, TurnsBehindAnswer]:
    """The answers, of (prompt, answer), that continue with turns of two speakers, by their number."""
    found = {
        number: turns
        for number, (prompt, answer) in enumerate(pairs)
        if (turns := find_turns_behind_answer(prompt, answer)) is not None
    }
    counts = SpeakerCounts()
    for turns in found.values():
        counts.add(turns)
    return {
        number: turns for number, turns in found.items() if counts.are_labels_of_speakers(turns)
    }


def most_frequent_speaker_labels_in_words(found: Iterable[TurnsBehindAnswer]) -> str:
    """`'Customer:' and 'Agent:'`: the labels of most answers, as they stand."""
    pairs = Counter(turns.written for turns in found)
    most = max(pairs, key=lambda pair: (len(pair), pairs[pair]), default=())
    return " and ".join(repr(label) for label in most)
