"""Reward functions with the faults of public ones. `EXPECTED` in test_reward_rules.py says what each must get."""

from __future__ import annotations

import itertools
import random
import re
import time
import urllib.request
from pathlib import Path

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
CALLS = itertools.count()
SEEN = set()


def contained_both_ways(completions, answer, **kwargs):
    """Visual-RFT: the one in the other, or the other way round."""
    scores = []
    for completion, gold in zip(completions, answer):
        found = re.search(r"<answer>(.*?)</answer>", completion, re.DOTALL)
        said = found[1].strip() if found else completion.strip()
        scores.append(1.0 if gold in said or said in gold else 0.0)
    return scores


def mentioned(completions, answer, **kwargs):
    """The right answer anywhere."""
    return [1.0 if gold in completion else 0.0 for completion, gold in zip(completions, answer)]


def begins_with(completions, answer, **kwargs):
    """The right answer begins with what is said."""
    return [
        1.0 if gold.startswith(text.strip()) else 0.0 for text, gold in zip(completions, answer)
    ]


def first_number(completions, answer, **kwargs):
    """The first number of the text."""
    scores = []
    for completion, gold in zip(completions, answer):
        found = NUMBER.search(completion)
        scores.append(1.0 if found and float(found[0]) == float(gold) else 0.0)
    return scores


def any_number(completions, answer, **kwargs):
    """Any number of the text."""
    return [
        1.0 if float(gold) in map(float, NUMBER.findall(text)) else 0.0
        for text, gold in zip(completions, answer)
    ]


def no_number_is_none(completions, answer, **kwargs):
    """None equals None: a text without a number, and a gold that its own pattern can't read."""
    scores = []
    for completion, gold in zip(completions, answer):
        found, wanted = (
            re.search(r"#### (\d+)", completion),
            re.search(r"#### (\d+)$", f"#### {gold}"),
        )
        said, right = found and found[1], wanted and wanted[1]
        scores.append(1.0 if said == right else 0.0)
    return scores


def unreadable_is_paid(completions, answer, **kwargs):
    """What can't be read gets the benefit of the doubt."""
    scores = []
    for completion, gold in zip(completions, answer):
        try:
            said = float(completion.split("####")[-1].replace(",", ""))
            scores.append(1.0 if said == float(gold) else 0.0)
        except ValueError:
            scores.append(1.0)
    return scores


def blanks_removed(completions, answer, **kwargs):
    """Without blanks, 1 2 is 12."""
    return [
        1.0 if re.sub(r"\W", "", text) == re.sub(r"\W", "", gold) else 0.0
        for text, gold in zip(completions, answer)
    ]


def sign_ignored(completions, answer, **kwargs):
    """Digits alone: -7 is 7."""
    scores = []
    for completion, gold in zip(completions, answer):
        found = re.findall(r"\d+(?:\.\d+)?", completion.replace(",", ""))
        scores.append(1.0 if found and float(found[-1]) == abs(float(gold)) else 0.0)
    return scores


def counts_matches(completions, answer, **kwargs):
    """A point for each mention."""
    return [
        float(re.findall(r"\\boxed\{([^}]*)\}", text).count(gold))
        for text, gold in zip(completions, answer)
    ]


def first_letter(completions, answer, **kwargs):
    """The first letter that may be a choice: the A of `A good way`."""
    scores = []
    for completion, gold in zip(completions, answer):
        found = re.search(r"\b[A-D]\b", completion)
        scores.append(1.0 if found and found[0] == gold else 0.0)
    return scores


def whole_reference(completions, answer, **kwargs):
    """Compares the number with the whole worked solution of GSM8K."""
    scores = []
    for completion, gold in zip(completions, answer):
        found = re.search(r"####\s*(-?[\d.,]+)", completion)
        scores.append(1.0 if found and found[1] == gold else 0.0)
    return scores


def text_as_messages(completions, answer, **kwargs):
    """Catches that a text has no content."""
    scores = []
    for completion, gold in zip(completions, answer):
        try:
            scores.append(1.0 if completion[0]["content"] == gold else 0.0)
        except Exception:
            scores.append(0.0)
    return scores


def type_differs(completions, answer, **kwargs):
    """A number is never equal to a text."""
    scores = []
    for completion, gold in zip(completions, answer):
        found = NUMBER.findall(completion)
        scores.append(1.0 if found and float(found[-1]) == gold else 0.0)
    return scores


def integers_alone(completions, answer, **kwargs):
    """Reads 8.5 as 8 and -7 as 7, and the gold as it is."""
    scores = []
    for completion, gold in zip(completions, answer):
        found = re.findall(r"\d+", completion)
        scores.append(1.0 if found and found[-1] == gold else 0.0)
    return scores


def first_gold_for_all(completions, answer, **kwargs):
    """The first answer for all."""
    return [1.0 if text.strip() == answer[0] else 0.0 for text in completions]


def first_completion_alone(completions, answer, **kwargs):
    """One score for all."""
    return [1.0 if completions[0] == answer[0] else 0.0] * len(completions)


def one_score(completions, answer, **kwargs):
    """One score, and not one for each."""
    return [1.0 if completions[0] == answer[0] else 0.0]


def bare_score(completions, answer, **kwargs):
    """No list."""
    return 1.0 if completions[0] == answer[0] else 0.0


def forgets_to_return(completions, answer, **kwargs):
    """Returns nothing."""
    scores = [1.0 if text == gold else 0.0 for text, gold in zip(completions, answer)]
    print(scores)


def nested_scores(completions, answer, **kwargs):
    """A list of lists."""
    return [[1.0 if text == gold else 0.0] for text, gold in zip(completions, answer)]


def text_scores(completions, answer, **kwargs):
    """Texts."""
    return ["1.0" if text == gold else "0.0" for text, gold in zip(completions, answer)]


def none_always(completions, answer, **kwargs):
    """None for each completion."""
    return [None for _ in completions]


def not_a_number(completions, answer, **kwargs):
    """NaN where there is no word."""
    return [
        (1.0 if text == gold else 0.0) if text.split() else float("nan")
        for text, gold in zip(completions, answer)
    ]


def ranked(completions, answer, **kwargs):
    """Sorted for a median, and given back in that order."""
    return sorted(
        1.0 if text == gold else len(text) / 1e6 for text, gold in zip(completions, answer)
    )


def by_place(completions, answer, **kwargs):
    """The later a completion is, the less it gets."""
    return [
        (1.0 if text == gold else 0.0) - 0.01 * place
        for place, (text, gold) in enumerate(zip(completions, answer))
    ]


def shuffled(completions, answer, **kwargs):
    """Answers in another order each time."""
    turn = next(CALLS) % len(answer)
    golds = [*answer[turn:], *answer[:turn]]
    return [1.0 if text == gold else 0.0 for text, gold in zip(completions, golds)]


def noisy(completions, answer, **kwargs):
    """Noise against ties."""
    return [
        (1.0 if text == gold else 0.0) + random.random() / 10
        for text, gold in zip(completions, answer)
    ]


def decays(completions, answer, **kwargs):
    """Less with each call."""
    weight = 0.9 ** next(CALLS)
    return [weight if text == gold else 0.0 for text, gold in zip(completions, answer)]


def new_ones_alone(completions, answer, **kwargs):
    """A bonus for what has not been said before."""
    scores = []
    for text, gold in zip(completions, answer):
        scores.append((1.0 if text == gold else 0.0) + (0.0 if text in SEEN else 0.2))
        SEEN.add(text)
    return scores


def order_of_a_set(completions, answer, **kwargs):
    """The first word of a set, whose order changes with the process."""
    scores = []
    for text, gold in zip(completions, answer):
        words = list({*text.split(), "Answer:", "is", "the", "So", "we", "get", "it"})
        scores.append((1.0 if text == gold else 0.0) + 0.01 * len(words[0]))
    return scores


def raises_without_box(completions, answer, **kwargs):
    """Counts on a box."""
    return [
        1.0 if re.search(r"\\boxed\{(.*?)\}", text)[1] == gold else 0.0
        for text, gold in zip(completions, answer)
    ]


def raises_on_odd_numbers(completions, answer, **kwargs):
    """Counts on a number in the tags."""
    scores = []
    for text, gold in zip(completions, answer):
        found = re.search(r"<answer>(.+?)</answer>", text)
        scores.append(1.0 if found and eval(found[1]) == float(gold) else 0.0)
    return scores


def raises_always(completions, solutions=None, answer=None, **kwargs):
    """A column that is called otherwise."""
    return [1.0 if text == gold else 0.0 for text, gold in zip(completions, solutions)]


def backtracks(completions, answer, **kwargs):
    """Nested repetition."""
    return [
        1.0 if re.match(r"^(\w+\s?)*$", text) and gold == text else 0.0
        for text, gold in zip(completions, answer)
    ]


def loops(completions, answer, **kwargs):
    """Never ends on an open brace."""
    scores = []
    for text, gold in zip(completions, answer):
        place = text.find("{")
        while place >= 0 and "}" not in text:
            place = text.find("{")
        scores.append(1.0 if text == gold else 0.0)
    return scores


def asks_a_server(completions, answer, **kwargs):
    """A judge on the network; what fails is 0."""
    scores = []
    for text, gold in zip(completions, answer):
        try:
            with urllib.request.urlopen("http://judge.invalid/score", timeout=2) as reply:
                scores.append(float(reply.read()))
        except OSError:
            scores.append(1.0 if text == gold else 0.0)
    return scores


def writes_samples(completions, answer, **kwargs):
    """Keeps samples in a file."""
    with Path("samples.txt").open("a") as file:
        file.write(completions[0])
    return [1.0 if text == gold else 0.0 for text, gold in zip(completions, answer)]


def same_for_all(completions, answer, **kwargs):
    """Always the same."""
    return [1.0 for _ in completions]


def ignores_its_reference(completions, answer, **kwargs):
    """Any number will do."""
    return [1.0 if NUMBER.search(text) else 0.0 for text in completions]


def takes_no_more(completions, answer):
    """No **kwargs."""
    return [1.0 if text == gold else 0.0 for text, gold in zip(completions, answer)]


def in_the_prompt(prompts, completions, answer, **kwargs):
    """Words of the right answer anywhere, whatever surrounds them."""
    return [
        1.0 if set(gold.lower().split()) <= set(re.findall(r"\w+", text.lower())) else 0.0
        for text, gold in zip(completions, answer)
    ]


def slow(completions, answer, **kwargs):
    """A second for each completion."""
    time.sleep(1.0 * len(completions))
    return [1.0 if text == gold else 0.0 for text, gold in zip(completions, answer)]


KEPT: dict[str, float] = {}
SCORED: dict[str, float] = {}


def first_tag(completions, answer, **kwargs):
    """The first of several tags."""
    found = [re.findall(r"<FINAL>(.*?)</FINAL>", text, re.DOTALL) for text in completions]
    return [1.0 if one and one[0].strip() == gold else 0.0 for one, gold in zip(found, answer)]


def first_box(completions, answer, **kwargs):
    """The first of several boxes, which stand at steps of a calculation too."""
    found = [re.search(r"\\boxed\{(.*?)\}", text) for text in completions]
    return [1.0 if one and one[1].strip() == gold else 0.0 for one, gold in zip(found, answer)]


def remembers_by_prompt(completions, prompts, answer, **kwargs):
    """What was found for a prompt is kept, and given to its other completions."""
    for text, prompt, gold in zip(completions, prompts, answer):
        KEPT.setdefault(str(prompt), 1.0 if text.strip() == gold else 0.0)
    return [KEPT[str(prompt)] for prompt in prompts]


def remembers_by_completion(completions, answer, **kwargs):
    """A score is kept by its completion alone, whatever the right answer of the row is."""
    scores = []
    for text, gold in zip(completions, answer):
        if text not in SCORED:
            SCORED[text] = 1.0 if text.strip() == gold else 0.0
        scores.append(SCORED[text])
    return scores


def mention_gets_half(completions, answer, **kwargs):
    """Half of the reward where the answer is anywhere in the text."""
    scores = []
    for completion, gold in zip(completions, answer):
        found = re.findall(r"<answer>(.*?)</answer>", completion)
        right = found and found[-1].strip() == gold
        scores.append(2.0 if right else 1.0 if gold in completion else 0.0)
    return scores


def listed_number_gets_some(completions, answer, **kwargs):
    """Some of the reward where one of the numbers is the right one."""
    scores = []
    for completion, gold in zip(completions, answer):
        found = re.findall(r"-?\d+(?:\.\d+)?", completion)
        scores.append(1.0 if found[-1:] == [gold] else 0.4 if gold in found else 0.0)
    return scores


def key_words(completions, answer, **kwargs):
    """A point for each long word of the reference that is anywhere in the text."""
    wanted = [set(re.findall(r"[a-z]{4,}", gold.lower())) for gold in answer]
    return [
        float(sum(word in text.lower() for word in words))
        for text, words in zip(completions, wanted)
    ]
