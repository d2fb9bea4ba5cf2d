"""Sound reward functions, as people write them: none of them may get a finding that is graver than a note."""

from __future__ import annotations

import json
import re
import string
import subprocess
import sys
from collections import Counter

NUMBER = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?")
SOLUTION = re.compile(r"<SOLUTION>(.+?)</SOLUTION>", re.DOTALL)
PRINTED = 0


def text_of(completion):
    """The text of a completion in either form."""
    return completion if isinstance(completion, str) else completion[-1]["content"]


def number_of(text):
    """A number in one notation; None where the text is none."""
    try:
        return float(text.replace(",", "").replace("$", "").strip().rstrip("."))
    except ValueError:
        return None


def last_box(text):
    """What is in the last box, braces in it included."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth, begin = 1, start + 7
    for place in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[begin:place].strip()
    return None


def boxed(completions, answer, **kwargs):
    """GSM8K and MATH: the last box, as text."""
    golds = [gold.split("####")[-1].strip() for gold in answer]
    return [1.0 if last_box(text_of(c)) == gold else 0.0 for c, gold in zip(completions, golds)]


def boxed_number(completions, solution, **kwargs):
    """The last box, as a number where it is one."""
    scores = []
    for completion, gold in zip(completions, solution):
        gold = last_box(gold) or gold
        found = last_box(text_of(completion))
        same = found is not None and (
            found == gold or (number_of(found) is not None and number_of(found) == number_of(gold))
        )
        scores.append(1.0 if same else 0.0)
    return scores


def hashes(completions, answer, **kwargs):
    """GSM8K's own mark."""
    scores = []
    for completion, gold in zip(completions, answer):
        found = text_of(completion).rpartition("####")[2] if "####" in text_of(completion) else ""
        wanted = number_of(gold.rpartition("####")[2])
        scores.append(float(number_of(found) is not None and number_of(found) == wanted))
    return scores


def xml_answer(text):
    """The text between the last answer tags."""
    return text.split("<answer>")[-1].split("</answer>")[0].strip()


def xml_correct(prompts, completions, answer, **kwargs):
    """The notebooks' correctness function: 2.0 for the answer in its tags."""
    responses = [completion[0]["content"] for completion in completions]
    question = prompts[0][-1]["content"]
    print("-" * 20, f"Question:\n{question}", f"\nAnswer:\n{answer[0]}")
    return [2.0 if xml_answer(r) == a else 0.0 for r, a in zip(responses, answer)]


def xml_integer(completions, **kwargs):
    """Half a point for an integer."""
    return [0.5 if xml_answer(c[0]["content"]).isdigit() else 0.0 for c in completions]


def xml_strict(completions, **kwargs):
    """The strict format, line by line."""
    pattern = r"^<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>\n$"
    return [0.5 if re.match(pattern, c[0]["content"], re.DOTALL) else 0.0 for c in completions]


def xml_soft(completions, **kwargs):
    """The soft format."""
    pattern = r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>"
    return [0.5 if re.match(pattern, c[0]["content"], re.DOTALL) else 0.0 for c in completions]


def xml_count(completions, **kwargs):
    """An eighth for each mark that occurs once, less what is behind the last."""
    scores = []
    for completion in completions:
        text, score = completion[0]["content"], 0.0
        score += 0.125 * (text.count("<reasoning>\n") == 1)
        score += 0.125 * (text.count("\n</reasoning>\n") == 1)
        if text.count("\n<answer>\n") == 1:
            score += 0.125 - 0.001 * len(text.split("\n</answer>\n")[-1])
        if text.count("\n</answer>") == 1:
            score += 0.125 - 0.001 * (len(text.split("\n</answer>")[-1]) - 1)
        scores.append(score)
    return scores


def solution_tags(completions, answer, **kwargs):
    """Graded: exact, nearly the same text, a near number, a wrong one."""
    scores = []
    for completion, gold in zip(completions, answer):
        found = SOLUTION.findall(text_of(completion))
        guess = found[-1] if found else None
        if guess is None:
            scores.append(0.0)
        elif guess == gold:
            scores.append(3.0)
        elif guess.strip() == gold.strip():
            scores.append(1.5)
        else:
            try:
                ratio = float(guess) / float(gold)
                scores.append(1.0 if 0.9 <= ratio <= 1.1 else -1.5)
            except Exception:
                scores.append(-1.5)
    return scores


def solution_number(prompts, completions, answer, **kwargs):
    """The number in the tags; prints each fifth call."""
    global PRINTED
    if PRINTED % 5 == 0:
        print(f"Question: {prompts[0]}\nResponse: {completions[0]}")
    PRINTED += 1
    scores = []
    for completion, gold in zip(completions, answer):
        found = re.search(r"<SOLUTION>\s*(-?[\d.,]+)\s*</SOLUTION>\s*$", text_of(completion))
        try:
            scores.append(1.5 if float(found[1].replace(",", "")) == float(gold) else -0.5)
        except Exception:
            scores.append(0.0)
    return scores


def last_number(completions, ground_truth, **kwargs):
    """The last number of the text."""
    scores = []
    for completion, gold in zip(completions, ground_truth):
        found = NUMBER.findall(text_of(completion))
        value = number_of(found[-1]) if found else None
        scores.append(1.0 if value is not None and value == number_of(gold) else 0.0)
    return scores


def last_number_behind_thoughts(completions, answer, **kwargs):
    """The last number behind the thoughts."""
    scores = []
    for completion, gold in zip(completions, answer):
        found = NUMBER.findall(text_of(completion).rpartition("</think>")[2])
        value = number_of(found[-1]) if found else None
        scores.append(1.0 if value is not None and value == number_of(gold) else 0.0)
    return scores


def choice(completions, answer, **kwargs):
    """The letter behind the last `Answer:`."""
    scores = []
    for completion, gold in zip(completions, answer):
        found = re.findall(r"[Aa]nswer(?: is)?:?\s*\(?([A-D])\b", text_of(completion))
        scores.append(1.0 if found and found[-1] == gold else 0.0)
    return scores


def boxed_choice(completions, answer, **kwargs):
    """The letter in the last box, with or without a text command."""
    scores = []
    for completion, gold in zip(completions, answer):
        found = last_box(text_of(completion)) or ""
        letter = re.fullmatch(r"(?:\\text\{)?\(?([A-D])\)?\}?\.?", found)
        scores.append(1.0 if letter and letter[1] == gold else 0.0)
    return scores


def json_valid(completions, **kwargs):
    """Is it JSON?"""
    scores = []
    for completion in completions:
        try:
            json.loads(text_of(completion))
            scores.append(1.0)
        except (ValueError, RecursionError):
            scores.append(0.0)
    return scores


def json_field(completions, answer, **kwargs):
    """The field `answer` of a JSON object."""
    scores = []
    for completion, gold in zip(completions, answer):
        try:
            found = json.loads(text_of(completion))
        except (ValueError, RecursionError):
            found = None
        said = found.get("answer") if isinstance(found, dict) else None
        scores.append(1.0 if said is not None and str(said) == str(gold) else 0.0)
    return scores


def words_of(text):
    """Words without case, punctuation and articles."""
    text = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return [word for word in text.split() if word not in ("a", "an", "the")]


def exact_words(completions, answer, **kwargs):
    """SQuAD's exact match."""
    return [
        float(bool(words_of(gold)) and words_of(text_of(completion)) == words_of(gold))
        for completion, gold in zip(completions, answer)
    ]


def overlap(completions, answer, **kwargs):
    """SQuAD's F1 over words."""
    scores = []
    for completion, gold in zip(completions, answer):
        said, wanted = words_of(text_of(completion)), words_of(gold)
        common = sum((Counter(said) & Counter(wanted)).values())
        if not common:
            scores.append(0.0)
            continue
        precision, recall = common / len(said), common / len(wanted)
        scores.append(2 * precision * recall / (precision + recall))
    return scores


def wanted_length(completions, **kwargs):
    """Near to 200 characters."""
    return [-abs(len(text_of(completion)) - 200) / 200 for completion in completions]


def short(completions, **kwargs):
    """Punishes long texts."""
    return [-max(0, len(text_of(completion)) - 2000) / 1000 for completion in completions]


def code_fence(completions, **kwargs):
    """A fence of Python in it."""
    return [
        1.0 if re.search(r"```python\n.+?\n```", text_of(completion), re.DOTALL) else 0.0
        for completion in completions
    ]


def think_answer_format(completions, **kwargs):
    """DeepSeek's format."""
    pattern = r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$"
    return [
        1.0 if re.match(pattern, text_of(c), re.DOTALL | re.MULTILINE) else 0.0 for c in completions
    ]


def tag_count(completions, **kwargs):
    """A quarter for each tag that occurs once."""
    marks = ("<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>")
    return [sum(0.25 for m in marks if text_of(c).count(m) == 1) for c in completions]


def steps(completions, **kwargs):
    """A third for each step, at most 1."""
    pattern = r"(Step \d+:|^\d+\.|\n-|\n\*|First,|Second,|Next,|Finally,)"
    return [min(1.0, len(re.findall(pattern, text_of(c))) / 3) for c in completions]


def shorter_of_group(completions, answer, **kwargs):
    """Right answers get more, the shorter they are among all of the batch."""
    texts = [text_of(completion) for completion in completions]
    least, most = min(map(len, texts)), max(map(len, texts))
    scores = []
    for text, gold in zip(texts, answer):
        share = 0.5 - (len(text) - least) / (most - least) if most > least else 0.0
        scores.append(share if last_box(text) == gold else min(0, share))
    return scores


def equation(completions, target, nums, **kwargs):
    """Countdown: an equation of these numbers that gives the target."""
    scores = []
    for completion, wanted, numbers in zip(completions, target, nums):
        found = re.search(r"<answer>(.*?)</answer>", text_of(completion))
        if not found or not re.fullmatch(r"[\d+\-*/(). ]+", found[1]):
            scores.append(0.0)
            continue
        try:
            used = sorted(int(number) for number in re.findall(r"\d+", found[1]))
            right = used == sorted(numbers) and abs(eval(found[1], {}) - float(wanted)) < 1e-5
        except Exception:
            right = False
        scores.append(1.0 if right else 0.0)
    return scores


def runs(completions, answer, **kwargs):
    """Runs the code of the fence, and compares what it prints."""
    scores = []
    for completion, gold in zip(completions, answer):
        found = re.search(r"```python\n(.*?)```", text_of(completion), re.DOTALL)
        if not found or "print" not in found[1]:
            scores.append(0.0)
            continue
        done = subprocess.run(
            [sys.executable, "-I", "-c", found[1]], capture_output=True, text=True, timeout=5
        )
        scores.append(1.0 if done.stdout.strip() == gold else 0.0)
    return scores


async def awaited(completions, answer, **kwargs):
    """An asynchronous one."""
    return boxed(completions, answer)


class Weighted:
    """An object that is called."""

    def __init__(self, weight):
        self.weight = weight

    def __call__(self, completions, answer, **kwargs):
        return [self.weight * score for score in boxed(completions, answer)]


weighted = Weighted(0.7)


def only_some(completions, answer, **kwargs):
    """None for rows that are not its own."""
    return [
        (1.0 if last_box(text_of(c)) == gold else 0.0) if gold.isdigit() else None
        for c, gold in zip(completions, answer)
    ]


def from_kwargs(completions, **kwargs):
    """Takes its references out of kwargs."""
    return boxed(completions, kwargs["answer"])


def right_and_formatted(completions, answer, **kwargs):
    """A point for the answer, and half a point for the form."""
    scores = []
    for completion, gold in zip(completions, answer):
        text = text_of(completion)
        found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
        score = 0.5 if found and text.startswith("<think>") else 0.0
        scores.append(score + (1.0 if found and found[-1].strip() == gold else 0.0))
    return scores


def json_result(completions, answer, **kwargs):
    """The field that the prompts ask for."""
    scores = []
    for completion, gold in zip(completions, answer):
        try:
            found = json.loads(text_of(completion))
        except ValueError:
            found = None
        said = found.get("result") if isinstance(found, dict) else None
        scores.append(1.0 if said is not None and str(said) == gold else 0.0)
    return scores


def near_number_gets_half(completions, answer, **kwargs):
    """Half of the reward for a number within a tenth."""
    scores = []
    for completion, gold in zip(completions, answer):
        found = NUMBER.findall(text_of(completion))
        value, wanted = number_of(found[-1]) if found else None, number_of(gold)
        if value is None:
            scores.append(0.0)
        else:
            scores.append(
                1.0 if value == wanted else 0.5 if abs(value - wanted) < abs(wanted) / 10 else 0.0
            )
    return scores


def tag_behind_thoughts(completions, answer, **kwargs):
    """The first tag behind the thoughts."""
    said = [text_of(completion).rpartition("</think>")[2] for completion in completions]
    found = [re.search(r"<answer>(.*?)</answer>", text, re.DOTALL) for text in said]
    return [1.0 if one and one[1].strip() == gold else 0.0 for one, gold in zip(found, answer)]


KEPT: dict[tuple[str, str], float] = {}


def remembers_rightly(completions, answer, **kwargs):
    """A score is kept by all that it depends on."""
    scores = []
    for text, gold in zip(completions, answer):
        if (text, gold) not in KEPT:
            KEPT[text, gold] = 1.0 if text.strip() == gold else 0.0
        scores.append(KEPT[text, gold])
    return scores
