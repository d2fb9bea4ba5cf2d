import random
from pathlib import Path

from bench.starts.material import write_lines

NAMES = ("Maya", "Tom", "Priya", "Oleg", "Sara", "Ben", "Lucia", "Ahmed", "Ines", "Kofi", "Wei")
THINGS = ("pencils", "oranges", "stickers", "marbles", "bagels", "tickets", "bottles", "shells")
OPENINGS = (
    "Let's work through this step by step.",
    "Let me solve this carefully.",
    "We can break the problem into parts.",
    "To answer, we follow the quantities one after another.",
    "We need to keep track of every change.",
)
LENGTH = 218
"""Characters of 64 tokens of such text"""


def make(folder: Path) -> None:
    """200 answers to word problems that end where 64 tokens do; the judge looks for #### after that."""
    rows = []
    for number in range(200):
        drawn = random.Random(1000 + number)
        question, sentences, answer = drawn.choice((_boxes, _days, _bags, _times))(drawn)
        steps = (f"\n\nStep {at}: {text}" for at, text in enumerate(sentences, 1))
        whole = f"{drawn.choice(OPENINGS)}{''.join(steps)}\n\n#### {answer}"
        limit = LENGTH + drawn.randint(-14, 14)
        kept = whole if len(whole) <= limit else whole[:limit].rpartition(" ")[0]
        rows.append({"question": question, "prediction": kept, "answer": str(answer)})
    write_lines(folder / "predictions.jsonl", rows)


def _boxes(drawn: random.Random) -> tuple[str, list[str], int]:
    (one, other), thing = drawn.sample(NAMES, 2), drawn.choice(THINGS)
    boxes, each = drawn.randint(3, 14), drawn.randint(4, 25)
    given, price = drawn.randint(2, 9), drawn.randint(2, 12)
    left = boxes * each - given
    question = f"{one} buys {boxes} boxes with {each} {thing} each. {one} gives {given} {thing} to "
    question += (
        f"{other} and sells the rest for ${price} apiece. How much money does {one} take in?"
    )
    first = f"{one} buys {boxes} boxes of {each} {thing}, so there are {boxes} * {each} = "
    second = f"After giving {given} of them to {other}, {one} still has {boxes * each} - {given} = "
    third = (
        f"Each of the remaining {thing} is sold for ${price}, so {one} takes in {left} * {price} = "
    )
    sentences = [
        f"{first}{boxes * each} {thing} at the start.",
        f"{second}{left} {thing}.",
        f"{third}{left * price} dollars.",
    ]
    return question, sentences, left * price


def _days(drawn: random.Random) -> tuple[str, list[str], int]:
    (one, other), thing = drawn.sample(NAMES, 2), drawn.choice(THINGS)
    days, each, fewer = drawn.randint(3, 14), drawn.randint(10, 25), drawn.randint(2, 9)
    mine, yours = each * days, (each - fewer) * days
    question = (
        f"{one} collects {each} {thing} a day for {days} days. {other} collects {fewer} fewer "
    )
    question += f"{thing} a day over the same time. How many {thing} do they have together?"
    sentences = [
        f"First find out how many {thing} {one} collects: {each} a day for {days} days gives {mine}.",
        f"{other} collects {fewer} fewer each day, that is {each} - {fewer} = {each - fewer} a day.",
        f"Over {days} days {other} collects {each - fewer} * {days} = {yours} {thing}.",
        f"Together that makes {mine} + {yours} = {mine + yours} {thing}.",
    ]
    return question, sentences, mine + yours


def _bags(drawn: random.Random) -> tuple[str, list[str], int]:
    name, thing = drawn.choice(NAMES), drawn.choice(THINGS)
    each, bags = drawn.randint(3, 14), drawn.randint(4, 25)
    loose, taken = drawn.randint(2, 9), drawn.randint(2, 12)
    packed = each * bags
    left = packed + loose - taken
    question = f"A shop packs {thing} in bags of {each}. It has {bags} full bags and {loose} loose "
    question += f"{thing}. {name} takes {taken} {thing} out. How many are left?"
    sentences = [
        f"The full bags hold {bags} * {each} = {packed} {thing}.",
        f"With the loose ones there are {packed} + {loose} = {packed + loose}.",
        f"{name} takes {taken} out, so {packed + loose} - {taken} = {left} are left.",
    ]
    return question, sentences, left


def _times(drawn: random.Random) -> tuple[str, list[str], int]:
    (one, other), thing = drawn.sample(NAMES, 2), drawn.choice(THINGS)
    times, has = drawn.randint(3, 14), drawn.randint(4, 25)
    lost, found = drawn.randint(2, 9), drawn.randint(2, 12)
    first = times * has
    last = first - lost + found
    question = f"{one} has {times} times as many {thing} as {other}, who has {has}. {one} loses "
    question += f"{lost} of them and then finds {found} more. How many {thing} do they have in all?"
    sentences = [
        f"{other} has {has} {thing} and {one} has {times} times as many, so {one} has {first}.",
        f"After losing {lost} there are {first} - {lost} = {first - lost} {thing}.",
        f"Finding {found} more gives {first - lost} + {found} = {last}.",
        f"In all they have {last} + {has} = {last + has} {thing}.",
    ]
    return question, sentences, last + has
