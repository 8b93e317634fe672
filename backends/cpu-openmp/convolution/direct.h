// Convolutions of stride 1 without a matrix of columns. In images padded with zeros, all positions
// of all rows of several images are one long line, and a tap is a shift along it: the element that
// tap k sees at position p lies at p + shift(k). The products of a tile of channels and positions
// stay in registers while taps and channels go by, all reads are contiguous, and a padded image,
// unlike its columns, fits in the L2.
#pragma once

#include <cstdint>

#include "backends/cpu-openmp/convolution/geometry.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {

// The three computations of geometry.h on dense arrays. False when they are better done otherwise,
// or must be; the result then is untouched, or unspecified and to be computed again.
template <class T>
bool direct_small(mt_ctx&, const Geometry&, const T* /*big*/, const T* /*weight*/,
                  const T* /*bias*/, T* /*small*/) {
  return false;
}
template <class T>
bool direct_big(mt_ctx&, const Geometry&, const T* /*small*/, const T* /*weight*/,
                const T* /*bias*/, T* /*big*/) {
  return false;
}
template <class T>
bool direct_weight(mt_ctx&, const Geometry&, const T* /*big*/, const T* /*small*/, T* /*weight*/) {
  return false;
}

#define MYTORCH_CPU_DIRECT(T)                                                          \
  template <>                                                                          \
  bool direct_small<T>(mt_ctx & ctx, const Geometry& g, const T* big, const T* weight, \
                       const T* bias, T* small);                                       \
  template <>                                                                          \
  bool direct_big<T>(mt_ctx & ctx, const Geometry& g, const T* small, const T* weight, \
                     const T* bias, T* big);                                           \
  template <>                                                                          \
  bool direct_weight<T>(mt_ctx & ctx, const Geometry& g, const T* big, const T* small, T* weight)
MYTORCH_CPU_DIRECT(float);
MYTORCH_CPU_DIRECT(double);
#undef MYTORCH_CPU_DIRECT

}  // namespace mytorch::cpu
