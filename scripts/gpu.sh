#!/usr/bin/env bash
# Run the GPU tests, then benchmark encodings and attention kernels at 124M parameters.
# Takes minutes on one CUDA GPU. Results go to outputs/gpu*/bench/ and are quoted in docs/benchmarks.md.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/install.sh" test
.venv/bin/python -m pytest -m gpu "$@"

bench() {
    .venv/bin/posenc bench trainer=gpu precision=bf16 model=gpt2_124m vocab_size=50257 grids=null "$@"
}
step="passes=[step] batch_tokens=32768 train_length=1024"
bench name=gpu $step encoding=nope,rope,alibi,t5,kerple_log,fire,fox
bench name=gpu_alibi $step encoding=alibi kernel=factored,flex,blocks
bench name=gpu_t5 $step encoding=t5 kernel=flex,blocks
bench name=gpu_nope $step encoding=nope kernel=causal,flex
bench name=gpu_16k passes='[forward,step]' batch_tokens=16384 train_length=16384 encoding=nope,alibi
