#include "nn/data/gather.h"

#include <cstring>

#include "core/tensor/capture_layer.h"
#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/stack.h"
#include "nn/common/host_tensor.h"

namespace mytorch::nn::data {
namespace {

std::vector<int64_t> batch_sizes(size_t n, IntList example) {
  std::vector<int64_t> sizes{static_cast<int64_t>(n)};
  sizes.insert(sizes.end(), example.begin(), example.end());
  return sizes;
}

void check_alike(const Tensor& tensor, int64_t index, const Tensor& first, int64_t first_index) {
  if (!(tensor.sizes() == first.sizes())) {
    fail(ErrorCode::kShape, "[Dataset] examples ", first_index, " and ", index, " have shapes ",
         shape_str(first.sizes()), " and ", shape_str(tensor.sizes()),
         ": a batch needs one shape; pad or crop in get()");
  }
  if (tensor.dtype() != first.dtype()) {
    fail(ErrorCode::kType, "[Dataset] examples ", first_index, " and ", index, " are ",
         dtype_name(first.dtype()), " and ", dtype_name(tensor.dtype()),
         ": a batch needs one type; convert in get()");
  }
  if (tensor.device() != first.device()) {
    fail(ErrorCode::kDevice, "[Dataset] examples ", first_index, " and ", index, " are on ",
         first.device().str(), " and ", tensor.device().str(), ": a batch needs one device");
  }
}

}  // namespace

void check_index(const char* what, int64_t index, int64_t size) {
  if (index < 0 || index >= size) {
    fail(ErrorCode::kValue, "[", what, "] index ", index, " is out of range for ", size,
         " examples: give one from 0 to ", size - 1);
  }
}

void check_indices(const char* what, IntList indices, int64_t size) {
  if (indices.empty()) fail(ErrorCode::kValue, "[", what, "] a batch needs at least one index");
  for (int64_t index : indices) check_index(what, index, size);
}

Tensor stack_tensors(const std::vector<Tensor>& examples, IntList indices) {
  NoGradGuard no_grad;
  const Tensor& first = examples[0];
  for (size_t i = 1; i < examples.size(); ++i) {
    check_alike(examples[i], indices[i], first, indices[0]);
  }
  if (!first.device().is_cpu()) return stack(examples);
  Tensor batch = fresh_host_tensor(batch_sizes(examples.size(), first.sizes()), first.dtype());
  const size_t bytes = static_cast<size_t>(first.numel() * first.element_size());
  char* to = fresh_data<char>(batch);
  for (const Tensor& example : examples) {
    const Tensor contiguous = example.is_contiguous() ? example : example.contiguous();
    check_host_access(contiguous, "stack_tensors");
    if (bytes != 0) std::memcpy(to, contiguous.raw_data(), bytes);
    to += bytes;
  }
  return batch;
}

Tensor gather_rows(const Tensor& from, IntList indices) {
  NoGradGuard no_grad;
  if (!from.device().is_cpu()) {
    return from.index_select(0, tensor(indices.vec()).to(from.device()));
  }
  const IntList row{from.sizes().data() + 1, from.sizes().size() - 1};
  Tensor batch = fresh_host_tensor(batch_sizes(indices.size(), row), from.dtype());
  const size_t bytes = static_cast<size_t>(count(row) * from.element_size());
  if (bytes == 0) return batch;
  check_host_access(from, "gather_rows");
  const char* rows = static_cast<const char*>(from.raw_data());
  char* to = fresh_data<char>(batch);
  for (size_t i = 0; i < indices.size(); ++i, to += bytes) {
    prefetch_row(rows, bytes, indices, i);
    std::memcpy(to, rows + static_cast<size_t>(indices[i]) * bytes, bytes);
  }
  return batch;
}

}  // namespace mytorch::nn::data
