"""Ranks the causes of a symptom by how likely they are in a project, before anything of it is
proved.

Each guide lists the causes of one symptom with what tells them apart. A cause is likely where it says what the user
says, and where what it takes is in the project: `share` of its words that stand in the user's files. Rare words count
more, as in a search (`checks.explaining.search_rules_messages_guides_commands`).

Measured on the 88 starts of `bench.starts` whose rule stands in a cause of their guide, with no rule asked: the true
cause is among the first five of some twenty in 32 by the guides' own order, in 58 by the words of the user, in 61 by
those of the files, and in 65 by both. The guides were written with most of these starts in sight, so that a new project
fares worse. `python -m bench.candidates` measures it again, with the facts of the files.

Rules that name the symptom, and stand in no cause of a guide, are candidates too: where one fires it is a finding, and
where it does not, its fault may stand in a form that it does not read. What the files make impossible goes to the end:
a cause that takes DPO in a project that trains on plain rows (`find_traits_shown_by_project_lines`). What stands in
the files, and most of all what the user names, makes the causes likelier that take it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from truetune.checks.explaining.guides import GUIDES, Cause, Guide
from truetune.checks.explaining.guides_a_question_is_not_about import (
    guides_a_question_is_not_about,
)
from truetune.checks.explaining.recognise_project_traits_behind_causes import (
    UNTELLING,
    Area,
    Trait,
    patterns_of_wrong_and_missing_names,
    precondition_of_cause,
    traits_mentioned,
    traits_mentioned_as_missing,
)
from truetune.checks.explaining.recognise_questions_about_speed import (
    GUIDES_OF_SPEED,
    guides_of_named_speed,
)
from truetune.checks.explaining.recognise_symptom import symptom_probabilities
from truetune.checks.explaining.search_rules_messages_guides_commands import (
    list_guide_topics,
    list_topics,
    search_topics,
)
from truetune.checks.explaining.stem_words import NEAR_STEMS, list_stems
from truetune.checks.findings import Finding
from truetune.checks.rule import AnswersRule
from truetune.checks.rule_catalogue import all_rules
from truetune.troubleshooting.find_traits_shown_by_project_lines import ProjectFacts
from truetune.troubleshooting.project_words import TextLine
from truetune.troubleshooting.signs.find_signs_in_statements import signs_belonging_to_cause_text
from truetune.troubleshooting.signs.sign_as_statement_patterns import Sign
from truetune.troubleshooting.signs.sign_rarity import rarity_of_sign

# How much the words of the files count beside those of the user. Measured on the starts above, with plain words
# instead of near ones: 1 has 63, 2 has 65, 4 has 68, 8 has 66 among the first five.
FILES_WEIGHT = 4.0
# How far a word that is said for another answers for it, as in the search.
NEAR_MATCH = 0.5
# What a line of the files that shows what a cause takes counts, and what the user's naming it counts. Chosen on the
# tuned half of `bench.candidates`.
LINES_WEIGHT = 1.0
NAMED_WEIGHT = 0.5
# A statement that shows the cause itself, and how rare it is among projects. Chosen by `bench.candidates`, on both
# halves: the true cause is among the first five, with a line, in 300 of 403 starts; with equal signs it is in 240.
SIGN_WEIGHT = 1.0
RARITY_WEIGHT = 0.75
UNSHOWN_WEIGHT = 0.5
"""What a cause loses that statements could show and none does: at 0, it stood above causes with a line"""
WORDS_WEIGHT = 0.6
"""Of the words of a cause: beside its signs they say little, for they name the symptom as often as the cause"""
ORDER_WEIGHT = 0.5
"""What the last cause of a guide loses beside the first: guides list the likely ones first"""
SHOWN_RULE_WEIGHT = 0.8
"""Of a rule's cause that a statement shows, instead of what such causes count beside listed ones"""
GUIDE_EXPONENT = 0.5
"""Of a guide's share: words choose the right guide in two of three questions, and signs tell causes apart better"""
# A rule's page is written for who has its finding, and a guide for who has the symptom: words that say the symptom
# alone fit pages of rules by chance, and words that say more fit them as well as guides.
RULE_WEIGHT = 1.0
RULE_WEIGHT_OF_BARE_SYMPTOM = 0.6
MIN_OWN_WORDS = 2
"""Words that no sentence of the guide has, from which a question says more than the symptom"""
MAX_TELLING_LINES = 2
"""Lines that a cause shows; each is a place to check"""
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")
NAMES = ("Ollama", "Adafactor", "Axolotl", "Unsloth", "Lightning", "Python", "Slurm", "Docker")
OUT_OF_MEMORY = "out-of-memory"
SEVERAL_GPUS = "several-gpus"
NEAR_SPEED, OTHER_SPEED = 0.9, 0.5
"""What guides on other speeds keep of their share where a speed is named. Chosen, not measured: several GPUs stay near,
and generation comes later where seconds per step are named"""
NO_FASTER_ON_SEVERAL = re.compile(
    r"\b(?:\d{1,3}|two|four|eight|several|multiple|more|both)\s+(?:gpus|cards|nodes)\b[^.;:?!]{0,40}"
    r"\b(?:faster|quicker|as long as|longer than|slower than|as slow as)\b",
    re.IGNORECASE,
)
"""`training on 4 GPUs is not faster than on one`"""
FLAT_GUIDE = "loss-does-not-fall"
UNLEARNED_GUIDE = "nothing-is-learned"
GARBAGE_GUIDE = "garbage-output"
ENDLESS_GUIDE = "never-stops"
SERVED_GUIDE = "good-here-bad-there"
AHEAD = 1.1
"""Of the best other guide's score: what words name comes before what they resemble"""
GUIDES_ON_LOSSES = frozenset((FLAT_GUIDE, "odd-metrics"))
LIKE_THE_BASE = re.compile(
    r"\b(?:model|it|adapter|lora|fine-?tune|tune|answers?|outputs?|repl(?:y|ies))\s+(?:\w+\s){0,2}?"
    r"(?:behav|act|answer|repl|respond|talk|sound|perform|work)\w*\s+(?:exactly |just |still |again )?(?:like|as)\s+"
    r"(?:if\s+)?(?:it\s+(?:was|were)\s+)?(?:the\s+|a\s+)?"
    r"(?:plain|base|stock|vanilla|original|untuned|untouched|raw|pretrained|unmodified)\b",
    re.IGNORECASE,
)
"""Words that say that a tuned model does as its base"""
MADE_UP = re.compile(
    r"\b(?:makes? up|making up|made up|hallucinat\w*|fabricat\w*|confabulat\w*)\b", re.I
)
"""Words that say that answers are fluent and untrue: what they should say was not learned"""
LOSS_FALLS = re.compile(
    r"\bloss\b(?P<between>[^.;:?!]{0,40}?)(?:\b(?:goes|went|comes|came|is|gets|got|going)\s+(?:\w+\s){0,2}(?:down|low)\b"
    r"|\b(?:falls?|fell|drops?|dropped|decreas(?:es|ed)|sinks|sank|converge[sd])\b"
    r"|\b(?:goes|went|gets|got|is|was|comes|came|sits)\s+"
    r"(?:(?:down|to|at|near|about|nearly|almost|already|close|practically|basically|of)\s+){0,4}0?\.0+[1-9]"
    # A loss that is 0 from the start is another fault: it has to come to 0, or near it.
    r"|\b(?:goes|went|gets|got|comes|came)\s+(?:\w+\s+)?to\s+(?:\w+\s+)?(?:zero\b|0(?![.\d]))"
    r"|\b(?:is|was|gets|got|sits)\s+(?:\w+\s+){0,2}(?:near|nearly|almost|close to|practically|basically)\s+"
    r"(?:zero\b|0(?![.\d])))",
    re.IGNORECASE,
)
"""Words that say that the loss falls"""
ENDLESS_ANSWERS = re.compile(
    r"\b(?:never|not|n't|forgets to|fails to) (?:\w+ )?(?:stops?|stopping|ends?|terminates?)\b"
    r"(?! (?:falling|improving|learning|training|decreasing|dropping|growing|increasing|going (?:down|up)))"
    r"|\b(?:goes|went|runs?|keeps?|carries|rambles) on\b(?! (?:cpu|gpu|one|the))"
    r"|\bkeeps? (?:on )?(?:generating|talking|writing|rambling|asking|answering)\b|\bendless\w*|\bon and on\b"
    r"|\b(?:until|till|up to|to|hits?|reach(?:es)?) (?:the )?"
    r"(?:max\w*[_ -](?:new[_ ])?tokens?|(?:token|length) limit)\b",
    re.IGNORECASE,
)
"""`it never stops`, `goes on until max_new_tokens`, `keeps talking`"""
OF_A_RUN = re.compile(
    r"\b(?:loss|training|job|run|hangs?|process|script|memory|epoch|eval\w*|gpus?)\b", re.IGNORECASE
)
"""What else may never stop or go on"""
ANSWERS_NAMED = re.compile(
    r"\banswers?\b|\boutputs?\b|\brepl(?:y|ies)\b|\bgenerat\w+|\bcompletions?\b|max_(?:new_)?tokens|\btalk\w*",
    re.IGNORECASE,
)
GOOD_ELSEWHERE = re.compile(
    r"\b(?:good|fine|great|perfect|right|correct|works?|ok(?:ay)?|well)\b[^.;!?]{0,40}"
    r"\b(?:notebook|colab|training|trainer|transformers|python|locally|local|script|hf|peft|adapter|eval\w*|staging|before)\b"
    r"[^.;!?]{0,60}\b(?:bad|garbage|wrong|worse|broken|nonsense|different\w*|poor|not|n't|gibberish|but|only)\b"
    r"|\b(?:garbage|bad|worse|wrong|nonsense|differ\w*|gibberish|broken)\b[^.;!?]{0,50}"
    r"\b(?:served|serving|vllm|ollama|sglang|tgi|llama\.?cpp|gguf|deployed|deployment|production|api|server|merg\w+|convert\w+|export\w*)\b",
    re.IGNORECASE,
)
"""`fine in the notebook, bad when served`"""
EMPTY_ANSWERS = re.compile(
    r"\b(?:empty|blank)\s+(?:\w+\s)?(?:answers?|outputs?|responses?|replies|strings?|texts?|completions?)\b"
    r"|\b(?:answers?|outputs?|responses?|replies|completions?)\b[^.;,]{0,30}\b(?:empty|blank)\b"
    r"|\b(?:only|just|nothing but)\s+(?:\w+\s)?(?:<pad>|pad(?:ding)? tokens?\b)",
    re.IGNORECASE,
)
"""`returns only empty answers`, `the replies are all blank`, `just pad tokens`"""
OF_TIME = re.compile(
    r"\bslow|\bfast|\bspeed|\b(?:milli)?seconds?\b|\bminutes?\b|\bhours?\b|\d ?m?s\b|it/s|\bwaits?\b|\bforever\b",
    re.IGNORECASE,
)
"""Words that may be of a speed, also beside another fault"""
AREAS: Mapping[str, Area] = {
    "slow-generation": "generation",
    "slow-training": "training",
    "loss-does-not-fall": "training",
    "several-gpus": "training",
}
"""Guides on one area: its scripts alone tell what a project has"""
NEEDS_OF_GUIDE: Mapping[str, frozenset[Trait]] = {
    "dpo-without-effect": frozenset((Trait.PREFERENCE, Trait.REINFORCEMENT)),
    "reward-does-not-rise": frozenset((Trait.REINFORCEMENT,)),
    "reward-rises-model-is-worse": frozenset((Trait.REINFORCEMENT,)),
    "agent-training": frozenset((Trait.REINFORCEMENT,)),
}
"""Guides on one kind of training, and what shows it"""
NOT_FALLING = re.compile(
    r"\b(?:not|never|hardly|barely|no longer|stops?|stopped|stays?|stuck|flat|plateau\w*|until|rises?|rose|again"
    r"|explodes?|nan|slowly|only|too)\b|n't\b",
    re.IGNORECASE,
)
"""Words that may say the opposite, or that it falls too little"""
# A rule of so many causes sees what they lead to, and not which of them it is. Of the rules that stand in two causes,
# most prove both (one cause in two guides); of those in three or more, `run-ended-in-an-exception`, `flat-loss` and
# `dpo-stuck-at-ln2` prove none by themselves.
MIN_CAUSES_OF_A_SYMPTOM = 3
# Over the starts of three blind sets with such a finding: a cause that the finding names has 0.48 or more of its words
# there, and one that it does not name mostly 0.4 or less.
MIN_NAMED_WORDS = 0.5
"""Of the words of a cause, by their rarity, that stand in a finding which names it"""
TOO_SMALL = re.compile(r"\btoo (?:small|low|short|few)\b|\b(?:far|well) below\b", re.IGNORECASE)
TOO_LARGE = re.compile(r"\btoo (?:large|high|long|many)\b|\b(?:far|well) above\b", re.IGNORECASE)
SETTING_NAME = re.compile(r"\b[a-z]{2,20}(?:_[a-z0-9]{1,20}){1,5}\b")
GROWING_MEMORY = re.compile(
    # Who runs out of memory when the batch is increased has another fault.
    r"(?<!out of )\b(?:memory|vram|mem|gpu usage)\b"
    r"(?:(?!\b(?:when|if|after|by|I|we|error|fails)\b)[^.,;:?!]){0,30}?"
    r"\b(?:grow\w*|increas\w*|ris(?:es?|ing|en)|climb\w*|creep\w*|leak\w*|accumulat\w*)\b"
    r"|\b(?:growing|rising|increasing|leaking|leaks?) (?:gpu )?(?:memory|vram)\b(?! of\b)|\bmemory leak",
    re.IGNORECASE,
)
"""Words that say that memory grows in the run"""
RULES_OF_GROWING_MEMORY = frozenset(("outputs-kept-on-the-device", "losses-kept-with-graph"))
NO_FACTS = ProjectFacts({}, frozenset(), frozenset())
# Of the best guide's score: a guide that fits nearly as well is about the same symptom, said in another way. Measured
# on `symptom_sentences.tsv` by cross-validation: the right guide is among those that are kept in 91 %, and 2.2 are kept
# on average. By the search alone, from 0.6 on, it was among them in 73 %.
MIN_GUIDE_SHARE = 0.3
SENTENCES_WEIGHT = 0.7
"""Of what other users say of a symptom, beside the pages: the more certain of the two, 64 % against 54 %"""
MAX_GUIDES = 4
"""Chosen, not measured: 2.2 are kept on average, and causes of more symptoms push the right ones down"""
# Chosen, not measured: causes of guides below it are still ranked, but a reader is not sent to read them whole.
OF_8_BITS = re.compile(r"load_in_8bit|LLM\.int8|\b8-bit\b", re.I)
OF_4_BITS = re.compile(r"4bit|\b4-bit\b|\bnf4\b", re.I)
MIN_NAMED_SHARE = 0.8
"""Share of the best guide's score from which a guide is named to the reader"""


@dataclass(frozen=True, slots=True)
class LikelyCause:
    """A cause of a symptom, with how well it fits what the user says and has."""

    cause: Cause
    guide: str
    """The guide's name"""
    fit: float
    """Higher is likelier; comparable within one question only"""
    lines: tuple[TextLine, ...] = ()
    """Lines of the project that show what the cause takes, the most telling first"""
    sign_lines: tuple[TextLine, ...] = ()
    """Those of them that show the cause itself (`signs`)"""
    lacking: frozenset[Trait] = frozenset()
    """What it takes and the project does not have"""
    is_listed: bool = True
    """The guide lists it; else it is the fault of a rule that names the symptom"""


def choose_guides(question: str) -> tuple[tuple[Guide, float], ...]:
    """The guides that a question is about, the best first, each with its share of the best one's
    score.

    Two things score a guide: how well its page fits the words, and what other users say of its symptom.
    """
    shares = _scores_of_guides_not_spoken_against(question)
    if not shares:
        return tuple((guide, 1.0) for guide in GUIDES)
    best = max(shares.values())
    by_name = {guide.name: guide for guide in GUIDES}
    ranked = sorted(shares, key=lambda name: -shares[name])[:MAX_GUIDES]
    return tuple(
        (by_name[name], shares[name] / best)
        for name in ranked
        if shares[name] >= MIN_GUIDE_SHARE * best
    )


def _scores_of_guides_not_spoken_against(question: str) -> dict[str, float]:
    """The score of each guide that fits, without those that the words themselves speak against."""
    shares = _guide_scores_by_pages_and_user_sentences(question)
    if _says_that_the_loss_falls(question):
        shares = _drop_guides_unless_none_remain(shares, (FLAT_GUIDE,))
    if _says_that_nothing_is_learned(question) and UNLEARNED_GUIDE in shares:
        shares = _shares_with_answers_as_base_first(shares)
    shares = _shares_of_speed_guides_if_slowness(question, shares)
    if _says_that_answers_are_endless(question):
        shares = _shares_with_bad_answers_on_top(shares, ENDLESS_GUIDE)
    elif GOOD_ELSEWHERE.search(question) and not OF_TIME.search(question):
        shares = _shares_with_bad_answers_on_top(shares, SERVED_GUIDE)
    if EMPTY_ANSWERS.search(question) and not OF_TIME.search(question):
        # What the answers hold is no matter of speed, whatever card and notebook are named beside it.
        shares = _drop_guides_unless_none_remain(shares, GUIDES_OF_SPEED)
    return shares


def _drop_guides_unless_none_remain(
    shares: dict[str, float], names: Iterable[str]
) -> dict[str, float]:
    """The shares without some guides; all where none would be left."""
    unwanted = frozenset(names)
    return {name: share for name, share in shares.items() if name not in unwanted} or shares


def _says_that_answers_are_endless(question: str) -> bool:
    """Do the words say that answers do not stop (and not that a run or a loss does not)?"""
    if ENDLESS_ANSWERS.search(question) is None:
        return False
    return ANSWERS_NAMED.search(question) is not None or OF_A_RUN.search(question) is None


def _shares_with_bad_answers_on_top(shares: Mapping[str, float], guide: str) -> dict[str, float]:
    """The shares, where words name a kind of bad answers: its guide and that on all bad answers are
    among the best.
    """
    best = max(shares.values(), default=1.0)
    named = dict.fromkeys((guide, GARBAGE_GUIDE), best)
    return {**shares, **named}


def _says_that_nothing_is_learned(question: str) -> bool:
    """Do the words say that the tuned model answers as its base, or makes things up although its
    loss fell?
    """
    if LIKE_THE_BASE.search(question):
        return True
    return MADE_UP.search(question) is not None and _says_that_the_loss_falls(question)


def _shares_with_answers_as_base_first(shares: Mapping[str, float]) -> dict[str, float]:
    """The shares, where the tuned model answers as its base: that guide first, and none on how a
    loss looks.
    """
    best = max(shares.values())
    kept = {name: share for name, share in shares.items() if name not in GUIDES_ON_LOSSES}
    return {**kept, UNLEARNED_GUIDE: AHEAD * best}


def keep_possible_guides(
    guides: tuple[tuple[Guide, float], ...], facts: ProjectFacts
) -> tuple[tuple[Guide, float], ...]:
    """The guides, without those on a kind of training that the project does not do; all where none
    would be left.
    """
    possible = tuple(
        (guide, share)
        for guide, share in guides
        if not (needed := NEEDS_OF_GUIDE.get(guide.name, frozenset()))
        or needed & (facts.traits_shown_by_project | facts.traits_files_could_not_show)
    )
    best = max((share for _, share in possible), default=0.0)
    return tuple((guide, share / best) for guide, share in possible) if best else guides


def _guide_scores_by_pages_and_user_sentences(question: str) -> dict[str, float]:
    """Guide -> its score, by the search over the pages and by the sentences of other users; empty
    where none fits.
    """
    hits = search_topics(question, list_guide_topics(), most=len(GUIDES))
    # Before the scores become shares: a guide that is left out may not be what the others are measured by.
    unnamed = guides_a_question_is_not_about(question)
    by_pages = _scores_relative_to_best(
        {hit.topic.name: hit.score for hit in hits if hit.topic.name not in unnamed}
    )
    by_sentences = _scores_relative_to_best(
        {
            name: chance
            for name, chance in symptom_probabilities(question).items()
            if name not in unnamed
        }
    )
    return {
        name: (1 - SENTENCES_WEIGHT) * by_pages.get(name, 0.0)
        + SENTENCES_WEIGHT * by_sentences.get(name, 0.0)
        for name in by_pages.keys() | by_sentences.keys()
    }


def _shares_of_speed_guides_if_slowness(
    question: str, shares: Mapping[str, float]
) -> dict[str, float]:
    """The shares of guides on speed alone, where the question names slowness and no other fault;
    else all.
    """
    named = guides_of_named_speed(question)
    # Who compares a number of GPUs asks about them, if a training is named or not.
    if not named or (named == ("slow-training",) and NO_FASTER_ON_SEVERAL.search(question)):
        return dict(shares)
    best = max(shares.values(), default=1.0)
    # A unit that is named (steps, tokens) says which speed it is about.
    others = {
        name: share * (NEAR_SPEED if name == SEVERAL_GPUS else OTHER_SPEED)
        for name, share in shares.items()
        if name in GUIDES_OF_SPEED
    }
    return others | dict.fromkeys(named, best)


def _scores_relative_to_best(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores as shares of the best one."""
    best = max(scores.values(), default=0.0)
    return {name: score / best for name, score in scores.items()} if best > 0 else {}


def _says_that_the_loss_falls(question: str) -> bool:
    """Do the words say that the loss falls, and not that it does so too little?"""
    match = LOSS_FALLS.search(question)
    if match is None:
        return False
    # What the answers do stands in another part of the sentence: `but the model does not ...`
    clause = re.split(
        r"[.;:?!]|\bbut\b|\byet\b|\balthough\b", question[match.start() :], maxsplit=1
    )[0]
    return NOT_FALLING.search(clause) is None


def rank_causes(
    guides: tuple[tuple[Guide, float], ...],
    question: str,
    project_words: frozenset[str],
    facts: ProjectFacts = NO_FACTS,
) -> list[LikelyCause]:
    """The causes of some guides, the likeliest first; what the files make impossible comes last.

    Args:
        guides: with their shares (`choose_guides`).
        question: the symptom in the user's words.
        project_words: stems of the user's files (`read_project_words`).
        facts: what the project does (`read_facts`).
    """
    question_stems = frozenset(list_stems(question))
    causes = []
    for guide, share in guides:
        # The traceback of another failure says nothing of a symptom that is none.
        outside = facts.outside_failure if guide.name == OUT_OF_MEMORY else frozenset()
        present, unknown = (
            facts.traits_shown_by_project - outside,
            facts.traits_files_could_not_show_in_area(AREAS.get(guide.name)) - outside,
        )
        rule_weight = _weight_of_rule_causes_beside_listed(guide, question_stems)
        of_guide = _causes_of_guide_and_if_listed(guide.name)
        for number, (cause, is_listed) in enumerate(of_guide):
            shown = _shown_signs_rarest_first(cause, facts)
            fit = WORDS_WEIGHT * _score_cause_by_words(cause, question_stems, project_words)
            fit += _score_cause_by_facts(cause, facts) + _score_cause_by_signs(cause, shown, facts)
            fit -= ORDER_WEIGHT * number / len(of_guide)
            weight = 1.0 if is_listed else rule_weight
            if shown and not is_listed:
                weight = max(rule_weight, SHOWN_RULE_WEIGHT)
            # A fit below 0 is no better for a guide that fits less.
            fit *= share**GUIDE_EXPONENT * weight if fit > 0 else 1.0
            # What shows the cause has what the cause takes, in whatever words.
            needed = precondition_of_cause(cause.text)
            lacking = (
                frozenset() if shown else needed.missing_traits_that_exclude_cause(present, unknown)
            )
            signs = tuple(line for sign in shown for line in facts.signs[sign])
            lines = _first_lines_each_place_once(
                (*signs, *_lines_that_support_rarest_first(cause, facts))
            )
            own_lines = _first_lines_each_place_once(signs)
            causes.append(LikelyCause(cause, guide.name, fit, lines, own_lines, lacking, is_listed))
    # Python's sort keeps the guides' own order, which is that of likelihood, where two fit equally.
    said = _rules_whose_causes_question_names(question)
    ranked = sorted(
        causes,
        key=lambda likely: (
            bool(likely.lacking),
            said.isdisjoint(likely.cause.rules),
            -likely.fit,
        ),
    )
    return _keep_best_place_of_each_cause(ranked)


def _rules_whose_causes_question_names(question: str) -> frozenset[str]:
    """The rules whose causes the words themselves name, such as a memory that grows from step to
    step.
    """
    is_of_host = re.search(r"\bRAM\b|\bhost\b|\bCPU\b|\bswap\b", question) is not None
    grows = GROWING_MEMORY.search(question) is not None and not is_of_host
    return RULES_OF_GROWING_MEMORY if grows else frozenset()


def _keep_best_place_of_each_cause(ranked: list[LikelyCause]) -> list[LikelyCause]:
    """Each cause at its best place: two guides may list one."""
    by_text: dict[str, LikelyCause] = {}
    for likely in ranked:
        by_text.setdefault(likely.cause.text, likely)
    return list(by_text.values())


@cache
def rules_that_many_causes_trigger() -> frozenset[str]:
    """The rules that see what many causes lead to, such as an exception or a flat loss."""
    causes_of_rule: dict[str, set[str]] = {}
    for guide in GUIDES:
        for cause in guide.causes:
            for rule in cause.rules:
                causes_of_rule.setdefault(rule, set()).add(cause.text)
    return frozenset(
        rule for rule, texts in causes_of_rule.items() if len(texts) >= MIN_CAUSES_OF_A_SYMPTOM
    )


def finding_names_cause(finding: Finding, cause: Cause) -> bool:
    """Does a finding say in its own words what a cause says?"""
    return share_of_cause_in_finding(finding, cause) >= MIN_NAMED_WORDS


def share_of_cause_in_finding(finding: Finding, cause: Cause) -> float:
    """How much of what a cause says a finding says in its own words, rare words counting more.

    0 where one says that a value is too small and the other that it is too large: all their other words are equal.
    """
    sizes = {
        _small_or_large_if_text_says_it(finding.message),
        _small_or_large_if_text_says_it(cause.text),
    } - {""}
    if len(sizes) > 1:
        return 0.0
    said = frozenset(list_stems(" ".join((finding.message, finding.remedy, *finding.evidence))))
    words = frozenset(list_stems(cause.text))
    total = sum(_rarity_of_word(word) for word in words) or 1.0
    named = sum(_rarity_of_word(word) for word in words & said)
    return named / total


def _small_or_large_if_text_says_it(text: str) -> str:
    """What a text says of a value, `small` or `large`; empty where it says neither, or both."""
    is_small, is_large = TOO_SMALL.search(text) is not None, TOO_LARGE.search(text) is not None
    if is_small == is_large:
        return ""
    return "small" if is_small else "large"


def _weight_of_rule_causes_beside_listed(guide: Guide, question_stems: frozenset[str]) -> float:
    """How much the causes of rules count beside those that a guide lists, by whether the question
    says more than the symptom.
    """
    of_symptom = {stem for sentence in guide.asked for stem in list_stems(sentence)}
    says_more = len(question_stems - of_symptom) >= MIN_OWN_WORDS
    return RULE_WEIGHT if says_more else RULE_WEIGHT_OF_BARE_SYMPTOM


@cache
def _causes_of_guide_and_if_listed(name: str) -> tuple[tuple[Cause, bool], ...]:
    """(cause, is it listed?) of a guide: those that it lists, and those of rules that name it as a
    symptom.
    """
    guide = next(guide for guide in GUIDES if guide.name == name)
    listed = [(cause, True) for cause in guide.causes]
    known = {rule for cause in guide.causes for rule in cause.rules}
    of_rules = [
        (cause, False)
        for rule, symptoms, cause in _causes_of_rules()
        if name in symptoms and rule not in known
    ]
    return (*listed, *of_rules)


@cache
def _causes_of_rules() -> tuple[tuple[str, tuple[str, ...], Cause], ...]:
    """(rule, symptoms, cause) of each rule that names what users see of it; the cause is what its
    page says is wrong and why.
    """
    pages = {topic.name: topic for topic in list_topics() if topic.kind == "rule"}
    found = []
    for rule in all_rules():
        page = pages.get(rule.name())
        # What a rule sees in answers is the symptom itself in other words, and no cause of it.
        if page is None or not rule.symptoms or issubclass(rule, AnswersRule):
            continue
        text = page.title.rstrip(".")
        cause = Cause(
            _lower_first_letter_unless_name(text), _first_two_sentences(page.why), (rule.name(),)
        )
        found.append((rule.name(), rule.symptoms, cause))
    return tuple(found)


def _lower_first_letter_unless_name(text: str) -> str:
    """The text with a small first letter, unless it begins with a name: `KTO's`, `DeepSpeed`."""
    first = text.split(" ", 1)[0]
    is_name = any(letter.isupper() for letter in first[1:]) or first.startswith(NAMES)
    return text if is_name else text[0].lower() + text[1:]


def _first_two_sentences(text: str) -> str:
    """The beginning of a text, to the end of its second sentence."""
    sentences = SENTENCE_END.split(" ".join(text.split()))
    return " ".join(sentences[:2])


def _score_cause_by_facts(cause: Cause, facts: ProjectFacts) -> float:
    """How well a cause fits what the project does and what the user names: rare traits say more."""
    concerned = traits_mentioned(f"{cause.text} {cause.seen}")
    in_files = sum(_rarity_of_trait(trait) for trait in concerned & facts.lines.keys())
    named = sum(_rarity_of_trait(trait) for trait in concerned & facts.asked)
    total = sum(_rarity_of_trait(trait) for trait in concerned) or 1.0
    return LINES_WEIGHT * in_files / (total + 1.0) + NAMED_WEIGHT * named / math.sqrt(total)


def _lines_that_support_rarest_first(cause: Cause, facts: ProjectFacts) -> tuple[TextLine, ...]:
    """The lines that support a cause; each line once, of rare things first.

    A line supports a cause where it sets or calls what the cause names in code, or where it shows a thing that sound
    projects mostly do not have. A line that has what the cause misses speaks against it.
    """
    subject, missed = patterns_of_wrong_and_missing_names(cause.text)
    negated = traits_mentioned_as_missing(cause.text)
    concerned = (traits_mentioned(cause.text) & facts.lines.keys()) - negated
    # A line with the very setting of the cause (`num_ctx`) says more than the first of its kind (`FROM`).
    settings = [re.compile(rf"\b{name}\b") for name in SETTING_NAME.findall(cause.text)]
    found: dict[str, TextLine] = {}
    for trait in sorted(concerned, key=lambda trait: -_rarity_of_trait(trait)):
        for line in sorted(
            facts.lines[trait], key=lambda one: not _line_has_word(settings, one.text)
        ):
            is_named = _line_has_word(subject, line.text)
            is_refuted = any(
                word.search(line.text) for word in missed
            ) or _line_quantizes_to_other_bits_than_cause(cause, line.text)
            is_telling = is_named or trait not in UNTELLING or _blames_learning_rate(cause, trait)
            if is_telling and not is_refuted:
                found.setdefault(line.place, line)
                break
    lines = sorted(found.values(), key=lambda one: not _line_has_word(settings, one.text))
    return tuple(lines)[:MAX_TELLING_LINES]


def _line_has_word(words: Iterable[re.Pattern[str]], line: str) -> bool:
    """Does a line hold one of these words of code?"""
    return any(word.search(line) for word in words)


def _shown_signs_rarest_first(cause: Cause, facts: ProjectFacts) -> list[Sign]:
    """The signs of a cause that the project shows, the rarest first."""
    signs = [sign for sign in signs_belonging_to_cause_text(cause.text) if sign in facts.signs]
    return sorted(signs, key=lambda sign: -rarity_of_sign(sign))


def _score_cause_by_signs(cause: Cause, shown: Sequence[Sign], facts: ProjectFacts) -> float:
    """How well the signs of a cause fit: the rarest that is shown counts, or that none of them is."""
    if shown:
        return SIGN_WEIGHT + RARITY_WEIGHT * rarity_of_sign(shown[0])
    # Files of neither a training nor a generation could not show it.
    return -UNSHOWN_WEIGHT if facts.areas and signs_belonging_to_cause_text(cause.text) else 0.0


def _first_lines_each_place_once(lines: tuple[TextLine, ...]) -> tuple[TextLine, ...]:
    """The first lines, each place once."""
    return tuple({line.place: line for line in reversed(lines)}.values())[::-1][:MAX_TELLING_LINES]


def _line_quantizes_to_other_bits_than_cause(cause: Cause, line: str) -> bool:
    """Does a line quantize to 8 bits, where the cause is about 4, or the other way round?"""
    text = f"{cause.text} {cause.seen}"
    is_eight, is_four = bool(OF_8_BITS.search(text)), bool(OF_4_BITS.search(text))
    if is_eight == is_four:
        return False
    own, other = (OF_8_BITS, OF_4_BITS) if is_eight else (OF_4_BITS, OF_8_BITS)
    return bool(other.search(line)) and not own.search(line)


def _blames_learning_rate(cause: Cause, trait: Trait) -> bool:
    """Does a cause say that the learning rate itself is wrong? A rate that is usual rules it out
    (`ruled_out`).
    """
    return trait is Trait.RATE and cause.text.startswith("the learning rate")


@cache
def _rarity_of_trait(trait: Trait) -> float:
    """How rare a trait is among all causes."""
    causes = [cause for guide in GUIDES for cause in guide.causes]
    having = sum(trait in traits_mentioned(f"{cause.text} {cause.seen}") for cause in causes)
    return math.log(1 + (len(causes) - having + 0.5) / (having + 0.5))


def _score_cause_by_words(
    cause: Cause, question_stems: frozenset[str], project_words: frozenset[str]
) -> float:
    """How well a cause fits the user's words and the words of the files."""
    words = _word_stems_of_cause(cause)
    total = sum(_rarity_of_word(word) for word in words) or 1.0
    asked = sum(_rarity_of_word(word) * _score_word_match(word, question_stems) for word in words)
    in_files = sum(_rarity_of_word(word) for word in words & project_words)
    # The root: a cause that is told at length has more of the user's words by chance, and a share alone would prefer
    # the shortest.
    return asked / math.sqrt(total) + FILES_WEIGHT * in_files / total


def _score_word_match(word: str, stems: frozenset[str]) -> float:
    """How well a word matches stems: 1 where it is among them, a part where a synonym of it is,
    else 0.
    """
    if word in stems:
        return 1.0
    return NEAR_MATCH if NEAR_STEMS.get(word, frozenset()) & stems else 0.0


@cache
def _word_stems_of_cause(cause: Cause) -> frozenset[str]:
    """The stems of the words by which a cause is known."""
    return frozenset(list_stems(f"{cause.text} {cause.seen}"))


@cache
def _cause_count_by_word_stem() -> Mapping[str, int]:
    """Stem -> in how many causes of all guides it stands."""
    causes = [cause for guide in GUIDES for cause in guide.causes]
    return Counter(word for cause in causes for word in _word_stems_of_cause(cause))


def _rarity_of_word(word: str) -> float:
    """The inverse document frequency of a word among all causes."""
    count = sum(len(guide.causes) for guide in GUIDES)
    having = _cause_count_by_word_stem().get(word, 0)
    return math.log(1 + (count - having + 0.5) / (having + 0.5))
