# Installs what a bare Debian 12 lacks. Sourced by the scripts beside this folder:
#
#   need build          packages for the build
#   need test           also packages for the tests and checks
#   need docs           only packages for the website
#   need_compiler NAME  g++-N or clang-N, with its libraries for sanitizers; sets c and cxx to its commands

build_packages=(
  g++ cmake ninja-build python3 python3-yaml ccache mold ca-certificates
  libabsl-dev libhwy-dev libdnnl-dev nlohmann-json3-dev zlib1g-dev libcli11-dev libjpeg62-turbo-dev libpng-dev
  libpcre2-dev libutf8proc-dev liblapacke-dev libopenblas-openmp-dev libfftw3-dev libxbyak-dev libopenmpi-dev openmpi-bin
)
test_packages=(
  git libgtest-dev libgmock-dev libbenchmark-dev clang-format clang-tidy black make pkg-config libeigen3-dev
  chromium iproute2 python3-dev python3-numpy
)
docs_packages=(python3 python3-yaml python3-pygments mkdocs)

# With the minutes since the outermost script began.
export MYTORCH_SCRIPT_BEGAN=${MYTORCH_SCRIPT_BEGAN:-$EPOCHSECONDS}
say() { printf '\033[1m== %s (%d min)\033[0m\n' "$*" $(((EPOCHSECONDS - MYTORCH_SCRIPT_BEGAN) / 60)) >&2; }

installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q '^install ok installed'; }

need() {
  local wanted=("${build_packages[@]}") missing=() package
  [ "$1" = test ] && wanted+=("${test_packages[@]}")
  [ "$1" = docs ] && wanted=("${docs_packages[@]}")
  command -v dpkg-query >/dev/null || return 0  # not Debian: the user installs the packages
  for package in "${wanted[@]}"; do
    installed "$package" || missing+=("$package")
  done
  [ "${#missing[@]}" -eq 0 ] && return 0
  say "installing ${missing[*]}"
  local root=()
  [ "$(id -u)" -eq 0 ] || root=(sudo)
  "${root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null
  found_more=yes
}

need_compiler() {
  local build_packages
  case $1 in
    g++-*) build_packages=("$1") c=gcc-${1#g++-} cxx=$1 ;;
    clang-*) build_packages=("$1" "libomp-${1#*-}-dev" "libclang-rt-${1#*-}-dev") c=$1 cxx=clang++-${1#*-} ;;
    *) return 1 ;;
  esac
  need build
}

# build PRESET [cmake options] -- [targets]: configures once, and again when `need` has installed a package that
# was missing before, or when build_to_run has left out instruction sets; builds the targets.
build() {
  local preset=$1 options=() targets=()
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1"); shift; done
  [ $# -gt 0 ] && shift
  targets=("$@")
  say "building $preset"
  if [ ! -f "build/$preset/build.ninja" ] || [ "${#options[@]}" -gt 0 ] || [ -n "${found_more:-}" ] ||
    { [ -z "${to_run:-}" ] && for_this_machine "$preset"; }; then
    cmake --preset "$preset" "${options[@]}" >"build-$preset.log" 2>&1 || {
      cat "build-$preset.log" >&2
      return 1
    }
    rm -f "build-$preset.log"
  fi
  cmake --build "build/$preset" ${targets[@]:+--target "${targets[@]}"} -- --quiet
}

for_this_machine() { grep -qs '^MYTORCH_CPU_SETS:.*=native$' "build/$1/CMakeCache.txt"; }

# build_to_run PRESET TARGETS: builds programs to run on this machine. Unless the folder has a complete build, the CPU
# backend is compiled for this processor alone, which takes less time.
build_to_run() {
  local preset=$1 to_run=yes options=()
  shift
  if [ ! -f "build/$preset/build.ninja" ] || { [ -n "${found_more:-}" ] && for_this_machine "$preset"; }; then
    options=(-DMYTORCH_CPU_SETS=native)
  fi
  build "$preset" "${options[@]}" -- "$@"
}
