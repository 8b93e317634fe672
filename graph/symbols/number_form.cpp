#include "graph/symbols/number_form.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace mytorch::graph {
namespace {

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

// The largest integer up to which doubles hold all.
constexpr double kMostInteger = 9007199254740992.0;

class NumberFit {
 public:
  NumberFit(const std::vector<SymbolValues>& sizes, const std::vector<double>& values)
      : sizes_(sizes), values_(values) {}

  std::vector<NumberForm> run() {
    const auto is_first = [this](double value) { return same_bits(value, values_[0]); };
    if (std::all_of(values_.begin(), values_.end(), is_first)) {
      found_.push_back({NumberForm::kConstant, false, values_[0], {}});
      return std::move(found_);
    }
    integers(NumberForm::kProduct, values_);
    std::vector<double> inverse;
    for (const double value : values_) inverse.push_back(std::nearbyint(1 / value));
    integers(NumberForm::kQuotient, inverse);
    for (const auto& m : monomials(sizes_[0].size())) {
      const Polynomial size{{{1, m}}, 1};
      const auto first = size.at(sizes_[0]);
      if (!first) continue;
      const double value = values_[0], at = static_cast<double>(*first);
      scaled(NumberForm::kProduct, value / at, size);
      scaled(NumberForm::kQuotient, value * at, size);
      scaled(NumberForm::kRootQuotient, value * std::sqrt(at), size);
    }
    return std::move(found_);
  }

 private:
  void add(NumberForm form) {
    for (const bool single : {false, true}) {
      form.single = single;
      bool fits = true;
      for (size_t i = 0; i < values_.size() && fits; ++i) {
        const auto value = form.at(sizes_[i]);
        fits = value && same_bits(*value, values_[i]);
      }
      if (!fits) continue;
      found_.push_back(std::move(form));
      return;
    }
  }
  void integers(NumberForm::Kind kind, const std::vector<double>& numbers) {
    std::vector<int64_t> whole;
    for (const double each : numbers) {
      if (!(std::abs(each) < kMostInteger) || each != std::nearbyint(each)) return;
      whole.push_back(static_cast<int64_t>(each));
    }
    for (Polynomial& each : fit(sizes_, whole)) add({kind, false, 1, std::move(each)});
  }
  // A factor near an integer is one.
  void scaled(NumberForm::Kind kind, double factor, const Polynomial& size) {
    const double whole = std::nearbyint(factor);
    if (std::abs(factor - whole) < 1e-5 * std::abs(factor)) add({kind, false, whole, size});
    add({kind, false, factor, size});
  }

  const std::vector<SymbolValues>& sizes_;
  const std::vector<double>& values_;
  std::vector<NumberForm> found_;
};

std::string number(double x) {
  char text[32];
  std::string found(text, std::to_chars(text, text + sizeof(text), x).ptr);
  if (found.find_first_not_of("-0123456789") == std::string::npos) found += ".";
  return found;
}

}  // namespace

double number_at(NumberForm::Kind kind, bool single, double factor, int64_t size) {
  double value = factor;
  const auto number = static_cast<double>(size);
  if (kind == NumberForm::kProduct) value = factor * number;
  if (kind == NumberForm::kQuotient) value = factor / number;
  if (kind == NumberForm::kRootQuotient) value = factor / std::sqrt(number);
  return single ? static_cast<double>(static_cast<float>(value)) : value;
}

std::optional<double> NumberForm::at(std::span<const int64_t> symbols) const {
  if (kind == kConstant) return factor;
  const auto at = size.at(symbols);
  if (!at) return std::nullopt;
  return number_at(kind, single, factor, *at);
}

std::string NumberForm::text(const std::vector<std::string>& names) const {
  if (kind == kConstant) return number(factor);
  const char* const sign = kind == kProduct ? "*" : kind == kQuotient ? "/" : "/sqrt";
  const std::string found = absl::StrCat(number(factor), sign, "(", size.text(names), ")");
  return single ? absl::StrCat("float32 ", found) : found;
}

std::vector<NumberForm> fit_numbers(const std::vector<SymbolValues>& sizes,
                                    const std::vector<double>& values) {
  return NumberFit(sizes, values).run();
}

}  // namespace mytorch::graph
