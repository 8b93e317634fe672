#include "mytorch/nn/optim/lbfgs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/dot.h"
#include "mytorch/ops/stack.h"
#include "mytorch/ops/zeros_like.h"
#include "nn/optim/option_checks.h"

namespace mytorch::nn::optim {

template void list_fields(OptionVisitor&, LBFGSArgs&);
namespace {

double inner(const Tensor& a, const Tensor& b) { return dot(a, b).item<double>(); }

double largest(const Tensor& x) { return x.numel() == 0 ? 0 : x.abs().max().item<double>(); }

ParamGroups one_group(ParamGroups parameters) {
  if (parameters.groups().size() > 1) {
    fail(ErrorCode::kUnsupported, "[LBFGS] there are ", parameters.groups().size(),
         " groups of parameters: give one");
  }
  return parameters;
}

// Returns the minimum, within [low, high], of the cubic with these values and slopes at two points.
double minimum_of_cubic(double x1, double f1, double g1, double x2, double f2, double g2,
                        double low, double high) {
  const double d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2);
  const double square = d1 * d1 - g1 * g2;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const double x = x1 <= x2 ? x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
                            : x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2));
  return std::min(std::max(x, low), high);
}

}  // namespace

LBFGS::LBFGS(ParamGroups parameters, LBFGSArgs options)
    : OptimizerWith(one_group(std::move(parameters)), std::move(options)) {}

void LBFGS::check(const LBFGSArgs& options) {
  const auto positive = [&](const char* name, int64_t value) {
    check_option(kName, value >= 1, name, static_cast<double>(value), "1 or more");
  };
  positive("max_iter", options.max_iter);
  positive("history_size", options.history_size);
  if (options.max_eval) positive("max_eval", *options.max_eval);
  check_not_negative(kName, {{"tolerance_grad", options.tolerance_grad},
                             {"tolerance_change", options.tolerance_change}});
  if (options.line_search_fn && *options.line_search_fn != "strong_wolfe") {
    fail(ErrorCode::kValue, "[LBFGS] line_search_fn is '", *options.line_search_fn,
         "': give \"strong_wolfe\", or none");
  }
}

void LBFGS::update(const Batch& /*batch*/, const LBFGSArgs& /*options*/) {
  fail(ErrorCode::kUnsupported,
       "[LBFGS] a step evaluates the loss several times: call step(closure), whose closure clears "
       "the gradients, computes the loss, calls backward() and returns the loss");
}

Tensor LBFGS::flat_gradient() const {
  std::vector<Tensor> parts;
  for (const Tensor& parameter : parameters(0)) {
    const Tensor gradient = parameter.grad();
    const Tensor whole = gradient.defined() ? gradient : zeros_like(parameter);
    parts.push_back(as_reals(whole).detach().reshape({-1}));
  }
  const Tensor flat = cat(parts);
  return args_of(0).maximize ? -flat : flat;
}

// Adds `length` times the direction to the parameters.
void LBFGS::move(const Tensor& direction, double length) {
  int64_t begin = 0;
  for (const Tensor& parameter : parameters(0)) {
    const Tensor reals = as_reals(parameter).detach();
    const int64_t count = reals.numel();
    reals.add_(direction.narrow(0, begin, count).view_as(reals), length);
    begin += count;
  }
}

// Appends the last iteration's change of the gradient to the history.
void LBFGS::remember(const Tensor& gradient) {
  const Tensor change = gradient - state_.gradient;
  const Tensor move = state_.direction * state_.length;
  const double curvature = inner(change, move);
  if (!(curvature > 1e-10)) return;
  if (static_cast<int64_t>(state_.changes.size()) >= args_of(0).history_size) {
    state_.changes.erase(state_.changes.begin());
    state_.moves.erase(state_.moves.begin());
  }
  state_.changes.push_back(change);
  state_.moves.push_back(move);
  state_.scale = curvature / inner(change, change);
}

// Returns minus the product of the gradient and the inverse Hessian that the history approximates
// (Nocedal and Wright, algorithm 7.4).
Tensor LBFGS::newton_direction(const Tensor& gradient) const {
  const size_t n = state_.changes.size();
  std::vector<double> weights(n), curvatures(n);
  Tensor direction = -gradient;
  for (size_t i = n; i-- > 0;) {
    curvatures[i] = inner(state_.changes[i], state_.moves[i]);
    weights[i] = inner(state_.moves[i], direction) / curvatures[i];
    direction.add_(state_.changes[i], -weights[i]);
  }
  direction.mul_(state_.scale);
  for (size_t i = 0; i < n; ++i) {
    const double weight = inner(state_.changes[i], direction) / curvatures[i];
    direction.add_(state_.moves[i], weights[i] - weight);
  }
  return direction;
}

// Returns a point that satisfies the strong Wolfe conditions, or the best one if there is none
// within `most` + 1 evaluations.
template <class Evaluate>
LBFGS::Point LBFGS::search(const Point& start, double length, const Tensor& direction,
                           const Evaluate& evaluate, int64_t most) const {
  constexpr double kDecrease = 1e-4, kCurvature = 0.9, kShortest = 1e-9;
  const auto too_high = [&](const Point& point) {
    return point.loss > start.loss + kDecrease * point.at * start.slope;
  };
  const auto flat = [&](const Point& point) {
    return std::abs(point.slope) <= -kCurvature * start.slope;
  };
  // Advance until two points enclose a solution.
  Point before = start, point = evaluate(length);
  int64_t tries = 0;
  for (;; ++tries) {
    if (tries == most) {
      before = start;
      break;
    }
    if (too_high(point) || (tries > 1 && point.loss >= before.loss)) break;
    if (flat(point)) return point;
    if (point.slope >= 0) break;
    const double least = point.at + 0.01 * (point.at - before.at);
    const double next = minimum_of_cubic(before.at, before.loss, before.slope, point.at, point.loss,
                                         point.slope, least, point.at * 10);
    before = std::exchange(point, evaluate(next));
  }
  // Shrink the interval.
  std::array<Point, 2> ends = {before, point};
  size_t low = ends[0].loss <= ends[1].loss ? 0 : 1;
  const double size = largest(direction);
  bool stuck = false;
  for (; tries < most; ++tries) {
    const auto [a, b] = std::minmax(ends[0].at, ends[1].at);
    if ((b - a) * size < kShortest) break;
    double at = minimum_of_cubic(ends[0].at, ends[0].loss, ends[0].slope, ends[1].at, ends[1].loss,
                                 ends[1].slope, a, b);
    // Twice near the same end is no progress: move away from it.
    const double margin = 0.1 * (b - a);
    const bool near = std::min(b - at, at - a) < margin;
    if (near && (stuck || at >= b || at <= a)) {
      at = std::abs(at - b) < std::abs(at - a) ? b - margin : a + margin;
      stuck = false;
    } else {
      stuck = near;
    }
    const Point next = evaluate(at);
    Point& high = ends[1 - low];
    if (too_high(next) || next.loss >= ends[low].loss) {
      high = next;
      low = ends[0].loss <= ends[1].loss ? 0 : 1;
      continue;
    }
    const bool done = flat(next);
    if (!done && next.slope * (high.at - ends[low].at) >= 0) high = ends[low];
    ends[low] = next;
    if (done) break;
  }
  return ends[low];
}

Tensor LBFGS::step(const LossClosure& closure) {
  NoGradGuard no_grad;
  check_options(std::as_const(param_groups()[0]).options());
  const LBFGSArgs options = args_of(0);
  const int64_t most = options.max_eval.value_or(options.max_iter * 5 / 4);
  int64_t evaluations = 0;
  const auto call = [&] {
    EnableGradGuard grad;
    ++evaluations;
    Tensor loss = closure();
    if (!loss.defined()) {
      fail(ErrorCode::kValue, "[LBFGS] the closure returned no loss: return what backward() is of");
    }
    return loss;
  };
  const auto to_minimize = [&](const Tensor& loss) {
    const double value = loss.item<double>();
    return options.maximize ? -value : value;
  };
  Tensor first = call();
  double loss = to_minimize(first);
  Tensor gradient = flat_gradient();
  if (largest(gradient) <= options.tolerance_grad) return first;
  for (int64_t iteration = 1; iteration <= options.max_iter; ++iteration) {
    if (++state_.iterations == 1) {
      state_.direction = -gradient;
    } else {
      remember(gradient);
      state_.direction = newton_direction(gradient);
    }
    state_.gradient = gradient;
    const Tensor& direction = state_.direction;
    const double before = loss;
    const double slope = inner(gradient, direction);
    state_.length = state_.iterations == 1
                        ? std::min(1.0, 1 / gradient.abs().sum().item<double>()) * options.lr
                        : options.lr;
    if (slope > -options.tolerance_change) break;
    if (options.line_search_fn) {
      double here = 0;  // where the parameters are along the direction
      const auto evaluate = [&](double at) {
        move(direction, at - here);
        here = at;
        const double value = to_minimize(call());
        Tensor there = flat_gradient();
        return Point{at, value, there, inner(there, direction)};
      };
      const Point found = search({0, loss, gradient, slope}, state_.length, direction, evaluate,
                                 most - evaluations);
      move(direction, found.at - here);
      loss = found.loss;
      gradient = found.gradient;
      state_.length = found.at;
    } else {
      move(direction, state_.length);
      if (iteration == options.max_iter) break;  // the next step evaluates the loss
      loss = to_minimize(call());
      gradient = flat_gradient();
    }
    if (evaluations >= most || largest(gradient) <= options.tolerance_grad ||
        largest(direction) * std::abs(state_.length) <= options.tolerance_change ||
        std::abs(loss - before) < options.tolerance_change) {
      break;
    }
  }
  return first;
}

TensorMap LBFGS::state_dict() const {
  TensorMap state = Optimizer::state_dict();
  if (state_.iterations == 0) return state;
  state["lbfgs.iterations"] = scalar_tensor(state_.iterations, kInt64);
  state["lbfgs.direction"] = state_.direction;
  state["lbfgs.gradient"] = state_.gradient;
  state["lbfgs.length"] = scalar_tensor(state_.length, kFloat64);
  state["lbfgs.scale"] = scalar_tensor(state_.scale, kFloat64);
  if (!state_.changes.empty()) {
    state["lbfgs.changes"] = stack(state_.changes);
    state["lbfgs.moves"] = stack(state_.moves);
  }
  return state;
}

void LBFGS::load_state_dict(const TensorMap& state) {
  NoGradGuard no_grad;
  TensorMap rest = state;
  const auto take = [&](const char* name) {
    const auto found = rest.find(name);
    if (found == rest.end()) {
      fail(ErrorCode::kValue, "[LBFGS] the state has no '", name, "'");
    }
    Tensor tensor = found->second;
    rest.erase(found);
    return tensor;
  };
  int64_t count = 0;
  for (const Tensor& parameter : parameters(0)) count += as_reals(parameter).numel();
  const Tensor like = parameters(0)[0];
  const auto take_vector = [&](const char* name) {
    const Tensor tensor = take(name);
    if (tensor.dim() == 0 || tensor.size(-1) != count) {
      fail(ErrorCode::kShape, "[LBFGS] the state's '", name, "' has shape ",
           shape_str(tensor.sizes()), ", but there are ", count, " numbers in the parameters");
    }
    return tensor.to(like.device(), to_real(like.dtype()));
  };
  State loaded;
  if (rest.count("lbfgs.iterations") != 0) {
    loaded.iterations = take("lbfgs.iterations").item<int64_t>();
    loaded.direction = take_vector("lbfgs.direction");
    loaded.gradient = take_vector("lbfgs.gradient");
    loaded.length = take("lbfgs.length").item<double>();
    loaded.scale = take("lbfgs.scale").item<double>();
    if (rest.count("lbfgs.changes") != 0) {
      loaded.changes = take_vector("lbfgs.changes").unbind();
      loaded.moves = take_vector("lbfgs.moves").unbind();
    }
  }
  Optimizer::load_state_dict(rest);
  state_ = std::move(loaded);
}

}  // namespace mytorch::nn::optim
