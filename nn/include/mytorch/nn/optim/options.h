// The options of optimizers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "mytorch/nn/option_list.h"

namespace mytorch::nn::optim {

using Betas = std::tuple<double, double>;

// The options of a group by name.
struct OptionList {
  struct Number {
    const char* name;
    double* value;
  };
  std::vector<Number> numbers;
  std::vector<std::pair<const char*, std::string>> others;  // as text

  void add(const char* name, double& value);
  void add(const char* name, Betas& value);  // as beta1 and beta2
  void add(const char* name, bool& value);
  void add(const char* name, int64_t& value);
  void add(const char* name, std::optional<int64_t>& value);
  void add(const char* name, std::optional<std::string>& value);
};

// The options of any optimizer.
class OptimizerOptions {
 public:
  virtual ~OptimizerOptions() = default;
  virtual double get_lr() const = 0;
  virtual void set_lr(double lr) = 0;
  virtual std::unique_ptr<OptimizerOptions> clone() const = 0;
  virtual void list(OptionList& list) = 0;
};

// Options that are built by setters of class `Self`, and stored in the aggregate `Aggregate`.
template <class Self, class Aggregate>
class OptimizerOptionsOf : public OptimizerOptions {
 public:
  using Args = Aggregate;
  OptimizerOptionsOf() = default;
  OptimizerOptionsOf(double lr) { args_.lr = lr; }  // NOLINT(google-explicit-constructor)
  explicit OptimizerOptionsOf(Args args) : args_(std::move(args)) {}
  Args& args() { return args_; }
  const Args& args() const { return args_; }
  double get_lr() const final { return args_.lr; }
  void set_lr(double lr) final { args_.lr = lr; }
  std::unique_ptr<OptimizerOptions> clone() const final {
    return std::make_unique<Self>(static_cast<const Self&>(*this));
  }

 private:
  Args args_;
};

// Defines the options of an optimizer from a list of (type, name, default): the aggregate NameArgs,
// for designated initializers, and the class NameOptions, libtorch's builder of it.
#define MYTORCH_OPTIMIZER_OPTIONS(Name, ...)                                                       \
  struct Name##Args {                                                                              \
    MYTORCH_FIELDS(__VA_ARGS__)                                                                    \
  };                                                                                               \
  class Name##Options final : public OptimizerOptionsOf<Name##Options, Name##Args> {               \
   public:                                                                                         \
    using OptimizerOptionsOf::OptimizerOptionsOf;                                                  \
    MYTORCH_SETTERS(__VA_ARGS__)                                                                   \
    void list(OptionList& list) override { MYTORCH_FOR_EACH(MYTORCH_OPTIMIZER_LIST, __VA_ARGS__) } \
  };
#define MYTORCH_OPTIMIZER_LIST(type, name, value) list.add(#name, args().name);

}  // namespace mytorch::nn::optim
