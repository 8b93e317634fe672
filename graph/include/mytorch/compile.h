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
// without dispatch, shape inference or allocation of intermediates.
//
// What the function does besides calling operators happens only while it is recorded. Numbers and
// branches of C++ have the values that they had then; options of the library (training mode,
// options of modules and optimizers) are compared in each call, which records again if they have
// changed, and the learning rate is read by each call. The function's own state must be passed as
// an argument (a tensor, or a number, for each value of which the function is recorded once), or be
// read through guard(). options_changed() has all functions recorded again.
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "mytorch/autograd/functional.h"
#include "mytorch/compile_mode.h"
#include "mytorch/options_epoch.h"
#include "mytorch/program.h"
#include "mytorch/tensor.h"
#include "mytorch/thread_state.h"

namespace mytorch {

// A dimension of a tensor argument that may have any size.
struct DynamicDim {
  int64_t argument = 0;  // among the defined tensors, those of lists counted one by one
  int64_t dim = 0;       // negative: from the end
  // Dimensions of one name have one size. Without names, dimensions are taken as one while all
  // recordings have equal sizes there.
  std::string name = "";
  // Whether recordings hold beyond the smallest and largest size that was recorded: the function
  // has no branch on the size.
  bool any_size = false;
};

struct CompileOptions {
  // Whether results may differ from those of the function in the last bits.
  CompileMode mode = CompileMode::kDefault;
  // The number of recordings to keep, one for each kind of arguments. The oldest is dropped.
  int64_t cache_size = 8;
  // Prints a line to stderr, with the reason, whenever the function is recorded.
  bool verbose = false;
  // The part of the bytes that live from forward to backward which may stay, from 0 to 1. With less
  // than 1, cheap values (activations, norms, casts) are computed again in backward, those first
  // that cost the least for the bytes that they free; 0 frees as many bytes as possible.
  double memory_budget = 1;
  // Dimensions whose sizes vary from call to call. The function is recorded at three sizes; between
  // the smallest and the largest of them, further sizes run without it if all shapes and numbers
  // of the graph are functions of the sizes. Sizes 0 and 1, and those outside, are recorded.
  std::vector<DynamicDim> dynamic_dims = {};
  // Whether a function may do what a graph cannot hold: read a value that it computes, call an
  // operator whose result has a shape that depends on values, write tensors that it makes from
  // numbers. The graph ends there, and another one begins behind it. Such a function itself runs in
  // each call, with operators that wait until a graph is complete.
  bool allow_breaks = false;
};

// A point at which a graph ends in the middle of a function.
struct CompileBreak {
  std::string op;      // what comes there: an operator, or an access such as item()
  std::string reason;  // why the graph ends
  // Where the function was when it ended there for the first time: "train_step() at 0x12ab in
  // mnist, from main at 0x1410 in mnist". "" if no frame outside of the library is known.
  std::string site;
};

// What a compiled function has done.
struct CompileStats {
  int64_t recorded = 0;  // calls that ran the function
  int64_t replayed = 0;  // calls that ran its plan
  // Calls that ran the function as it is, because recordings were not used again: each call differs
  // from the ones before in what recordings hold as constants.
  int64_t unrecorded = 0;
  // Graphs that followed from recordings at other sizes (CompileOptions::dynamic_dims), and why the
  // last recording or call was at no size of one.
  int64_t instantiated = 0;
  std::string dynamic_reason;
  // Of the newest plan: calls of kernels, nodes that the host runs, and the bytes of intermediates
  // that need memory, as planned and without sharing it; and of the recording, the most bytes that
  // values of the graph hold at one time, each from the node that makes it to the last that uses
  // it.
  int64_t kernel_calls = 0;
  int64_t fused = 0;    // calls that became parts of others
  int64_t kept = 0;     // calls that run only when a tensor from outside has changed
  int64_t regions = 0;  // calls that are regions, which a backend compiled as a whole
  std::vector<std::string> region_report;  // a line for each that was compiled or declined
  // A line for each call or fused calls over elements or rows: "fused: mul, add, tanh over (64,
  // 10)", or "alone: ...", and why it did not join the nearest call that it depends on.
  std::vector<std::string> fusion_report;
  bool device_graph = false;  // whether the device replays all of them with one launch
  int64_t streams = 1;        // over which that graph spreads them, once measured
  int64_t interpreted = 0;
  std::vector<std::string> interpreted_operators;  // their operators
  int64_t kept_bytes = 0;  // of the results of these, which stay from call to call
  int64_t planned_bytes = 0;
  int64_t intermediate_bytes = 0;
  int64_t recorded_peak_bytes = 0;
  // How often each rule and pass changed the graph of the newest plan and of its backward, by name.
  std::map<std::string, int64_t> rewritten;
  // How long parts of the newest recording and plan took: `record` is the call that ran the
  // function, `plan` the one that ran and planned its kernels, without the passes, which go by
  // their names.
  std::map<std::string, double> seconds;
  std::string reason;  // why the function was recorded the last time
  // Of a function with breaks: where the last call broke, in order; the number of its graphs, and
  // of all that were recorded; and how often plans of them ran.
  std::vector<CompileBreak> breaks;
  int64_t segments = 0;
  int64_t recorded_segments = 0;
  int64_t replayed_segments = 0;
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
                          const std::vector<uint64_t>& constants, const Function& function);
  CompileStats stats() const;
  // Returns the text of the newest graph, as its plan runs it once there is one, or "" if there is
  // no graph.
  std::string text() const;
  void save(const std::string& path, const SaveOptions& options) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Append the tensors of an argument, and what a recording holds as constants: pairs of a kind and
// a value, so that 1, 1.0 and true differ, as do 0.0 and -0.0, and a NaN is equal to itself.
enum class ConstantKind : uint64_t { kAbsent, kLength, kBool, kSigned, kUnsigned, kEnum, kFloat };

inline void flatten(const Tensor& x, std::vector<Tensor>* tensors,
                    std::vector<uint64_t>* constants) {
  if (x.defined()) {
    tensors->push_back(x);
  } else {  // its place is a constant
    constants->insert(constants->end(), {uint64_t(ConstantKind::kAbsent), tensors->size()});
  }
}
inline void flatten(const std::vector<Tensor>& list, std::vector<Tensor>* tensors,
                    std::vector<uint64_t>* constants) {
  for (const Tensor& x : list) flatten(x, tensors, constants);
  constants->insert(constants->end(), {uint64_t(ConstantKind::kLength), list.size()});
}
template <class T>
requires(std::is_arithmetic_v<T> ||
         std::is_enum_v<T>) void flatten(const T& x, std::vector<Tensor>*,
                                         std::vector<uint64_t>* constants) {
  if constexpr (std::is_floating_point_v<T>) {
    constants->insert(constants->end(), {uint64_t(ConstantKind::kFloat),
                                         std::bit_cast<uint64_t>(static_cast<double>(x))});
  } else {
    constexpr ConstantKind kind = std::is_same_v<T, bool> ? ConstantKind::kBool
                                  : std::is_enum_v<T>     ? ConstantKind::kEnum
                                  : std::is_unsigned_v<T> ? ConstantKind::kUnsigned
                                                          : ConstantKind::kSigned;
    constants->insert(constants->end(), {uint64_t(kind), static_cast<uint64_t>(x)});
  }
}

// The recording of this thread, if there is one, holds while `unchanged` returns true. Of several
// guards of a variable of one type, the first counts.
void guard_value(const void* variable, size_t type, const char* name,
                 std::function<bool()> unchanged);

// 0.0 and -0.0 differ, and a NaN is equal to itself.
template <class T>
bool same_value(const T& a, const T& b) {
  if constexpr (std::is_floating_point_v<T>) {
    return (a == b && std::signbit(a) == std::signbit(b)) || (std::isnan(a) && std::isnan(b));
  } else {
    return a == b;
  }
}

}  // namespace graph

// Returns `variable`, whose value the recording of a compiled function takes for granted from now
// on: each call compares it, and one with another value records the function again.
//
//   bool warm_up = true;
//   auto step = compile([&](const Tensor& x) { return guard(warm_up, "warm_up") ? x : f(x); });
//
// The variable must live as long as the compiled function, which refers to it. `name` is for
// messages, and is copied. What the function assigns to the variable, a replay does not. Elsewhere,
// this only returns the variable.
template <class T>
requires(std::equality_comparable<T>&& std::copy_constructible<T> &&
         !std::is_same_v<T, Tensor>) const T& guard(const T& variable, const char* name = "") {
  if ((thread_state.wanted & kLayerCapture) != 0) {
    graph::guard_value(&variable, typeid(T).hash_code(), name, [&variable, value = variable] {
      return graph::same_value(variable, value);
    });
  }
  return variable;
}
template <class T>
void guard(const T&& temporary, const char* name = "") = delete;

// A function with its recordings. Copies share them. Calls of several threads run one after the
// other.
template <class F>
class Compiled {
 public:
  Compiled(F f, const CompileOptions& options)
      : f_(std::move(f)), cache_(std::make_shared<graph::Cache>(options)) {}

  // Takes what the function takes: tensors, which may be undefined (the function is recorded for
  // each set of absent ones), std::vector<Tensor> and numbers. Returns what it returns: nothing, a
  // Tensor, or a std::tuple or std::vector of them.
  //
  // Without `allow_breaks`, throws Error(kUnsupported), naming the operator, if the function does
  // what a graph cannot hold: reads the values of an argument or of a computed tensor on the host,
  // or calls an operator whose result has a shape that depends on values. Results that require
  // gradients have a history whose backward is compiled, too, and cannot be differentiated again.
  template <class... Args>
  auto operator()(const Args&... args) {
    using Result = std::invoke_result_t<F&, const Args&...>;
    std::vector<Tensor> tensors;
    std::vector<uint64_t> constants;
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
  // Returns the text of the newest graph: its operators in order, with types and shapes. From the
  // second call on it is the graph that the plan runs, after all passes.
  std::string text() const { return cache_->text(); }
  // Writes the recording that was used last to a file, with the tensors from outside that it refers
  // to, for load() (mytorch/program.h). The file is replaced atomically. Throws Error(kValue)
  // before the first call, Error(kUnsupported), naming the operator, if a file cannot hold the
  // graph, and Error(kIo) if writing fails.
  void save(const std::string& path, const SaveOptions& options = {}) const {
    cache_->save(path, options);
  }

 private:
  F f_;
  std::shared_ptr<graph::Cache> cache_;
};

// Returns a function that records `f` in its first call and replays it in further ones. With
// CompileMode::kExact, results of replays are those of `f`, bit for bit.
template <class F>
Compiled<std::decay_t<F>> compile(F&& f, const CompileOptions& options = {}) {
  return {std::forward<F>(f), options};
}

}  // namespace mytorch
