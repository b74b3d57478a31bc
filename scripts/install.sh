# Create or update .venv with posenc and the versions pinned in constraints.txt; sourced by other scripts.
# Usage: source scripts/install.sh [EXTRA]
cd "$(dirname "${BASH_SOURCE[0]}")/.."
extra="${1:+[$1]}"

find_python() {
    local name
    for name in python3.11 python3.12 python3.13 python3.14 python3 python; do
        if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    echo "posenc needs Python 3.11 or newer with the venv module, but none is on the PATH" >&2
    return 1
}

if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    rm -rf .venv
    python="$(find_python)"
    echo "creating .venv with $("$python" --version)"
    "$python" -m venv .venv
fi

stamp=".venv/.installed${1:+-$1}"
versions="$(cat pyproject.toml constraints.txt | cksum) $PWD"
if [ "$(cat "$stamp" 2>/dev/null)" != "$versions" ]; then
    echo "installing posenc$extra (this takes minutes the first time)"
    # In CI, do not compile all packages: Python compiles the modules that the tests import.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check ${CI:+--no-compile} \
        --constraint constraints.txt --editable ".$extra"
    echo "$versions" > "$stamp"
fi
