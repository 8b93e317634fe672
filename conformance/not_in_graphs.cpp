// The operators that no graph of a compiled function can hold, and why. `mytorch check --compiled`
// fails if a call of an operator that is not here is refused, or if none is of one that is here.
#include <map>

#include "conformance/check.h"

namespace mytorch::conformance {
namespace {

constexpr const char* kShape = "the shape of a result depends on values";
constexpr const char* kValues = "the host reads values";
constexpr const char* kMemory = "the result is memory that no operator fills";
constexpr const char* kEmpty = "a result that was not requested is memory that no operator fills";

const std::map<std::string, NotInGraphs>& operators() {
  static const std::map<std::string, NotInGraphs> all = {
      {"allclose", {kValues, false}},
      {"argwhere", {kShape, false}},
      {"bincount", {kValues, true}},
      {"binomial", {kValues, true}},
      {"ctc_loss.IntList", {kValues, false}},
      {"ctc_loss.Tensor", {kValues, false}},
      {"embedding_bag", {kValues, true}},
      {"empty", {kMemory, false}},
      {"empty_like", {kMemory, false}},
      {"empty_permuted", {kMemory, false}},
      {"empty_strided", {kMemory, false}},
      {"equal", {kValues, true}},
      {"grouped_mm", {kValues, true}},
      {"gru.data", {kValues, false}},
      {"histc", {kValues, true}},
      {"histogram.bin_ct", {kValues, true}},
      {"histogramdd", {kValues, true}},
      {"histogramdd.int_bins", {kValues, false}},
      {"index.Tensor", {kShape, true}},
      {"index_put", {kShape, true}},
      {"istft", {kValues, false}},
      {"item", {kValues, false}},
      {"linalg_lstsq", {kValues, false}},
      {"linalg_matrix_exp", {kValues, true}},
      {"linspace.Scalar_Tensor", {kValues, false}},
      {"linspace.Tensor_Scalar", {kValues, false}},
      {"linspace.Tensor_Tensor", {kValues, false}},
      {"logspace.Scalar_Tensor", {kValues, false}},
      {"logspace.Tensor_Scalar", {kValues, false}},
      {"logspace.Tensor_Tensor", {kValues, false}},
      {"lstm.data", {kValues, false}},
      {"lu_unpack", {kEmpty, true}},
      {"masked_scatter", {kShape, false}},
      {"masked_select", {kShape, false}},
      {"matrix_exp", {kValues, false}},
      {"narrow.Tensor", {kValues, false}},
      {"native_batch_norm", {kEmpty, true}},
      {"new_empty", {kMemory, false}},
      {"new_empty_strided", {kMemory, false}},
      {"nonzero", {kShape, false}},
      {"nonzero_numpy", {kShape, false}},
      {"nonzero_static", {kShape, false}},
      {"one_hot", {kValues, true}},
      {"poisson", {kValues, true}},
      {"repeat_interleave.Tensor", {kValues, true}},
      {"repeat_interleave.self_Tensor", {kValues, false}},
      {"rnn_relu.data", {kValues, false}},
      {"rnn_tanh.data", {kValues, false}},
      {"segment_reduce", {kValues, false}},
      {"special_hermite_polynomial_h", {kValues, true}},
      {"special_hermite_polynomial_he", {kValues, true}},
      {"special_laguerre_polynomial_l", {kValues, true}},
      {"special_legendre_polynomial_p", {kValues, false}},
      {"tensor_split.tensor_indices_or_sections", {kValues, false}},
      {"tril_indices", {kShape, false}},
      {"triu_indices", {kShape, false}},
      {"unique", {kShape, false}},
      {"unique_consecutive", {kShape, false}},
      {"unique_dim", {kShape, false}},
      {"unravel_index", {kValues, false}},
      {"where.nonzero", {kShape, false}},
  };
  return all;
}

// Operators that a graph can hold, without their gradients.
const std::map<std::string, NotInGraphs>& gradients() {
  static const std::map<std::string, NotInGraphs> all = {
      {"det", {kValues, false}},
      {"linalg_det", {kValues, true}},
  };
  return all;
}

}  // namespace

NotInGraphs not_in_graphs(const std::string& op, bool gradient) {
  const auto& all = gradient ? gradients() : operators();
  const auto found = all.find(op);
  return found == all.end() ? NotInGraphs() : found->second;
}

}  // namespace mytorch::conformance
