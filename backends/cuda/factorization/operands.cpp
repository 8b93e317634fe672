#include "backends/cuda/factorization/operands.h"

#include <algorithm>
#include <string>

namespace mytorch::cuda {

using sdk::TensorView;

Columns::Columns(mt_ctx& ctx, const TensorView& x, std::span<const int64_t> batch, int dims,
                 bool own)
    : ctx_(ctx), x_(x), tensor_(*x.get()) {
  const auto before = static_cast<int>(batch.size());
  sdk::check_ndim(static_cast<size_t>(before + dims));
  if (dims == 2) rows_ = x.size(-2), columns_ = x.size(-1);
  if (dims == 1) rows_ = x.size(-1);
  int64_t stride = 1;
  for (int d = 0; d < dims; ++d) {
    shape_[before + d] = x.size(d - dims);
    strides_[before + d] = stride;
    stride *= shape_[before + d];
  }
  for (int d = before - 1; d >= 0; --d) {
    shape_[d] = batch[static_cast<size_t>(d)];
    strides_[d] = stride;
    stride *= shape_[d];
    count_ *= shape_[d];
  }
  in_place_ = !own && x.ndim() == before + dims;
  for (int d = 0; in_place_ && d < x.ndim(); ++d) {
    in_place_ = x.size(d) == shape_[d] && (x.size(d) == 1 || x.stride(d) == strides_[d]);
  }
  tensor_.dl.ndim = before + dims;
  tensor_.dl.shape = shape_;
  tensor_.dl.strides = strides_;
  tensor_.flags = 0;
  if (in_place_) return;
  tensor_.dl.byte_offset = 0;
  tensor_.dl.data = scratch_bytes(
      ctx, static_cast<size_t>(std::max<int64_t>(1, stride) * sdk::itemsize(x.dtype())));
}

void Columns::load() {
  if (!in_place_) move(ctx_, x_, view());
}
void Columns::store() {
  if (!in_place_) move(ctx_, view(), x_);
}

MatrixSites::MatrixSites(const char* op, const char* message)
    : single(fault_site(op, message)),
      batched(fault_site(op, (std::string("(batch element {size}) ") + message).c_str())) {}

}  // namespace mytorch::cuda
