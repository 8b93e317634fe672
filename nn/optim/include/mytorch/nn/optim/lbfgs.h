// L-BFGS.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/nn/optim/optimizer.h"

namespace mytorch::nn::optim {

struct LBFGSArgs {
  double lr = 1;
  int64_t max_iter = 20;                 // iterations per step
  std::optional<int64_t> max_eval = {};  // calls of the closure per step; absent: max_iter * 5 / 4
  double tolerance_grad = 1e-7;          // of the largest magnitude
  double tolerance_change = 1e-9;        // of the loss and parameters
  int64_t history_size = 100;
  std::optional<std::string> line_search_fn = {};  // or "strong_wolfe"
  bool maximize = false;                           // the loss
};
using LBFGSOptions = OptimizerOptionsOf<LBFGSArgs>;

// Nocedal, "Updating quasi-Newton matrices with limited storage" (1980), as in PyTorch: minimizes
// the loss of a closure by several iterations per step, each along the direction that the last
// `history_size` changes of the gradient suggest. With line_search_fn = "strong_wolfe", the length
// of each move satisfies the strong Wolfe conditions (Nocedal and Wright, "Numerical optimization",
// section 3.5); otherwise it is lr.
//
//   LBFGS lbfgs(net.parameters(), {.line_search_fn = "strong_wolfe"});
//   lbfgs.step([&] { lbfgs.zero_grad(); Tensor loss = ...; loss.backward(); return loss; });
//
// There is one group of parameters, on one device. step() without a closure throws
// Error(kUnsupported).
class LBFGS final : public OptimizerWith<LBFGS, LBFGSOptions> {
 public:
  explicit LBFGS(ParamGroups parameters, LBFGSArgs options = {});
  template <class TakesOptionsOf = LBFGSArgs,
            OptionNames Named =
                "lr, max_iter, max_eval, tolerance_grad, tolerance_change, history_size, "
                "line_search_fn, maximize">
  LBFGS(detail::AnyParamGroups, ...) = delete;
  template <std::convertible_to<LBFGSOptions> Options>
  LBFGS(ParamGroups parameters, const Options& options)
      : LBFGS(std::move(parameters), LBFGSOptions(options).args()) {}

  using Optimizer::step;
  Tensor step(const LossClosure& closure) override;
  TensorMap state_dict() const override;
  void load_state_dict(const TensorMap& state) override;

 private:
  friend OptimizerWith;
  static constexpr const char* kName = "LBFGS";
  static constexpr std::array<const char*, 0> kState = {};
  // A point on the line from the current parameters along a direction.
  struct Point {
    double at;  // multiple of the direction
    double loss;
    Tensor gradient;
    double slope;  // of the loss
  };
  struct State {
    Tensor direction, gradient;          // of the last iteration
    double length = 0;                   // of its move
    double scale = 1;                    // of the initial inverse Hessian
    int64_t iterations = 0;              // in all steps
    std::vector<Tensor> changes, moves;  // of the gradient and of the parameters, oldest first
  };

  static void check(const LBFGSArgs& options);
  void update(const Batch& batch, const LBFGSArgs& options) override;
  Tensor flat_gradient() const;
  void move(const Tensor& direction, double length);
  void remember(const Tensor& gradient);
  Tensor newton_direction(const Tensor& gradient) const;
  template <class Evaluate>
  Point search(const Point& start, double length, const Tensor& direction, const Evaluate& evaluate,
               int64_t most) const;

  State state_;
};

}  // namespace mytorch::nn::optim
