#include "graph/symbols/family.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "graph/symbols/numbers.h"
#include "graph/symbols/structure.h"

namespace mytorch::graph {
namespace {

// Recordings whose numbers are kept. Further ones only widen the sizes.
constexpr size_t kMostSamples = 16;

GraphNumbers numbers_of(std::vector<Recorded> parts) {
  GraphNumbers found;
  for (Recorded& part : parts) {
    for_each_number(
        &part.graph, [&](int64_t& x, const void*) { found.integers.push_back(x); },
        [&](double& x, const void*) { found.reals.push_back(x); });
  }
  return found;
}

std::vector<Recorded> normalized(std::vector<Recorded> parts) {
  for (Recorded& part : parts) normalize_arguments(&part);
  return parts;
}

// Gives equal columns of samples one number. Returns that of each column, and the columns.
template <class T, class Bits, class Get>
std::vector<size_t> columns_of(size_t count, size_t samples, const Get& get,
                               std::vector<std::vector<T>>* columns) {
  absl::flat_hash_map<std::vector<Bits>, size_t> known;
  std::vector<size_t> of;
  of.reserve(count);
  std::vector<Bits> key(samples);
  for (size_t i = 0; i < count; ++i) {
    for (size_t s = 0; s < samples; ++s) key[s] = std::bit_cast<Bits>(get(s, i));
    const auto [at, added] = known.try_emplace(key, columns->size());
    if (added) {
      std::vector<T>& column = columns->emplace_back();
      for (size_t s = 0; s < samples; ++s) column.push_back(get(s, i));
    }
    of.push_back(at->second);
  }
  return of;
}

// Returns the value on which all forms agree.
template <class T, class Form>
std::optional<T> agreed(const std::vector<Form>& forms, const SymbolValues& sizes) {
  std::optional<T> found;
  for (const Form& form : forms) {
    const std::optional<T> value = form.at(sizes);
    if (!value || (found && *found != *value)) return std::nullopt;
    found = value;
  }
  return found;
}

// Describes the number `index` of some graphs: the node that has it.
template <bool real>
std::string described(std::vector<Recorded> parts, size_t index) {
  size_t count = 0;
  const void* found = nullptr;
  size_t part = 0;
  for (size_t p = 0; p < parts.size() && found == nullptr; ++p) {
    const auto see = [&](const void* key) {
      if (count++ == index) found = key;
    };
    part = p;
    for_each_number(
        &parts[p].graph,
        [&](int64_t&, const void* key) {
          if (!real) see(key);
        },
        [&](double&, const void* key) {
          if (real) see(key);
        });
  }
  const Graph& graph = parts[part].graph;
  const auto holds = [&](const auto& list) {
    return !list.empty() && found >= list.data() && found < list.data() + list.size();
  };
  for (const GraphNode& node : graph.nodes) {
    for (const Arg& arg : node.args) {
      const auto* integers = std::get_if<std::vector<int64_t>>(&arg.constant.variant());
      const auto* reals = std::get_if<std::vector<double>>(&arg.constant.variant());
      if (found == &arg || (integers != nullptr && holds(*integers)) ||
          (reals != nullptr && holds(*reals))) {
        return absl::StrCat("an argument of ", to_text(graph, node));
      }
    }
  }
  for (size_t id = 0; id < graph.values.size(); ++id) {
    const ValueInfo& info = graph.values[id];
    if (found != &info.offset && !holds(info.sizes) && !holds(info.strides)) continue;
    for (const GraphNode& node : graph.nodes) {
      bool made = false;
      node.for_each_result([&](ValueId each) { made = made || each == static_cast<ValueId>(id); });
      if (made) return absl::StrCat("the shape of ", to_text(graph, node));
    }
    return absl::StrCat("the shape of %", id);
  }
  return "the size of a memory";
}

std::string name_of(size_t index, size_t count) {
  return count == 1 ? "n" : absl::StrCat("n", index);
}

}  // namespace

Family::Family(std::vector<Recorded> parts, SymbolValues sizes, std::vector<std::string> names,
               std::vector<bool> declared)
    : base_(normalized(std::move(parts))),
      names_(std::move(names)),
      declared_(std::move(declared)),
      sizes_{sizes},
      numbers_{numbers_of(base_)},
      least_(sizes),
      most_(sizes) {}

std::optional<Family::Fitted> Family::fitted(const std::vector<SymbolValues>& sizes,
                                             const std::vector<GraphNumbers>& numbers,
                                             std::string* reason) const {
  Fitted found;
  for (size_t i = 0; i < names_.size(); ++i) {
    const bool new_class = std::none_of(found.symbols.begin(), found.symbols.end(), [&](size_t k) {
      return names_[i].empty() && names_[k].empty() &&
             std::all_of(sizes.begin(), sizes.end(),
                         [&](const SymbolValues& each) { return each[i] == each[k]; });
    });
    if (new_class) found.symbols.push_back(i);
  }
  std::vector<SymbolValues> at;
  for (const SymbolValues& each : sizes) at.push_back(reduced(each, found));
  std::vector<std::vector<int64_t>> integers;
  found.integer_of = columns_of<int64_t, uint64_t>(
      numbers[0].integers.size(), sizes.size(),
      [&](size_t s, size_t i) { return numbers[s].integers[i]; }, &integers);
  for (size_t c = 0; c < integers.size(); ++c) {
    found.integers.push_back(fit(at, integers[c]));
    if (!found.integers.back().empty()) continue;
    const auto first = std::find(found.integer_of.begin(), found.integer_of.end(), c);
    *reason = absl::StrCat(
        "a value is no function of the sizes: ", integers[c].front(), " and ", integers[c].back(),
        " in ", described<false>(base_, static_cast<size_t>(first - found.integer_of.begin())));
    return std::nullopt;
  }
  std::vector<std::vector<double>> reals;
  found.real_of = columns_of<double, uint64_t>(
      numbers[0].reals.size(), sizes.size(),
      [&](size_t s, size_t i) { return numbers[s].reals[i]; }, &reals);
  for (size_t c = 0; c < reals.size(); ++c) {
    found.reals.push_back(fit_numbers(at, reals[c]));
    if (!found.reals.back().empty()) continue;
    const auto first = std::find(found.real_of.begin(), found.real_of.end(), c);
    *reason = absl::StrCat(
        "a number is no function of the sizes: ", reals[c].front(), " and ", reals[c].back(),
        " in ", described<true>(base_, static_cast<size_t>(first - found.real_of.begin())));
    return std::nullopt;
  }
  return found;
}

SymbolValues Family::reduced(const SymbolValues& sizes, const Fitted& by) const {
  SymbolValues found;
  for (const size_t i : by.symbols) found.push_back(sizes[i]);
  return found;
}

std::string Family::add(const std::vector<Recorded>& parts, const SymbolValues& sizes) {
  const std::vector<Recorded> given = normalized(parts);
  if (given.size() != base_.size()) return "its results have history at one size alone";
  for (size_t i = 0; i < given.size(); ++i) {
    std::string differs = structural_difference(base_[i], given[i]);
    if (!differs.empty()) return differs;
  }
  std::vector<SymbolValues> all_sizes = sizes_;
  std::vector<GraphNumbers> all_numbers = numbers_;
  all_sizes.push_back(sizes);
  all_numbers.push_back(numbers_of(given));
  std::string reason;
  std::optional<Fitted> found = fitted(all_sizes, all_numbers, &reason);
  if (!found) return reason;
  fitted_ = *std::move(found);
  if (sizes_.size() < kMostSamples) {
    sizes_ = std::move(all_sizes);
    numbers_ = std::move(all_numbers);
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    least_[i] = std::min(least_[i], sizes[i]);
    most_[i] = std::max(most_[i], sizes[i]);
  }
  return "";
}

std::optional<std::vector<Recorded>> Family::at(const SymbolValues& sizes,
                                                std::string* reason) const {
  if (!ready()) return std::nullopt;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const bool within = sizes[i] >= least_[i] && sizes[i] <= most_[i];
    if (!within && !declared_[i]) return std::nullopt;
  }
  // Symbols that were always equal.
  for (size_t i = 0; i < names_.size(); ++i) {
    for (const size_t k : fitted_.symbols) {
      const bool one = names_[i].empty() && names_[k].empty() &&
                       std::all_of(sizes_.begin(), sizes_.end(),
                                   [&](const SymbolValues& each) { return each[i] == each[k]; });
      if (one && sizes[i] != sizes[k]) return std::nullopt;
    }
  }
  const SymbolValues at = reduced(sizes, fitted_);
  std::vector<int64_t> integers;
  for (const auto& forms : fitted_.integers) {
    const auto value = agreed<int64_t>(forms, at);
    if (!value) {
      *reason = "several functions of the sizes fit a value, or none at this size";
      return std::nullopt;
    }
    integers.push_back(*value);
  }
  std::vector<double> reals;
  for (const auto& forms : fitted_.reals) {
    // NaN equals no other number.
    const auto value =
        forms[0].kind == NumberForm::kConstant ? forms[0].at(at) : agreed<double>(forms, at);
    if (!value) {
      *reason = "several functions of the sizes fit a number";
      return std::nullopt;
    }
    reals.push_back(*value);
  }
  std::vector<Recorded> found = base_;
  size_t integer = 0, real = 0;
  for (Recorded& part : found) {
    part.is_fitted = true;
    for_each_number(
        &part.graph, [&](int64_t& x, const void*) { x = integers[fitted_.integer_of[integer++]]; },
        [&](double& x, const void*) { x = reals[fitted_.real_of[real++]]; });
  }
  return found;
}

std::string Family::text(const std::vector<SymbolPlace>& places) const {
  if (!ready()) return "";
  std::vector<std::string> names;
  for (size_t i = 0; i < fitted_.symbols.size(); ++i) {
    const std::string& given = names_[fitted_.symbols[i]];
    names.push_back(given.empty() ? name_of(i, fitted_.symbols.size()) : given);
  }
  Graph graph = base_[0].graph;
  SymbolTexts texts;
  size_t integer = 0, real = 0;
  const SymbolValues at = reduced(sizes_[0], fitted_);
  for_each_number(
      &graph,
      [&](int64_t&, const void* key) {
        const Polynomial& form = fitted_.integers[fitted_.integer_of[integer++]][0];
        const bool constant = form.divisor == 1 && form.terms.size() == 1 &&
                              std::all_of(form.terms[0].powers.begin(), form.terms[0].powers.end(),
                                          [](uint8_t power) { return power == 0; });
        if (!constant) texts[key] = form.text(names);
      },
      [&](double&, const void* key) {
        const NumberForm& form = fitted_.reals[fitted_.real_of[real++]][0];
        if (form.kind != NumberForm::kConstant) texts[key] = form.text(names);
      });
  // Memory that no operator makes is as large as its values.
  const std::vector<uint64_t> covered = covered_bytes(graph);
  for (const ValueInfo& info : graph.values) {
    GraphBuffer& buffer = graph.buffers[static_cast<size_t>(info.buffer)];
    const bool varies = std::any_of(info.sizes.begin(), info.sizes.end(),
                                    [&](const int64_t& size) { return texts.contains(&size); });
    if (varies && buffer.bytes == covered[static_cast<size_t>(info.buffer)]) {
      texts[&buffer] = "all";
    }
  }
  // The first dimension that is a symbol states its size in the recording.
  for (size_t i = 0; i < fitted_.symbols.size(); ++i) {
    const SymbolPlace& place = places[fitted_.symbols[i]];
    ValueInfo& info = graph.values[static_cast<size_t>(graph.arguments[place.argument])];
    texts[&info.sizes[place.dim]] = absl::StrCat(names[i], " = ", at[i]);
  }
  return to_text(graph, &texts);
}

}  // namespace mytorch::graph
