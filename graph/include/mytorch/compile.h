// Compiled functions: a function of tensors is recorded once, and then runs as one program.
//
//   auto step = compile([&](const Tensor& x, const Tensor& y) {
//     optimizer.zero_grad();
//     Tensor loss = F::cross_entropy(model->forward(x), y);
//     loss.backward();
//     optimizer.step();
//     return loss;
//   });
//   for (const auto& [x, y] : loader) losses.push_back(step(x, y));
//
// The first call runs the function as usual and records the operators that it calls: forward,
// backward and optimizer together. The second call with arguments of the same kind plans their
// kernels and the memory of intermediates. Further calls run the kernels, without the function:
// without dispatch, shape inference or allocation.
//
// What the function does besides calling operators happens only while it is recorded. Numbers and
// branches of C++ have the values that they had then; options of the library (training mode,
// options of modules and optimizers) are compared in each call, which records again if they have
// changed, and the learning rate is read by each call. The function's own state must be passed as
// an argument: a tensor, or a number, for each value of which the function is recorded once.
// options_changed() has all functions recorded again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "mytorch/autograd/functional.h"
#include "mytorch/options_epoch.h"
#include "mytorch/tensor.h"

namespace mytorch {

struct CompileOptions {
  // The number of recordings to keep, one for each kind of arguments. The oldest is dropped.
  int64_t cache_size = 8;
  // Prints a line to stderr, with the reason, whenever the function is recorded.
  bool verbose = false;
};

// What a compiled function has done.
struct CompileStats {
  int64_t recorded = 0;  // calls that ran the function
  int64_t replayed = 0;  // calls that ran its plan
  // Of the newest plan: calls of kernels, nodes that the host runs, and the bytes of intermediates,
  // as planned and without sharing memory.
  int64_t kernel_calls = 0;
  int64_t interpreted = 0;
  int64_t planned_bytes = 0;
  int64_t intermediate_bytes = 0;
  std::string reason;  // why the function was recorded the last time
};

namespace graph {

// The recordings of one function.
class Cache {
 public:
  using Function = std::function<std::vector<Tensor>()>;
  explicit Cache(const CompileOptions& options);
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  // Runs the plan for these arguments, or `function`, which computes the results from the same
  // arguments. `constants` are the arguments that are no tensors.
  std::vector<Tensor> run(const std::vector<Tensor>& arguments,
                          const std::vector<double>& constants, const Function& function);
  CompileStats stats() const;
  // Returns the text of the newest graph, or "" if there is none.
  std::string text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

inline void flatten(const Tensor& x, std::vector<Tensor>* tensors, std::vector<double>*) {
  tensors->push_back(x);
}
inline void flatten(const std::vector<Tensor>& list, std::vector<Tensor>* tensors,
                    std::vector<double>* constants) {
  tensors->insert(tensors->end(), list.begin(), list.end());
  constants->push_back(static_cast<double>(list.size()));
}
template <class T>
requires(std::is_arithmetic_v<T> ||
         std::is_enum_v<T>) void flatten(const T& x, std::vector<Tensor>*,
                                         std::vector<double>* constants) {
  constants->push_back(static_cast<double>(x));
}

}  // namespace graph

// A function with its recordings. Copies share them. One thread at a time may call it.
template <class F>
class Compiled {
 public:
  Compiled(F f, const CompileOptions& options)
      : f_(std::move(f)), cache_(std::make_shared<graph::Cache>(options)) {}

  // Takes what the function takes: tensors, std::vector<Tensor> and numbers. Returns what it
  // returns: nothing, a Tensor, or a std::tuple or std::vector of them.
  //
  // Throws Error(kUnsupported), naming the operator, if the function does what a graph cannot hold:
  // reads the values of an argument or of a computed tensor on the host, calls an operator whose
  // result has a shape that depends on values, or returns a tensor with history.
  template <class... Args>
  auto operator()(const Args&... args) {
    using Result = std::invoke_result_t<F&, const Args&...>;
    std::vector<Tensor> tensors;
    std::vector<double> constants;
    (graph::flatten(args, &tensors, &constants), ...);
    if constexpr (std::is_void_v<Result>) {
      cache_->run(tensors, constants, [&] {
        f_(args...);
        return std::vector<Tensor>();
      });
    } else {
      using Out = std::conditional_t<std::is_convertible_v<Result, Tensor>, Tensor,
                                     std::remove_cvref_t<Result>>;
      std::vector<Tensor> results = cache_->run(
          tensors, constants, [&] { return autograd::Structure<Out>::flatten(f_(args...)); });
      return autograd::Structure<Out>::build([&](size_t i) { return std::move(results[i]); },
                                             results.size());
    }
  }

  CompileStats stats() const { return cache_->stats(); }
  // Returns the text of the newest graph: its operators in order, with types and shapes.
  std::string text() const { return cache_->text(); }

 private:
  F f_;
  std::shared_ptr<graph::Cache> cache_;
};

// Returns a function that records `f` in its first call and replays it in further ones. Results of
// replays are those of `f`, bit for bit.
template <class F>
Compiled<std::decay_t<F>> compile(F&& f, const CompileOptions& options = {}) {
  return {std::forward<F>(f), options};
}

}  // namespace mytorch
