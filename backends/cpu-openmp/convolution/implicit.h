// Convolutions as matrix products whose matrix of columns is never made: a padded piece of the
// image lies in the cache, and the kernel finds an element of the matrix at the sum of two offsets,
// one of the window's position and one of the tap. So windows of any stride and dilation read what
// they need, no position outside the result is computed, and what is copied is the image itself,
// not a multiple of it. Vectors run along output channels.
//
//   positions x taps  times  taps x channels   small from big, and big from small
//   taps x positions  times  positions x channels   the gradient of the weight
//
// Padding takes part as zeros where the definition of `small` pads, as in PyTorch: zero times
// infinity is NaN in `small` and in the gradient of the weight. `big` has no such terms.
#pragma once

#include <cstdint>

#include "backends/cpu-openmp/convolution/geometry.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {

// The three computations of geometry.h on dense arrays. False, with nothing written or to be
// computed again, where another way is better or must be taken.
template <class T>
bool implicit_small(mt_ctx&, const Geometry&, const T* /*big*/, const T* /*weight*/,
                    const T* /*bias*/, T* /*small*/) {
  return false;
}
template <class T>
bool implicit_big(mt_ctx&, const Geometry&, const T* /*small*/, const T* /*weight*/,
                  const T* /*bias*/, T* /*big*/) {
  return false;
}
template <class T>
bool implicit_weight(mt_ctx&, const Geometry&, const T* /*big*/, const T* /*small*/,
                     T* /*weight*/) {
  return false;
}

#define MYTORCH_CPU_IMPLICIT(T)                                                          \
  template <>                                                                            \
  bool implicit_small<T>(mt_ctx & ctx, const Geometry& g, const T* big, const T* weight, \
                         const T* bias, T* small);                                       \
  template <>                                                                            \
  bool implicit_big<T>(mt_ctx & ctx, const Geometry& g, const T* small, const T* weight, \
                       const T* bias, T* big);                                           \
  template <>                                                                            \
  bool implicit_weight<T>(mt_ctx & ctx, const Geometry& g, const T* big, const T* small, \
                          T* weight)
MYTORCH_CPU_IMPLICIT(float);
MYTORCH_CPU_IMPLICIT(double);
#undef MYTORCH_CPU_IMPLICIT

}  // namespace mytorch::cpu
