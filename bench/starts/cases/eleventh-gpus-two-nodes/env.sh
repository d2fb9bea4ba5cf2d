# common env for the llm jobs, source this in every sbatch
module purge
module load gcc/12 cuda/12.6
source /lustre/proj/nlp/venvs/sft/bin/activate

export HF_HOME=/lustre/proj/nlp/hf
export HF_HUB_OFFLINE=1
export TOKENIZERS_PARALLELISM=false
export OMP_NUM_THREADS=8
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True

export NCCL_DEBUG=INFO
export NCCL_DEBUG_SUBSYS=INIT,NET
export NCCL_SOCKET_IFNAME=eno1
export NCCL_IB_DISABLE=1
export TORCH_NCCL_ASYNC_ERROR_HANDLING=1
