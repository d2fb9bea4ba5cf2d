"""Each sign of a fault of several GPUs: a text that shows it, and one that looks alike and does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.troubleshooting.project_words import ProjectText
from truetune.troubleshooting.signs.find_signs_in_statements import find_signs
from truetune.troubleshooting.signs.several_gpus import SIGNS

DDP = "dist.init_process_group('nccl')\n"
NODES = "#SBATCH --nodes=2\n"
ZERO3 = '"stage": 3,\n'
FSDP = "fsdp_config: {}\n"
TRAINER = "Trainer(model, args).train()\n"
LAUNCHED = "torchrun --nproc_per_node 8 train.py\n"


def shows(text: str, cause: str, name: str = "a.sh") -> bool:
    """Does a project of this one file show a sign of the cause that begins so?"""
    found = find_signs([ProjectText(Path(name), text, True)])
    return any(cause in sign.words.replace("\\", "") and sign in SIGNS for sign in found)


@pytest.mark.parametrize(
    ("cause", "text", "near_miss"),
    [
        (
            "every process reads the same rows",
            f"{DDP}loader = DataLoader(rows, batch_size=4)\n",
            f"{DDP}loader = DataLoader(rows, sampler=DistributedSampler(rows))\n",
        ),
        (
            "every process reads the same rows",
            f"{DDP}class Rows(IterableDataset):\n",
            f"{DDP}class Rows(IterableDataset):\n    rows = rows[rank::world]\n",
        ),
        (
            "every process reads the same rows",
            "pl.Trainer(use_distributed_sampler=False)\n",
            "pl.Trainer(use_distributed_sampler=True)\n",
        ),
        (
            "each process takes its part of the rows, and",
            f"rows = rows[rank::world]\n{TRAINER}",
            "rows = rows[rank::world]\nloss.backward()\n",
        ),
        (
            "each process shuffles or splits",
            f"{DDP}random.shuffle(rows)\n",
            f"{DDP}random.seed(0)\nrandom.shuffle(rows)\n",
        ),
        (
            "unequal numbers of batches",
            f"{DDP}rows = rows[rank::world]\n",
            f"{DDP}with Join([model]):\n    rows = rows[rank::world]\n",
        ),
        (
            "a sampler without set_epoch",
            "s = DistributedSampler(rows)\n",
            "s = DistributedSampler(rows)\ns.set_epoch(1)\n",
        ),
        (
            "the metric counts rows twice",
            "all_preds = acc.gather(preds)\n",
            "all_preds = acc.gather_for_metrics(preds)\n",
        ),
        (
            "layers on several GPUs",
            f"m = load(device_map='auto')\n{TRAINER}",
            f"m = load(device_map=None)\n{TRAINER}",
        ),
        (
            "one process works on all GPUs",
            f"python sft.py --bs 4\n{TRAINER}",
            f"accelerate launch sft.py --bs 4\n{TRAINER}",
        ),
        (
            "one process works on all GPUs",
            "m = nn.DataParallel(m)\n",
            "m = DistributedDataParallel(m)\n",
        ),
        ("one process was started", "num_processes: 1\n", "num_processes: 8\n"),
        ("ms-swift without", "swift sft --model x\n", "NPROC_PER_NODE=4 swift sft --model x\n"),
        (
            "ms-swift without",
            "tune run lora_finetune_single_device\n",
            "tune run lora_finetune_distributed\n",
        ),
        (
            "Unsloth works on one GPU",
            "m = FastLanguageModel.from_pretrained(p)\n",
            "m = AutoModel.from_pretrained(p)\n",
        ),
        (
            "every process puts its model on GPU 0",
            f"{DDP}device = torch.device('cuda')\n",
            f"{DDP}torch.cuda.set_device(local_rank)\ndevice = torch.device('cuda')\n",
        ),
        ("CUDA_VISIBLE_DEVICES ", "CUDA_VISIBLE_DEVICES=0\n", "VISIBLE=0\n"),
        ("WORLD_SIZE, RANK, LOCAL_RANK", "export WORLD_SIZE=4\n", "export WORLD_SIZE=$N\n"),
        (
            "CUDA was used in the notebook",
            "m = m.cuda()\nnotebook_launcher(train, num_processes=2)\n",
            "m = m.cuda()\ntrain()\n",
        ),
        (
            "the files of the launch contradict",
            f'{ZERO3}"zero_optimization": {{\n"train_batch_size": 64,\n',
            f'{ZERO3}"zero_optimization": {{\n"train_batch_size": "auto",\n',
        ),
        (
            "a DeepSpeed or FSDP config",
            '"zero_optimization": {\n',
            '"zero_optimization": {\ntrain.py --deepspeed ds.json\n',
        ),
        (
            "FSDP is set to wrap a layer class",
            "fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n",
            "fsdp_offload_params: false\n",
        ),
        (
            "the nodes wait at MASTER_ADDR",
            f"{NODES}export MASTER_ADDR=localhost\n",
            f"{NODES}export MASTER_ADDR=node17\n",
        ),
        (
            "torchrun for several nodes is in",
            f"{NODES}torchrun --nnodes 2 train.py\n",
            f"{NODES}srun torchrun --nnodes 2 train.py\n",
        ),
        (
            "each node or task starts a run",
            f"{NODES}srun torchrun --standalone train.py\n",
            "torchrun --standalone train.py\n",
        ),
        (
            "each node or task starts a run",
            f"{NODES}srun torchrun train.py\n",
            f"{NODES}srun torchrun --nnodes 2 train.py\n",
        ),
        (
            "every node gets the same number",
            "srun torchrun --node_rank=$SLURM_NODEID train.py\n",
            "srun bash -c 'torchrun --node_rank=$SLURM_NODEID train.py'\n",
        ),
        ("each task of Slurm or MPI", "mpirun -np 4 python train.py\n", "srun torchrun train.py\n"),
        (
            "each task of a node starts the launcher",
            "#SBATCH --ntasks-per-node=4\nsrun torchrun train.py\n",
            "#SBATCH --ntasks-per-node=1\nsrun torchrun train.py\n",
        ),
        (
            "the container has 64 MB",
            "docker run --gpus all image\n",
            "docker run --gpus all --shm-size=16g image\n",
        ),
        (
            "Lightning's devices",
            "srun python t.py\nimport lightning\ntrainer = pl.Trainer(accelerator='gpu', devices=4)\n",
            "import lightning\ntrainer = pl.Trainer(accelerator='gpu', devices=4)\n",
        ),
        (
            "the machines can't reach",
            "NCCL INFO Bootstrap : Using docker0:172.17.0.1\n",
            "NCCL INFO Bootstrap : Using ens5:10.0.0.4\n",
        ),
        (
            "a job switches off a fast NCCL",
            "export NCCL_IB_DISABLE=1\n",
            "export NCCL_IB_DISABLE=0\n",
        ),
        (
            "copies from GPU to GPU",
            "AMD-Vi: IO_PAGE_FAULT device=c1:00.0\n",
            "NCCL INFO P2P/CUMEM\n",
        ),
        (
            "vLLM is started on one",
            "vllm serve model\n",
            "vllm serve model --tensor-parallel-size 4\n",
        ),
        (
            "gradients are not averaged",
            f"{DDP}m = DDP(m)\nout = m.module(**b)\n",
            f"{DDP}m = DDP(m)\nout = m(**b)\nm.module.save_pretrained(p)\n",
        ),
        (
            "gradients are averaged at each",
            "m = DDP(m)\nif i % accum == 0:\n",
            "m = DDP(m)\nwith m.no_sync():\n  x = i % accum\n",
        ),
        (
            "the loss of a step depends",
            f"{LAUNCHED}loss = F.cross_entropy(a, b)\n",
            "loss = F.cross_entropy(a, b)\n",
        ),
        (
            "a call that all processes must make",
            f"{DDP}if rank == 0:\n    s = evaluate(m)\n",
            f"{DDP}s = evaluate(m)\nif rank == 0:\n    print(s)\n",
        ),
        (
            "one process leaves the loop alone",
            f"{DDP}if bad >= patience:\n    break\n",
            f"{DDP}dist.broadcast(stop, 0)\nif bad >= patience:\n    break\n",
        ),
        (
            "a batch is skipped on one rank",
            f"{DDP}if torch.isnan(loss): continue\nloss.backward()\n",
            f"{DDP}loss.backward()\n",
        ),
        (
            "every process deletes",
            f"{DDP}shutil.rmtree(old)\n",
            f"{DDP}if rank == 0:\n    shutil.rmtree(old)\n",
        ),
        (
            "every process writes the same",
            f"{DDP}torch.save(m.state_dict(), p)\n",
            f"{DDP}if rank == 0:\n    torch.save(m.state_dict(), p)\n",
        ),
        (
            "one process tokenizes or maps",
            "with a.main_process_first():\n    ds = ds.map(f)\n",
            "ds = ds.map(f)\n",
        ),
        (
            "a part of the model gets no gradient",
            "DDP(m, find_unused_parameters=False)\n",
            "DDP(m, find_unused_parameters=True)\n",
        ),
        (
            "the processes take different branches",
            f"{ZERO3}if pixel_values is not None:\n",
            f"{ZERO3}if tokens is not None:\n",
        ),
        (
            "a mixture of experts",
            f"{ZERO3}model: mistralai/Mixtral-8x7B\n",
            f"{ZERO3}model: mistralai/Mistral-7B\n",
        ),
        ("new weights (an adapter", "set_seed(42 + rank)\n", "set_seed(42)\n"),
        (
            "rank 0 logs its own loss",
            f"{DDP}print('loss', loss.item())\n",
            f"{DDP}dist.all_reduce(loss)\nprint('loss', loss.item())\n",
        ),
        (
            "a scheduler that is stepped",
            "s = get_scheduler('linear', o, 9, len(l))\nm, o, s = a.prepare(m, o, sched)\n",
            "s = get_scheduler('linear', o, 9, len(l) * a.num_processes)\n"
            "m, o, s = a.prepare(m, o, sched)\n",
        ),
        (
            "the batch grew",
            f"{LAUNCHED}gradient_accumulation_steps: 16\n",
            "gradient_accumulation_steps: 16\n",
        ),
        (
            "two runs make the same number",
            f"{LAUNCHED}max_steps: 1500\n",
            f"{LAUNCHED}max_steps: -1\n",
        ),
        (
            "the run was resumed on another",
            f"{LAUNCHED}resume_from_checkpoint: out/c-9\n",
            f"{LAUNCHED}resume_from_checkpoint: null\n",
        ),
        (
            "weights or optimizer states are offloaded",
            '"offload_optimizer": {"device": "cpu"},\n',
            '"offload_optimizer": {"device": "none"},\n',
        ),
        (
            "shards of ZeRO-3",
            '"stage3_gather_16bit_weights_on_model_save": false\n',
            '"stage3_gather_16bit_weights_on_model_save": true\n',
        ),
        (
            "FSDP or torch.distributed.checkpoint",
            "fsdp_state_dict_type: SHARDED_STATE_DICT\n",
            "fsdp_state_dict_type: FULL_STATE_DICT\n",
        ),
        (
            "the saved weights have module.",
            "m.load_state_dict(w, strict=False)\n",
            "m.load_state_dict(w)\n",
        ),
        ("4-bit weights under FSDP", f"{FSDP}load_in_4bit: true\n", f"{FSDP}load_in_8bit: true\n"),
        (
            "FSDP joins frozen weights",
            "fsdp_use_orig_params: false\n",
            "fsdp_use_orig_params: true\n",
        ),
        ("FSDP makes one unit", "m = FSDP(m)\n", "m = FSDP(m, auto_wrap_policy=p)\n"),
        (
            "FSDP is configured to shard",
            "fsdp_sharding_strategy: NO_SHARD\n",
            "fsdp_sharding_strategy: FULL_SHARD\n",
        ),
        (
            "FULL_SHARD or ZeRO-3 over several",
            f"{NODES}fsdp_sharding_strategy: FULL_SHARD\n",
            f"{NODES}fsdp_sharding_strategy: HYBRID_SHARD\n",
        ),
        (
            "a script generates with a model",
            f"{ZERO3}out = m.generate(x)\n",
            "out = m.generate(x)\n",
        ),
        (
            "gradients under FSDP1",
            "m = FSDP(m, p)\nfully_shard(m)\ntorch.nn.utils.clip_grad_norm_(w, 1.0)\n",
            "m = FSDP(m, p)\nm.clip_grad_norm_(1.0)\n",
        ),
        (
            "each node wrote its part",
            f"{NODES}output_dir: /tmp/run\n",
            f"{NODES}output_dir: /shared/run\n",
        ),
        (
            "the cards are not alike",
            "SW Thermal Slowdown : Active\n",
            "SW Thermal Slowdown : Not Active\n",
        ),
    ],
)
def test_a_sign_is_shown_by_its_text_and_not_by_a_near_miss(
    cause: str, text: str, near_miss: str
) -> None:
    assert shows(text, cause)
    assert not shows(near_miss, cause)
