"""The hook of a rehearsal: miniatures in the place of models, and a rehearsal where training would begin."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any

After = Callable[..., Any]


def begin(orders: dict[str, Any], name: str, after: After) -> None:
    """The package of this `name` has been imported; `after` calls when another has been."""
    if name != "transformers":
        return
    from truetune.probe.miniature import install

    install(orders)
    _end_own_loops(orders)
    trainer = "transformers.trainer"
    if trainer in sys.modules:
        patch(orders)
    else:
        after(trainer, patch, orders)


def patch(orders: dict[str, Any]) -> None:
    """Rehearse the first trainer, before the first of its callbacks learns that training begins."""
    from truetune.probe.session import session
    from truetune.probe.trainers import MadeTrainers, NewTrainer, trainer_of_frames

    trainer: Any = sys.modules["transformers.trainer"].Trainer
    handlers: Any = sys.modules["transformers.trainer_callback"].CallbackHandler
    made = MadeTrainers()
    numbers = count(1)
    former = handlers.on_train_begin
    trainer.__new__ = NewTrainer(trainer, made.note)

    @wraps(former)
    def on_train_begin(handler: Any, *args: Any, **kwargs: Any) -> Any:
        found = trainer_of_frames()
        if found is not None:
            session(found, handler.train_dataloader, made.take_dataset(found), orders, next(numbers))
        return former(handler, *args, **kwargs)

    handlers.on_train_begin = on_train_begin
    with suppress(OSError):  # the parent has gone
        Path(orders["folder"], f"waiting-{os.getpid()}").touch()


def _end_own_loops(orders: dict[str, Any]) -> None:
    """End a loop that is no transformers Trainer's before its first step, where a miniature is in the model's place.

    What it trains and saves would be no model.
    """
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    from truetune.probe import miniature
    from truetune.probe.trainers import trainer_of_frames

    def check(*args: Any) -> None:
        if miniature.real and ("transformers.trainer" not in sys.modules or trainer_of_frames() is None):
            with suppress(OSError):
                Path(orders["folder"], f"loop-{os.getpid()}").touch()
            raise SystemExit(2)

    register_optimizer_step_pre_hook(check)
