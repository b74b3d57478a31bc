#!/usr/bin/env bash
# Run the linter, the type checker and the fast tests (under 8 minutes on two cores). With --core, run
# only the tests of encodings, attention, model, evaluation, config and architecture (under 2 minutes).
# With --all, also run the slow tests and those that need a browser, zsh, fish or Slurm, which are
# installed with apt.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/install.sh" test

install_packages() {  # COMMANDS PACKAGE...: install Debian packages if one of COMMANDS is missing
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

can_mount() {
    local folder
    folder=$(mktemp -d)
    mount -t tmpfs tmpfs "$folder" 2>/dev/null && umount "$folder" && rmdir "$folder" &&
        unshare --mount --uts --pid --fork --mount-proc true 2>/dev/null
}

selection=()  # by default, the fast tests, which pyproject.toml selects
processes=2
if [ "${1:-}" = --core ]; then
    shift
    set -- tests/encodings tests/attention tests/model tests/evaluation tests/config \
        tests/test_architecture.py "$@"
elif [ "${1:-}" = --all ]; then
    shift
    markers="not gpu"
    processes=3  # keeps two cores busy while slow tests wait for servers and disks
    if ! install_packages "chromium chromedriver" chromium chromium-driver; then
        echo "Chromium could not be installed; skipping the browser tests" >&2
        markers+=" and not browser"
        [ "${CI:-}" != true ] || exit 1
    fi
    if ! install_packages "zsh fish" zsh fish; then
        echo "zsh and fish could not be installed; skipping their completion tests" >&2
        markers+=" and not shells"
        [ "${CI:-}" != true ] || exit 1
    fi
    if ! install_slurm; then
        echo "Slurm could not be installed, which requires root; skipping the Slurm test" >&2
        markers+=" and not slurm"
        [ "${CI:-}" != true ] || exit 1
    fi
    if ! can_mount; then
        echo "mounting a file system is not permitted; skipping the tests of full disks and of two machines" >&2
        markers+=" and not mount"
    fi
    selection=(-m "$markers")
fi
[ "${CI:-}" != true ] || selection+=(--no-skips)
unset PYTHONDONTWRITEBYTECODE  # containers often set it, and then every process compiles all modules
export OMP_WAIT_POLICY=passive  # there are more threads than cores; those that wait must not spin

.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/pyrefly check
.venv/bin/python -m pytest -n "$processes" --dist worksteal --durations=30 --durations-min=5 "${selection[@]}" "$@"
