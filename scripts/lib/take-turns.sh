# Functions for scripts that alternate between our program and a peer's. The caller sets `ours` and `peer`, the
# programs, and may set `peer_libs`.

die() {
  echo "$(basename "$0"): $*" >&2
  exit 2
}

# The comment at the top of a script is its help.
usage_of() { awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$1"; }

need_programs() {
  local program
  for program in "$@"; do
    [[ -x $program ]] || die "$program: not built"
  done
}

# Each BLAS has its own thread pool, which the program's setting does not affect.
set_threads() {
  export OMP_NUM_THREADS=$1 OPENBLAS_NUM_THREADS=$1 BLIS_NUM_THREADS=$1 MKL_NUM_THREADS=$1
}

run_ours() { "$ours" "$@"; }

run_peer() {
  local path=${LD_LIBRARY_PATH:-}
  LD_LIBRARY_PATH=${peer_libs:-}${peer_libs:+${path:+:}}$path "$peer" "$@"
}

# take_turns ROUND DIRECTORY TAG ARGUMENTS...: runs both, writing DIRECTORY/{ours,peer}.TAG*.json.
# The order alternates between rounds, because the second program runs on a warmer machine.
take_turns() {
  local round=$1 directory=$2 tag=$3 side order='peer ours'
  shift 3
  ((round % 2)) || order='ours peer'
  for side in $order; do
    echo "round $round: $side ${tag%.}" >&2
    "run_$side" "$@" >"$directory/$side.${tag}r$round.json" 2>"$directory/log" || {
      cat "$directory/log" >&2
      die "$side failed in round $round"
    }
  done
}
