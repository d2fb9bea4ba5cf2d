"""The hook of `truetune rehearse`: miniatures in the place of models, and a rehearsal where training would begin.

It fails closed. The confinement is proved first, before any line of the program runs. Whatever goes wrong afterwards in
code of ours ends the process at once, with exit code ENDED, before it has trained anything; the parent says why.

Nothing depends on the order of the program's imports. Each module that is changed is changed when that very module has
been executed to its end, by code that imports nothing of that package (importing one package from inside another's
half-done import is what once made this fail). Before a model is shrunk, `end_process_if_module_unpatched` checks
whether each of those modules that is loaded has been changed indeed.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from truetune.probe import refuse_side_effects_of_rehearsal

if TYPE_CHECKING:
    from truetune.probe.orders_from_launcher_to_hook import HookOrders

# The exit code of a process whose hook failed.
HOOK_FAILED_CODE = 125
# Beginning of the names of files, in the folder of refusals, that say why the hook failed.
FAILURE_PREFIX = "failure"


class UnguardedError(RuntimeError):
    """A guard that must stand does not."""


def set_up_all_rehearsal_guards(guard_text: str, orders_text: str) -> None:
    """Set all guards up in this process, before any of the program's code. Raises whatever goes wrong."""
    guard = json.loads(guard_text)
    orders = json.loads(orders_text)
    if guard["covered"] or guard["landlock"]:
        prove_confinement(guard)
    refuse_side_effects_of_rehearsal.install_write_guard(guard)
    RehearsalHook(orders, guard["refused"], guard["gaps"]).patch_modules_once_imported()


def prove_confinement(guard: dict[str, Any]) -> None:
    """Prove that the kernel holds this process as the launcher says. Raises UnguardedError."""
    beside = os.path.dirname(guard["writable"][0])
    if guard["covered"]:
        kinds = {}
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            point = line.split()[4].encode().decode("unicode_escape")
            kinds[point] = line.partition(" - ")[2].split()[0]  # the last one lies on top
        bare = [folder for folder in guard["covered"] if kinds.get(folder) != "overlay"]
        if bare:
            raise UnguardedError(f"nothing lies over {bare[0]}, so that writes there would stay")
        return
    place = os.path.join(beside, f".truetune-proof-{os.getpid()}")
    try:
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return
        raise
    os.remove(place)
    raise UnguardedError(f"this process can write to {beside}")


def end_process(error: BaseException | str, folder: str) -> NoReturn:
    """Say why, and end this process at once: no code of the program's runs any more, not even what cleans up."""
    reason = (
        error if isinstance(error, str) else " ".join(f"{type(error).__name__}: {error}".split())
    )
    print(
        f"truetune: the rehearsal ends here, nothing was trained: {reason}",
        file=sys.stderr,
        flush=True,
    )
    with suppress(OSError):
        Path(folder, f"{FAILURE_PREFIX}-{os.getpid()}").write_text(reason)
    with suppress(Exception):
        sys.stdout.flush()
    os._exit(HOOK_FAILED_CODE)


class RehearsalHook:
    """What is changed in which module, and what has been."""

    def __init__(self, orders: HookOrders, folder: str, gaps: Sequence[str] = ()) -> None:
        """`folder` takes the reason of a failure, for the parent; `gaps` are what the kernel does not hold."""
        self.orders = orders
        self.folder = folder
        self.gaps = gaps
        self.rehearsing = False
        """Is an optimizer's step one of ours?"""
        self.changed: set[str] = set()
        self.changes: dict[str, Callable[[Any], None]] = {
            "datasets.arrow_dataset": self.patch_datasets_to_cut_before_mapping,
            "peft.peft_model": self.patch_peft_to_randomise_loaded_adapters,
            "torch.optim.optimizer": self.patch_optimizers_to_refuse_other_steps,
            "transformers.modeling_utils": self.patch_models_to_build_miniatures,
            "transformers.trainer": self.patch_trainer_to_rehearse_before_training,
            "transformers.training_args": self.patch_training_arguments_for_rehearsal,
        }

    def patch_modules_once_imported(self) -> None:
        """Watch imports, and change each module when its import is complete; those that are loaded already (by
        a .pth file) now.
        """
        # First, so that no finder of the program's can load a module past it.
        sys.meta_path.insert(0, ImportWatcher(self.changes, self.patch_imported_module))
        for name in [name for name in self.changes if name in sys.modules]:
            self.patch_imported_module(name)

    def patch_imported_module(self, name: str) -> None:
        """Change a module that has been executed. A failure ends the process."""
        try:
            self.changes[name](sys.modules[name])
            self.changed.add(name)
        except BaseException as error:
            end_process(error, self.folder)

    def end_process_if_module_unpatched(self) -> None:
        """Ensure that each loaded module was changed by us; else end the process: what a miniature trains
        would be taken for the run.
        """
        missing = sorted(
            name for name in self.changes if name in sys.modules and name not in self.changed
        )
        # A module that is being imported right now is changed as soon as its import is complete.
        missing = [name for name in missing if not is_being_imported(name)]
        if missing or not any(isinstance(finder, ImportWatcher) for finder in sys.meta_path):
            end_process(
                f"{', '.join(missing) or 'a package'} was imported past truetune's hook",
                self.folder,
            )

    def patch_datasets_to_cut_before_mapping(self, module: Any) -> None:
        """Change `datasets`: data sets are cut before they are mapped."""
        from truetune.probe import build_miniatures_instead_of_models, rehearsal_overrides

        rehearsal_overrides.cut_datasets_before_map_or_filter(
            module.Dataset, build_miniatures_instead_of_models.notes
        )

    def patch_peft_to_randomise_loaded_adapters(self, module: Any) -> None:
        """Change PEFT: adapters that are loaded are built again, with random weights."""
        from truetune.probe import build_miniatures_instead_of_models

        build_miniatures_instead_of_models.rebuild_adapters_instead_of_loading(module.PeftModel)

    def patch_training_arguments_for_rehearsal(self, module: Any) -> None:
        """Change training arguments: they are given what a rehearsal needs, before any class validates them."""
        from truetune.probe import build_miniatures_instead_of_models, rehearsal_overrides

        rehearsal_overrides.patch_training_arguments(
            module.TrainingArguments,
            build_miniatures_instead_of_models.notes,
            self.orders["folder"],
        )

    def patch_models_to_build_miniatures(self, module: Any) -> None:
        """Change transformers' models: each is built as a miniature. Note which guards the kernel does not
        hold.
        """
        from truetune.probe import build_miniatures_instead_of_models

        build_miniatures_instead_of_models.replace_models(
            module.PreTrainedModel, self.end_process_if_module_unpatched
        )
        if self.gaps:
            build_miniatures_instead_of_models.note_once(
                f"held by Python's hook, not by the kernel: {', '.join(self.gaps)}"
            )

    def patch_optimizers_to_refuse_other_steps(self, module: Any) -> None:
        """Change optimizers: a step of one that trains a miniature and is not ours ends the process.

        It is a loop of the program's own, or a trainer that was not stopped: what it trains would be no model.
        """
        from truetune.probe import build_miniatures_instead_of_models

        def end_own_loop(*args: Any) -> None:
            """End the process, unless the step is one of the rehearsal or no miniature was built."""
            if self.rehearsing or not build_miniatures_instead_of_models.real_config:
                return
            with suppress(OSError):
                Path(self.orders["folder"], f"loop-{os.getpid()}").touch()
            raise SystemExit(2)

        # torch's own hook for all optimizers: a patched `step` of one class would miss those of other packages.
        module.register_optimizer_step_pre_hook(end_own_loop)

    def patch_trainer_to_rehearse_before_training(self, module: Any) -> None:
        """Change the trainer: it is rehearsed before the first of its callbacks learns that training begins."""
        from truetune.probe.find_trainers_and_their_datasets import (
            MadeTrainers,
            NewTrainer,
            innermost_trainer_on_stack,
        )

        handlers: Any = sys.modules["transformers.trainer_callback"].CallbackHandler
        former = handlers.on_train_begin
        made_trainers = MadeTrainers()
        numbers = count(1)
        module.Trainer.__new__ = NewTrainer(module.Trainer, made_trainers.note)

        @wraps(former)
        def on_train_begin(handler: Any, *args: Any, **kwargs: Any) -> NoReturn:
            try:
                trainer = innermost_trainer_on_stack()
                if trainer is None:
                    raise UnguardedError("training begins, and no trainer is found")
                self.rehearsing = True
                rehearse_and_hand_over(
                    trainer,
                    handler.train_dataloader,
                    made_trainers.take_dataset(trainer),
                    self.orders,
                    next(numbers),
                )
            except Exception as error:
                end_process(error, self.folder)
            finally:
                self.rehearsing = False
            raise SystemExit(0)

        handlers.on_train_begin = on_train_begin
        with suppress(OSError):  # the parent has gone
            Path(self.orders["folder"], f"waiting-{os.getpid()}").touch()


def rehearse_and_hand_over(
    trainer: Any, loader: Any, source_data: Any, orders: HookOrders, number: int
) -> None:
    """Rehearse, and hand a record over to the parent, which judges it. A failure inside is told the parent, too.

    It returns where `hand_over_rehearsal` would end the process, so that the caller can put `rehearsing` back first.
    `number` counts the rehearsals of this process, from 1.
    """
    from truetune.probe.audit_session import hand_over_rehearsal

    with suppress(SystemExit):
        hand_over_rehearsal(trainer, loader, source_data, orders, number)


def is_being_imported(name: str) -> bool:
    """Is a module still being imported, its code not executed to the end, so that it could not be changed?"""
    return bool(getattr(getattr(sys.modules[name], "__spec__", None), "_initializing", False))


class ImportWatcher:
    """A finder that finds nothing by itself, but calls `act` with the name when one of these modules is complete."""

    def __init__(self, names: Any, act: Callable[[str], None]) -> None:
        self.names = names
        self.act = act

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec that the finders behind this one give, with a loader that calls us when it is done."""
        if name not in self.names:
            return None
        others = [
            finder
            for finder in sys.meta_path
            if finder is not self and hasattr(finder, "find_spec")
        ]
        for finder in others:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                break
        else:
            return None
        if hasattr(spec.loader, "exec_module"):
            self.call_when_done(spec.loader, name)
        return spec

    def call_when_done(self, loader: Any, name: str) -> None:
        """Make the loader call us when it has executed the module. It belongs to this one import: its method
        is replaced for one call.
        """
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            del loader.exec_module
            execute(module)
            self.act(name)

        loader.exec_module = exec_module
