// The options of groups by name, and what schedules change.
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>

#include "core/runtime/stream_capture.h"
#include "core/types/errors.h"
#include "mytorch/nn/optim/optimizer.h"
#include "nn/optim/option_checks.h"

namespace mytorch::nn::optim {

namespace {

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(int64_t value) { return std::to_string(value); }
std::string text_of(const std::optional<int64_t>& value) {
  return value ? std::to_string(*value) : "none";
}
std::string text_of(const std::optional<std::string>& value) { return value.value_or("none"); }
std::string text_of(const std::optional<ScalarType>& value) {
  return value ? dtype_name(*value) : "none";
}
std::string text_of(const FactoredEps& value) {
  const auto& [first, second] = value;
  return absl::StrCat("(", first ? absl::StrCat(*first) : "none", ", ", second, ")");
}
std::string text_of(const Quintic& value) {
  return absl::StrCat("(", value.a, ", ", value.b, ", ", value.c, ")");
}

template <class T>
void add_other(OptionList* list, const char* name, const T& value) {
  list->others.push_back({name, &value,
                          [](const void* each) { return text_of(*static_cast<const T*>(each)); },
                          [](const void* a, const void* b) {
                            return *static_cast<const T*>(a) == *static_cast<const T*>(b);
                          }});
}

}  // namespace

void OptionList::visit(const char* name, double& value) { numbers.push_back({name, &value}); }
void OptionList::visit(const char* /*name*/, Betas& value) {
  visit("beta1", std::get<0>(value));
  visit("beta2", std::get<1>(value));
}
void OptionList::visit(const char* name, bool& value) { add_other(this, name, value); }
void OptionList::visit(const char* name, int64_t& value) { add_other(this, name, value); }
void OptionList::visit(const char* name, std::optional<int64_t>& value) {
  add_other(this, name, value);
}
void OptionList::visit(const char* name, std::optional<std::string>& value) {
  add_other(this, name, value);
}
void OptionList::visit(const char* name, std::optional<ScalarType>& value) {
  add_other(this, name, value);
}
void OptionList::visit(const char* name, FactoredEps& value) { add_other(this, name, value); }
void OptionList::visit(const char* name, Quintic& value) { add_other(this, name, value); }

// The list has writable pointers; const callers only read them.
OptionList Optimizer::list(size_t group) const {
  check_group(group);
  OptionList list;
  const_cast<OptimizerOptions&>(param_groups_[group].options()).list(list);
  return list;
}

double* Optimizer::find(size_t group, std::string_view a, std::string_view b) const {
  const OptionList options = list(group);
  for (const OptionList::Number& number : options.numbers) {
    if (number.name == a || number.name == b) return number.value;
  }
  return nullptr;
}

double* Optimizer::need(size_t group, std::string_view name) const {
  double* place = find(group, name, name);
  if (place != nullptr) return place;
  const auto append = [](std::string* out, const OptionList::Number& number) {
    *out += number.name;
  };
  fail(ErrorCode::kValue, "[", name_, "] has no option '", name, "': its numeric options are ",
       absl::StrJoin(list(group).numbers, ", ", append));
}

double Optimizer::option(size_t group, std::string_view name) const {
  note_read();
  return *need(group, name);
}

void Optimizer::set_option(size_t group, std::string_view name, double value) {
  if (name == "lr") return set_lr(group, value);
  double* place = need(group, name);
  check_effect("set_option", "changes an option");
  const double before = std::exchange(*place, value);
  try {
    check_options(param_groups_[group].options());
  } catch (const Error&) {
    *place = before;
    throw;
  }
}

void Optimizer::set_options(size_t group, const OptimizerOptions& options) {
  check_group(group);
  check_options(options);
  check_effect("set_options", "changes options");
  param_groups_[group].set_options(options.clone());
  refresh_rates(group);
}

std::string Optimizer::str() const {
  std::string text = absl::StrCat(name_, " (\n");
  for (size_t g = 0; g < groups_.size(); ++g) {
    absl::StrAppend(&text, "Parameter Group ", g, " (", groups_[g].size(), " tensors)\n");
    const OptionList options = list(g);
    for (const auto& [name, value] : options.numbers) {
      absl::StrAppend(&text, "    ", name, ": ", *value, "\n");
    }
    for (const OptionList::Other& other : options.others) {
      absl::StrAppend(&text, "    ", other.name, ": ", other.text(other.value), "\n");
    }
  }
  return text + ")";
}

std::ostream& operator<<(std::ostream& out, const Optimizer& optimizer) {
  return out << optimizer.str();
}

double Optimizer::lr(size_t group) const {
  note_read();
  check_group(group);
  return group_options(group).get_lr();
}

void Optimizer::check_rate(double lr) const {
  check_option(name_, lr >= 0, "lr", lr, "a rate that is not negative");
}

void Optimizer::check_state_dtype(std::optional<ScalarType> dtype) const {
  if (!dtype || is_floating_point(*dtype)) return;
  fail(ErrorCode::kValue, "[", name_, "] state_dtype is ", dtype_name(*dtype),
       ": give a floating-point type");
}

void Optimizer::set_lr(size_t group, double lr) {
  check_rate(lr);
  check_effect("set_lr", "changes a learning rate");
  *find(group, "lr", "lr") = lr;
  refresh_rates(group);
}

double Optimizer::momentum(size_t group) const {
  note_read();
  const double* momentum = find(group, "momentum", "beta1");
  return momentum != nullptr ? *momentum : 0;
}

void Optimizer::set_momentum(size_t group, double momentum) {
  double* place = find(group, "momentum", "beta1");
  if (place == nullptr) {
    fail(ErrorCode::kUnsupported, "[", name_, "] has no momentum to set");
  }
  check_option(name_, momentum >= 0, "momentum", momentum, "a number that is not negative");
  check_effect("set_momentum", "changes an option");
  *place = momentum;
}

}  // namespace mytorch::nn::optim
