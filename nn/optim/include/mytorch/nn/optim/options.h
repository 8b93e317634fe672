// The options of optimizers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "mytorch/dtype.h"
#include "mytorch/nn/options.h"

namespace mytorch::nn::optim {

using Betas = std::tuple<double, double>;

// Adafactor's. Absent: the type's epsilon. The second is the smallest root mean square of a
// parameter.
struct FactoredEps {
  std::optional<double> first;
  double second;
  bool operator==(const FactoredEps&) const = default;
};
// The coefficients of a x + b x^3 + c x^5.
struct Quintic {
  double a, b, c;
  bool operator==(const Quintic&) const = default;
};

// Sees the options of a group by name, each with its own type.
class OptionVisitor {
 public:
  virtual ~OptionVisitor() = default;
  virtual void visit(const char* name, double& value) = 0;
  virtual void visit(const char* name, Betas& value) = 0;
  virtual void visit(const char* name, bool& value) = 0;
  virtual void visit(const char* name, int64_t& value) = 0;
  virtual void visit(const char* name, std::optional<int64_t>& value) = 0;
  virtual void visit(const char* name, std::optional<std::string>& value) = 0;
  virtual void visit(const char* name, std::optional<ScalarType>& value) = 0;
  virtual void visit(const char* name, FactoredEps& value) = 0;
  virtual void visit(const char* name, Quintic& value) = 0;
};

// The options of a group, as numbers and others.
struct OptionList final : public OptionVisitor {
  struct Number {
    const char* name;
    double* value;
  };
  struct Other {
    const char* name;
    const void* value;
    std::string (*text)(const void* value);
    bool (*same)(const void* a, const void* b);
  };
  std::vector<Number> numbers;
  std::vector<Other> others;

  void visit(const char* name, double& value) override;
  void visit(const char* name, Betas& value) override;  // as beta1 and beta2
  void visit(const char* name, bool& value) override;
  void visit(const char* name, int64_t& value) override;
  void visit(const char* name, std::optional<int64_t>& value) override;
  void visit(const char* name, std::optional<std::string>& value) override;
  void visit(const char* name, std::optional<ScalarType>& value) override;
  void visit(const char* name, FactoredEps& value) override;
  void visit(const char* name, Quintic& value) override;
};

// Visits the options that the aggregate declares. Defined in list_fields.h, which the file that
// defines an optimizer includes.
template <class Args>
void list_fields(OptionVisitor& visitor, Args& args);

// The options of any optimizer.
class OptimizerOptions {
 public:
  virtual ~OptimizerOptions() = default;
  virtual double get_lr() const = 0;
  virtual void set_lr(double lr) = 0;
  virtual std::unique_ptr<OptimizerOptions> clone() const = 0;
  virtual void list(OptionVisitor& visitor) = 0;
  // Whether float32 copies of 16-bit parameters are updated, and the type in which state is stored;
  // absent: the type of the updated parameters.
  virtual bool get_master_weights() const = 0;
  virtual std::optional<ScalarType> get_state_dtype() const = 0;
};

// Calls `f(name, value)` for each option, where `value` refers to it as its own type.
template <class F>
void for_each_option(OptimizerOptions& options, const F& f) {
  class Each final : public OptionVisitor {
   public:
    explicit Each(const F& f) : f_(f) {}
    void visit(const char* name, double& value) override { f_(name, value); }
    void visit(const char* name, Betas& value) override { f_(name, value); }
    void visit(const char* name, bool& value) override { f_(name, value); }
    void visit(const char* name, int64_t& value) override { f_(name, value); }
    void visit(const char* name, std::optional<int64_t>& value) override { f_(name, value); }
    void visit(const char* name, std::optional<std::string>& value) override { f_(name, value); }
    void visit(const char* name, std::optional<ScalarType>& value) override { f_(name, value); }
    void visit(const char* name, FactoredEps& value) override { f_(name, value); }
    void visit(const char* name, Quintic& value) override { f_(name, value); }

   private:
    const F& f_;
  };
  Each each(f);
  options.list(each);
}

MYTORCH_DEFINE_SETTERS(OptimizerOptionSetters, MYTORCH_OPTIMIZER_OPTION_NAMES)

// The options of one optimizer: libtorch's builder of the aggregate in which they are declared.
// AdamOptions is that of AdamArgs.
template <class Aggregate>
class OptimizerOptionsOf final
    : public OptimizerOptions,
      public OptimizerOptionSetters<OptimizerOptionsOf<Aggregate>, Aggregate> {
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
    return std::make_unique<OptimizerOptionsOf>(*this);
  }
  void list(OptionVisitor& visitor) final { list_fields(visitor, args_); }
  bool get_master_weights() const final {
    if constexpr (requires { args_.master_weights; }) return args_.master_weights;
    return false;
  }
  std::optional<ScalarType> get_state_dtype() const final {
    if constexpr (requires { args_.state_dtype; }) return args_.state_dtype;
    return {};
  }

 private:
  Args args_;
};

}  // namespace mytorch::nn::optim
