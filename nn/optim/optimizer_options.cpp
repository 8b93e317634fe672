// The options of groups by name, and what schedules change.
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>

#include "core/runtime/stream_capture.h"
#include "core/types/errors.h"
#include "mytorch/nn/optim/optimizer.h"
#include "mytorch/options_epoch.h"
#include "nn/optim/option_checks.h"

namespace mytorch::nn::optim {

void OptionList::add(const char* name, double& value) { numbers.push_back({name, &value}); }
void OptionList::add(const char* /*name*/, Betas& value) {
  add("beta1", std::get<0>(value));
  add("beta2", std::get<1>(value));
}
void OptionList::add(const char* name, bool& value) {
  others.emplace_back(name, value ? "true" : "false");
}
void OptionList::add(const char* name, int64_t& value) {
  others.emplace_back(name, std::to_string(value));
}
void OptionList::add(const char* name, std::optional<int64_t>& value) {
  others.emplace_back(name, value ? std::to_string(*value) : "none");
}
void OptionList::add(const char* name, std::optional<std::string>& value) {
  others.emplace_back(name, value.value_or("none"));
}
void OptionList::add(const char* name, std::optional<ScalarType>& value) {
  others.emplace_back(name, value ? dtype_name(*value) : "none");
}
void OptionList::add(const char* name, FactoredEps& value) {
  const auto& [first, second] = value;
  others.emplace_back(name,
                      absl::StrCat("(", first ? absl::StrCat(*first) : "none", ", ", second, ")"));
}
void OptionList::add(const char* name, Quintic& value) {
  const auto& [a, b, c] = value;
  others.emplace_back(name, absl::StrCat("(", a, ", ", b, ", ", c, ")"));
}

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

double Optimizer::option(size_t group, std::string_view name) const { return *need(group, name); }

void Optimizer::set_option(size_t group, std::string_view name, double value) {
  if (name == "lr") return set_lr(group, value);
  double* place = need(group, name);
  check_effect("set_option", "changes an option");
  const double before = std::exchange(*place, value);
  try {
    check_options(param_groups_[group].options());  // counts as a change
  } catch (const Error&) {
    *place = before;
    throw;
  }
}

std::string Optimizer::str() const {
  std::string text = absl::StrCat(name_, " (\n");
  for (size_t g = 0; g < groups_.size(); ++g) {
    absl::StrAppend(&text, "Parameter Group ", g, " (", groups_[g].size(), " tensors)\n");
    const OptionList options = list(g);
    for (const auto& [name, value] : options.numbers) {
      absl::StrAppend(&text, "    ", name, ": ", *value, "\n");
    }
    for (const auto& [name, value] : options.others) {
      absl::StrAppend(&text, "    ", name, ": ", value, "\n");
    }
  }
  return text + ")";
}

std::ostream& operator<<(std::ostream& out, const Optimizer& optimizer) {
  return out << optimizer.str();
}

double Optimizer::lr(size_t group) const { return *find(group, "lr", "lr"); }

void Optimizer::check_rate(double lr) const {
  check_option(name_, lr >= 0, "lr", lr, "a rate that is not negative");
}

void Optimizer::set_lr(size_t group, double lr) {
  check_rate(lr);
  check_effect("set_lr", "changes a learning rate");
  *find(group, "lr", "lr") = lr;
  refresh_rates(group);
}

double Optimizer::momentum(size_t group) const {
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
  options_changed();
}

}  // namespace mytorch::nn::optim
