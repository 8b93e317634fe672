// Lists of tensors, such as the parameters of a network and their gradients, that one launch
// processes. The table of their addresses is a kernel parameter, in which a block finds its part of
// a tensor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"

namespace mytorch::cuda {

inline constexpr int kListThreads = 256;
// Elements per block.
template <class T>
inline constexpr int64_t kChunk = int64_t{kListThreads} * kPack<T> * 8;

// Tables fit the 32 KiB of kernel parameters; small networks use a smaller table.
inline constexpr int kManyTensors = 512;
inline constexpr int kFewTensors = 24;

template <int kLists, int kTensors>
struct Table {
  void* data[kLists][kTensors];
  int64_t numel[kTensors];
  uint32_t first[kTensors];  // the first block of each tensor
  int32_t count;
};

#ifdef __CUDACC__

// The elements [begin, begin + n) of a tensor.
struct Part {
  int tensor, n;
  int64_t begin;
};

// Returns the part of the calling block.
template <class T, class Table>
__device__ __forceinline__ Part part_of(const Table& table) {
  // Binary search for the last tensor that begins at or before this block.
  int low = 0, high = table.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table.first[middle] <= blockIdx.x) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const int64_t begin = int64_t{blockIdx.x - table.first[low]} * kChunk<T>;
  const int64_t rest = table.numel[low] - begin;
  return {low, static_cast<int>(rest < kChunk<T> ? rest : kChunk<T>), begin};
}

#endif  // __CUDACC__

// The lists of a call, of equal lengths.
class Lists {
 public:
  // Throws sdk::Declined if the tensors of a parameter are not dense in the same order or differ in
  // type; those in `others`, which follow the lists, have a type of their own, the same for all.
  explicit Lists(std::initializer_list<mt_tensor_list> lists,
                 std::initializer_list<mt_tensor_list> others = {})
      : lists_(lists) {
    const size_t count = lists_.size();
    lists_.insert(lists_.end(), others);
    for (int64_t i = 0; i < size(); ++i) {
      for (size_t k = 0; k < lists_.size(); ++k) {
        const sdk::TensorView own = lists_[k].data[i];
        const sdk::TensorView like = k < count ? first(i) : lists_[count].data[0];
        if (!sdk::same_dtype(own.dtype(), like.dtype()) || !alike(own, first(i))) {
          throw sdk::Declined{};
        }
      }
    }
  }
  int64_t size() const { return lists_[0].size; }
  sdk::TensorView first(int64_t i) const { return lists_[0].data[i]; }
  void* data(size_t list, int64_t i) const { return sdk::TensorView(lists_[list].data[i]).raw(); }

 private:
  // Whether both have the same shape, and element i of both has the same offset in memory without
  // gaps.
  static bool alike(const sdk::TensorView& t, const sdk::TensorView& like) {
    if (!sdk::same_shape(t, like)) return false;
    if ((t.get()->flags & like.get()->flags & MT_TENSOR_CONTIGUOUS) != 0) return true;
    int64_t last = 0, numel = 1;
    for (int d = 0; d < like.ndim(); ++d) {
      if (like.size(d) != 1 && t.stride(d) != like.stride(d)) return false;
      last += (like.size(d) - 1) * like.stride(d);
      numel *= like.size(d);
    }
    return numel == 0 || last + 1 == numel;
  }

  std::vector<mt_tensor_list> lists_;
};

// Calls f(dtype, which) for each type of the first list, with the indices of its tensors that are
// not empty.
template <class F>
void for_each_type(const Lists& lists, F&& f) {
  std::vector<int64_t> left;
  for (int64_t i = 0; i < lists.size(); ++i) {
    if (lists.first(i).numel() != 0) left.push_back(i);
  }
  while (!left.empty()) {
    const mt_dtype dtype = lists.first(left[0]).dtype();
    const auto rest = std::stable_partition(left.begin(), left.end(), [&](int64_t i) {
      return sdk::same_dtype(lists.first(i).dtype(), dtype);
    });
    const std::vector<int64_t> which(left.begin(), rest);
    left.erase(left.begin(), rest);
    f(dtype, which);
  }
}

namespace internal {

template <class T, int kLists, int kTensors, class F>
void for_each_table(const Lists& lists, const std::vector<int64_t>& which, F&& f) {
  Table<kLists, kTensors> table;
  size_t next = 0;
  while (next < which.size()) {
    uint32_t blocks = 0;
    int count = 0;
    for (; next < which.size() && count < kTensors; ++next) {
      const int64_t i = which[next];
      const int64_t numel = lists.first(i).numel();
      const int64_t more = (numel + kChunk<T> - 1) / kChunk<T>;
      if (more > (int64_t{1} << 31) - 1 - blocks) break;
      for (int k = 0; k < kLists; ++k) {
        table.data[k][count] = lists.data(static_cast<size_t>(k), i);
      }
      table.numel[count] = numel;
      table.first[count] = blocks;
      blocks += static_cast<uint32_t>(more);
      ++count;
    }
    table.count = count;
    Grid grid;
    grid.blocks = dim3(blocks);
    grid.threads = dim3(kListThreads);
    f(table, grid);
  }
}

}  // namespace internal

// Calls f(table, grid) for tables of the tensors `which`, whose elements are T: one, unless there
// are more than kManyTensors.
template <class T, int kLists, class F>
void for_each_table(const Lists& lists, const std::vector<int64_t>& which, F&& f) {
  if (which.size() <= kFewTensors) {
    internal::for_each_table<T, kLists, kFewTensors>(lists, which, f);
  } else {
    internal::for_each_table<T, kLists, kManyTensors>(lists, which, f);
  }
}

}  // namespace mytorch::cuda
