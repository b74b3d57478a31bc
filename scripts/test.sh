#!/usr/bin/env bash
# The tests. Without arguments the fast ones, under 8 minutes on two cores. With --core only those of
# encodings, attention, model, evaluation and config, under 2 minutes, for work on the science. With
# --all also the slow ones and those that need a browser or Slurm, which are installed with apt.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/install.sh" test

install_browser() {
    command -v chromium >/dev/null && command -v chromedriver >/dev/null && return
    local sudo=""
    [ "$(id -u)" = 0 ] || sudo="sudo -n"
    $sudo apt-get update -qq && $sudo apt-get install -y -qq chromium chromium-driver >/dev/null
}

install_slurm() {
    if [ "$(id -u)" = 0 ]; then scripts/slurm_local.sh install; else return 1; fi
}

may_mount() {
    local folder
    folder=$(mktemp -d)
    mount -t tmpfs tmpfs "$folder" 2>/dev/null && umount "$folder" && rmdir "$folder"
}

chosen=(-m "not slow and not browser and not gpu and not slurm")
if [ "${1:-}" = --core ]; then
    shift
    set -- tests/encodings tests/attention tests/model tests/evaluation tests/config \
        tests/test_architecture.py "$@"
elif [ "${1:-}" = --all ]; then
    shift
    without="not gpu"
    if ! install_browser; then
        echo "chromium could not be installed: the tests of pages in a browser are left out" >&2
        without+=" and not browser"
        [ "${CI:-}" != true ] || exit 1
    fi
    if ! install_slurm; then
        echo "Slurm could not be installed, which only root can: its test is left out" >&2
        without+=" and not slurm"
        [ "${CI:-}" != true ] || exit 1
    fi
    if ! may_mount; then
        echo "no disk may be mounted here: the tests of one that is full are left out" >&2
        without+=" and not mount"
    fi
    chosen=(-m "$without")
fi
[ "${CI:-}" != true ] || chosen+=(--no-skips)

.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/pyrefly check
.venv/bin/python -m pytest -n 2 --dist worksteal "${chosen[@]}" "$@"
