// Sums, means and maxima of the rows of a table.
#include <algorithm>
#include <utility>
#include <vector>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/amax.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/clamp_min.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/embedding.h"
#include "mytorch/ops/index_add.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/ne.h"
#include "mytorch/ops/ones_like.h"
#include "mytorch/ops/stack.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/zeros.h"
#include "mytorch/tensor_values.h"
#include "ops/check.h"
#include "ops/precision.h"

namespace mytorch::composite {
namespace {

constexpr const char* kBag = "embedding_bag";

struct Bags {
  Tensor weight;
  Tensor indices;               // (n)
  Tensor scales;                // (n), or undefined
  std::vector<int64_t> starts;  // of each bag, and the end
  int64_t padding_idx;
  bool scale_grad_by_freq;
};

// `counted` (n) is 0 for padding, else 1.
Tensor largest(const Bags& bags, const Tensor& all, const Tensor& counted) {
  if (bags.starts.size() == 1) return all;  // of no bags
  std::vector<Tensor> results;
  for (size_t i = 0; i + 1 < bags.starts.size(); ++i) {
    const int64_t start = bags.starts[i], length = bags.starts[i + 1] - start;
    Tensor rows = all.narrow(0, start, length);
    if (bags.padding_idx >= 0) {
      rows = rows.index_select(0, counted.narrow(0, start, length).nonzero().squeeze(1));
    }
    results.push_back(rows.size(0) == 0 ? rows.sum({0}) : std::get<0>(rows.max(0)));
  }
  return mytorch::stack(results);
}

// Returns the first index of each bag, and the number of indices.
std::vector<int64_t> starts_of(const Tensor& indices, const Tensor& offsets, bool include_last) {
  std::vector<int64_t> starts;
  const Tensor host = offsets.to(kCPU).to(kInt64).contiguous();
  for (int64_t i = 0; i < host.numel(); ++i) starts.push_back(host.const_data<int64_t>()[i]);
  if (!include_last) starts.push_back(indices.numel());
  if (starts.empty() || starts[0] != 0 || starts.back() < starts[0] ||
      (include_last && starts.back() != indices.numel())) {
    fail(ErrorCode::kValue, "[", kBag, "] offsets must begin with 0",
         include_last ? absl::StrCat(" and end with ", indices.numel()) : "");
  }
  for (size_t i = 1; i < starts.size(); ++i) {
    if (starts[i] < starts[i - 1]) {
      fail(ErrorCode::kValue, "[", kBag, "] offset ", starts[i - 1], " precedes ", starts[i],
           ": give offsets from 0 to ", indices.numel(), " in ascending order");
    }
  }
  return starts;
}

Tensor bags_of(const Bags& bags, Str mode) {
  const Tensor& weight = bags.weight;
  Tensor rows = mytorch::embedding(weight, bags.indices, bags.padding_idx, bags.scale_grad_by_freq);
  const Tensor counted = mytorch::ne(bags.indices, bags.padding_idx).to(weight.dtype());
  const int64_t n = static_cast<int64_t>(bags.starts.size()) - 1;
  if (mode == "max") return largest(bags, rows, counted);
  std::vector<int64_t> bag;
  for (int64_t i = 0; i < n; ++i) bag.resize(static_cast<size_t>(bags.starts[i + 1]), i);
  const Tensor owner = mytorch::tensor(bag).to(bags.indices.device());
  const Tensor factors = bags.scales.defined() ? mytorch::mul(counted, bags.scales) : counted;
  rows = mytorch::mul(rows, factors.unsqueeze(1));
  // A sum that exceeds 16 bits may have a mean that does not.
  if (mode == "mean") rows = widened(rows);
  Tensor sums = mytorch::index_add(
      mytorch::zeros({n, weight.size(1)}, rows.dtype(), weight.device()), 0, owner, rows);
  if (mode == "sum") return sums;
  const Tensor counts = mytorch::index_add(mytorch::zeros({n}, rows.dtype(), weight.device()), 0,
                                           owner, counted.to(rows.dtype()));
  return mytorch::div(sums, mytorch::clamp_min(counts, 1).unsqueeze(1)).to(weight.dtype());
}

}  // namespace

Tensor embedding_bag(const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                     bool scale_grad_by_freq, Str mode, const Tensor& scales,
                     bool include_last_offset, int64_t padding_idx) {
  check_value(mode == "sum" || mode == "mean" || mode == "max", kBag, "mode is '",
              std::string(mode), "': give 'sum', 'mean' or 'max'");
  check_shape(weight.dim() == 2, kBag, "weight has shape ", weight.sizes(), ": give (rows, width)");
  const bool flat = indices.dim() == 1;
  if (indices.dim() != 1 && indices.dim() != 2) {
    fail(ErrorCode::kShape, "[", kBag, "] indices have shape ", shape_str(indices.sizes()),
         ": give (bags, n), or (n) with offsets");
  }
  if (flat != offsets.defined()) {
    fail(ErrorCode::kValue, "[", kBag,
         flat ? "] indices of one dimension need offsets" : "] indices (bags, n) need no offsets");
  }
  if (flat && offsets.dim() != 1) {
    fail(ErrorCode::kShape, "[", kBag, "] offsets have shape ", shape_str(offsets.sizes()),
         ": give one number for each bag");
  }
  if (scales.defined() && mode != "sum") {
    fail(ErrorCode::kValue, "[", kBag, "] per_sample_weights need the mode \"sum\"");
  }
  if (scales.defined() && !(scales.sizes() == indices.sizes())) {
    fail(ErrorCode::kShape, "[", kBag, "] per_sample_weights have shape ",
         shape_str(scales.sizes()), ", but indices have shape ", shape_str(indices.sizes()));
  }
  std::vector<int64_t> starts;
  if (flat) {
    starts = starts_of(indices, offsets, include_last_offset);
  } else {
    for (int64_t i = 0; i <= indices.size(0); ++i) starts.push_back(i * indices.size(1));
  }
  const Tensor all = indices.flatten(), factors = scales.defined() ? scales.flatten() : scales;
  const auto count = static_cast<int64_t>(starts.size()) - 1;
  const auto rows = [&](int64_t begin, int64_t length, std::vector<int64_t> bounds) {
    for (int64_t& bound : bounds) bound -= begin;
    return bags_of({weight, all.narrow(0, begin, length),
                    factors.defined() ? factors.narrow(0, begin, length) : factors,
                    std::move(bounds), padding_idx, scale_grad_by_freq},
                   mode);
  };
  // Rows are gathered for groups of whole bags, at most as many as the table has, so that they take
  // no more memory than the table. Frequencies are those in all bags.
  const int64_t most = std::max<int64_t>(weight.size(0), 1 << 14);
  if (all.numel() <= most || scale_grad_by_freq || count <= 1) return rows(0, all.numel(), starts);
  std::vector<Tensor> results;
  for (auto bag = starts.begin(); bag + 1 != starts.end();) {
    const auto end = std::max(bag + 1, std::upper_bound(bag, starts.end(), *bag + most) - 1);
    results.push_back(rows(*bag, *end - *bag, {bag, end + 1}));
    bag = end;
  }
  return mytorch::cat(results);
}

}  // namespace mytorch::composite
