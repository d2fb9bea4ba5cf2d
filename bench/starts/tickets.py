"""Invented rows of a support desk: the tickets that the readers of the third set wrote their starts with."""

from __future__ import annotations

import random
from collections.abc import Iterator

from bench.starts.material import Json

NAMES = (
    "Anna",
    "Ben",
    "Carla",
    "Dmitri",
    "Elif",
    "Farid",
    "Greta",
    "Hugo",
    "Ines",
    "Jonas",
    "Kaito",
    "Lena",
    "Marco",
    "Nadia",
    "Omar",
    "Petra",
)
ITEMS = (
    "kettle",
    "desk lamp",
    "running shoes",
    "rain jacket",
    "bluetooth speaker",
    "coffee grinder",
    "backpack",
    "yoga mat",
    "office chair",
    "phone case",
    "bike helmet",
    "air fryer",
)
CITIES = (
    "Leeds",
    "Porto",
    "Graz",
    "Lyon",
    "Ghent",
    "Turin",
    "Cork",
    "Malmö",
    "Bilbao",
    "Utrecht",
)
PROBLEMS = (
    "arrived with a crack in the side",
    "does not switch on any more",
    "is a size too small",
    "never showed up although tracking says delivered",
    "makes a grinding noise after two days",
    "came in the wrong colour",
    "was charged to my card twice",
    "has a missing screw in the bag",
)
ENDINGS = (
    "What now?",
    "Can you help me with that?",
    "I want a refund.",
    "Please advise.",
    "This is the second time!",
)
REPLIES = (
    "We will send a replacement from {city} today; you need not return the {item}.",
    "Please hold the power button of the {item} for ten seconds, then charge it for two hours. "
    "If nothing happens we exchange it.",
    "Print the label from your account, put the {item} back in its box and we refund you within "
    "{number} days.",
    "I have opened a claim with the carrier in {city}. You get your money back by the {number}th "
    "if it is not found.",
    "The second booking was a reservation only and disappears after {number} working days.",
    "I can offer {number} euros off your next order, or a full exchange of the {item}. "
    "Which do you prefer, {name}?",
    "The screw is sold as part KX-{number}{number}; I have put one in the post to {city} free of "
    "charge.",
)


class Desk:
    """Draws tickets and replies; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self.drawn = random.Random(seed)

    def ticket(self) -> tuple[str, str]:
        """A customer's question, and the item that it is about."""
        pick = self.drawn.choice
        item = pick(ITEMS)
        order = self.drawn.randint(10000, 99999)
        opening = f"Hello, this is {pick(NAMES)} from {pick(CITIES)}."
        return f"{opening} My {item} (order {order}) {pick(PROBLEMS)}. {pick(ENDINGS)}", item

    def reply(self, item: str) -> str:
        """An answer about an item."""
        pick = self.drawn.choice
        number = self.drawn.randint(3, 28)
        text = pick(REPLIES).format(city=pick(CITIES), item=item, number=number, name=pick(NAMES))
        thanks = f" Thank you for your patience, {pick(NAMES)}."
        return text + pick(("", " Sorry for the trouble.", thanks))

    def pairs(self, count: int) -> Iterator[tuple[str, str]]:
        """Questions with their answers."""
        for _ in range(count):
            question, item = self.ticket()
            yield question, self.reply(item)

    def chats(self, count: int, system: str = "") -> Iterator[Json]:
        """Questions and answers as messages."""
        first = [{"role": "system", "content": system}] if system else []
        for question, answer in self.pairs(count):
            turns = (("user", question), ("assistant", answer))
            yield {"messages": [*first, *({"role": role, "content": text} for role, text in turns)]}
