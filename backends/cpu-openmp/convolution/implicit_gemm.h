// Convolution by implicit GEMM: matrix products whose im2col matrix is never stored. A padded piece
// of the input is copied to the cache. The im2col element of a window position and a tap is at the
// sum of two offsets in this piece, one of the position and one of the tap. So windows with any
// stride and dilation read the elements that they need, and each element is copied once, not once
// per tap. The products are
//
//   output, gradient of the input:   (positions x taps) (taps x channels)
//   gradient of the weight:          (taps x positions) (positions x channels)
//
// Vectors run along channels (implicit_microkernel.h). If channels or taps are few, they run along
// rows of the input (direct_microkernel.h): direct convolution on the same padded copy.
//
// In the output and the gradient of the weight, the padding is multiplied as zeros, as in PyTorch:
// zero times infinity is NaN. The gradient of the input has no terms for padding.
#pragma once

#include <cstdint>

#include "mytorch/backend.h"

namespace mytorch::cpu {

// Perform the three computations of mytorch/backend/windows.h on contiguous arrays of float or
// double. Return false if implicit GEMM does not apply; the contents of the result are then
// unspecified.
template <class T>
bool implicit_forward(mt_ctx& ctx, const sdk::ConvolutionGeometry& g, const T* input,
                      const T* weight, const T* bias, T* output);
template <class T>
bool implicit_backward_input(mt_ctx& ctx, const sdk::ConvolutionGeometry& g, const T* output,
                             const T* weight, const T* bias, T* input);
template <class T>
bool implicit_backward_weight(mt_ctx& ctx, const sdk::ConvolutionGeometry& g, const T* input,
                              const T* output, T* weight);

}  // namespace mytorch::cpu
