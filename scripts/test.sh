#!/usr/bin/env bash
# Run the linters and the fast tests, which take under 8 minutes on two cores. With --core, run only
# the tests of encodings, attention, model, evaluation and config (under 2 minutes). With --all, also
# run the slow tests and those that need a browser, zsh, fish or Slurm, which are installed with apt.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/install.sh" test

install_packages() {  # of Debian; the first argument lists the commands that they provide
    local command missing="" sudo=""
    for command in $1; do command -v "$command" >/dev/null || missing=yes; done
    [ -n "$missing" ] || return 0
    [ "$(id -u)" = 0 ] || sudo="sudo -n"
    shift
    $sudo apt-get update -qq && $sudo apt-get install -y -qq "$@" >/dev/null
}

install_slurm() {
    if [ "$(id -u)" = 0 ]; then scripts/slurm_local.sh install; else return 1; fi
}

may_mount() {
    local folder
    folder=$(mktemp -d)
    mount -t tmpfs tmpfs "$folder" 2>/dev/null && umount "$folder" && rmdir "$folder"
}

chosen=()  # the fast tests, as pyproject.toml selects them
if [ "${1:-}" = --core ]; then
    shift
    set -- tests/encodings tests/attention tests/model tests/evaluation tests/config \
        tests/test_architecture.py "$@"
elif [ "${1:-}" = --all ]; then
    shift
    without="not gpu"
    if ! install_packages "chromium chromedriver" chromium chromium-driver; then
        echo "Chromium could not be installed; skipping the browser tests" >&2
        without+=" and not browser"
        [ "${CI:-}" != true ] || exit 1
    fi
    if ! install_packages "zsh fish" zsh fish; then
        echo "zsh and fish could not be installed; skipping the tests of their completion" >&2
        without+=" and not shells"
        [ "${CI:-}" != true ] || exit 1
    fi
    if ! install_slurm; then
        echo "Slurm could not be installed, which requires root; skipping the Slurm test" >&2
        without+=" and not slurm"
        [ "${CI:-}" != true ] || exit 1
    fi
    if ! may_mount; then
        echo "mounting a disk is not permitted; skipping the tests with a full disk" >&2
        without+=" and not mount"
    fi
    chosen=(-m "$without")
fi
[ "${CI:-}" != true ] || chosen+=(--no-skips)

.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/pyrefly check
.venv/bin/python -m pytest -n 2 --dist worksteal "${chosen[@]}" "$@"
