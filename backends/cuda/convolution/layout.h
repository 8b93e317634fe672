// Layouts of cuDNN's tensors: contiguous, row-major or channels-last.
#pragma once

#include <array>
#include <cstdint>

#include "backends/cuda/convolution/convolution.h"
#include "backends/cuda/runtime/sdk.h"

namespace mytorch::cuda {

// Sizes and strides of a tensor with batch, channels and two or three spatial dimensions.
struct Layout {
  int ndim = 0;
  std::array<int64_t, 5> size{}, stride{};
};

// Returns the contiguous layout for the sizes of `x`; one spatial dimension becomes two.
Layout layout_of(const sdk::TensorView& x, bool channels_last);

// An operand in a layout: itself, or a converted copy in scratch memory.
class ConvertedOperand {
 public:
  ConvertedOperand(mt_ctx& ctx, const sdk::TensorView& x, bool channels_last, bool written);
  ConvertedOperand(const ConvertedOperand&) = delete;

  void* data() const { return data_; }
  const Layout& layout() const { return layout_; }
  // Call copy_in() before the work and copy_out() after it: they copy the operand if it is
  // converted.
  void copy_in();
  void copy_out();

 private:
  mt_ctx& ctx_;
  sdk::TensorView x_;
  Layout layout_;
  bool written_;
  bool copied_ = false;
  void* data_;
  mt_tensor copy_{};
  int64_t strides_[5]{};
};

// Whether the operands that are read are channels-last.
bool prefers_channels_last(const Convolution& call);

}  // namespace mytorch::cuda
