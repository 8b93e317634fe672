#!/usr/bin/env bash
# OpenBLAS knows processors by their numbers, not by their instruction sets. An x86 processor that is newer than the
# library runs the kernels of a Prescott of 2004, silently. One of them, the product of a lower symmetric float32 matrix
# and a vector, multiplies memory that nobody has written by zero: after a call that leaves other bits there, finite
# operands give NaN.
#
# Expected: a processor that has AVX2 or AVX-512 runs the kernels for these, whatever its model is; ssymv with beta 0 and
# finite operands is finite.
# Seen: OpenBLAS 0.3.21 (Debian 12) on a Xeon of 2023 (family 6, model 207, with AVX-512 and AMX) names its core
# "Prescott". With these kernels, ssymv of a 2 x 2 matrix of ones is NaN after dsymv of 49 x 49 random numbers, and so
# eigenvectors of float32 matrices (ssytrd) are NaN in a process that has factorized float64 matrices before. The
# program below asks for these kernels, so that it shows the product on any x86 processor.
#
# Remedy: look at openblas_get_corename(); OPENBLAS_CORETYPE=SkylakeX or Haswell before the library is loaded.
set -euo pipefail
shopt -s inherit_errexit
version=0.3.21+ds-4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
chmod 755 .
apt-get -o APT::Sandbox::User=root download -qq "libopenblas0-openmp=$version" libgfortran5 libgomp1 libquadmath0
for package in ./*.deb; do dpkg -x "$package" root; done
cat >product.c <<'C'
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void ssymv_(const char*, const int*, const float*, const float*, const int*, const float*, const int*, const float*,
            float*, const int*);
void dsymv_(const char*, const int*, const double*, const double*, const int*, const double*, const int*,
            const double*, double*, const int*);
char* openblas_get_corename(void);

int main(void) {
  static double wide[49 * 49], u[49], v[49];
  const int many = 49, two = 2, step = 1;
  const double one = 1, zero = 0;
  int wrong = 0;
  srand(3);
  for (int turn = 0; turn < 200; ++turn) {
    for (int i = 0; i < many * many; ++i) wide[i] = rand() / (double)RAND_MAX - 0.5;
    for (int i = 0; i < many; ++i) u[i] = rand() / (double)RAND_MAX - 0.5;
    dsymv_("L", &many, &one, wide, &many, u, &step, &zero, v, &step);
    const float ones[4] = {1, 1, 1, 1}, alpha = 1, beta = 0;
    float y[2] = {0, 0};
    ssymv_("L", &two, &alpha, ones, &two, ones, &step, &beta, y, &step);
    wrong += isnan(y[0]) || isnan(y[1]);
  }
  printf("%s %s\n", openblas_get_corename(), wrong > 0 ? "NaN" : "finite");
  return 0;
}
C
libraries=$PWD/root/usr/lib/x86_64-linux-gnu
gcc -O1 -Wall product.c -o product "$libraries/openblas-openmp/libopenblas.so.0" -lm
export LD_LIBRARY_PATH=$libraries/openblas-openmp:$libraries OMP_NUM_THREADS=1
old=$(OPENBLAS_CORETYPE=Prescott ./product)
known=$(OPENBLAS_CORETYPE=Haswell ./product)
echo "OpenBLAS $version: $old; $known; this processor unasked: $(env -u OPENBLAS_CORETYPE ./product)"
[ "$old" = "Prescott NaN" ] && [ "$known" = "Haswell finite" ] || { echo "this has changed" >&2; exit 1; }
