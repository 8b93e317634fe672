// Results of pointwise operators have the same bits wherever their elements lie: a vector's lanes
// do not depend on each other, and what is left over at the end of a loop is computed as the rest.
// Otherwise views, threads and compiled functions would change results.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "conformance/catalog.h"
#include "conformance/check.h"
#include "conformance/inputs.h"
#include "graph/run/same_bits.h"
#include "mytorch/error.h"
#include "mytorch/mytorch.h"

namespace mytorch::conformance {
namespace {

constexpr int64_t kElements = 1037;  // no multiple of a vector

// Ordinary numbers, among them some that functions treat apart.
Tensor drawn(ScalarType dtype, uint64_t seed) {
  const Generator generator(seed);
  if (!is_floating_point(dtype) && !is_complex(dtype)) {
    return randint(dtype == kBool ? 0 : 1, dtype == kBool ? 2 : 6, {kElements}, kInt64, {},
                   generator)
        .to(dtype);
  }
  const ScalarType parts = is_complex(dtype) ? dtype == kComplex64 ? kFloat32 : kFloat64 : dtype;
  const double inf = std::numeric_limits<double>::infinity();
  const double special[] = {inf, -inf, std::nan(""), 0,    -0.0, 1e30, -1e30, 1e-40,
                            1,   -1,   60,           -300, 3e5,  -2e8, 0.5,   2};
  const int64_t count = is_complex(dtype) ? 2 * kElements : kElements;
  Tensor x = (rand({count}, kFloat64, {}, generator) * 4 - 2).to(parts);
  const Tensor at = randint(0, count, {count / 8}, kInt64, kCPU, generator);
  for (int64_t i = 0; i < at.numel(); ++i) {
    x.select(0, at.select(0, i).item<int64_t>()).fill_(special[i % 16]);
  }
  return is_complex(dtype) ? view_as_complex(x.view({kElements, 2})) : x;
}

// Returns the results of a call whose tensors are replaced, or none if the operator takes no such
// call.
std::vector<Tensor> results_of(const OpRecord& op, Arguments arguments,
                               const std::vector<Tensor>& tensors) try {
  size_t next = 0;
  for (auto& [name, value] : arguments.values) {
    const auto* tensor = std::get_if<Tensor>(&value.variant());
    if (tensor != nullptr && tensor->defined()) value = tensors[next++];
  }
  std::vector<Tensor> found;
  for (const Value& value : call_named(op.name, arguments, {})) {
    if (!value.is_none() && value.tensor().defined()) found.push_back(value.tensor());
  }
  return found;
} catch (const Error&) {
  return {};
}

// Returns whether the case was compared.
bool check_places(const Case& c) {
  const Arguments arguments = make_arguments(c, 1, kCPU, c.dtype);
  std::vector<Tensor> here, there;
  const Tensor order = randperm(kElements, kInt64, kCPU, Generator(5));
  for (const auto& [name, value] : arguments.values) {
    if (std::holds_alternative<std::vector<Tensor>>(value.variant())) return false;
    const auto* tensor = std::get_if<Tensor>(&value.variant());
    if (tensor == nullptr || !tensor->defined()) continue;
    here.push_back(drawn(tensor->dtype(), 7 + here.size()));
    there.push_back(here.back().index_select(0, order));
  }
  const std::vector<Tensor> found = results_of(*c.op, arguments, here);
  const std::vector<Tensor> moved = results_of(*c.op, arguments, there);
  EXPECT_EQ(found.size(), moved.size()) << c.op->name;
  bool compared = false;
  for (size_t i = 0; i < std::min(found.size(), moved.size()); ++i) {
    if (!(found[i].sizes() == here[0].sizes())) continue;
    compared = true;
    const Tensor expected = found[i].index_select(0, order);
    if (graph::same_bits(expected, moved[i])) continue;
    const Tensor differs = ne(graph::with_one_nan(expected), graph::with_one_nan(moved[i]))
                               .logical_and(isnan(expected).logical_not());
    ADD_FAILURE() << c.op->name << " of " << dtype_name(c.dtype) << ": result " << i << " has "
                  << sum(differs).item<int64_t>() << " other elements";
  }
  return compared;
}

TEST(PlacesOfRecords, DoNotChangeBits) {
  int compared = 0;
  for (const OpRecord& op : load_catalog(share_folder())) {
    if (op.meaning != "pointwise" || op.random() || op.unspecified() || op.writes()) continue;
    std::set<ScalarType> types;
    for (const Case& c : cases_of(op)) {
      if (types.contains(c.dtype)) continue;
      if (check_places(c)) {
        types.insert(c.dtype);
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 1000);
}

}  // namespace
}  // namespace mytorch::conformance
