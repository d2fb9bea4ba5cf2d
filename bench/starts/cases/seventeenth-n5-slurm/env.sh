module purge
module load cuda/12.4 python/3.11
source $HOME/venvs/ft/bin/activate
export HF_HOME=/scratch/$USER/hf
export TOKENIZERS_PARALLELISM=false
export WANDB_MODE=offline
export SMOKE_TEST=1
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
