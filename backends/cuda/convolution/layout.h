// How tensors of a convolution lie for cuDNN: row-major or channels-last, and contiguous.
#pragma once

#include <array>
#include <cstdint>

#include "backends/cuda/convolution/geometry.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {

// Of a tensor of two or three spatial dimensions, batch and channels before them.
struct Layout {
  int ndim = 0;
  std::array<int64_t, 5> size{}, stride{};
};

// A tensor of sizes as the library sees it: one spatial dimension becomes two.
Layout layout_of(const sdk::TensorView& x, bool channels_last);

// An operand in a layout: itself, or a copy in scratch memory.
class ConvertedOperand {
 public:
  ConvertedOperand(mt_ctx& ctx, const sdk::TensorView& x, bool channels_last, bool written);
  ConvertedOperand(const ConvertedOperand&) = delete;

  void* data() const { return data_; }
  const Layout& layout() const { return layout_; }
  // To be called ahead of the work and behind it: they copy.
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

// Whether the operands that are read ask for channels-last.
bool prefers_channels_last(const Convolution& call);

}  // namespace mytorch::cuda
