#!/usr/bin/env bash
# Compare RoPE with bases from 100 to 500,000, ALiBi and NoPE, with three seeds at L=512 and 1024.
# Usage: scripts/rope_frequency.sh [size=laptop] [seed=1,2,3] [train_length=512,1024] [key=value ...]
exec "$(dirname "${BASH_SOURCE[0]}")/experiment.sh" rope_base seed=1,2,3 "$@"
