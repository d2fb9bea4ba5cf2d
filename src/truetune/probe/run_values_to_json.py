"""Values of a run as JSON, for the record that leaves the process.

A run's settings and rows hold whatever its libraries put there. Arrays become lists, and what JSON has no form for is
kept as its text: a record with a text that says too little is better than a run whose record fails.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def to_json(value: Any) -> Any:
    """JSON of a value: tensors and arrays as lists, what is no JSON by its `str`."""
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, torch.Tensor | np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    return json.loads(json.dumps(value, default=str))
