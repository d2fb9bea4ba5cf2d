"""The audit as a plugin of Axolotl: `plugins: [truetune.axolotl.AuditPlugin]` in the YAML.

Axolotl imports the class by that name, asks it for the YAML keys that it adds (`truetune_audit`), and takes its
callbacks when the trainer is made. The plugin adds one `truetune.AuditCallback`, and changes nothing else.

The trade-off: this module imports Axolotl's base class, so it can be imported only where Axolotl is installed, and
truetune has to be in that environment. `truetune run -- axolotl train axolotl.yaml` needs neither.
"""

from __future__ import annotations

from typing import Any, Literal

from axolotl.integrations.base import BasePlugin
from pydantic import BaseModel, ConfigDict

from truetune.callback import AuditCallback
from truetune.settings.run_spec import Severity


class AuditSettings(BaseModel):
    """What `truetune_audit` may hold: settings of `truetune.AuditCallback`, with its defaults."""

    model_config = ConfigDict(extra="forbid")

    on_error: Literal["stop", "warn"] = "stop"
    fail_on: Severity = "error"
    batches: int = 8
    laws: str | list[str] = "quick"
    select: list[str] = []
    ignore: list[str] = []
    report_to_trackers: bool = True


class AuditArguments(BaseModel):
    """The keys that the plugin adds to an Axolotl YAML."""

    truetune_audit: AuditSettings | None = None


class AuditPlugin(BasePlugin):  # type: ignore[misc]  # Axolotl has no types
    """Adds `truetune.AuditCallback` to Axolotl's trainer."""

    def get_input_args(self) -> str:
        """The name of the class that holds the plugin's YAML keys; Axolotl imports it."""
        return "truetune.axolotl.AuditArguments"

    def add_callbacks_post_trainer(self, cfg: Any, trainer: Any) -> list[Any]:
        """Make the callback, once the trainer is made and before it trains.

        Args:
            cfg: Axolotl's settings.
            trainer: the trainer that the callback will be added to.

        Returns:
            The one callback.

        Raises:
            pydantic.ValidationError: `truetune_audit` holds a key that it has not. Axolotl has validated its YAML by
                then, so this is for settings that were made otherwise.
        """
        given = cfg.get("truetune_audit") or {}
        settings = AuditSettings.model_validate(dict(given))
        return [AuditCallback(**settings.model_dump())]
