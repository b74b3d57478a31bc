#!/usr/bin/env bash
# Train with bases of RoPE from 100 to 5,000,000. Usage: [size=laptop] [seed=1,2,3] [key=value ...]
exec "$(dirname "${BASH_SOURCE[0]}")/experiment.sh" rope_base "$@"
