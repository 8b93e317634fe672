#include "backends/cuda/convolution/layout.h"

#include "backends/cuda/common/move.h"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// The strides that the tensor itself has in a layout.
void strides_of(const Layout& layout, int ndim, int64_t* strides) {
  const int more = layout.ndim - ndim;
  for (int d = 0; d < ndim; ++d) {
    strides[d] = layout.stride[static_cast<size_t>(d < 2 ? d : d + more)];
  }
}

bool has_layout(const TensorView& x, const Layout& layout) {
  int64_t strides[5];
  strides_of(layout, x.ndim(), strides);
  for (int d = 0; d < x.ndim(); ++d) {
    if (x.size(d) != 1 && x.stride(d) != strides[d]) return false;
  }
  return true;
}

}  // namespace

Layout layout_of(const TensorView& x, bool channels_last) {
  Layout layout;
  const int more = x.ndim() == 3 ? 1 : 0;
  layout.ndim = x.ndim() + more;
  layout.size[0] = x.size(0);
  layout.size[1] = x.size(1);
  if (more) layout.size[2] = 1;
  const size_t first = more != 0 ? 3 : 2;
  for (int d = 2; d < x.ndim(); ++d) layout.size[first + static_cast<size_t>(d - 2)] = x.size(d);
  int64_t stride = 1;
  const auto put = [&](int d) {
    layout.stride[static_cast<size_t>(d)] = stride;
    stride *= layout.size[static_cast<size_t>(d)];
  };
  if (channels_last) put(1);
  for (int d = layout.ndim - 1; d >= 2; --d) put(d);
  if (!channels_last) put(1);
  put(0);
  return layout;
}

ConvertedOperand::ConvertedOperand(mt_ctx& ctx, const TensorView& x, bool channels_last,
                                   bool written)
    : ctx_(ctx), x_(x), layout_(layout_of(x, channels_last)), written_(written) {
  data_ = x.raw();
  if (has_layout(x, layout_)) return;
  strides_of(layout_, x.ndim(), strides_);
  copy_ = *x.get();
  copy_.dl.strides = strides_;
  copy_.dl.byte_offset = 0;
  copy_.dl.data = data_ = scratch_bytes(ctx, static_cast<size_t>(x.numel() * x.itemsize()));
  copy_.flags = 0;
  copied_ = true;
}

void ConvertedOperand::copy_in() {
  if (copied_ && !written_) move(ctx_, x_, &copy_);
}
void ConvertedOperand::copy_out() {
  if (copied_ && written_) move(ctx_, &copy_, x_);
}

bool prefers_channels_last(const Convolution& call) {
  const auto last = [](const TensorView& x) {
    return x.size(1) > 1 && x.stride(1) == 1 && has_layout(x, layout_of(x, true)) &&
           !has_layout(x, layout_of(x, false));
  };
  // The operands that are read decide.
  return (call.computed != Convolution::kOutput && last(call.output)) ||
         (call.computed != Convolution::kInput && last(call.input)) ||
         (call.computed != Convolution::kWeight && last(call.weight));
}

}  // namespace mytorch::cuda
