#!/usr/bin/env bash
# Reproduce ALiBi's extrapolation (Press et al. 2022, Tables 2 and 3) with three seeds at L=512 and 1024.
# Usage: scripts/alibi_extrapolation.sh [size=laptop] [seed=1,2,3] [train_length=512,1024] [key=value ...]
exec "$(dirname "${BASH_SOURCE[0]}")/experiment.sh" alibi_extrapolation seed=1,2,3 "$@"
