#!/usr/bin/env bash
# The tests. Without arguments the fast ones, under 8 minutes on two cores; with --all also the slow
# ones and those that need a browser, installed with apt where that is allowed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/install.sh" test

install_browser() {
    command -v chromium >/dev/null && command -v chromedriver >/dev/null && return
    local sudo=""
    [ "$(id -u)" = 0 ] || sudo="sudo -n"
    $sudo apt-get update -qq && $sudo apt-get install -y -qq chromium chromium-driver >/dev/null
}

chosen=(-m "not slow and not browser and not gpu")
if [ "${1:-}" = --all ]; then
    shift
    chosen=(-m "not gpu")
    if ! install_browser; then
        echo "chromium could not be installed: the tests of pages in a browser are left out" >&2
        chosen=(-m "not browser and not gpu")
        [ "${CI:-}" != true ] || exit 1
    fi
fi
[ "${CI:-}" != true ] || chosen+=(--no-skips)

.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/pyrefly check
.venv/bin/python -m pytest -n 2 --dist worksteal "${chosen[@]}" "$@"
