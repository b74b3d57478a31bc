#!/usr/bin/env bash
# Install posenc, estimate the cost of an experiment, run or resume it, and write its report.
# Usage: scripts/experiment.sh NAME [size=laptop] [seed=1,2,3] [key=value ...] [--config-dir DIR]
# If a key is set twice, the last value is used.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/install.sh" ""

name="${1:?specify an experiment; posenc list experiment lists their names}"
shift
report_overrides=()
previous=
for word in "$@"; do
    case "$word" in
    size=* | name=* | outputs_dir=* | --config-dir* | -cd*) report_overrides+=("$word") ;;
    *) case "$previous" in --config-dir | -cd) report_overrides+=("$word") ;; esac ;;
    esac
    previous=$word
done

# The estimate may fail, because some tokenizers need the data; posenc train reports other problems.
.venv/bin/posenc plan "experiment=$name" "$@" machine.seconds=0.2 || true

code=0
.venv/bin/posenc train "experiment=$name" "$@" || code=$?
[ "$code" -le 1 ] || exit "$code"
.venv/bin/posenc report "experiment=$name" ${report_overrides[@]+"${report_overrides[@]}"}
exit "$code"
