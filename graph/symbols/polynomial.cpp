#include "graph/symbols/polynomial.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/types/checked.h"

namespace mytorch::graph {
namespace {

constexpr int kMostFactors = 3;

std::optional<int64_t> narrow(Wide value) {
  const auto found = static_cast<int64_t>(value);
  if (found != value) return std::nullopt;
  return found;
}

std::optional<int64_t> value_of(const PolynomialTerm& term, std::span<const int64_t> symbols) {
  int64_t value = term.factor;
  for (size_t i = 0; i < term.powers.size(); ++i) {
    for (int k = 0; k < term.powers[i]; ++k) {
      const auto next = narrow(Wide{value} * symbols[i]);
      if (!next) return std::nullopt;
      value = *next;
    }
  }
  return value;
}

class PolynomialFit {
 public:
  PolynomialFit(const std::vector<SymbolValues>& sizes, const std::vector<int64_t>& values)
      : sizes_(sizes), values_(values), none_(sizes[0].size()) {}

  std::vector<Polynomial> run() {
    const bool same = std::equal(values_.begin() + 1, values_.end(), values_.begin());
    if (same) found_.push_back({{{values_[0], none_}}, 1});
    const auto all = monomials(none_.size());
    for (const auto& m : all) proportional(m);
    for (const auto& m : all) affine(m);
    for (const auto& m : all) {
      for (size_t n = 0; n < none_.size(); ++n) product(m, n);
    }
    for (size_t n = 0; n < none_.size(); ++n) {
      for (size_t t = n + 1; t < none_.size(); ++t) sum(n, t);
    }
    return std::move(found_);
  }

 private:
  std::vector<uint8_t> symbol(size_t n) const {
    std::vector<uint8_t> powers = none_;
    powers[n] = 1;
    return powers;
  }
  int64_t at(const std::vector<uint8_t>& m, size_t sample) const {
    return value_of({1, m}, sizes_[sample]).value_or(0);
  }
  // Adds a polynomial, given with Wide factors, if it has all values.
  void add(std::vector<std::pair<Wide, std::vector<uint8_t>>> terms, Wide divisor) {
    Wide common = divisor;
    for (const auto& term : terms) {
      Wide a = term.first, b = common;
      while (a != 0) {
        const Wide rest = b % a;
        b = a;
        a = rest;
      }
      common = b;
    }
    if (common == 0) return;
    if ((common < 0) != (divisor < 0)) common = -common;
    Polynomial made;
    for (auto& [factor, powers] : terms) {
      const auto reduced = narrow(factor / common);
      if (!reduced || *reduced == 0) return;
      made.terms.push_back({*reduced, std::move(powers)});
    }
    const auto reduced = narrow(divisor / common);
    if (!reduced) return;
    made.divisor = *reduced;
    for (size_t i = 0; i < values_.size(); ++i) {
      if (made.at(sizes_[i]) != values_[i]) return;
    }
    found_.push_back(std::move(made));
  }

  void proportional(const std::vector<uint8_t>& m) {
    if (at(m, 0) != 0) add({{values_[0], m}}, at(m, 0));
  }
  void affine(const std::vector<uint8_t>& m) {
    const int64_t m0 = at(m, 0), v0 = values_[0];
    for (size_t i = 1; i < values_.size(); ++i) {
      const Wide dm = Wide{at(m, i)} - m0, dv = Wide{values_[i]} - v0;
      if (dm == 0) continue;
      if (narrow(dm) && narrow(dv)) add({{dv, m}, {Wide{v0} * dm - dv * m0, none_}}, dm);
      return;
    }
  }
  // m * (a*n + b), of which m * n has at most three factors.
  void product(const std::vector<uint8_t>& m, size_t n) {
    if (std::accumulate(m.begin(), m.end(), 0) >= kMostFactors || at(m, 0) == 0) return;
    std::vector<uint8_t> higher = m;
    ++higher[n];
    for (size_t i = 1; i < values_.size(); ++i) {
      // v = a*m*n + b*m.
      solve(higher, m, i);
      if (sizes_[i][n] != sizes_[0][n]) return;
    }
  }
  void sum(size_t n, size_t t) {
    for (size_t i = 1; i < values_.size(); ++i) {
      if (solve(symbol(n), symbol(t), i)) return;
    }
  }
  // Solves v = a*p + b*q by the first sample and another one. Returns whether that has a solution.
  bool solve(const std::vector<uint8_t>& p, const std::vector<uint8_t>& q, size_t other) {
    const Wide p0 = at(p, 0), q0 = at(q, 0), v0 = values_[0];
    const Wide p1 = at(p, other), q1 = at(q, other), v1 = values_[other];
    const Wide det = p0 * q1 - p1 * q0;
    if (det == 0) return false;
    add({{v0 * q1 - v1 * q0, p}, {p0 * v1 - p1 * v0, q}}, det);
    return true;
  }

  const std::vector<SymbolValues>& sizes_;
  const std::vector<int64_t>& values_;
  const std::vector<uint8_t> none_;
  std::vector<Polynomial> found_;
};

}  // namespace

std::optional<int64_t> Polynomial::at(std::span<const int64_t> symbols) const {
  Wide sum = 0;
  for (const PolynomialTerm& term : terms) {
    const auto value = value_of(term, symbols);
    if (!value) return std::nullopt;
    sum += *value;
  }
  if (sum % divisor != 0) return std::nullopt;
  return narrow(sum / divisor);
}

std::string Polynomial::text(const std::vector<std::string>& names) const {
  std::string found;
  for (const PolynomialTerm& term : terms) {
    std::string product;
    for (size_t i = 0; i < term.powers.size(); ++i) {
      for (int k = 0; k < term.powers[i]; ++k) {
        absl::StrAppend(&product, product.empty() ? "" : "*", names[i]);
      }
    }
    int64_t factor = term.factor;
    if (!found.empty()) {
      found += factor < 0 ? " - " : " + ";
      factor = std::abs(factor);
    }
    if (product.empty()) {
      absl::StrAppend(&found, factor);
    } else {
      found += product;
      if (factor != 1) absl::StrAppend(&found, "*", factor);
    }
  }
  return divisor == 1 ? found : absl::StrCat(found, " over ", divisor);
}

std::vector<std::vector<uint8_t>> monomials(size_t symbols) {
  std::vector<std::vector<uint8_t>> found = {std::vector<uint8_t>(symbols)};
  size_t begin = 0;
  for (int degree = 0; degree < kMostFactors; ++degree) {
    const size_t end = found.size();
    for (; begin < end; ++begin) {
      // Factors in order, so that each product is made once.
      size_t last = 0;
      for (size_t i = 0; i < symbols; ++i) {
        if (found[begin][i] > 0) last = i;
      }
      for (size_t i = last; i < symbols; ++i) {
        std::vector<uint8_t> next = found[begin];
        ++next[i];
        found.push_back(std::move(next));
      }
    }
  }
  found.erase(found.begin());
  return found;
}

std::vector<Polynomial> fit(const std::vector<SymbolValues>& sizes,
                            const std::vector<int64_t>& values) {
  return PolynomialFit(sizes, values).run();
}

}  // namespace mytorch::graph
