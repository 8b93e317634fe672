// A function whose results have history, with its backward: both are recorded together, and become
// two graphs. The first computes the results and what backward needs, the second the gradients.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "graph/capture/capture.h"
#include "graph/passes/passes.h"
#include "graph/rules/rewrite.h"
#include "graph/run/plan.h"

namespace mytorch::autograd {
class FunctionContext;
}

namespace mytorch::graph {

class Joint {
 public:
  // Returns whether a result of a function has history.
  static bool has_history(const std::vector<Tensor>& results);

  // Records the backward of `results` in the capture of the function that made them, and ends it.
  // The history of the results stays as it is.
  Joint(OperatorCapture* capture, const std::vector<Tensor>& arguments,
        const std::vector<Tensor>& results, const PassOptions& options);

  // The graph of the function. Its results are those of the function, then the saved values.
  const Recorded& forward() const { return forward_; }

  const Recorded& backward_graph() const { return backward_; }

  // Returns the same with graphs of other sizes.
  std::shared_ptr<Joint> at_other_sizes(Recorded forward, Recorded backward) const;

  // What passes have changed in the graph of backward, once it has run.
  const Fired& rewritten() const { return rewritten_; }

  // Gives results, with the saved values behind them, the history of a compiled backward, and
  // removes the saved values. `joint` is this object.
  static void attach(const std::shared_ptr<Joint>& joint, const std::vector<Tensor>& arguments,
                     std::vector<Tensor>* results);

  // Gives results of the function itself, which has run beside a plan, a history that runs both
  // backwards, and compares them (check_mode.h). `values` are those that the plan has saved.
  static void attach_beside(const std::shared_ptr<Joint>& joint,
                            const std::vector<Tensor>& arguments, const std::vector<Tensor>& values,
                            std::vector<Tensor>* results);

 private:
  explicit Joint(const PassOptions& options) : options_(options) {}
  struct Splitter;
  static std::vector<Tensor> run_backward(autograd::FunctionContext* context,
                                          const std::vector<Tensor>& gradients);
  struct FunctionHistory;
  static std::vector<Tensor> run_backward_beside(autograd::FunctionContext* context,
                                                 const std::vector<Tensor>& gradients);
  static void connect(const std::shared_ptr<Joint>& joint, const std::vector<Tensor>& arguments,
                      const std::vector<Tensor>& values,
                      const std::shared_ptr<FunctionHistory>& beside, std::vector<Tensor>* results);
  // The arguments of the graph of backward.
  std::vector<Tensor> backward_arguments(const std::vector<Tensor>& saved,
                                         const std::vector<Tensor>& gradients) const;
  std::vector<Tensor> backward(const std::vector<Tensor>& arguments);
  bool captures(const Tensor& leaf) const;

  size_t num_results_ = 0;
  std::vector<bool> differentiable_;  // of the results
  std::vector<Tensor> leaves_;        // that the results depend on, besides the arguments
  std::vector<int32_t> inputs_;       // the arguments that require gradients
  Recorded forward_, backward_;
  std::vector<int32_t> saved_arguments_;  // of the function, that backward reads
  std::vector<int32_t> saved_outside_;    // tensors from outside that backward reads
  std::vector<size_t> gradients_;         // the results whose gradients backward reads
  std::vector<ValueId> gradient_values_;  // their values in the graph
  const PassOptions options_;
  Recorded planned_;  // backward, as its plan runs it
  Fired rewritten_;
  std::unique_ptr<ReplayPlan> plan_;  // of backward
};

}  // namespace mytorch::graph
