#!/usr/bin/env bash
# Install posenc and compare four positional encodings beyond their training length.
exec "$(dirname "${BASH_SOURCE[0]}")/experiment.sh" quickstart "$@"
