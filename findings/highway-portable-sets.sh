#!/usr/bin/env bash
# Which of Highway's two portable sets a program gets depends on the compiler's patch release, and they do not agree on
# the sign of zero (libhwy-dev 1.0.3, Debian 12).
#
# Expected: where no vector instructions are used, results do not depend on the compiler; Floor and Trunc of -0 are -0,
# as std::floor and std::trunc give, and as Highway's vector sets give.
# Seen: GCC before 12.3, so that of Debian 12, gets SCALAR; GCC from 12.3 on and clang get EMU128, from the same source.
# Floor(-0) is +0 in both; Trunc(-0) is -0 in SCALAR and +0 in EMU128, without optimization, too. So a program that
# mends what SCALAR does wrong becomes wrong with a newer GCC.
#
# Remedy: define HWY_BROKEN_EMU128=1, so that the portable set is SCALAR with every compiler, and mend that one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
chmod 755 .
version=1.0.3-3+deb12u1
apt-get -o APT::Sandbox::User=root download -qq "libhwy-dev=$version" "libhwy1=$version"
for package in ./*.deb; do dpkg -x "$package" root; done

cat >round.cpp <<'CPP'
#include <cmath>
#include <cstdio>

#include "hwy/highway.h"
HWY_BEFORE_NAMESPACE();
namespace hn = hwy::HWY_NAMESPACE;
void round(const float* from, float* floors, float* truncated) {
  const hn::ScalableTag<float> d;
  const auto x = hn::LoadU(d, from);
  hn::StoreU(hn::Floor(x), d, floors);
  hn::StoreU(hn::Trunc(x), d, truncated);
}
HWY_AFTER_NAMESPACE();
int main() {
  const float zeros[4] = {-0.f, -0.f, -0.f, -0.f};
  float floors[4], truncated[4];
  round(zeros, floors, truncated);
  std::printf("%s: floor(-0) = %g, trunc(-0) = %g\n", hwy::TargetName(HWY_TARGET), floors[0], truncated[0]);
}
CPP

libraries=root/usr/lib/$(uname -m)-linux-gnu
compile() {
  g++ -std=c++17 -O0 -Iroot/usr/include -DHWY_COMPILE_ONLY_EMU128 "-DHWY_BROKEN_EMU128=$1" round.cpp -L"$libraries" -lhwy \
    -Wl,-rpath,"$folder/$libraries" -o round
  ./round
}
emulated=$(compile 0) scalar=$(compile 1)
printf 'libhwy-dev %s, %s\n%s\n%s\n' "$version" "$(g++ --version | head -n 1)" "$emulated" "$scalar"
[ "$emulated" = "EMU128: floor(-0) = 0, trunc(-0) = 0" ] && [ "$scalar" = "SCALAR: floor(-0) = 0, trunc(-0) = -0" ] || {
  echo "this has changed" >&2
  exit 1
}
