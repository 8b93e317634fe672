// Integers of a graph as functions of sizes: fitted to recordings at several sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace mytorch::graph {

// The values of the symbols of a graph, in order.
using SymbolValues = std::vector<int64_t>;

struct PolynomialTerm {
  int64_t factor = 0;
  std::vector<uint8_t> powers;  // of the symbols; all 0 for a constant
};

// The sum of terms, divided by a number.
struct Polynomial {
  std::vector<PolynomialTerm> terms;
  int64_t divisor = 1;

  // Returns the value, or nothing if it is no integer or exceeds int64.
  std::optional<int64_t> at(std::span<const int64_t> symbols) const;
  // Returns a text such as "n*t - 1" or "n + 1 over 2", which TextReader reads.
  std::string text(const std::vector<std::string>& names) const;
};

// Returns the monomials of up to three factors, as powers.
std::vector<std::vector<uint8_t>> monomials(size_t symbols);

// Returns the polynomials of few terms that have these values at these sizes, the simplest first:
// c, a*m, a*m + b, m*(a*n + b) and a*n + b*t, where n and t are symbols and m is a monomial.
std::vector<Polynomial> fit(const std::vector<SymbolValues>& sizes,
                            const std::vector<int64_t>& values);

}  // namespace mytorch::graph
