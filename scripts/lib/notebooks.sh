# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The Python that makes, runs and opens docs/lab's notebooks, and the one that drives a browser. Needs common.sh.

# python_with notebooks|jupyter|browser: prints the interpreter of an environment that has what
# scripts/wheels/notebooks.txt (or the other's) names, made once; the output of pip only where it fails.
python_with() {
  local name=$1 list="$SNUG_ROOT/scripts/wheels/$1.txt"
  local dir="$SNUG_CACHE/python-$name"
  if ! cmp -s "$list" "$dir/.complete"; then
    mkdir -p "$SNUG_CACHE" &&
      (flock 9 && make_python "$dir" "$list") 9>"$SNUG_CACHE/.python-$name.lock" || return
  fi
  echo "$dir/bin/python"
}

# An environment cannot be moved, so it is made where it will be; the list in it is written last.
make_python() {
  local dir=$1 list=$2
  ! cmp -s "$list" "$dir/.complete" || return 0
  say "making $dir ($(sed -n 's/^\([^#= ]*\)==.*/\1/p' "$list" | paste -sd ' '))"
  rm -rf "$dir"
  run_quietly "$SNUG_CACHE/logs/python.log" python3 -m venv "$dir" &&
    run_quietly "$SNUG_CACHE/logs/python.log" "$dir/bin/python" -m pip install --quiet \
      --disable-pip-version-check --only-binary=:all: --requirement "$list" &&
    cp "$list" "$dir/.complete"
}
