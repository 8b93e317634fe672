// Convolutions as matrix products whose matrix of columns is never made. A padded piece of the
// image lies in the cache, and the element of a window's position and a tap is found at the sum of
// two offsets, one of each. So windows of any stride and dilation read what they need, and what is
// copied is the image itself, not a multiple of it. Of the three computations,
//
//   small, big:   positions x taps  times  taps x channels
//   weight:       taps x positions  times  positions x channels
//
// and vectors run along channels (gathered.h), or where these or the taps are few, along rows of
// the image (tile.h).
//
// The padding takes part as zeros in `small` and the weight, as in PyTorch, where zero times
// infinity is NaN. `big` has no terms of padding.
#pragma once

#include <cstdint>

#include "backends/cpu-openmp/convolution/geometry.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {

// The three computations of geometry.h on contiguous arrays of float or double. False where another
// way has to be taken; the result then is untouched, or to be computed again.
template <class T>
bool implicit_small(mt_ctx& ctx, const Geometry& g, const T* big, const T* weight, const T* bias,
                    T* small);
template <class T>
bool implicit_big(mt_ctx& ctx, const Geometry& g, const T* small, const T* weight, const T* bias,
                  T* big);
template <class T>
bool implicit_weight(mt_ctx& ctx, const Geometry& g, const T* big, const T* small, T* weight);

}  // namespace mytorch::cpu
