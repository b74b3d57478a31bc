#!/usr/bin/env bash
# ALiBi's extrapolation (Press et al. 2022, Tables 2 and 3) and its report.
# Usage: scripts/alibi_extrapolation.sh [size=laptop] [seed=1,2,3] [key=value ...]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/install.sh"

.venv/bin/posenc train experiment=alibi_extrapolation "$@"
.venv/bin/posenc report experiment=alibi_extrapolation $(printf '%s\n' "$@" | grep '^size=' || true)
