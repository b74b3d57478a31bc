#!/usr/bin/env bash
# The tests that need a CUDA GPU: compiled FlexAttention, and fast kernels far from the start.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/install.sh" test
.venv/bin/python -m pytest -m gpu "$@"
