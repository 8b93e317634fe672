#include "mytorch/nn/parallel/mixture_of_experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/autograd.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/init.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/all_to_all_single.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/argsort.h"
#include "mytorch/ops/bincount.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/clamp.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/grouped_mm.h"
#include "mytorch/ops/index_select.h"
#include "mytorch/ops/logsumexp.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/remainder.h"
#include "mytorch/ops/scatter.h"
#include "mytorch/ops/softmax.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/topk.h"
#include "mytorch/ops/transpose.h"
#include "mytorch/ops/zeros.h"
#include "nn/functional/options.h"

namespace mytorch::nn {
namespace {

constexpr const char* kExperts = "MixtureOfExperts";

int64_t sum_of(const std::vector<int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
}

Tensor to_device(const std::vector<int64_t>& numbers, Device device) {
  const Tensor host = mytorch::empty({static_cast<int64_t>(numbers.size())}, kInt64);
  std::copy(numbers.begin(), numbers.end(), host.data<int64_t>());
  return host.to(device);
}

// Where choices went. The choices are (top_k, tokens), first choices first, as one list.
struct Routes {
  Tensor kept;                  // the choices that found a place, in the order of the experts
  std::vector<int64_t> rows;    // how many of each expert
  std::vector<int64_t> chosen;  // and how many there were
};

Routes routes_of(const Tensor& experts_of_choices, int64_t experts, int64_t capacity) {
  Routes routes;
  const Tensor order = mytorch::argsort(experts_of_choices, /*stable=*/true);
  routes.chosen = mytorch::bincount(experts_of_choices, {}, experts).to(kCPU).to_vector<int64_t>();
  routes.rows = routes.chosen;
  routes.kept = order;
  if (capacity < 0) return routes;
  std::vector<Tensor> kept;
  int64_t first = 0;
  for (size_t e = 0; e < routes.rows.size(); ++e) {
    routes.rows[e] = std::min(capacity, routes.chosen[e]);
    kept.push_back(order.narrow(0, first, routes.rows[e]));
    first += routes.chosen[e];
  }
  routes.kept = mytorch::cat(kept, 0);
  return routes;
}

// Returns the rows of tokens from several ranks, in the order of the `here` experts, and where each
// of them goes. `coming` is how many there are, in the order of ranks, then experts.
std::pair<std::vector<int64_t>, std::vector<int64_t>> order_by_expert(
    const std::vector<int64_t>& coming, size_t here) {
  std::vector<int64_t> first(coming.size());
  std::exclusive_scan(coming.begin(), coming.end(), first.begin(), int64_t{0});
  std::vector<int64_t> order, place(static_cast<size_t>(sum_of(coming)));
  for (size_t e = 0; e < here; ++e) {
    for (size_t i = e; i < coming.size(); i += here) {
      for (int64_t row = first[i]; row < first[i] + coming[i]; ++row) {
        place[static_cast<size_t>(row)] = static_cast<int64_t>(order.size());
        order.push_back(row);
      }
    }
  }
  return {std::move(order), std::move(place)};
}

}  // namespace

MixtureOfExperts::MixtureOfExperts(int64_t width, int64_t hidden, int64_t experts,
                                   MixtureOfExpertsArgs options)
    : router(width, experts, /*bias=*/false),
      width_(width),
      hidden_(hidden),
      experts_(experts),
      options_(std::move(options)) {
  check_at_least(
      kExperts, 1,
      {{"width", width}, {"hidden", hidden}, {"experts", experts}, {"top_k", options_.top_k}});
  if (options_.top_k > experts) {
    fail(ErrorCode::kValue, "[", kExperts, "] top_k is ", options_.top_k, " of ", experts,
         " experts");
  }
  if (!(options_.capacity_factor >= 0) || !std::isfinite(options_.capacity_factor)) {
    fail(ErrorCode::kValue, "[", kExperts, "] capacity_factor is ", options_.capacity_factor,
         ": give a positive number, or 0 for experts that take all tokens");
  }
  const int64_t ranks = options_.group.defined() ? options_.group.size() : 1;
  if (experts % ranks != 0) {
    fail(ErrorCode::kValue, "[", kExperts, "] there are ", experts, " experts and ", ranks,
         " ranks: the experts must be a multiple of them");
  }
  const int64_t here = experts / ranks;
  up = mytorch::empty({here, options_.gated ? 2 * hidden : hidden, width}, kFloat32);
  down = mytorch::empty({here, width, hidden}, kFloat32);
  register_module("router", router);
  register_parameter("up", up);
  register_parameter("down", down);
  reset_parameters();
}

void MixtureOfExperts::reset_parameters() {
  router.reset_parameters();
  const NoGradGuard no_grad;
  const int64_t first = options_.group.defined() ? options_.group.rank() * up.size(0) : 0;
  // All ranks draw all experts, one at a time.
  for (const Tensor& weights : {up, down}) {
    const double bound = 1 / std::sqrt(static_cast<double>(weights.size(2)));
    for (int64_t e = 0; e < experts_; ++e) {
      const Tensor drawn = mytorch::empty({weights.size(1), weights.size(2)}, kFloat32);
      init::uniform_(drawn, -bound, bound);
      if (e >= first && e < first + weights.size(0))
        weights.detach().select(0, e - first).copy_(drawn);
    }
  }
}

Tensor MixtureOfExperts::compute(const Tensor& tokens, const std::vector<int64_t>& rows) {
  std::vector<int64_t> ends(rows.size());
  std::partial_sum(rows.begin(), rows.end(), ends.begin());
  Tensor h = mytorch::grouped_mm(tokens, up.transpose(1, 2), IntList(ends));
  if (options_.gated) {
    h = mytorch::mul(options_.activation(h.narrow(1, 0, hidden_)), h.narrow(1, hidden_, hidden_));
  } else {
    h = options_.activation(h);
  }
  return mytorch::grouped_mm(h, down.transpose(1, 2), IntList(ends));
}

Tensor MixtureOfExperts::compute_on_ranks(const Tensor& tokens, const std::vector<int64_t>& rows) {
  const distributed::Group& group = options_.group;
  const auto ranks = static_cast<size_t>(group.size());
  const size_t here = rows.size() / ranks;
  // How many tokens come from each rank for each expert of this one.
  std::vector<int64_t> coming;
  {
    const NoGradGuard no_grad;
    coming = mytorch::all_to_all_single(to_device(rows, group.device()), {}, {}, group)
                 .to(kCPU)
                 .to_vector<int64_t>();
  }
  std::vector<int64_t> sent(ranks), received(ranks), of_experts(here);
  for (size_t r = 0; r < ranks; ++r) {
    for (size_t e = 0; e < here; ++e) {
      sent[r] += rows[r * here + e];
      received[r] += coming[r * here + e];
      of_experts[e] += coming[r * here + e];
    }
  }
  const Tensor arrived =
      mytorch::all_to_all_single(tokens, IntList(received), IntList(sent), group);
  Tensor results;
  if (ranks == 1 || here == 1) {
    results = compute(arrived, of_experts);
  } else {
    // They are in the order of ranks, then experts; experts compute theirs together.
    const auto [order, place] = order_by_expert(coming, here);
    const Device device = tokens.device();
    const Tensor by_expert = mytorch::index_select(arrived, 0, to_device(order, device));
    results = mytorch::index_select(compute(by_expert, of_experts), 0, to_device(place, device));
  }
  return mytorch::all_to_all_single(results, IntList(sent), IntList(received), group);
}

Tensor MixtureOfExperts::forward(const Tensor& input) {
  if (input.dim() == 0 || input.size(-1) != width_) {
    fail(ErrorCode::kShape, "[", kExperts, "] the input has shape ", shape_str(input.sizes()),
         ": its last dimension must be ", width_);
  }
  const Tensor tokens = input.reshape({-1, width_});
  const int64_t n = tokens.size(0), k = options_.top_k;
  const Tensor logits = router(tokens).to(kFloat32);
  const Tensor probabilities = mytorch::softmax(logits, -1);
  auto [weights, choices] = mytorch::topk(probabilities, k);
  if (options_.normalize) weights = mytorch::div(weights, mytorch::sum(weights, IntList{-1}, true));

  const double equal = static_cast<double>(n * k) / static_cast<double>(experts_);
  const double most = std::min(options_.capacity_factor * equal, static_cast<double>(n * k));
  const int64_t capacity =
      options_.capacity_factor == 0 ? -1 : static_cast<int64_t>(std::ceil(most));
  const Routes routes = routes_of(choices.t().reshape({-1}), experts_, capacity);
  const int64_t kept = sum_of(routes.rows);
  chosen_ = routes.chosen;
  dropped_ = n * k - kept;

  const Tensor token_of = mytorch::remainder(routes.kept, std::max<int64_t>(n, 1));
  const Tensor dispatched = mytorch::index_select(tokens, 0, token_of);
  const Tensor results = options_.group.defined() ? compute_on_ranks(dispatched, routes.rows)
                                                  : compute(dispatched, routes.rows);
  // The result of each choice, (top_k, tokens, width); a row of zeros stands for those dropped.
  Tensor rows_of_results = results;
  if (dropped_ > 0) {
    const Tensor nothing = mytorch::zeros({1, width_}, results.dtype(), results.device());
    rows_of_results = mytorch::cat({results, nothing}, 0);
  }
  const Tensor row_of =
      mytorch::scatter(mytorch::full({n * k}, kept, kInt64, input.device()), 0, routes.kept,
                       mytorch::arange(kept, kInt64, input.device()));
  const Tensor of_choices = mytorch::index_select(rows_of_results, 0, row_of).view({k, n, width_});
  const Tensor weight = weights.t().unsqueeze(-1).to(results.dtype());
  const Tensor sum = mytorch::sum(mytorch::mul(of_choices, weight), IntList{0});

  // Shares are counts, without a gradient.
  const Tensor shares = to_device(routes.chosen, input.device()).to(kFloat32);
  if (options_.group.defined()) options_.group.all_reduce(shares);
  const Tensor all = mytorch::sum(shares);
  const Tensor share = mytorch::div(shares, mytorch::clamp(all, 1));
  // Means over tokens; 0 on a rank without any.
  const auto rows = static_cast<double>(std::max<int64_t>(n, 1));
  const double balance = options_.balance_loss * static_cast<double>(experts_) / rows;
  auxiliary_loss_ = mytorch::mul(mytorch::sum(mytorch::mul(probabilities, share)), balance);
  if (options_.z_loss != 0) {
    const Tensor z = mytorch::logsumexp(logits, IntList{-1});
    auxiliary_loss_ = mytorch::add(
        auxiliary_loss_, mytorch::mul(mytorch::sum(mytorch::mul(z, z)), options_.z_loss / rows));
  }
  return sum.view(input.sizes());
}

Tensor MixtureOfExperts::auxiliary_loss() const {
  if (!auxiliary_loss_.defined()) {
    fail(ErrorCode::kValue, "[", kExperts,
         "] auxiliary_loss() is that of the last forward: call it first");
  }
  return auxiliary_loss_;
}

std::string MixtureOfExperts::describe() const {
  std::string out = absl::StrCat(kExperts, "(", width_, ", hidden=", hidden_,
                                 ", experts=", experts_, ", top_k=", options_.top_k);
  if (options_.gated) out += ", gated=true";
  if (options_.capacity_factor > 0) {
    absl::StrAppend(&out, ", capacity_factor=", options_.capacity_factor);
  }
  if (options_.group.defined()) absl::StrAppend(&out, ", ranks=", options_.group.size());
  return out + ")";
}

}  // namespace mytorch::nn
