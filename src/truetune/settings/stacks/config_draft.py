"""ConfigDraft: a Config while a stack's reader fills it, which notes where each key is and which
were asked for.

A reader asks the draft for the file's keys (`get`, `take`) and tells it the fields (`put`). The draft notes where
each key stands and which were asked for. So each field has its line without the readers doing anything for it, and
what a release knows and no reader asked for is kept in `training.other`: nothing of a file is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from truetune.errors import SpecError
from truetune.settings.config import Config, RenamedKey, SettingLocation, Stack
from truetune.settings.located_document import KeyPath, LocatedDocument, parse_located_document
from truetune.settings.release_pins import Pins
from truetune.settings.release_windows_of_removed_names import REMOVAL_WINDOWS
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.known_keys import DEPRECATED_KEYS, RENAMED_KEYS
from truetune.settings.training_settings import Training
from truetune.trainers import TRAINERS
from truetune.trainers.trainer_fact_types import parse_trainer_name


class _Unknown:
    """The type of the one value that stands for an unknown one; it is false."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        return False


UNKNOWN_VALUE = _Unknown()
"""A value that is set, but cannot be told without running the program; its field stays as if nothing were known."""


def holds_unknown_value(value: Any) -> bool:
    """Is a value unknown, or does it hold an unknown one?"""
    return value is UNKNOWN_VALUE or (
        isinstance(value, (list, tuple, set)) and any(item is UNKNOWN_VALUE for item in value)
    )


SHARED_FIELDS = frozenset(Training.model_fields) - {
    "method",
    "lora",
    "load_in",
    "adapter",
    "devices",
    "fsdp",
    "deepspeed_stage",
    "other",
    "special_tokens",
    "added_tokens",
    "shuffle",
    "eval_logits_kept",
    "skip_prepare_dataset",
    "no_length_limit",
    "open_length_limit",
    "reference",
    "val_size",
    "prepared_path",
    "use_reentrant",
    "loss_type",
    "device_map",
    "dtype",
    "train_on_inputs",
    "gradient_checkpointing",
}
"""Fields of Training that transformers and TRL call the same."""


# Configs lie in `configs/` or `examples/train_lora/` of a project whose root their paths begin at: one or two folders
# up. Chosen, not measured; much more would find files of other projects.
MAX_PARENT_FOLDERS = 5
"""Folders, from the config's own upwards, that its relative paths are tried against"""
SECRET_KEY_ENDINGS = ("hub_token", "api_key", "auth_token", "webhook_url", "_secret")


@dataclass
class ConfigDraft:
    """Effective values by the stack's own keys, and the fields that they become."""

    stack: Stack
    version: str
    path: str
    values: dict[str, Any]
    """What the file sets, of what takes effect"""
    where: Mapping[str, SettingLocation]
    """Key -> where the file sets it"""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    raw: Mapping[str, Any] | None = None
    """All that the file sets, where some of it takes no effect"""
    fields: dict[str, Any] = field(default_factory=dict)
    """Field of RunSpec, with dots -> value"""
    places: dict[str, SettingLocation] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    own_prompt: bool = False
    missing: list[SettingLocation] = field(default_factory=list)
    """Data sets that are not described"""
    pins: Pins = field(default_factory=Pins)
    own_keys: bool = False
    """See Config"""
    odd: list[SettingLocation] = field(default_factory=list)
    """Keys inside of others that the stack does not know"""

    def get(self, *keys: str) -> Any:
        """The value that the file sets for the first of these keys (null counts), otherwise the
        default of the first that has one.
        """
        self.used.update(key for key in keys if key in self.values)
        for source in (self.values, self.defaults):
            for key in keys:
                if key in source:
                    return source[key]
        return None

    def put(self, name: str, value: Any, *keys: str) -> None:
        """Set a field to a value; the keys it comes from say where it is set."""
        place = next(
            (self.where[key] for key in keys if key in self.values and key in self.where), None
        )
        if place is not None:
            self.places[name] = place
        if value is not None and not holds_unknown_value(value):
            self.fields[name] = value
        self.used.update(key for key in keys if key in self.values)

    def take(self, name: str, *keys: str, made: Callable[[Any], Any] = lambda value: value) -> Any:
        """Set a field to the value of the first of these keys that has one."""
        value = self.get(*keys)
        if value is not None and not holds_unknown_value(value):
            value = made(value)
        self.put(name, value, *keys)
        return value

    def take_keys_of_same_name(self) -> None:
        """Take the keys that have the same name in transformers, TRL and truetune into the draft."""
        for name in SHARED_FIELDS:
            if name in self.values or name in self.defaults:
                self.take(f"training.{name}", name)

    def table(self, key: str) -> Mapping[str, Any]:
        """The table (mapping) under a key; empty where it is not set. Raises SpecError for anything else."""
        value = self.get(key)
        if value is None or holds_unknown_value(value):
            return {}
        if isinstance(value, str) and value.startswith("{"):
            value = parse_located_document(value, self.at(key)).value
        if not isinstance(value, dict):
            raise SpecError(f"{self.at(key)}: {key}: expected keys and values, found {value!r}")
        return value

    def at(self, *keys: str) -> str:
        """`FILE:LINE` of the first of these keys."""
        place = next((self.where[key] for key in keys if key in self.where), None)
        return f"{place.file}:{place.line}" if place is not None else self.path

    def find(self, name: str) -> Path | None:
        """The file or folder that the config names: from the current folder, the config's folder,
        or one above it. None if it is not here.
        """
        # The system raises ValueError for a path with a NUL, not OSError.
        if "://" in name or "\0" in name:
            return None
        wanted = Path(name).expanduser()
        above = [folder for folder in Path(self.path).absolute().parents if folder != folder.parent]
        folders = [Path(), *above[:MAX_PARENT_FOLDERS]]
        try:
            return next((folder / wanted for folder in folders if (folder / wanted).exists()), None)
        except OSError:
            return None

    def local_folder_or_name(self, name: Any) -> str | None:
        """The local folder of a model or tokenizer if there is one, otherwise its name."""
        if not isinstance(name, str):
            return None
        path = self.find(name)
        return str(path) if path is not None else name

    def make_config(
        self, known: Iterable[str], limit: int | None, packages: tuple[str, ...]
    ) -> Config:
        """The finished Config.

        Args:
            known: the keys that the stack knows.
            limit: tokens of the longest example that takes effect.
            packages: whose renamed keys are looked for; of one key, the last that knows it counts.

        Raises:
            SpecError: with the line of a value that a field does not take.
        """
        known = set(known)
        raw = self.values if self.raw is None else self.raw
        self._set_pad_masking()
        rest = self._settings_without_own_field(known)
        self.fields["training.other"] = {**rest, **self.fields.get("training.other", {})}
        unknown = [self._location_of(key) for key in raw if key not in known]
        return Config(
            stack=self.stack,
            version=self.version,
            path=self.path,
            spec=self._make_spec(),
            places=self.places,
            unknown=(*unknown, *self.odd),
            raw=raw,
            key_places=self.where,
            text=self.text,
            limit=limit,
            own_prompt=self.own_prompt,
            renamed=self._renamed_keys(raw, known, packages),
            missing=tuple(self.missing),
            pins=self.pins,
            own_keys=self.own_keys,
            notes=tuple(self.notes),
        )

    def _location_of(self, key: str) -> SettingLocation:
        """Where a key stands; the begin of the file where that is not known."""
        return self.where.get(key, SettingLocation(self.path, 1, key))

    def _set_pad_masking(self) -> None:
        """Set how the stack's collator finds pads in the labels."""
        # A script on transformers may bring a collator of its own: settings alone do not say how it masks.
        if self.stack == "transformers":
            return
        # LLaMA-Factory takes transformers' collator for language modelling in this stage alone.
        is_pretraining = self.fields.get("training.method") == "pretrain"
        if self.stack == "llama-factory" and is_pretraining:
            self.fields["training.pads_masked_by"] = "id"
            return
        trainer = parse_trainer_name(self.stack)
        self.fields["training.pads_masked_by"] = (
            TRAINERS[trainer].pads_masked_by.value if trainer else None
        )

    def _settings_without_own_field(self, known: set[str]) -> dict[str, Any]:
        """The settings that have no field of ours. Tokens and passwords are left out: reports print the rest."""
        return {
            key: value
            for key, value in self.values.items()
            if key in known
            and key not in self.used
            and value is not None
            and not key.endswith(SECRET_KEY_ENDINGS)
        }

    def _renamed_keys(
        self, raw: Iterable[str], known: set[str], packages: tuple[str, ...]
    ) -> tuple[RenamedKey, ...]:
        """The keys of the file that earlier releases of these packages knew."""
        # A deprecated key is known and renamed at once; any other known key has its own meaning today.
        with_meaning = known - DEPRECATED_KEYS
        renames: dict[str, tuple[str, str | None]] = {}
        for package in packages:
            for key, new_name in RENAMED_KEYS[package].items():
                if key not in with_meaning:
                    renames[key] = (package, new_name)
        return tuple(
            _renamed_key_by_release(
                self._location_of(key), key, *renames[key], of_trl=self.stack == "trl"
            )
            for key in raw
            if key in renames
        )

    def _make_spec(self) -> RunSpec:
        """The fields as a RunSpec. Raises SpecError with each value that is wrong, at its line in
        the file.
        """
        nested: dict[str, Any] = {}
        for name, value in self.fields.items():
            inner = nested
            *groups, last = name.split(".")
            for group in groups:
                inner = inner.setdefault(group, {})
            # `training.lora` may be put after `training.lora.r`.
            inner[last] = {**inner[last], **value} if isinstance(inner.get(last), dict) else value
        try:
            return RunSpec.model_validate(nested)
        except ValidationError as error:
            problems = []
            for problem in error.errors():
                message = problem["msg"]
                at = self._describe_location_of_field([str(step) for step in problem["loc"]])
                problems.append(
                    f"{at}: {message[:1].lower()}{message[1:]} (found {problem['input']!r:.80})"
                )
            # Errors of several items of one list stand at one line, and may read alike.
            raise SpecError("\n".join(dict.fromkeys(problems))) from None

    def _describe_location_of_field(self, path: Sequence[str]) -> str:
        """`FILE:LINE: KEY` of the setting that a field, or the nearest group that holds it, was read from."""
        for length in range(len(path), 0, -1):
            place = self.places.get(".".join(path[:length]))
            if place is not None:
                return f"{place.file}:{place.line}: {place.key}"
        return f"{self.path}: {'.'.join(path)}"


def _renamed_key_by_release(
    place: SettingLocation, key: str, package: str, now: str | None, *, of_trl: bool
) -> RenamedKey:
    """The record of a renamed key. TRL took some names of transformers for longer, or less long, in
    classes of its own.
    """
    by_trl = of_trl and key in REMOVAL_WINDOWS["trl"]
    owner = "trl" if by_trl else package
    return RenamedKey(place, now, owner, REMOVAL_WINDOWS[owner].get(key))


def draft_of_document(
    document: LocatedDocument,
    stack: Stack,
    version: str,
    defaults: Mapping[str, Any],
    known: Iterable[str] | None = None,
) -> ConfigDraft:
    """A draft with the file's keys and their places. Only `known` keys take effect, if the stack
    drops the others.

    Raises SpecError where the file holds something else.
    """
    value = document.value
    if not isinstance(value, dict):
        found = "nothing" if value is None else f"a {type(value).__name__}"
        raise SpecError(f"{document.path}: expected settings by name, found {found}")
    where = {str(key): location_of_keys(document, (str(key),)) for key in value}
    raw = {str(key): item for key, item in value.items()}
    taken = raw.keys() if known is None else raw.keys() & set(known)
    values = {key: item for key, item in raw.items() if key in taken}
    return ConfigDraft(stack, version, document.path, values, where, defaults, document.text, raw)


def location_of_keys(document: LocatedDocument, keys: KeyPath) -> SettingLocation:
    """Where a key stands."""
    spot = document.position_of_key(*keys)
    line, column = spot if spot is not None else (1, 1)
    return SettingLocation(document.path, line, ".".join(map(str, keys)), column)


def list_of_names(value: Any) -> list[str]:
    """A list of names, from a list or from one string with commas."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return [str(item) for item in value] if isinstance(value, (list, tuple)) else []


def is_switched_on(value: Any) -> bool:
    """Is a switch on? (`"true"` of a command line is)"""
    return value.lower() in ("true", "yes", "1", "on") if isinstance(value, str) else bool(value)
