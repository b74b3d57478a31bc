#!/usr/bin/env bash
# Install posenc and see how four positional encodings behave beyond their training length.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/install.sh"

.venv/bin/posenc train experiment=quickstart "$@"
.venv/bin/posenc report experiment=quickstart
