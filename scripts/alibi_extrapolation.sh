#!/usr/bin/env bash
# Reproduce ALiBi's extrapolation (Press et al. 2022, Tables 2 and 3). Usage: [size=laptop] [seed=1,2,3] [key=value ...]
exec "$(dirname "${BASH_SOURCE[0]}")/experiment.sh" alibi_extrapolation "$@"
