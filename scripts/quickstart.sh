#!/usr/bin/env bash
# Install posenc and see how four positional encodings behave beyond their training length.
exec "$(dirname "${BASH_SOURCE[0]}")/experiment.sh" quickstart "$@"
