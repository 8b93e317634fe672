// vmap of every operator that has a sample, compared with a loop over the examples.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "conformance/catalog.h"
#include "conformance/check.h"
#include "conformance/compare.h"
#include "conformance/inputs.h"
#include "mytorch/autograd.h"
#include "mytorch/autograd/functional.h"
#include "mytorch/autograd/vmap.h"
#include "mytorch/error.h"
#include "mytorch/mytorch.h"
#include "mytorch/ops/select.h"
#include "mytorch/ops/stack.h"

namespace mytorch::conformance {
namespace {

constexpr int64_t kExamples = 3;

std::vector<Tensor> flat(const Value& value) {
  if (const auto* tensor = std::get_if<Tensor>(&value.variant())) return {*tensor};
  if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) return *list;
  return {};
}

std::vector<Tensor> tensors_of(const Arguments& arguments) {
  std::vector<Tensor> found;
  for (const auto& [name, value] : arguments.values) {
    for (const Tensor& tensor : flat(value)) {
      if (tensor.defined()) found.push_back(tensor);
    }
  }
  return found;
}

Arguments with_tensors(const Arguments& arguments, const std::vector<Tensor>& tensors) {
  Arguments found = arguments;
  size_t next = 0;
  for (auto& [name, value] : found.values) {
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) {
      if (tensor->defined()) value = tensors[next++];
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      std::vector<Tensor> changed = *list;
      for (Tensor& each : changed) {
        if (each.defined()) each = tensors[next++];
      }
      value = std::move(changed);
    }
  }
  return found;
}

// Calls the operator. Throws Error if a result is no tensor.
std::vector<Tensor> results_of(const OpRecord& op, const Arguments& arguments) {
  std::vector<Tensor> found;
  for (const Value& value : call_named(op.name, arguments, {})) {
    if (!std::holds_alternative<Tensor>(value.variant()) &&
        !std::holds_alternative<std::vector<Tensor>>(value.variant())) {
      throw Error(ErrorCode::kUnsupported, "a result is no tensor");
    }
    for (const Tensor& tensor : flat(value)) found.push_back(tensor);
  }
  return found;
}

// The records whose results are unspecified, random, or of no fixed shape.
bool excluded(const OpRecord& op) {
  for (const OpArg& arg : op.args) {
    if (arg.written && arg.is_tensor_list()) return true;
  }
  return op.unspecified() || op.random() || op.derived ||
         op.name.starts_with("as_strided") ||  // depends on the memory, which stacking changes
         op.name == "empty_like" || op.name == "empty_strided" || op.name == "nonzero" ||
         op.name == "where.nonzero" || op.name == "masked_select" ||
         op.name == "repeat_interleave.Tensor" || op.name == "repeat_interleave.self_Tensor";
}

std::string describe_batch(const Case& c, const std::vector<bool>& batched) {
  std::string text = c.op->name + " case " + std::to_string(c.number) + " batched";
  for (const bool each : batched) text += each ? " 1" : " 0";
  return text + " " + c.sample->dump();
}

struct Batch {
  std::vector<Arguments> examples;
  std::vector<Tensor> inputs;  // stacked or shared
  std::vector<std::optional<int64_t>> dims;
};

// Makes the examples, in which only some of the tensors differ. Returns no examples if the samples
// differ in shape.
Batch batch_of(const Case& c, const std::vector<bool>& batched, int64_t dim) {
  Batch batch;
  for (int64_t b = 0; b < kExamples; ++b) {
    batch.examples.push_back(make_arguments(c, 11 + static_cast<uint64_t>(b), kCPU, c.dtype));
  }
  std::vector<std::vector<Tensor>> tensors;
  for (const Arguments& each : batch.examples) tensors.push_back(tensors_of(each));
  for (size_t i = 0; i < tensors[0].size(); ++i) {
    if (!batched[i]) {
      for (int64_t b = 1; b < kExamples; ++b) tensors[b][i] = tensors[0][i];
      batch.inputs.push_back(tensors[0][i]);
      batch.dims.push_back(std::nullopt);
      continue;
    }
    const std::vector<Tensor> column = {tensors[0][i], tensors[1][i], tensors[2][i]};
    batch.inputs.push_back(stack(column, dim));
    batch.dims.push_back(dim);
  }
  for (int64_t b = 0; b < kExamples; ++b) {
    batch.examples[b] = with_tensors(batch.examples[b], tensors[b]);
  }
  return batch;
}

// Returns which tensors are batched, in turn: all, and each alone.
std::vector<std::vector<bool>> choices(const OpRecord& op, size_t count) {
  std::vector<std::vector<bool>> found = {std::vector<bool>(count, true)};
  for (size_t i = 0; i < count && count > 1; ++i) {
    if (op.writes() && i > 0) break;  // the written tensor is batched
    found.emplace_back(count, false);
    found.back()[i] = true;
  }
  return found;
}

void check_forward(const Case& c, const std::vector<bool>& batched, int64_t dim) {
  const OpRecord& op = *c.op;
  const Batch batch = batch_of(c, batched, dim);
  std::vector<std::vector<Tensor>> expected;
  std::string loop_error;
  try {
    for (const Arguments& each : batch.examples) expected.push_back(results_of(op, copy_of(each)));
  } catch (const Error& error) {
    loop_error = error.what();
  }
  bool stacks = true;
  for (const std::vector<Tensor>& each : expected) {
    if (each.empty() || each.size() != expected[0].size()) return;
    for (size_t r = 0; r < each.size(); ++r) {
      stacks = stacks && each[r].sizes() == expected[0][r].sizes();
    }
  }
  std::vector<Tensor> found;
  try {
    found = autograd::vmap(
        [&](const std::vector<Tensor>& inputs) {
          return results_of(op, with_tensors(batch.examples[0], inputs));
        },
        batch.dims)(batch.inputs);
  } catch (const Error& error) {
    EXPECT_TRUE(loop_error != "" || !stacks)
        << describe_batch(c, batched) << "\n  " << error.what();
    return;
  }
  if (loop_error != "") {
    ADD_FAILURE() << describe_batch(c, batched) << "\n  vmap accepts what fails with "
                  << loop_error;
    return;
  }
  ASSERT_EQ(found.size(), expected[0].size()) << op.name;
  for (size_t r = 0; r < found.size(); ++r) {
    for (int64_t b = 0; b < kExamples; ++b) {
      // A gradient that is not wanted is empty for the whole batch.
      const std::string what = difference(op, batch.examples[b], select(found[r], 0, b),
                                          expected[b][r], {false, 4}, true);
      EXPECT_EQ(what, "") << describe_batch(c, batched) << " example " << b << " result " << r;
    }
  }
}

// Whether the case is tried. Sanitizers are ten times as slow, so they see those with a tensor of
// at most one element, whose sizes a formula may read where there are none, and one of twenty
// others.
bool is_tried(const Case& c, const std::vector<Tensor>& tensors) {
#ifdef __SANITIZE_ADDRESS__
  const bool small = std::any_of(tensors.begin(), tensors.end(),
                                 [](const Tensor& tensor) { return tensor.numel() <= 1; });
  return small || (std::hash<std::string>()(c.op->name) + static_cast<size_t>(c.number)) % 20 == 0;
#else
  return true;
#endif
}

// Batching does not depend on sizes: large cases are tried with one type, and all tensors batched.
bool is_large(const std::vector<Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const Tensor& tensor) { return tensor.numel() > 10000; });
}

template <class Check>
void for_each_case(Check check) {
  for (const OpRecord& op : load_catalog(share_folder())) {
    if (excluded(op)) continue;
    for (const Case& c : cases_of(op)) {
      if (!c.error().empty() || c.may_fail()) continue;
      const std::vector<Tensor> tensors = tensors_of(make_arguments(c, 1, kCPU, c.dtype));
      if (tensors.empty() || !is_tried(c, tensors)) continue;
      const bool large = is_large(tensors);
      if (large && c.typed && c.dtype != kFloat32) continue;
      for (const std::vector<bool>& batched : choices(op, tensors.size())) {
        check(c, batched);
        if (large || (c.typed && c.dtype != kFloat32))
          break;  // the other types with all tensors batched
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(VmapOfRecords, EqualsALoop) {
  for_each_case([](const Case& c, const std::vector<bool>& batched) {
    SCOPED_TRACE(c.op->name);
    try {
      check_forward(c, batched, 0);
    } catch (const std::exception& error) {
      ADD_FAILURE() << describe_batch(c, batched) << "\n  " << error.what();
    }
  });
}

TEST(VmapOfRecords, TakesAnyBatchDimension) {
  for_each_case([](const Case& c, const std::vector<bool>& batched) {
    // These depend on the memory.
    if (c.op->name == "view_as_complex" || c.op->name == "view.dtype") return;
    if (c.dtype != kFloat32 ||
        !std::all_of(batched.begin(), batched.end(), [](bool b) { return b; }))
      return;
    check_forward(c, batched, -1);
  });
}

// Returns the product of the floating results with fixed weights, or an undefined tensor.
Tensor weighted_sum(const std::vector<Tensor>& results) {
  Tensor sum;
  for (const Tensor& result : results) {
    if (!result.defined() || !result.is_floating_point() || result.numel() == 0) continue;
    const Tensor weights = cos(arange(result.numel(), result.dtype())).reshape(result.sizes());
    const Tensor term = (result * weights).sum();
    sum = sum.defined() ? sum + term : term;
  }
  return sum;
}

// Compares the gradients of the examples, computed inside of vmap and outside of it, with a loop.
void check_gradients(const Case& c) {
  const OpRecord& op = *c.op;
  const size_t count = tensors_of(make_arguments(c, 1, kCPU, c.dtype)).size();
  Batch batch = batch_of(c, std::vector<bool>(count, true), 0);
  std::vector<Tensor> leaves;
  for (Tensor& input : batch.inputs) {
    input = input.clone();
    if (input.is_floating_point()) leaves.push_back(input.requires_grad_());
  }
  for (const Tensor& leaf : leaves) {
    if (leaf.numel() == 0) return;
    if (leaf.element_size() == 2) return;  // its rounding exceeds the tolerance
  }
  const auto f = [&](const std::vector<Tensor>& inputs) {
    return weighted_sum(results_of(op, with_tensors(batch.examples[0], inputs)));
  };
  const auto gradients = [&](const Tensor& sum) {
    return autograd::grad({sum}, leaves, {}, {.allow_unused = true, .materialize_grads = true});
  };
  std::vector<Tensor> expected;
  try {
    Tensor total;
    for (int64_t b = 0; b < kExamples; ++b) {
      std::vector<Tensor> example;
      for (const Tensor& input : batch.inputs) example.push_back(select(input, 0, b));
      const Tensor sum = f(example);
      if (!sum.defined() || !sum.requires_grad()) return;
      total = total.defined() ? total + sum : sum;
    }
    expected = gradients(total);
  } catch (const Error&) {
    return;
  }
  const auto compare = [&](const std::vector<Tensor>& found, const char* where) {
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(allclose(found[i], expected[i], 1e-3, 1e-4, true))
          << where << " " << op.name << " case " << c.number << " input " << i << " "
          << c.sample->dump();
    }
  };
  try {
    compare(gradients(autograd::vmap(f, batch.dims)(batch.inputs).sum()), "outside");
    const auto inside = [&](const std::vector<Tensor>& inputs) {
      std::vector<Tensor> own, all;
      for (const Tensor& input : inputs) {
        all.push_back(input.is_floating_point() ? input.detach().requires_grad_() : input);
        if (input.is_floating_point()) own.push_back(all.back());
      }
      return autograd::grad({f(all)}, own, {}, {.allow_unused = true, .materialize_grads = true});
    };
    // Boolean masks read values, and are not differentiable inside.
    if (c.sample->dump().find("\"bool\"") != std::string::npos) return;
    for (Tensor& input : batch.inputs) input = input.detach();
    compare(autograd::vmap(inside, batch.dims)(batch.inputs), "inside");
  } catch (const Error& error) {
    if (std::string(error.what()).find("which vmap cannot stack") != std::string::npos) return;
    ADD_FAILURE() << op.name << " case " << c.number << " " << c.sample->dump() << "\n  "
                  << error.what();
  }
}

TEST(VmapOfRecords, HasTheGradientsOfALoop) {
  for (const OpRecord& op : load_catalog(share_folder())) {
    if (excluded(op) || !op.differentiable() || op.writes()) continue;
    // They read the values of q, lengths, positions or batch sizes, and run once for each example.
    if (op.name == "quantile" || op.name == "nanquantile" || op.name == "segment_reduce") continue;
    if (op.name == "narrow.Tensor" || op.name == "tensor_split.tensor_indices_or_sections")
      continue;
    if (op.name.starts_with("ctc_loss.") || op.name == "grouped_mm" || op.name == "embedding_bag")
      continue;
    if (op.name == "istft") continue;  // reads whether windows leave gaps
    if (op.name.ends_with(".data")) continue;
    for (const Case& c : cases_of(op)) {
      if (!c.error().empty() || c.may_fail() || c.special() || c.dtype != kFloat32) continue;
      const std::vector<Tensor> tensors = tensors_of(make_arguments(c, 1, kCPU, c.dtype));
      if (!tensors.empty() && is_tried(c, tensors)) check_gradients(c);
    }
  }
}

}  // namespace
}  // namespace mytorch::conformance
