// Attention and its gradient as graphs of cuDNN operations: products, pointwise operations and
// reductions, in the order that the library's fused engines recognize.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "backends/cuda/common/cudnn.h"

namespace mytorch::cuda {

// Batch, head, row and column.
using Sizes4 = std::array<int64_t, 4>;
struct Layout4 {
  Sizes4 size{}, stride{};  // in elements
};

struct CudnnAttention {
  cudnnDataType_t type;       // of all operands but logsumexp
  Layout4 query, key, value;  // (B, H, L, D), (B, K, S, D), (B, K, S, V)
  Layout4 output;             // (B, H, L, V)
  // (B or 1, H or 1, L or 1, S), added to the scores. (The library crashes on a bool mask.)
  std::optional<Layout4> mask;
  // Query i sees key j if i + lowest <= j <= i + highest.
  std::optional<int64_t> lowest, highest;

  // Of the gradient.
  Layout4 grad_output, grad_query, grad_key, grad_value;
  std::optional<Layout4> grad_mask;
  bool deterministic = true;  // at the price of a workspace of (B, H, L, S) elements

  int64_t batch() const { return query.size[0]; }
  int64_t heads() const { return query.size[1]; }
  int64_t queries() const { return query.size[2]; }
  int64_t keys() const { return key.size[2]; }
  int64_t width() const { return query.size[3]; }
};

// The identifiers of a graph's operands.
enum CudnnOperand : int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kOutput,
  kLogsumexp,  // float32 (B, H, L, 1), contiguous
  kMask,
  kGradOutput,
  kGradQuery,
  kGradKey,
  kGradValue,
  kGradMask,
  kRowSums,    // scratch: float32 (B, H, L, 1), contiguous
  kQuerySums,  // scratch: float32 (B, H, L, D), contiguous; only if not deterministic
  kScale,      // a float in host memory
  kFirstConstant,
};

// A number of a graph that the library reads from host memory in each execution.
struct CudnnConstant {
  int64_t id;
  alignas(4) std::array<unsigned char, 4> bytes;
};

struct CudnnGraph {
  Descriptor graph;
  std::vector<CudnnConstant> constants;
};

// Return nothing if the library refuses an operation. `handle` may be NULL, for asking about a
// device that is not there.
std::optional<CudnnGraph> forward_graph(cudnnHandle_t handle, const CudnnAttention& call);
std::optional<CudnnGraph> backward_graph(cudnnHandle_t handle, const CudnnAttention& call);

}  // namespace mytorch::cuda
