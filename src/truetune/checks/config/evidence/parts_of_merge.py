"""The parts of a merge in mergekit's YAML: its models and slices, each with the key that leads to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from truetune.settings.config import Config


class MergedModel(NamedTuple):
    """A model that a merge takes, whole or some of its layers."""

    key: str
    """`models.0`, `slices.1.sources.0`"""
    table: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The model as the file names it."""
        return str(self.table.get("model", ""))

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters of this model alone."""
        parameters_setting = self.table.get("parameters")
        return parameters_setting if isinstance(parameters_setting, Mapping) else {}

    @property
    def layers(self) -> tuple[int, int] | None:
        """The first layer that is taken, and the one behind the last; None where the model is taken whole."""
        layer_range_setting = self.table.get("layer_range")
        if (
            isinstance(layer_range_setting, list)
            and len(layer_range_setting) == 2
            and all(type(one) is int for one in layer_range_setting)
        ):
            return layer_range_setting[0], layer_range_setting[1]
        return None


def merged_models(config: Config) -> Iterator[MergedModel]:
    """The models of a merge, in the order of the file."""
    models = config.raw.get("models")
    for index, table in enumerate(models if isinstance(models, list) else ()):
        if isinstance(table, Mapping):
            yield MergedModel(f"models.{index}", table)
    for sources in slices_of_merge(config):
        yield from sources


def slices_of_merge(config: Config) -> list[list[MergedModel]]:
    """The slices of a merge, which are put one behind the other, each with its sources."""
    slices = config.raw.get("slices")
    found: list[list[MergedModel]] = []
    for number, table in enumerate(slices if isinstance(slices, list) else ()):
        sources = table.get("sources") if isinstance(table, Mapping) else None
        found.append(
            [
                MergedModel(f"slices.{number}.sources.{index}", source)
                for index, source in enumerate(sources if isinstance(sources, list) else ())
                if isinstance(source, Mapping)
            ]
        )
    return found
