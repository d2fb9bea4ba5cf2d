#!/usr/bin/env bash
# Production server of the claims assistant (1x H100 80GB)
set -euo pipefail

MODEL=${MODEL:-/srv/models/claims-8b}
PORT=${PORT:-8000}
LOG_DIR=${LOG_DIR:-/var/log/claims}
mkdir -p "$LOG_DIR"

nvidia-smi --query-gpu=name,memory.total --format=csv,noheader

wait_ready() {
  for _ in $(seq 1 120); do
    if curl -fs "http://localhost:$PORT/health" > /dev/null; then
      echo "ready"
      return 0
    fi
    sleep 5
  done
  echo "server did not come up" >&2
  return 1
}

vllm serve "$MODEL" \
  --served-model-name claims \
  --dtype bfloat16 \
  --max-model-len 16384 \
  --max-num-seqs 128 \
  --gpu-memory-utilization 0.90 \
  --enable-prefix-caching \
  --enforce-eager \
  --port "$PORT" > "$LOG_DIR/server.log" 2>&1 &

wait_ready
wait
