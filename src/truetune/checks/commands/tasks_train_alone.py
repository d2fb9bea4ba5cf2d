"""Each task of a job starts a separate training, because the tasks don't know about each other.

## What it does
Takes the Python script that srun or mpirun starts in several tasks (in the line, in `bash -c '...'`, or in a script
next to the job), and loops that start the same command on each GPU without any other difference. It fires if the script
trains, no launcher comes before it, and neither the job nor the script sets RANK and WORLD_SIZE or uses a Slurm or MPI
variable. It does not fire if the number of tasks is not a plain number, for Lightning, DeepSpeed, submitit and others
that find their tasks themselves, or if the script is not next to the job.

## Why it is bad
srun sets SLURM_PROCID, but not RANK, LOCAL_RANK or WORLD_SIZE, from which torch, accelerate and the Trainer learn of
other processes. Each task trains alone, with all rows, the same seed and the same output folder. All GPUs are busy and
the job takes as long as on one; each log line appears once per task, and the tasks overwrite each other's checkpoints.

## Example
```yaml
files:
  train.py: |
    from transformers import Trainer
    trainer = Trainer(model=model, train_dataset=rows)
    trainer.train()
  job.sbatch: |
    #!/bin/bash
    #SBATCH --nodes=1
    #SBATCH --ntasks-per-node=4
    #SBATCH --gpus-per-task=1
    srun python train.py
```

## Use instead
```yaml
files:
  train.py: |
    from transformers import Trainer
    trainer = Trainer(model=model, train_dataset=rows)
    trainer.train()
  job.sbatch: |
    #!/bin/bash
    #SBATCH --nodes=1
    #SBATCH --ntasks-per-node=1
    #SBATCH --gpus-per-node=4
    srun torchrun --nproc-per-node 4 train.py
```

## Fix safety
The effective batch grows by the number of former trainings: lower the gradient accumulation, or adapt the learning
rate.

## References
- Slurm documentation, srun ("OUTPUT ENVIRONMENT VARIABLES"); PyTorch documentation, `init_process_group` (env://)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.find_trainings_without_process_group import LoneTrainings, find_lone_trainings
from truetune.checks.findings import Finding
from truetune.checks.node_rendezvous import node_count_of_job
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile


class TasksTrainAlone(CommandRule):
    code = "CMD135"
    fault = Fault.PROCESSES_TRAIN_SEPARATELY
    symptoms = ("several-gpus",)
    severity = "error"
    stability = "preview"
    what = "trainings that are started in several tasks without a launcher"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[LoneTrainings]:
        """The places that the rule looks at: the trainings that are started in several tasks without a launcher."""
        yield from find_lone_trainings(file)

    def findings(self) -> Iterator[Finding]:
        for lone_trainings in self.examined_places(self.subject):
            yield self.finding(
                f"{lone_trainings.starter} starts {lone_trainings.script} {lone_trainings.times} times"
                f" ({lone_trainings.setting}), but nothing sets"
                f" RANK, LOCAL_RANK and WORLD_SIZE: {lone_trainings.times} separate trainings run on all rows, with"
                " no gain in speed, and overwrite each other's checkpoints",
                _advise_one_training_for_tasks(lone_trainings, self.subject),
                severity="error" if lone_trainings.is_meant_for_several else "warning",
                cases=[
                    self.case_at(lone_trainings.line, lone_trainings.setting),
                    self.case_of_command(lone_trainings.command, lone_trainings.command.text[:300]),
                ],
            )


def _advise_one_training_for_tasks(lone_trainings: LoneTrainings, file: CommandFile) -> str:
    """The edit that makes one training of them."""
    if not lone_trainings.is_meant_for_several:
        return (
            "start it once; or wrap the model in DistributedDataParallel and start it with torchrun"
            f" --nproc-per-node {lone_trainings.times}"
        )
    if lone_trainings.starter != "srun":
        return f"start it once, with torchrun --nproc-per-node {lone_trainings.times} {lone_trainings.script}"
    nodes = node_count_of_job(file) or 1
    each = max(1, lone_trainings.times // nodes)
    meeting = f" --nnodes {nodes} --rdzv-backend c10d --rdzv-endpoint FIRST_NODE:29500"
    launch = (
        f"torchrun{meeting if nodes > 1 else ''} --nproc-per-node {each} {lone_trainings.script}"
    )
    return (
        f"set --ntasks-per-node=1 and --gpus-per-node={each}, and start `srun {launch}`; or set in each task, before"
        " python: RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS, with MASTER_ADDR and"
        " MASTER_PORT"
    )
