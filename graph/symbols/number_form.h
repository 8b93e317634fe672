// Floating-point numbers of a graph as functions of sizes, such as the 1/n of a mean by hand.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/symbols/polynomial.h"

namespace mytorch::graph {

struct NumberForm {
  enum Kind : uint8_t {
    kConstant,      // factor
    kProduct,       // factor * size
    kQuotient,      // factor / size
    kRootQuotient,  // factor / sqrt(size)
  };
  Kind kind = kConstant;
  bool single = false;  // rounded to float32
  double factor = 0;
  Polynomial size;

  std::optional<double> at(std::span<const int64_t> symbols) const;
  // Returns a text such as "1./(n)", which TextReader reads.
  std::string text(const std::vector<std::string>& names) const;
};

// Returns the value of a form at a size.
double number_at(NumberForm::Kind kind, bool single, double factor, int64_t size);

// Returns the forms that have these values, to the last bit, at these sizes.
std::vector<NumberForm> fit_numbers(const std::vector<SymbolValues>& sizes,
                                    const std::vector<double>& values);

}  // namespace mytorch::graph
