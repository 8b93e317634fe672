#include "autograd/engine/wholes.h"

#include <algorithm>

#include "autograd/operators.h"

namespace mytorch::autograd {
namespace {

// Returns whether `part` has the dimensions of `whole` from `first` on, which are its own from
// `own` on.
bool continues(const Tensor& whole, int64_t first, const Tensor& part, int64_t own) {
  for (; first < whole.dim(); ++first, ++own) {
    if (whole.size(first) != part.size(own) || whole.stride(first) != part.stride(own)) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<Slice> slice_of(const Tensor& whole, const Tensor& part) {
  if (whole.dim() == 0 || part.numel() == 0) return std::nullopt;
  const bool keeps = part.dim() == whole.dim();
  if (!keeps && part.dim() + 1 != whole.dim()) return std::nullopt;
  int64_t dim = 0;
  while (dim + 1 < whole.dim() && whole.size(dim) == part.size(dim) &&
         whole.stride(dim) == part.stride(dim)) {
    ++dim;
  }
  const int64_t stride = whole.stride(dim);
  if (!continues(whole, dim + 1, part, keeps ? dim + 1 : dim)) return std::nullopt;
  if (keeps && part.size(dim) > 1 && part.stride(dim) != stride) return std::nullopt;
  const int64_t offset = part.impl()->offset() - whole.impl()->offset();
  if (offset % stride != 0) return std::nullopt;
  const int64_t begin = offset / stride, size = keeps ? part.size(dim) : 1;
  if (begin < 0 || begin + size > whole.size(dim)) return std::nullopt;
  return Slice{dim, begin, begin + size};
}

void Wholes::begin(const Tensor* sum, const Slice& slice) {
  wholes_[sum] = {slice.dim, {{slice.begin, slice.end}}};
}

bool Wholes::take(const Tensor* sum, const Slice& slice) {
  const auto found = wholes_.find(sum);
  if (found == wholes_.end() || found->second.dim != slice.dim) return false;
  auto& slices = found->second.slices;
  const auto next = std::lower_bound(slices.begin(), slices.end(),
                                     std::pair<int64_t, int64_t>(slice.begin, slice.end));
  const bool has_next = next != slices.end(), has_last = next != slices.begin();
  if (has_next && next->first < slice.end) return false;
  if (has_last && std::prev(next)->second > slice.begin) return false;
  // Slices that touch become one, so that a sequence keeps few.
  const bool joins_next = has_next && next->first == slice.end;
  const bool joins_last = has_last && std::prev(next)->second == slice.begin;
  if (joins_last && joins_next) {
    std::prev(next)->second = next->second;
    slices.erase(next);
  } else if (joins_last) {
    std::prev(next)->second = slice.end;
  } else if (joins_next) {
    next->first = slice.begin;
  } else {
    slices.insert(next, {slice.begin, slice.end});
  }
  return true;
}

void Wholes::complete(const Tensor* sum) {
  const auto found = wholes_.find(sum);
  if (found == wholes_.end()) return;
  const Written written = std::move(found->second);
  wholes_.erase(found);
  const auto fill = [&](int64_t begin, int64_t end) {
    if (begin == end) return;
    std::vector<int64_t> sizes = sum->sizes().vec();
    sizes[static_cast<size_t>(written.dim)] = end - begin;
    op::zero_(op::as_strided(*sum, sizes, sum->strides(),
                             sum->impl()->offset() + begin * sum->stride(written.dim)));
  };
  int64_t at = 0;
  for (const auto& [begin, end] : written.slices) {
    fill(at, begin);
    at = end;
  }
  fill(at, sum->size(written.dim));
}

}  // namespace mytorch::autograd
