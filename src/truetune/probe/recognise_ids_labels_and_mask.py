"""Recognises which tensors of a batch are its ids, its labels and its mask, whatever the loop calls them.

The names of transformers are taken as they are, and so are those that the user maps (`keys`). What is left is told by
its values, and only where they leave no doubt: ids are whole numbers below the vocabulary that are no mere mask; labels
repeat the ids wherever they are not -100, in place or one place earlier (a loop that shifts them itself). A tensor that
fits two roles gets none, and the reason says which names to map.

The trade-off: a wrong guess would call a healthy loop broken (labels taken for ids), so nothing is guessed from names
that we do not know, not even from `x` and `y`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from truetune.errors import UsageError

Key = str | int
"""A key of the user's batch, or a place in its tuple"""
IDS, LABELS, MASK = "input_ids", "labels", "attention_mask"
# Our name for labels that stand one place earlier than the ids that they repeat.
SHIFTED_LABELS = "shifted_labels"
# Ends of the names that transformers and TRL give: `KL_input_ids` are no labels, though they may repeat the ids.
LIBRARY_SUFFIXES = ("_ids", "_mask", LABELS)
IGNORED = -100
# Ids of this prefix are a prompt's: what is learned comes from another tensor, or is still to be sampled.
PROMPT_PREFIX = "prompt_"
# Our name for an unknown place of a tuple.
UNNAMED_ITEM = "item {}"


@dataclass(frozen=True)
class NamedBatch:
    """A batch by our names."""

    inputs: dict[str, Any]
    names: dict[str, Key] = field(default_factory=dict)
    """Our name -> the user's, where they differ"""
    sequence: type[Any] | None = None
    """tuple or list, where the user's batch is one"""
    reason: str = ""
    """Why no ids are known; empty where they are"""

    def inputs_in_layout_of_user_batch(self, inputs: Mapping[str, Any]) -> Any:
        """Inputs by our names, as the user's batch is laid out."""
        if self.sequence is None:
            return {self.names.get(name, name): value for name, value in inputs.items()}
        if self.sequence is torch.Tensor:
            return inputs[IDS]
        places = {place: name for name, place in self.names.items()}
        items = [inputs[places[place]] for place in range(len(places)) if places[place] in inputs]
        return items if self.sequence is list else tuple(items)


def check_keys(keys: Mapping[str, Key] | None) -> dict[str, Key]:
    """`keys` as a dictionary. Raises UsageError where it maps anything else than names to keys or places."""
    checked = dict(keys or {})
    for name, key in checked.items():
        if not isinstance(name, str) or not isinstance(key, str | int) or isinstance(key, bool):
            raise UsageError(
                f"keys: {name!r}: {key!r}: expected our name and your batch's key or place, as in "
                '{"input_ids": "tokens"} or {"input_ids": 0, "labels": 1}'
            )
    return checked


def name_batch(
    batch: Any, keys: Mapping[str, Key] | None = None, vocabulary: int | None = None
) -> NamedBatch:
    """A batch by our names. `vocabulary` is the number of the model's embedding rows, where it is known.

    Raises UsageError where `keys` names what is not in the batch.
    """
    values, sequence = _batch_values_by_key_and_container_type(batch)
    names = _keys_that_user_maps(values, keys or {})
    if isinstance(batch, Mapping):
        names |= _keys_that_user_did_not_map(values, names)
    unknown = {
        key: value for key, value in values.items() if _is_key_without_known_name(key, names)
    }
    doubt = (
        ""
        if _has_name_of_ids_besides_prompt_ids(names)
        else _name_ids_or_say_why(names, unknown, values, vocabulary)
    )
    if IDS in names:
        _name_labels_in_place_or_shifted(names, unknown, values)
        _name_attention_mask_of_tuple(names, unknown, values)
    _name_rest_by_key_or_number(names, values)
    inputs = {name: values[key] for name, key in names.items()}
    return NamedBatch(inputs, {n: k for n, k in names.items() if n != k}, sequence, doubt)


def _name_rest_by_key_or_number(names: dict[str, Key], values: Mapping[Key, Any]) -> None:
    """Name what has no role: keys as they are, places of a tuple by their number."""
    for key in values:
        if key not in names.values():
            names[key if isinstance(key, str) else UNNAMED_ITEM.format(key)] = key


def _batch_values_by_key_and_container_type(batch: Any) -> tuple[dict[Key, Any], type[Any] | None]:
    """The values of a batch by their key or place, and what it is where it is no mapping: tuple, list or one value."""
    if isinstance(batch, Mapping):
        return dict(batch), None
    if isinstance(batch, tuple | list):
        return dict(enumerate(batch)), list if type(batch) is list else tuple
    return {0: batch}, torch.Tensor if isinstance(batch, torch.Tensor) else type(batch)


def _keys_that_user_did_not_map(
    values: Mapping[Key, Any], names: Mapping[str, Key]
) -> dict[str, Key]:
    """The keys of a batch that the user did not map, under their own names."""
    return {
        key: key
        for key in values
        if isinstance(key, str) and key not in names.values() and key not in names
    }


def unshift_labels(labels: torch.Tensor) -> torch.Tensor:
    """Labels that stand one place earlier, where transformers has them; the first place has none."""
    unshifted = torch.full_like(labels, IGNORED)
    unshifted[..., 1:] = labels[..., :-1]
    return unshifted


def _keys_that_user_maps(values: Mapping[Key, Any], keys: Mapping[str, Key]) -> dict[str, Key]:
    """The names that the user maps. Raises UsageError for a key or place that is not in the batch."""
    missing = [str(key) for key in keys.values() if key not in values]
    if missing:
        there = ", ".join(map(str, values)) or "nothing"
        raise UsageError(f"keys: {', '.join(missing)}: not in the batch, which has {there}")
    return dict(keys)


def _is_key_without_known_name(key: Key, names: Mapping[str, Key]) -> bool:
    """Is it a place of a tuple, or a key that no trainer of transformers or TRL uses for the text of a line?"""
    return key not in names.values() or (
        names.get(str(key)) == key and not str(key).endswith(LIBRARY_SUFFIXES)
    )


def _has_name_of_ids_besides_prompt_ids(names: Mapping[str, Key]) -> bool:
    """Are the ids of more than prompts among these names?"""
    return any(name.endswith(IDS) and not name.startswith(PROMPT_PREFIX) for name in names)


def _name_ids_or_say_why(
    names: dict[str, Key],
    unknown: dict[Key, Any],
    values: Mapping[Key, Any],
    vocabulary: int | None,
) -> str:
    """Name the ids; why not, where they are not known."""
    if f"{PROMPT_PREFIX}{IDS}" in names or not any(
        isinstance(value, torch.Tensor) for value in values.values()
    ):
        return (
            "the batches hold prompts alone: what is learned is sampled from the model while it"
            " trains"
        )
    candidates = {key: value for key, value in unknown.items() if _may_be_ids(value, vocabulary)}
    lines = {key: value for key, value in candidates.items() if value.dim() == 2}
    # Beside lines of ids, one number a line is a length or a class.
    candidates = lines or candidates
    _drop_labels_from_id_candidates(candidates)
    if len(candidates) == 1:
        (key,) = candidates
        _set_only_name_of_key(names, IDS, key)
        unknown.pop(key)
        return ""
    return _why_ids_are_not_known(values, candidates)


def _why_ids_are_not_known(values: Mapping[Key, Any], candidates: Mapping[Key, Any]) -> str:
    """Why no part of a batch is surely the ids: several may be, none can be, or the batch holds texts."""
    shapes = ", ".join(f"{key} ({_describe_shape(value)})" for key, value in values.items())
    if not candidates and any(map(_are_texts, values.values())):
        return (
            f"the batch holds texts ({shapes}), which the model tokenizes by itself: what it learns of them is not"
            " seen here"
        )
    which = "none of its tensors can be ids"
    if candidates:
        which = f"{' and '.join(map(str, candidates))} may be the ids"
    return f"{which}: the batch has {shapes}; name them, as in keys={{'input_ids': ...}}"


def _are_texts(value: Any) -> bool:
    """Is it a list of texts, or of lists of them?"""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return isinstance(value, str)


def _drop_labels_from_id_candidates(candidates: dict[Key, Any]) -> None:
    """Of two tensors that may be the ids, take out the one that is their labels, where that is certain."""
    if len(candidates) != 2:
        return
    (one, first), (two, second) = candidates.items()
    if first.shape != second.shape:
        return
    # Labels without a mask hold what the ids hold: either may be the ids, and the first one is as good.
    if _labels_repeat_ids(second, first):
        candidates.pop(two)
        return
    second_is_ahead = _labels_repeat_ids(unshift_labels(second), first)
    first_is_ahead = _labels_repeat_ids(unshift_labels(first), second)
    # Where both fit (a text of one repeated token) nothing is guessed.
    if second_is_ahead and not first_is_ahead:
        candidates.pop(two)
    elif first_is_ahead and not second_is_ahead:
        candidates.pop(one)


def _name_labels_in_place_or_shifted(
    names: dict[str, Key], unknown: dict[Key, Any], values: Mapping[Key, Any]
) -> None:
    """Name the labels, in place or shifted. Labels of that name are looked at for a shift only if they were mapped."""
    ids = values[names[IDS]]
    known = names.get(LABELS)
    if known is not None:
        if known != LABELS and _are_labels_one_place_earlier(values[known], ids):
            names.pop(LABELS)
            _set_only_name_of_key(names, SHIFTED_LABELS, known)
        return
    plain, shifted = _labels_in_place_and_shifted_candidates(unknown, ids)
    if len(plain) == 1 and not shifted:
        _set_only_name_of_key(names, LABELS, plain[0])
        unknown.pop(plain[0])
    elif len(shifted) == 1 and not plain:
        _set_only_name_of_key(names, SHIFTED_LABELS, shifted[0])
        unknown.pop(shifted[0])


def _labels_in_place_and_shifted_candidates(
    unknown: Mapping[Key, Any], ids: torch.Tensor
) -> tuple[list[Key], list[Key]]:
    """The keys of tensors that repeat the ids in place, and of those that repeat them one place earlier."""
    alike = {
        key: value
        for key, value in unknown.items()
        if _is_integer_tensor_of_shape(value, ids) and not _holds_only_zeros_and_ones(value)
    }
    plain = [key for key, value in alike.items() if _labels_repeat_ids(value, ids)]
    return plain, [key for key, value in alike.items() if _are_labels_one_place_earlier(value, ids)]


def _name_attention_mask_of_tuple(
    names: dict[str, Key], unknown: dict[Key, Any], values: Mapping[Key, Any]
) -> None:
    """Name the attention mask of a tuple: flags that are 0 on nothing but one and the same id."""
    ids = values[names[IDS]]
    if MASK in names:
        return
    candidates = [
        key
        for key, value in unknown.items()
        if isinstance(key, int)
        and _is_integer_tensor_of_shape(value, ids)
        and _holds_only_zeros_and_ones(value)
        and len(torch.unique(ids[value == 0])) <= 1
    ]
    if len(candidates) == 1:
        _set_only_name_of_key(names, MASK, candidates[0])


def _set_only_name_of_key(names: dict[str, Key], name: str, key: Key) -> None:
    """Give a key this name, and no other."""
    for other in [other for other, taken in names.items() if taken == key]:
        del names[other]
    names[name] = key


def _may_be_ids(value: Any, vocabulary: int | None) -> bool:
    """May the value be ids: a tensor of whole numbers below the vocabulary, and neither flags nor
    positions?
    """
    if not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex():
        return False
    if (
        value.dtype == torch.bool
        or value.dim() not in (1, 2)
        or value.numel() < 2
        or _holds_only_zeros_and_ones(value)
    ):
        return False
    # Beyond the vocabulary the model's embedding would fail, so these are no ids.
    least, most = int(value.min()), int(value.max())
    return least >= 0 and (vocabulary is None or most < vocabulary) and not _holds_positions(value)


def _holds_only_zeros_and_ones(value: torch.Tensor) -> bool:
    """Does it hold nothing but 0 and 1?"""
    return value.dtype == torch.bool or bool(((value == 0) | (value == 1)).all())


def _holds_positions(value: torch.Tensor) -> bool:
    """Positions: each one higher than the one before, or restarted at 0."""
    steps = value[..., 1:] - value[..., :-1]
    return value.shape[-1] > 1 and bool(((steps == 1) | (value[..., 1:] == 0)).all())


def _is_integer_tensor_of_shape(value: Any, ids: torch.Tensor) -> bool:
    """Is it a tensor of whole numbers, one for each of the ids?"""
    return (
        isinstance(value, torch.Tensor)
        and value.shape == ids.shape
        and not value.is_floating_point()
    )


def _labels_repeat_ids(labels: torch.Tensor, ids: torch.Tensor) -> bool:
    """Are these the ids wherever they are not -100, at one place at least?"""
    # A mask alone, without one position in the loss, repeats everything.
    kept = labels != IGNORED
    return bool(kept.any()) and bool((labels[kept] == ids[kept]).all())


def _are_labels_one_place_earlier(labels: Any, ids: torch.Tensor) -> bool:
    """Are these labels that repeat the ids one place earlier, and not in place?"""
    if (
        not _is_integer_tensor_of_shape(labels, ids)
        or ids.shape[-1] < 2
        or _labels_repeat_ids(labels, ids)
    ):
        return False
    return _labels_repeat_ids(unshift_labels(labels), ids)


def _describe_shape(value: Any) -> str:
    """`int64 4x512`; the type's name of what is no tensor."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {'x'.join(map(str, value.shape))}"
    return type(value).__name__


def unreadable_reasons(batches: Sequence[NamedBatch]) -> Iterator[str]:
    """Why no line can be read of these batches; nothing where one can."""
    if batches and all(batch.reason for batch in batches):
        yield from dict.fromkeys(batch.reason for batch in batches)
