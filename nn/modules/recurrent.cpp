#include "mytorch/nn/recurrent.h"

#include <cmath>
#include <vector>

#include "mytorch/nn/init.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/dropout.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/linear.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/relu.h"
#include "mytorch/ops/sigmoid.h"
#include "mytorch/ops/stack.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/tanh.h"
#include "mytorch/ops/zeros.h"
#include "nn/functional/options.h"

namespace mytorch::nn {
namespace {

constexpr const char* kRNNNonlinearities[] = {"tanh", "relu"};

}  // namespace

RNNNonlinearity from_name(Str name, RNNNonlinearity /*type*/) {
  return static_cast<RNNNonlinearity>(index_of_name("RNN", name, kRNNNonlinearities));
}

namespace detail {

const char* RecurrentBase::kind_name() const {
  return kind_ == Kind::kRNN ? "RNN" : kind_ == Kind::kGRU ? "GRU" : "LSTM";
}

RecurrentBase::RecurrentBase(Kind kind, int64_t input_size, int64_t hidden_size,
                             const LSTMArgs& options, RNNNonlinearity nonlinearity)
    : kind_(kind),
      input_size_(input_size),
      hidden_size_(hidden_size),
      options_(options),
      nonlinearity_(nonlinearity) {
  check_at_least(kind_name(), 1,
                 {{"input_size", input_size},
                  {"hidden_size", hidden_size},
                  {"num_layers", options.num_layers}});
  check_at_least(kind_name(), 0, {{"proj_size", options.proj_size}});
  check_probability(kind_name(), options.dropout);
  if (options.proj_size >= hidden_size) {
    fail(ErrorCode::kValue, "[LSTM] proj_size ", options.proj_size,
         " is not smaller than hidden_size ", hidden_size);
  }
  const int64_t gates = kind == Kind::kRNN ? 1 : kind == Kind::kGRU ? 3 : 4;
  const int64_t width = options.proj_size > 0 ? options.proj_size : hidden_size;
  const int64_t directions = options.bidirectional ? 2 : 1;
  for (int64_t layer = 0; layer < options.num_layers; ++layer) {
    for (int64_t direction = 0; direction < directions; ++direction) {
      const std::string suffix = absl::StrCat("_l", layer, direction == 0 ? "" : "_reverse");
      const int64_t in = layer == 0 ? input_size : directions * width;
      hold_parameter("weight_ih" + suffix, empty({gates * hidden_size, in}, kFloat32));
      hold_parameter("weight_hh" + suffix, empty({gates * hidden_size, width}, kFloat32));
      if (options.bias) {
        hold_parameter("bias_ih" + suffix, empty({gates * hidden_size}, kFloat32));
        hold_parameter("bias_hh" + suffix, empty({gates * hidden_size}, kFloat32));
      }
      if (options.proj_size > 0) {
        hold_parameter("weight_hr" + suffix, empty({width, hidden_size}, kFloat32));
      }
    }
  }
  RecurrentBase::reset_parameters();
}

void RecurrentBase::reset_parameters() {
  const double bound = 1 / std::sqrt(static_cast<double>(hidden_size_));
  for (const Tensor& parameter : parameters()) init::uniform_(parameter, -bound, bound);
}

size_t RecurrentBase::per_direction() const {
  return 2 + (options_.bias ? 2u : 0u) + (options_.proj_size > 0 ? 1u : 0u);
}

// Returns the next state, given the part of the gates that the input determines.
RecurrentBase::State RecurrentBase::step(const Tensor& gates, const State& state,
                                         size_t first_weight) {
  const Tensor recurrent = linear(state.hidden, held_parameter(first_weight + 1),
                                  options_.bias ? held_parameter(first_weight + 3) : Tensor());
  switch (kind_) {
    case Kind::kRNN: {
      const Tensor sum = add(gates, recurrent);
      return {nonlinearity_ == RNNNonlinearity::kReLU ? relu(sum) : tanh(sum), {}};
    }
    case Kind::kGRU: {
      const int64_t h = hidden_size_;
      const Tensor both = sigmoid(add(gates.narrow(-1, 0, 2 * h), recurrent.narrow(-1, 0, 2 * h)));
      const Tensor reset = both.narrow(-1, 0, h), keep = both.narrow(-1, h, h);
      const Tensor proposed =
          tanh(add(gates.narrow(-1, 2 * h, h), mul(reset, recurrent.narrow(-1, 2 * h, h))));
      return {add(proposed, mul(keep, sub(state.hidden, proposed))), {}};
    }
    case Kind::kLSTM:
      break;
  }
  const std::vector<Tensor> parts = add(gates, recurrent).chunk(4, -1);
  const Tensor cell =
      add(mul(sigmoid(parts[1]), state.cell), mul(sigmoid(parts[0]), tanh(parts[2])));
  Tensor hidden = mul(sigmoid(parts[3]), tanh(cell));
  if (options_.proj_size > 0) {
    hidden = linear(hidden, held_parameter(first_weight + per_direction() - 1));
  }
  return {hidden, cell};
}

void RecurrentBase::check(const Tensor& input, const Tensor& state, const char* what,
                          int64_t width) const {
  if (!state.defined()) return;
  const int64_t rows = options_.num_layers * (options_.bidirectional ? 2 : 1);
  const std::vector<int64_t> expected = {rows, input.size(1), width};
  if (!(state.sizes() == IntList(expected))) {
    fail(ErrorCode::kShape, "[", kind_name(), "] the ", what, " state has shape ",
         shape_str(state.sizes()),
         ", expected (layers * directions, N, size) = ", shape_str(expected));
  }
}

RecurrentBase::Result RecurrentBase::run(const Tensor& input, const State& initial) {
  const bool batched = input.dim() == 3;
  if ((!batched && input.dim() != 2) || input.size(-1) != input_size_) {
    fail(ErrorCode::kShape, "[", kind_name(), "] input ", shape_str(input.sizes()),
         " does not have 3 dimensions, or 2 without a batch, the last of size ", input_size_);
  }
  const auto with_batch = [&](const Tensor& x) {
    return batched || !x.defined() ? x : x.unsqueeze(1);
  };
  const bool swapped = batched && options_.batch_first;
  Tensor x = swapped ? input.transpose(0, 1) : with_batch(input);
  const int64_t length = x.size(0), directions = options_.bidirectional ? 2 : 1;
  if (length == 0) {
    fail(ErrorCode::kShape, "[", kind_name(), "] input ", shape_str(input.sizes()),
         " has no steps");
  }
  const int64_t width = options_.proj_size > 0 ? options_.proj_size : hidden_size_;
  const State first{with_batch(initial.hidden), with_batch(initial.cell)};
  check(x, first.hidden, "hidden", width);
  check(x, first.cell, "cell", hidden_size_);
  const auto state_of = [&](const Tensor& all, int64_t row, int64_t size) {
    return all.defined() ? all.select(0, row) : zeros({x.size(1), size}, x.dtype(), x.device());
  };
  std::vector<Tensor> hidden, cells;
  for (int64_t layer = 0; layer < options_.num_layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < directions; ++direction) {
      const int64_t row = layer * directions + direction;
      const size_t weight = static_cast<size_t>(row) * per_direction();
      const std::vector<Tensor> gates =
          linear(x, held_parameter(weight), options_.bias ? held_parameter(weight + 2) : Tensor())
              .unbind(0);
      State state{state_of(first.hidden, row, width), {}};
      if (kind_ == Kind::kLSTM) state.cell = state_of(first.cell, row, hidden_size_);
      std::vector<Tensor> steps(gates.size());
      for (size_t t = 0; t < gates.size(); ++t) {
        const size_t at = direction == 0 ? t : gates.size() - 1 - t;
        state = step(gates[at], state, weight);
        steps[at] = state.hidden;
      }
      outputs.push_back(stack(steps));
      hidden.push_back(state.hidden);
      if (kind_ == Kind::kLSTM) cells.push_back(state.cell);
    }
    x = outputs.size() == 1 ? outputs[0] : cat(outputs, -1);
    if (options_.dropout > 0 && training() && layer + 1 < options_.num_layers) {
      x = dropout(x, options_.dropout, true);
    }
  }
  Result result{swapped ? x.transpose(0, 1) : x, {stack(hidden), {}}};
  if (!cells.empty()) result.last.cell = stack(cells);
  if (!batched) {
    result.output = result.output.squeeze(1);
    result.last.hidden = result.last.hidden.squeeze(1);
    if (!cells.empty()) result.last.cell = result.last.cell.squeeze(1);
  }
  return result;
}

// Each step multiplies each row by all matrices; pointwise operators are left out.
double RecurrentBase::flops(const Tensor& /*input*/, const Tensor& output) const {
  int64_t weights = 0;
  for (const Tensor& parameter : parameters()) {
    if (parameter.dim() == 2) weights += parameter.numel();
  }
  return 2.0 * static_cast<double>(weights) * static_cast<double>(output.numel() / output.size(-1));
}

std::string RecurrentBase::describe() const {
  return absl::StrCat(
      kind_name(), "(", input_size_, ", ", hidden_size_,
      options_.num_layers == 1 ? "" : absl::StrCat(", num_layers=", options_.num_layers),
      options_.bias ? "" : ", bias=false", options_.batch_first ? ", batch_first=true" : "",
      options_.dropout == 0 ? "" : absl::StrCat(", dropout=", options_.dropout),
      options_.bidirectional ? ", bidirectional=true" : "",
      options_.proj_size == 0 ? "" : absl::StrCat(", proj_size=", options_.proj_size), ")");
}

}  // namespace detail

RNN::RNN(int64_t input_size, int64_t hidden_size, RNNArgs options)
    : Callable(Kind::kRNN, input_size, hidden_size,
               LSTMArgs{.num_layers = options.num_layers,
                        .bias = options.bias,
                        .batch_first = options.batch_first,
                        .dropout = options.dropout,
                        .bidirectional = options.bidirectional},
               options.nonlinearity) {}

std::tuple<Tensor, Tensor> RNN::forward(const Tensor& input, const Tensor& hidden) {
  Result result = run(input, {hidden, {}});
  return {std::move(result.output), std::move(result.last.hidden)};
}

GRU::GRU(int64_t input_size, int64_t hidden_size, GRUArgs options)
    : Callable(Kind::kGRU, input_size, hidden_size,
               LSTMArgs{.num_layers = options.num_layers,
                        .bias = options.bias,
                        .batch_first = options.batch_first,
                        .dropout = options.dropout,
                        .bidirectional = options.bidirectional}) {}

std::tuple<Tensor, Tensor> GRU::forward(const Tensor& input, const Tensor& hidden) {
  Result result = run(input, {hidden, {}});
  return {std::move(result.output), std::move(result.last.hidden)};
}

LSTM::LSTM(int64_t input_size, int64_t hidden_size, LSTMArgs options)
    : Callable(Kind::kLSTM, input_size, hidden_size, options) {}

std::tuple<Tensor, LSTM::State> LSTM::forward(const Tensor& input, const State& state) {
  const Result result = run(input, {std::get<0>(state), std::get<1>(state)});
  return {result.output, {result.last.hidden, result.last.cell}};
}

}  // namespace mytorch::nn
