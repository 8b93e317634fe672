#include "backends/cuda/convolution/forms.h"

#include "backends/cuda/kernel/move.h"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// The strides of the tensor itself that a form gives.
void strides_of(const Form& form, int ndim, int64_t* strides) {
  const int more = form.ndim - ndim;
  for (int d = 0; d < ndim; ++d) {
    strides[d] = form.stride[static_cast<size_t>(d < 2 ? d : d + more)];
  }
}

bool lies_so(const TensorView& x, const Form& form) {
  int64_t strides[5];
  strides_of(form, x.ndim(), strides);
  for (int d = 0; d < x.ndim(); ++d) {
    if (x.size(d) != 1 && x.stride(d) != strides[d]) return false;
  }
  return true;
}

}  // namespace

Form form_of(const TensorView& x, bool channels_last) {
  Form form;
  const int more = x.ndim() == 3 ? 1 : 0;
  form.ndim = x.ndim() + more;
  form.size[0] = x.size(0);
  form.size[1] = x.size(1);
  if (more) form.size[2] = 1;
  for (int d = 2; d < x.ndim(); ++d) form.size[static_cast<size_t>(d + more)] = x.size(d);
  int64_t stride = 1;
  const auto put = [&](int d) {
    form.stride[static_cast<size_t>(d)] = stride;
    stride *= form.size[static_cast<size_t>(d)];
  };
  if (channels_last) put(1);
  for (int d = form.ndim - 1; d >= 2; --d) put(d);
  if (!channels_last) put(1);
  put(0);
  return form;
}

Formed::Formed(mt_ctx& ctx, const TensorView& x, bool channels_last, bool written)
    : ctx_(ctx), x_(x), form_(form_of(x, channels_last)), written_(written) {
  data_ = x.raw();
  if (lies_so(x, form_)) return;
  strides_of(form_, x.ndim(), strides_);
  copy_ = *x.get();
  copy_.dl.strides = strides_;
  copy_.dl.byte_offset = 0;
  copy_.dl.data = data_ = scratch_bytes(ctx, static_cast<size_t>(x.numel() * x.itemsize()));
  copy_.flags = 0;
  copied_ = true;
}

void Formed::before() {
  if (copied_ && !written_) move(ctx_, x_, &copy_);
}
void Formed::after() {
  if (copied_ && written_) move(ctx_, &copy_, x_);
}

bool prefers_channels_last(const Convolution& call) {
  const auto last = [](const TensorView& x) {
    return x.size(1) > 1 && x.stride(1) == 1 && lies_so(x, form_of(x, true)) &&
           !lies_so(x, form_of(x, false));
  };
  // The operands that are read decide.
  return (call.target != Target::kSmall && last(call.small)) ||
         (call.target != Target::kBig && last(call.big)) ||
         (call.target != Target::kWeight && last(call.weight));
}

}  // namespace mytorch::cuda
