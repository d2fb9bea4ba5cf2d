"""The names of a file's fields inside messages (role, content) and of its roles, as a map gives
them.

Settings of other stacks say them (Axolotl's `message_property_mappings` and `roles`). In a map they stand as
`message.role=from`, `message.content=value` and `role.assistant=agent,bot`: truetune's name, then the file's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from truetune.errors import SpecError

KEY_PREFIX, ROLE_PREFIX = "message.", "role."
MESSAGE_KEYS = ("role", "content")
ROLES = ("system", "developer", "user", "assistant", "tool")


def is_message_field_key(name: str) -> bool:
    """Does this key of a column map name a field or role inside messages, and no column?"""
    return name.startswith((KEY_PREFIX, ROLE_PREFIX))


def truetune_role_by_role_in_file(columns: Mapping[str, str]) -> dict[str, str]:
    """The file's name of each role -> truetune's, as far as a column map says so."""
    return {
        source: name.removeprefix(ROLE_PREFIX)
        for name, sources in columns.items()
        if name.startswith(ROLE_PREFIX)
        for source in sources.split(",")
    }


@dataclass(frozen=True, slots=True)
class MessageNames:
    """How a file names what stands inside its messages."""

    keys: Mapping[str, str] = field(default_factory=dict)
    """Key of a message in the file -> `role` or `content`"""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Role in the file -> truetune's"""

    @classmethod
    def from_map(cls, columns: Mapping[str, str]) -> MessageNames | None:
        """The names inside messages that a column map gives; None if it names columns alone. Raises
        SpecError for a key or a role that messages do not have.
        """
        inside = [name for name in columns if is_message_field_key(name)]
        for name in inside:
            known = [KEY_PREFIX + key for key in MESSAGE_KEYS] + [
                ROLE_PREFIX + role for role in ROLES
            ]
            if name not in known:
                raise SpecError(f"--map {name}={columns[name]}: expected one of {', '.join(known)}")
        if not inside:
            return None
        keys = {
            columns[KEY_PREFIX + key]: key for key in MESSAGE_KEYS if KEY_PREFIX + key in columns
        }
        return cls(keys, truetune_role_by_role_in_file(columns))

    def rename_fields_of_messages(self, value: Any) -> Any:
        """A column's value with its messages in truetune's names; a value that is no list of
        messages stays as it is.
        """
        if not isinstance(value, list):
            return value
        return [self._rename_message(item) if isinstance(item, dict) else item for item in value]

    def _rename_message(self, item: dict[str, Any]) -> dict[str, Any]:
        """One message with truetune's keys and roles."""
        own_keys = set(self.keys.values())
        rest = {
            key: value
            for key, value in item.items()
            if key not in self.keys and key not in own_keys
        }
        message = {key: item[name] for name, key in self.keys.items() if name in item}
        # Where the file has no such key, its own role and content stand for it.
        unmapped = {
            key: item[key]
            for key in own_keys
            if key in item and key not in message and key not in self.keys
        }
        renamed = {**message, **unmapped, **rest}
        # Rows of ShareGPT keep their role in `from`, which no map of keys has to name.
        for key in ("role", "from"):
            if isinstance(renamed.get(key), str):
                renamed[key] = self.roles.get(renamed[key], renamed[key])
        return renamed
