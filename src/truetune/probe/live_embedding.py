"""The input embedding of a model in memory, of which single rows are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from truetune.probe.record_run_ready_to_train import unwrap_model


class LiveEmbedding:
    """A weight of (rows, width), on any device."""

    name = "input embedding"
    where = "the model in memory"

    def __init__(self, weight: torch.Tensor) -> None:
        self._weight = weight

    @property
    def row_count(self) -> int:
        """The number of rows of the embedding."""
        return len(self._weight)

    def rows(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The rows of these ids: (ids, width)."""
        with torch.no_grad():
            # Single rows: the whole matrix of a large model is gigabytes in float32.
            values = self._weight[torch.as_tensor(ids, device=self._weight.device)]
        return np.asarray(values.float().cpu().numpy())


def live_embedding(model: Any) -> LiveEmbedding | None:
    """The input embedding of a model; None where it is not whole in this process, or not made of floats."""
    inner = unwrap_model(model)
    layer = inner.get_input_embeddings() if hasattr(inner, "get_input_embeddings") else None
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.dim() != 2 or not weight.is_floating_point():
        return None
    return LiveEmbedding(weight) if len(weight) and weight.device.type != "meta" else None
