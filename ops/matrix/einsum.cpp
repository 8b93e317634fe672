// einsum: sums of products whose dimensions are labeled by letters, contracted two operands at a
// time as batched matrix products.
#include <algorithm>
#include <array>
#include <string>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/sum.h"
#include "ops/geometry.h"

namespace mytorch::composite {
namespace {

// A label is a letter (0 to 51) or a dimension of an ellipsis (from 52). Ellipses broadcast from
// the right, so their last dimensions share a label.
using Labels = absl::InlinedVector<int, 8>;
constexpr int kLetters = 52;
constexpr int kMaxDims = 64;

int letter(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  return -1;
}

template <class... Parts>
void check_equation(bool holds, Str equation, Parts... why) {
  check_value(holds, "einsum", "equation '", equation, "': ", why...);
}

// One term's labels; an ellipsis stands for `ellipsis_dims` dimensions (-1: not yet known; it
// appears at most once).
struct Term {
  std::string letters;  // '.' is the ellipsis
  bool has_ellipsis = false;
};

Term parse_term(std::string_view text, Str equation) {
  Term term;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ') continue;
    if (c == '.') {
      check_equation(!term.has_ellipsis && text.substr(i, 3) == "...", equation,
                     "an ellipsis is '...', once in a term");
      term.has_ellipsis = true;
      term.letters += '.';
      i += 2;
    } else {
      check_equation(letter(c) >= 0, equation, "'", text.substr(i, 1), "' is not a letter");
      term.letters += c;
    }
  }
  return term;
}

Labels expand_term(const Term& term, int64_t ellipsis_dims, int64_t widest) {
  Labels labels;
  for (const char c : term.letters) {
    if (c != '.') {
      labels.push_back(letter(c));
      continue;
    }
    for (int64_t d = widest - ellipsis_dims; d < widest; ++d) {
      labels.push_back(kLetters + static_cast<int>(d));
    }
  }
  return labels;
}

struct Factor {
  Tensor tensor;
  Labels labels;  // one for each dimension, all different
};

// Replaces repeated labels by a diagonal.
Factor take_diagonals(Factor operand, Str equation) {
  for (size_t i = 0; i < operand.labels.size(); ++i) {
    for (size_t j = operand.labels.size(); --j > i;) {
      if (operand.labels[i] != operand.labels[j]) continue;
      const IntList sizes = operand.tensor.sizes();
      check_equation(sizes[i] == sizes[j], equation, "a repeated letter stands for sizes ",
                     sizes[i], " and ", sizes[j], " of shape ", sizes);
      operand.tensor = operand.tensor.diagonal(0, static_cast<int64_t>(i), static_cast<int64_t>(j))
                           .movedim(-1, static_cast<int64_t>(i));
      operand.labels.erase(operand.labels.begin() + static_cast<int64_t>(j));
    }
  }
  return operand;
}

bool has(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

// Returns the operand with its dimensions in the order `to`. Missing labels become dimensions of
// size 1.
Tensor arrange(const Factor& operand, const Labels& to) {
  Dims order;
  for (const int label : to) {
    const auto found = std::find(operand.labels.begin(), operand.labels.end(), label);
    if (found != operand.labels.end()) order.push_back(found - operand.labels.begin());
  }
  Tensor result = operand.tensor.permute(as_list(order));
  for (size_t i = 0; i < to.size(); ++i) {
    if (!has(operand.labels, to[i])) result = result.unsqueeze(static_cast<int64_t>(i));
  }
  return result;
}

int64_t size_of(const Factor& operand, int label) {
  const auto found = std::find(operand.labels.begin(), operand.labels.end(), label);
  return found == operand.labels.end() ? 1 : operand.tensor.sizes()[found - operand.labels.begin()];
}

// Sums over the labels that are not in `keep`.
Factor sum_out(Factor operand, const Labels& keep) {
  Dims dims;
  Labels left;
  for (size_t i = 0; i < operand.labels.size(); ++i) {
    if (has(keep, operand.labels[i])) {
      left.push_back(operand.labels[i]);
    } else {
      dims.push_back(static_cast<int64_t>(i));
    }
  }
  if (dims.empty()) return operand;
  return {operand.tensor.sum(as_list(dims), false, operand.tensor.dtype()), left};
}

// Returns the product of two operands, summed over the labels that are not in `keep`.
Factor contract(Factor a, Factor b, const Labels& keep) {
  // First sums over labels that only one operand has and that nothing else needs.
  const auto alone = [&](Factor x, const Factor& y) {
    Labels stays = keep;
    for (const int label : x.labels) {
      // A size of 1 beside a larger one broadcasts, so it is not contracted with it.
      if (has(y.labels, label) && (size_of(y, label) != 1 || size_of(x, label) == 1)) {
        stays.push_back(label);
      }
    }
    return sum_out(std::move(x), stays);
  };
  a = alone(std::move(a), b);
  b = alone(std::move(b), a);
  Labels batch, rows, columns, inner;
  const auto sort_label = [&](int label) {
    const int64_t n = size_of(a, label), m = size_of(b, label);
    const bool in_a = has(a.labels, label), in_b = has(b.labels, label);
    if (!has(keep, label)) {
      inner.push_back(label);
    } else if (in_a && (!in_b || (m == 1 && n != 1))) {
      rows.push_back(label);
    } else if (in_b && (!in_a || (n == 1 && m != 1))) {
      columns.push_back(label);
    } else {
      batch.push_back(label);
    }
  };
  for (const int label : a.labels) sort_label(label);
  for (const int label : b.labels) {
    if (!has(a.labels, label)) sort_label(label);
  }
  const auto measure = [&](const Labels& labels, Dims& sizes) {
    int64_t n = 1;
    for (const int label : labels) {
      const int64_t size = size_of(a, label) == 1 ? size_of(b, label) : size_of(a, label);
      sizes.push_back(size);
      n *= size;
    }
    return n;
  };
  Dims sizes, inner_sizes;
  const int64_t batch_size = measure(batch, sizes);
  const int64_t row_size = measure(rows, sizes);
  const int64_t column_size = measure(columns, sizes);
  const int64_t inner_size = measure(inner, inner_sizes);
  // Labels of size 1 in the operand that they do not belong to are dropped by the reshape.
  const auto join = [](std::initializer_list<const Labels*> parts) {
    Labels all;
    for (const Labels* part : parts) all.insert(all.end(), part->begin(), part->end());
    return all;
  };
  const auto ordered = [&](const Factor& x, const Labels& wanted) {
    Labels order = wanted;
    for (const int label : x.labels) {
      if (!has(wanted, label)) order.push_back(label);  // of size 1
    }
    return arrange(x, order);
  };
  const Tensor left =
      ordered(a, join({&batch, &rows, &inner})).reshape({batch_size, row_size, inner_size});
  const Tensor right =
      ordered(b, join({&batch, &inner, &columns})).reshape({batch_size, inner_size, column_size});
  return {left.bmm(right).reshape(as_list(sizes)), join({&batch, &rows, &columns})};
}

}  // namespace

Tensor einsum(Str equation, TensorList tensors, OptionalIntList path) {
  check_value(!tensors.empty(), "einsum", "the list of tensors is empty");
  const size_t arrow = equation.find("->");
  std::string_view left = equation.substr(0, arrow);
  std::vector<Term> terms;
  for (;;) {
    const size_t comma = left.find(',');
    terms.push_back(parse_term(left.substr(0, comma), equation));
    if (comma == std::string_view::npos) break;
    left.remove_prefix(comma + 1);
  }
  check_equation(terms.size() == tensors.size(), equation, "it names ", terms.size(),
                 " operands, but there are ", tensors.size());
  // The number of dimensions that each ellipsis stands for.
  std::vector<int64_t> ellipsis(terms.size(), 0);
  int64_t widest = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    const int64_t named =
        static_cast<int64_t>(terms[i].letters.size()) - (terms[i].has_ellipsis ? 1 : 0);
    ellipsis[i] = tensors[i].dim() - named;
    check_equation(ellipsis[i] == 0 || (ellipsis[i] > 0 && terms[i].has_ellipsis), equation,
                   "operand ", i, " is named with ", named, " letters, but has shape ",
                   tensors[i].sizes());
    widest = std::max(widest, ellipsis[i]);
    check_type(tensors[i].dtype() == tensors[0].dtype(), "einsum", "operands are ",
               tensors[0].dtype(), " and ", tensors[i].dtype(), ": convert one of them");
  }
  check_equation(widest <= kMaxDims, equation, "too many dimensions");
  std::vector<Factor> operands;
  std::array<int, kLetters + kMaxDims> uses{};
  std::array<int64_t, kLetters + kMaxDims> sizes;
  sizes.fill(1);
  for (size_t i = 0; i < terms.size(); ++i) {
    Factor operand{tensors[i], expand_term(terms[i], ellipsis[i], widest)};
    for (const int label : operand.labels) ++uses[label];
    operand = take_diagonals(std::move(operand), equation);
    for (size_t d = 0; d < operand.labels.size(); ++d) {
      int64_t& size = sizes[operand.labels[d]];
      const int64_t own = operand.tensor.sizes()[d];
      check_equation(size == 1 || own == 1 || own == size, equation, "operand ", i, ", of shape ",
                     tensors[i].sizes(), ", has size ", own, " where another has ", size);
      if (size == 1) size = own;
    }
    operands.push_back(std::move(operand));
  }
  // The result's labels: those given, or the ellipsis and then the letters used once, in ASCII
  // order.
  Labels output;
  if (arrow != std::string_view::npos) {
    const Term term = parse_term(equation.substr(arrow + 2), equation);
    output = expand_term(term, widest, widest);
    for (size_t i = 0; i < output.size(); ++i) {
      check_equation(uses[output[i]] != 0, equation, "the result has a letter that no operand has");
      check_equation(std::count(output.begin(), output.end(), output[i]) == 1, equation,
                     "the result has a letter twice");
    }
  } else {
    for (int64_t d = 0; d < widest; ++d) output.push_back(kLetters + static_cast<int>(d));
    for (int label = 0; label < kLetters; ++label) {
      if (uses[label] == 1) output.push_back(label);
    }
  }
  // A step keeps the result's labels and those of the remaining operands.
  const auto kept = [&](size_t skip_a, size_t skip_b) {
    Labels keep = output;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (i == skip_a || i == skip_b) continue;
      keep.insert(keep.end(), operands[i].labels.begin(), operands[i].labels.end());
    }
    return keep;
  };
  if (path.has_value()) {
    check_value(path->size() == 2 * (operands.size() - 1), "einsum", "path ", *path, " is not ",
                operands.size() - 1, " pairs of operands");
  }
  if (operands.size() == 1) operands[0] = sum_out(operands[0], output);
  // The product of a contracted pair is appended (by default, it becomes the first operand).
  for (size_t step = 0; operands.size() > 1; ++step) {
    int64_t i = 0, j = 1;
    if (path.has_value()) {
      i = std::min((*path)[2 * step], (*path)[2 * step + 1]);
      j = std::max((*path)[2 * step], (*path)[2 * step + 1]);
      check_value(i >= 0 && j < static_cast<int64_t>(operands.size()) && i != j, "einsum", "path ",
                  *path, " names operands ", i, " and ", j, " of ", operands.size());
    }
    Factor product =
        contract(operands[i], operands[j], kept(static_cast<size_t>(i), static_cast<size_t>(j)));
    operands.erase(operands.begin() + j);
    operands.erase(operands.begin() + i);
    operands.insert(path.has_value() ? operands.end() : operands.begin(), std::move(product));
  }
  const Factor& last = operands[0];
  Dims shape;
  for (const int label : output) shape.push_back(sizes[label]);
  return arrange(last, output).expand(as_list(shape));
}

}  // namespace mytorch::composite
