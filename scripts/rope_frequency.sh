#!/usr/bin/env bash
# The base of RoPE from 100 to 5,000,000, and its report.
# Usage: scripts/rope_frequency.sh [size=laptop] [seed=1,2,3] [key=value ...]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/install.sh"

.venv/bin/posenc train experiment=rope_base "$@"
.venv/bin/posenc report experiment=rope_base $(printf '%s\n' "$@" | grep '^size=' || true)
