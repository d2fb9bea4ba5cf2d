"""Finds listings of files that a script joins by position, although each is in another order, or in
none that is fixed.

How it works: each side of a `zip`, or of one index in a loop, is followed to what lists a folder
(`glob`, `iterdir`, `os.listdir`), with the `sorted` or `sort` around it and the key of that. A key
is of the number in the name, of the name, or unknown. Where the folders lie here, the files
themselves are put into both orders: names of as many digits are in one order by either key.

The trade-off: a side that is filtered, or whose key is not plain, is not judged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from truetune.source.parsed_source_file import Module

LISTINGS = ("glob.glob", "glob.iglob", "os.listdir", "os.scandir")
LISTING_METHODS = ("glob", "rglob", "iterdir")
NATURAL_SORTS = ("natsort.natsorted", "natsort.os_sorted")
SAME_ITEMS = ("list", "tuple", "tqdm.tqdm", "tqdm.auto.tqdm", "iter")
NUMBER_KEY = re.compile(r"\b(?:int|float)\(")
NAME_KEY = re.compile(
    r"(?:str|os\.fspath|os\.path\.basename)(?:\(\w+\))?|lambda (\w+): \1(?:\.name|\.stem|\.as_posix\(\))?"
)
AS_GIVEN, BY_NAME, BY_NUMBER = "unsorted", "name", "number"
WORDS = {
    AS_GIVEN: "in the order of the file system",
    BY_NAME: "by name (1, 10, 100, 2)",
    BY_NUMBER: "by number (1, 2, 3)",
}
MAX_STEPS = 6
"""Names and calls between a zip and what lists the folder. Chosen; scripts have two or three"""
MAX_FILES = 20_000
"""Files of a folder that are put in order; of a larger one it is not said what stands where, for a part of the files
would be in another order. Chosen, not measured: folders of texts or pictures hold some thousands"""
DIGITS = re.compile(r"\d{1,18}")


class Listing(NamedTuple):
    """The files of a folder, in an order."""

    order: str
    node: ast.AST
    """What sorts or lists them"""
    folder: str
    """Empty where the code does not name it plainly"""
    is_reversed: bool = False


class ListingsJoined(NamedTuple):
    """A join of two listings whose orders differ."""

    node: ast.AST
    sides: tuple[Listing, Listing]
    is_seen: bool
    """The files lie here, and stand in other orders"""


def listings_joined_in_different_orders(module: Module) -> Iterator[ListingsJoined]:
    """The joins by position of listings that are in different orders, or in none that is fixed."""
    for node, given in _joins_by_position(module):
        sides = [_listing_of(module, side, 0) for side in given]
        known = [side for side in sides if side is not None]
        if len(sides) < 2 or len(known) != len(sides):
            continue
        other = next((side for side in known[1:] if not _have_same_order(known[0], side)), None)
        if other is None:
            continue
        differs = _orders_differ_on_disk(Path(module.path).parent, known[0], other)
        if differs is not False:
            yield ListingsJoined(node, (known[0], other), differs is True)


def _joins_by_position(module: Module) -> Iterator[tuple[ast.AST, list[ast.expr]]]:
    """The places that join lists by position, each with its lists: `zip`, and one index in a loop."""
    for call in module.calls("zip"):
        yield call.node, list(call.args)
    loops: list[ast.For | ast.comprehension] = [
        *module.nodes(ast.For),
        *module.nodes(ast.comprehension),
    ]
    for loop in loops:
        counter, walked = _index_and_iterables_of_loop(module, loop)
        around = loop if isinstance(loop, ast.For) else module.scopes.parent.get(loop)
        if counter and around is not None:
            lists = [*walked, *_names_indexed_by(around, counter)]
            by_text = {ast.unparse(one): one for one in lists}
            yield loop.iter, list(by_text.values())


def _index_and_iterables_of_loop(
    module: Module, loop: ast.For | ast.comprehension
) -> tuple[str, list[ast.expr]]:
    """The name of the index of a loop, and what it walks through with it; empty where it has none."""
    iterated = loop.iter
    if not isinstance(iterated, ast.Call) or not iterated.args:
        return "", []
    call = module.flow.call(iterated)
    if call.named("range") and isinstance(loop.target, ast.Name):
        return loop.target.id, []
    parts = loop.target.elts if isinstance(loop.target, ast.Tuple) else []
    # With another first number the index is of another row.
    if call.named("enumerate") and parts and len(iterated.args) == 1 and not iterated.keywords:
        first = parts[0]
        return (first.id if isinstance(first, ast.Name) else ""), [iterated.args[0]]
    return "", []


def _names_indexed_by(around: ast.AST, counter: str) -> Iterator[ast.expr]:
    """The names that are taken at an index: `summaries[i]`."""
    for node in ast.walk(around):
        is_item = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)
        if is_item and isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            if isinstance(node.slice, ast.Name) and node.slice.id == counter:
                yield node.value


def _have_same_order(one: Listing, other: Listing) -> bool:
    """Do two listings go through names in the same order? Two folders are listed in no order that
    is fixed.
    """
    if one.order == other.order == AS_GIVEN:
        return one.node is other.node or not one.folder or one.folder == other.folder
    return one.order == other.order and one.is_reversed == other.is_reversed


def _listing_of(module: Module, node: ast.expr, depth: int) -> Listing | None:
    """The listing that an expression goes through, one item for each file; None for anything else."""
    if depth > MAX_STEPS:
        return None
    if isinstance(node, ast.Name):
        return _listing_of_name(module, node, depth)
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        source = node.generators[0]
        is_plain = len(node.generators) == 1 and not source.ifs
        return _listing_of(module, source.iter, depth + 1) if is_plain else None
    return _listing_of_call(module, node, depth) if isinstance(node, ast.Call) else None


def _listing_of_name(module: Module, node: ast.Name, depth: int) -> Listing | None:
    """The listing that a name stands for which is set once, in the order of the `sort` that it goes
    through; None otherwise.
    """
    origins = [origin.node for origin in module.flow.origins(node)]
    if len(origins) != 1 or not isinstance(origins[0], ast.expr) or origins[0] is node:
        return None
    listing = _listing_of(module, origins[0], depth + 1)
    sorts = [
        call
        for call in module.methods("sort", "reverse")
        if isinstance(call.receiver, ast.Name) and call.receiver.id == node.id
    ]
    if listing is None or not sorts:
        return listing
    if len(sorts) > 1 or sorts[0].method != "sort":
        return None
    return _sorted_listing(
        module,
        listing,
        sorts[0].node,
        sorts[0].keywords.get("key"),
        sorts[0].keywords.get("reverse"),
    )


def _listing_of_call(module: Module, node: ast.Call, depth: int) -> Listing | None:
    """The listing that a call makes, sorts or hands on."""
    call = module.flow.call(node)
    if call.named(*LISTINGS) or (call.method in LISTING_METHODS and call.receiver is not None):
        return Listing(AS_GIVEN, node, _folder_of(module, node))
    if not call.args:
        return None
    inner = _listing_of(module, call.args[0], depth + 1)
    if inner is None:
        return None
    if call.named("sorted"):
        return _sorted_listing(
            module, inner, node, call.keywords.get("key"), call.keywords.get("reverse")
        )
    if call.named(*NATURAL_SORTS):
        return inner._replace(order=BY_NUMBER, node=node)
    return inner if call.named(*SAME_ITEMS) else None


def _sorted_listing(
    module: Module,
    listing: Listing,
    node: ast.AST,
    key: ast.expr | None,
    is_reversed: ast.expr | None,
) -> Listing | None:
    """The listing after a sort; None where the key or direction of the sort is not plain."""
    function = (
        module.flow.function_that_expression_names(key) if isinstance(key, ast.Name) else None
    )
    order = BY_NAME if key is None else _order_of_key(ast.unparse(function or key))
    if order is None or not (is_reversed is None or isinstance(is_reversed, ast.Constant)):
        return None
    turned = isinstance(is_reversed, ast.Constant) and bool(is_reversed.value)
    return Listing(order, node, listing.folder, turned)


def _order_of_key(key: str) -> str | None:
    """What a key sorts by; None where that is not plain."""
    if NUMBER_KEY.search(key):
        return BY_NUMBER
    return BY_NAME if NAME_KEY.fullmatch(key) else None


def _folder_of(module: Module, node: ast.Call) -> str:
    """The folder that a call lists, as the code names it; empty where it does not plainly."""
    call = module.flow.call(node)
    given = (
        call.receiver if call.method in LISTING_METHODS else (call.args[0] if call.args else None)
    )
    producer = module.flow.producing_call(given) if given is not None else None
    if producer is not None and producer.named("pathlib.Path") and len(producer.args) == 1:
        given = producer.args[0]
    value = module.flow.value(given)
    if not isinstance(value, str):
        return ""
    return value if call.method in LISTING_METHODS or "*" not in value else str(Path(value).parent)


def _orders_differ_on_disk(beside: Path, one: Listing, other: Listing) -> bool | None:
    """Do the files that lie here stand in other orders by both? None where they do not lie here."""
    if AS_GIVEN in (one.order, other.order):
        return None
    orders = [_file_numbers_in_order(beside, listing) for listing in (one, other)]
    if not all(orders):
        return None
    return orders[0] != orders[1]


def _file_numbers_in_order(beside: Path, listing: Listing) -> list[int]:
    """The numbers in the names of the files of a folder, in the order of a listing; none where that
    is not known.
    """
    if not listing.folder:
        return []
    try:
        names = [path.name for path in islice((beside / listing.folder).iterdir(), MAX_FILES + 1)]
    except (OSError, ValueError):
        return []  # a name with a null byte is a ValueError
    if len(names) > MAX_FILES:
        return []
    numbers = [(int(match.group()), name) for name in names if (match := DIGITS.search(name))]
    by_name = sorted(numbers, key=lambda pair: pair[1])
    ordered = by_name if listing.order == BY_NAME else sorted(numbers)
    ordered = ordered[::-1] if listing.is_reversed else ordered
    return [number for number, _ in ordered]
