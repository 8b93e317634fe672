// The table of the rules, by the kind of the record where that determines them, else by name.
#include "autograd/vmap/rules.h"

#include <initializer_list>

#include "absl/container/flat_hash_map.h"
#include "autograd/vmap/rule_functions.h"

namespace mytorch::autograd::batch {
namespace {

const absl::flat_hash_map<std::string_view, BatchRule>& by_name() {
  static const auto* const table = [] {
    using namespace rules;
    auto* found = new absl::flat_hash_map<std::string_view, BatchRule>;
    const auto set = [&](BatchRule rule, std::initializer_list<const char*> names) {
      for (const char* name : names) found->emplace(name, rule);
    };
    set(shifted, {"softmax", "softmax_backward", "log_softmax", "log_softmax_backward", "cumsum",
                  "sort.stable", "topk", "gather", "scatter.src", "scatter_add", "flip",
                  "select_backward", "slice_backward", "diagonal_backward", "unfold_backward"});
    set(direct, {"clone", "contiguous", "to.dtype", "to.device", "empty_like", "zeros_like",
                 "ones_like", "full_like"});
    set(direct_first, {"native_layer_norm", "native_rms_norm", "linear"});
    set(converted, {"to.other"});
    set(new_like, {"new_empty", "new_zeros", "new_ones", "new_full"});
    set(pad, {"constant_pad_nd"});
    set(index_select, {"index_select"});
    set(join, {"cat"});
    set(product, {"mm", "bmm"});
    set(pointwise, {"cdist"});  // whose batches broadcast
    set(aligned, {"cdist_backward"});
    set(convolution, {"convolution"});
    set(convolution_backward_input, {"convolution_backward_input"});
    set(convolution_backward_weight, {"convolution_backward_weight"});
    set(pooling, {"max_pool2d_with_indices", "max_pool2d_with_indices_backward", "avg_pool2d",
                  "avg_pool2d_backward"});
    set(embedding, {"embedding"});
    set(embedding_dense_backward, {"embedding_dense_backward"});
    set(attention, {"attention_forward", "attention_backward"});
    set(copy, {"copy_"});
    set(fill, {"fill_"});
    set(random_of_size, {"rand", "randn", "randint", "randint.low", "normal.float_float"});
    set(random_permutation, {"randperm"});
    set(random_like, {"rand_like", "randn_like"});
    set(random_from, {"bernoulli", "bernoulli.p"});
    set(multinomial, {"multinomial"});
    set(dropout, {"native_dropout"});
    set(random_write,
        {"uniform_", "normal_", "random_.from", "bernoulli_.float", "bernoulli_.Tensor"});
    return found;
  }();
  return *table;
}

}  // namespace

bool needs_examples(BatchRule rule) {
  using namespace rules;
  for (const BatchRule each : {convolution, convolution_backward_input, convolution_backward_weight,
                               pooling, embedding_dense_backward, attention, random_permutation,
                               random_like, multinomial, dropout, random_write}) {
    if (rule == each) return true;
  }
  return false;
}

BatchRule find_rule(const OpInfo& op) {
  if (const auto found = by_name().find(op.name); found != by_name().end()) return found->second;
  switch (op.meaning) {
    case Meaning::kPointwise:
      return rules::pointwise;
    case Meaning::kReduce:
      return rules::reduced;
    case Meaning::kView:
      return rules::view;
    case Meaning::kComposite:
    case Meaning::kPrimitive:
      return nullptr;
  }
  return nullptr;
}

}  // namespace mytorch::autograd::batch
