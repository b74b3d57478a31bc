#!/usr/bin/env bash
# Test and benchmark posenc on one CUDA GPU, and train alibi_extrapolation size=gpu_hour with three seeds.
# Usage: scripts/gpu.sh                run all steps that have not finished yet
#        scripts/gpu.sh --smoke-test   run all steps with tiny sizes on a CPU, in minutes, without compilation
#        scripts/gpu.sh --wheels       download the packages in WHEELS to wheels/, for a machine without network access
# Everything is written to outputs/gpu (--smoke-test: outputs/gpu_smoke_test) or $OUTPUTS: a log per step,
# results, and tables (results.md). A finished step has a file in the folder done/ there and is skipped when
# the command is rerun, so it is safe to run `timeout 9m scripts/gpu.sh` repeatedly. Afterwards,
# `python scripts/benchmarks/gpu_results.py outputs/gpu --docs docs` copies the results into the docs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The packages that posenc needs besides torch, Lightning, tokenizers and scientific packages (Python 3.12).
WHEELS=(hydra-core omegaconf antlr4-python3-runtime wandb datasets typeguard altair vl-convert-python
    annotated-types cwevals dill googleapis-common-protos jsonschema jsonschema-specifications multiprocess
    opentelemetry-api opentelemetry-exporter-http-transport opentelemetry-exporter-otlp-common
    opentelemetry-exporter-otlp-proto-common opentelemetry-exporter-otlp-proto-http opentelemetry-proto
    opentelemetry-sdk opentelemetry-semantic-conventions platformdirs pydantic pydantic_core referencing
    rpds-py typing-inspection)
wheels=wheels

download_wheels() {
    local platforms=() tag
    for tag in manylinux_2_28 manylinux_2_17 manylinux2014 manylinux1; do
        platforms+=(--platform "${tag}_x86_64")
    done
    python3 -m pip wheel --no-deps --wheel-dir "$wheels" --constraint constraints.txt antlr4-python3-runtime
    python3 -m pip download --no-deps --only-binary=:all: --python-version 3.12 "${platforms[@]}" \
        --find-links "$wheels" --dest "$wheels" --constraint constraints.txt "${WHEELS[@]}"
}

set_up_python() {
    if [ -n "${PYTHON:-}" ]; then
        python="$PYTHON"
    elif [ -d "$wheels" ]; then
        python=python3
        [ -e "$out/done/site" ] ||
            python3 -m pip install --quiet --upgrade --no-index --no-deps --target "$out/site" "$wheels"/*.whl
        touch "$out/done/site"
    else
        source scripts/install.sh test
        python=.venv/bin/python
    fi
    export PYTHONPATH="$PWD/src:$out/site${PYTHONPATH:+:$PYTHONPATH}"
}

step() {  # NAME COMMAND...: run a step unless it has finished before; record a failure and continue
    local name="$1" started=$SECONDS
    shift
    [ ! -e "$out/done/$name" ] || return 0
    echo "== $name"
    if "$@" > "$out/$name.log" 2>&1; then
        echo "$((SECONDS - started)) seconds" | tee "$out/done/$name"
    else
        echo "failed; see $out/$name.log" >&2
        failed+=("$name")
    fi
}

bench() { "$python" -m posenc bench "outputs_dir=$out" "$@" "${tiny[@]}"; }

train() {
    local code=0
    "$python" -m posenc train "${experiment[@]}" "$@" || code=$?
    "$python" -m posenc report "${experiment[@]:0:3}"
    return "$code"
}

peers() {  # SIZE TOKENS
    "$python" scripts/benchmarks/compare_implementations.py --size "$1" --tokens "$2" --length "$length" --precision "$precision" \
        ${compile:+--compile} --rounds "$rounds" --only "posenc nope,posenc learned,nanoGPT" --json "$out/peers_$1.json"
}

out="${OUTPUTS:-$PWD/outputs/gpu}" tiny=() length=1024 rounds=10 sizes=(gpt2_124m gpt2_350m) lengths=(1024 4096 16384)
tokens=32768 tests=(-m gpu) options=() compile=true precision=bf16
experiment=(experiment=alibi_extrapolation size=gpu_hour)
case "${1:-}" in
    --wheels)
        download_wheels
        exit
        ;;
    --smoke-test)
        out="${OUTPUTS:-$PWD/outputs/gpu_smoke_test}" length=16 rounds=2 sizes=(tiny) lengths=(40) tokens=64
        tests=(-m gpu --collect-only) options=(--length 128 --head-dim 16 --rounds 1) compile=
        precision=float32  # most CPUs emulate bf16, and comparing implementations would take minutes
        tiny=(trainer=cpu "precision=$precision" rounds=2 threads=1 batch_tokens=80 model.width=32 model.layers=2 model.heads=2
            model.feed_forward=64 vocab_size=50 encoding=nope,alibi)
        export CUDA_VISIBLE_DEVICES=
        ;;
    "") ;;
    *)
        echo "usage: scripts/gpu.sh [--smoke-test | --wheels]" >&2
        exit 2
        ;;
esac
experiment+=("outputs_dir=$out")
if [ ${#tiny[@]} -gt 0 ]; then
    experiment+=(trainer=cpu data=text "data.paths=[$out/text.txt]" tokenizer.vocab_size=300 model=tiny
        model.width=32 model.layers=2 model.heads=2 model.feed_forward=64 train_length=16 encoding=alibi,nope
        tokens=640 batch_tokens=64 validation.every_tokens=320 validation.tokens=160 "precision=$precision"
        'evaluation.offsets=[0,16]' evaluation.targets=4)
fi
mkdir -p "$out/done"
[ ${#tiny[@]} -eq 0 ] || cat docs/*.md > "$out/text.txt"
set_up_python
failed=()

step tests "$python" -m pytest -q -p no:cacheprovider tests/attention tests/jobs/test_devices.py "${tests[@]}"
for size in "${sizes[@]}"; do
    step "peers_$size" peers "$size" "$tokens"
done
setup=("model=gpt2_124m" "vocab_size=50304" "precision=$precision" "grids=null")
steps=("${setup[@]}" "passes=[step]" "train_length=$length" "batch_tokens=$tokens" "rounds=$rounds")
step steps_124m bench name=steps_124m "${steps[@]}" encoding=nope,rope,alibi,t5,kerple_log,fire,fox
step steps_124m_compiled bench name=steps_124m_compiled "${steps[@]}" "compile=${compile:-false}" encoding=nope,rope,alibi
step steps_350m_compiled bench name=steps_350m_compiled "${steps[@]}" "compile=${compile:-false}" encoding=nope,alibi \
    model.width=1024 model.layers=24 model.heads=16 model.feed_forward=4096
for width in 64 128; do
    for tokens_per_window in "${lengths[@]}"; do
        name="kernels_${width}_$tokens_per_window"
        step "$name" bench "name=$name" experiment=kernel_choice size=gpu_hour rounds=5 \
            "train_length=$tokens_per_window" "model.heads=$((1024 / width))"
    done
done
for seed in 1 2 3; do
    step "alibi_extrapolation_$seed" train "seed=$seed"
done
step flex_options "$python" scripts/benchmarks/flex_options.py "${options[@]}"
"$python" scripts/benchmarks/gpu_results.py "$out"
[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}" >&2; exit 1; }
