#include "mytorch/nn/parallel/zero_redundancy_optimizer.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/zero_.h"
#include "mytorch/ops/zeros.h"

namespace mytorch::nn::detail {
namespace {

constexpr size_t kNone = std::numeric_limits<size_t>::max();
// Parameters travel in messages of about this size.
constexpr int64_t kMessageBytes = 25 << 20;

// Parameters of one rank, type and device, in one buffer.
struct Message {
  int from;
  std::vector<Tensor> parameters;
  Tensor memory = {};
  distributed::Work work = {};

  void begin(const distributed::Group& group) {
    if (parameters.size() == 1) {
      memory = parameters[0].detach();
    } else if (group.rank() == from) {
      std::vector<Tensor> flat;
      for (const Tensor& parameter : parameters) flat.push_back(parameter.detach().reshape({-1}));
      memory = mytorch::cat(flat);
    } else {
      int64_t numel = 0;
      for (const Tensor& parameter : parameters) numel += parameter.numel();
      memory = mytorch::empty({numel}, parameters[0].dtype(), parameters[0].device());
    }
    work = group.broadcast(memory, from, true);
  }
  void finish(const distributed::Group& group) {
    work.wait();
    if (parameters.size() != 1 && group.rank() != from) {
      int64_t at = 0;
      for (const Tensor& parameter : parameters) {
        const Tensor part = memory.narrow(0, at, parameter.numel());
        parameter.detach().copy_(part.view(parameter.sizes()));
        at += parameter.numel();
      }
    }
    memory = {};
  }
};

// The number in "parameter3.momentum", and what follows it; kNone for another name.
std::pair<size_t, std::string> parse(const std::string& name) {
  constexpr std::string_view kPrefix = "parameter";
  size_t number = kNone;
  if (name.compare(0, kPrefix.size(), kPrefix) != 0) return {kNone, name};
  const char* const begin = name.data() + kPrefix.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), number);
  if (error != std::errc()) return {kNone, name};
  return {number, std::string(end)};
}

}  // namespace

OptimizerShards::OptimizerShards(optim::ParamGroups parameters, const distributed::Group& group,
                                 std::vector<int> owners, const char* op)
    : op_(op),
      group_(group.defined() ? group : distributed::world()),
      groups_(std::move(parameters.groups())) {
  for (const optim::OptimizerParamGroup& each : groups_) {
    for (const Tensor& parameter : each.params()) {
      if (!parameter.defined()) {
        fail(ErrorCode::kValue, "[", op_, "] parameter ", parameters_.size(),
             " is undefined: give those of a module");
      }
      parameters_.push_back(parameter);
    }
  }
  // The largest parameters are dealt first, each to the rank that has the fewest elements.
  std::vector<size_t> order(parameters_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return parameters_[a].numel() > parameters_[b].numel();
  });
  if (owners.empty()) {
    owners.resize(static_cast<size_t>(group_.size()));
    std::iota(owners.begin(), owners.end(), 0);
  }
  std::vector<int64_t> elements(owners.size(), 0);
  owners_.resize(parameters_.size());
  for (const size_t number : order) {
    const auto least = std::min_element(elements.begin(), elements.end());
    *least += parameters_[number].numel();
    owners_[number] = owners[static_cast<size_t>(least - elements.begin())];
  }
  size_t number = 0;
  for (const optim::OptimizerParamGroup& each : groups_) {
    const size_t before = numbers_.size();
    for (size_t i = 0; i < each.params().size(); ++i, ++number) {
      if (owners_[number] == group_.rank()) numbers_.push_back(number);
    }
    if (numbers_.size() == before && !each.params().empty()) numbers_.push_back(kNone);
  }
}

optim::ParamGroups OptimizerShards::all() const {
  std::vector<optim::OptimizerParamGroup> result;
  for (const optim::OptimizerParamGroup& each : groups_) {
    result.emplace_back(each.params(), each.has_options() ? each.options().clone() : nullptr);
  }
  return result;
}

optim::ParamGroups OptimizerShards::own(const std::vector<Tensor>& tensors) const {
  std::vector<optim::OptimizerParamGroup> result;
  size_t number = 0;
  for (const optim::OptimizerParamGroup& each : groups_) {
    std::vector<Tensor> own;
    for (size_t i = 0; i < each.params().size(); ++i, ++number) {
      if (owners_[number] == group_.rank()) own.push_back(tensors[number]);
    }
    if (own.empty() && !each.params().empty()) {
      const Tensor& first = each.params()[0];
      const std::vector<int64_t> none(static_cast<size_t>(std::max<int64_t>(first.dim(), 1)), 0);
      own.push_back(mytorch::zeros(none, first.dtype(), first.device()).requires_grad_());
    }
    result.emplace_back(std::move(own), each.has_options() ? each.options().clone() : nullptr);
  }
  return result;
}

void OptimizerShards::share() const {
  if (group_.size() == 1) return;
  const NoGradGuard no_grad;
  std::vector<Message> messages;
  for (int rank = 0; rank < group_.size(); ++rank) {
    int64_t bytes = 0;
    bool fresh = true;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor& parameter = parameters_[i];
      if (owners_[i] != rank || parameter.numel() == 0) continue;
      const bool fits = !fresh && bytes + parameter.nbytes() <= kMessageBytes &&
                        messages.back().parameters[0].dtype() == parameter.dtype() &&
                        messages.back().parameters[0].device() == parameter.device();
      if (!fits) {
        messages.push_back({rank, {}});
        bytes = 0;
      }
      fresh = false;
      bytes += parameter.nbytes();
      messages.back().parameters.push_back(parameter);
    }
  }
  // A message travels while the one before it is taken apart.
  for (size_t i = 0; i < messages.size(); ++i) {
    messages[i].begin(group_);
    if (i != 0) messages[i - 1].finish(group_);
  }
  if (!messages.empty()) messages.back().finish(group_);
}

void OptimizerShards::zero_grad(bool set_to_none) const {
  const NoGradGuard no_grad;
  for (const Tensor& parameter : parameters_) {
    if (set_to_none) {
      parameter.set_grad({});
    } else if (const Tensor grad = parameter.grad(); grad.defined()) {
      grad.detach().zero_();
    }
  }
}

TensorMap OptimizerShards::with_whole_names(const TensorMap& own) const {
  TensorMap result;
  for (const auto& [name, tensor] : own) {
    const auto [number, rest] = parse(name);
    result[number == kNone ? name : absl::StrCat("parameter", numbers_.at(number), rest)] = tensor;
  }
  return result;
}

TensorMap OptimizerShards::with_own_names(const TensorMap& whole) const {
  TensorMap result;
  for (const auto& [name, tensor] : whole) {
    const auto [number, rest] = parse(name);
    if (number == kNone) {
      result[name] = tensor;
      continue;
    }
    if (number >= parameters_.size()) {
      fail(ErrorCode::kValue, "[", op_, "] the state has '", name, "', but there are ",
           parameters_.size(), " parameters");
    }
    if (owners_[number] != group_.rank()) continue;
    const auto found = std::find(numbers_.begin(), numbers_.end(), number);
    result[absl::StrCat("parameter", found - numbers_.begin(), rest)] = tensor;
  }
  return result;
}

}  // namespace mytorch::nn::detail
