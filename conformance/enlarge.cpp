#include "conformance/enlarge.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

namespace mytorch::conformance {
namespace {

using Sizes = std::vector<int64_t>;
using Map = std::function<int64_t(int64_t size)>;

// Which arguments name sizes, besides shapes. Nothing in a record says it, so each is tried.
struct Names {
  bool lists = false;     // int[], such as the sizes of a view
  bool integers = false;  // int, such as a number of channels
  bool bounds = false;    // `high` of tensors of integers, such as indices
};

// Whether a tensor can only be one of integers. The bounds of others are numbers, whatever sizes
// they equal: with larger ones, a float that should be around 1 would be far from it.
bool has_integers(const OpRecord& op, const OpArg& arg, const Json& spec) {
  const auto type = op.types.find(arg.name);
  if (type != op.types.end() && type->second == "index") return true;
  const std::string dtype = spec.value("dtype", "");
  return dtype.starts_with("int") || dtype.starts_with("uint");
}

// Calls f(spec, arg) for each tensor of a sample.
template <class J, class F>
void for_each_tensor(const OpRecord& op, J& sample, F f) {
  for (const OpArg& arg : op.args) {
    const auto given = sample.at("args").find(arg.name);
    if (given == sample.at("args").end() || !arg.is_tensor()) continue;
    if (given->is_object()) f(*given, arg);
    if (!given->is_array()) continue;
    for (auto& item : *given) {
      if (item.is_object()) f(item, arg);
    }
  }
}

bool is_list(const OpArg& arg) { return arg.type.starts_with("int["); }
bool is_integer(const OpArg& arg) { return arg.type == "int" || arg.type == "int?"; }

// Calls f(number) for each number that names a size.
template <class J, class F>
void for_each_number(const OpRecord& op, J& sample, const Names& names, F f) {
  for (const OpArg& arg : op.args) {
    const auto given = sample.at("args").find(arg.name);
    if (given == sample.at("args").end()) continue;
    if (names.integers && is_integer(arg) && given->is_number_integer()) f(*given);
    if (!names.lists || !is_list(arg)) continue;
    if (given->is_number_integer()) f(*given);
    if (!given->is_array()) continue;
    for (auto& item : *given) f(item);
  }
}

// Returns the sample with mapped sizes, or nothing if it is larger than the room.
std::optional<Json> mapped(const OpRecord& op, const Json& sample, const Map& map,
                           const Names& names, const Room& room) {
  Json larger = sample;
  std::map<int64_t, int> most;  // by size: how often it occurs in one tensor or list
  bool fits = true;
  const auto count = [&](const Sizes& sizes) {
    std::map<int64_t, int> own;
    double elements = 1;
    for (const int64_t size : sizes) {
      if (size > 1) ++own[size];
      elements *= static_cast<double>(std::max<int64_t>(size, 1));
    }
    for (const auto& [size, times] : own) most[size] = std::max(most[size], times);
    fits = fits && elements <= static_cast<double>(room.elements);
  };
  for_each_tensor(op, larger, [&](Json& spec, const OpArg& arg) {
    Sizes shape = shape_of(spec);
    for (int64_t& size : shape) size = map(size);
    spec["shape"] = shape;
    count(shape);
    const Json high = spec.value("high", Json());
    if (names.bounds && high.is_number_integer() && has_integers(op, arg, spec))
      spec["high"] = map(high.get<int64_t>());
  });
  for (const bool lists : {true, false}) {
    Sizes sizes;
    for_each_number(op, larger, {names.lists && lists, names.integers && !lists}, [&](Json& one) {
      if (!one.is_number_integer()) return;
      one = map(one.get<int64_t>());
      sizes.push_back(one.get<int64_t>());
    });
    count(sizes);
  }
  double work = 1;
  for (const auto& [size, times] : most) {
    for (int i = 0; i < times; ++i) work *= static_cast<double>(size);
  }
  if (!fits || work > static_cast<double>(room.work)) return {};
  return larger;
}

// Returns the sample under the largest map of a family that fits; scale(n) is its n-th map.
std::optional<Json> largest(const OpRecord& op, const Json& sample,
                            const std::function<Map(int64_t n)>& scale, const Names& names,
                            const Room& room) {
  int64_t low = 0;
  int64_t high = room.elements + 1;
  std::optional<Json> best;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (auto fits = mapped(op, sample, scale(middle), names, room)) {
      best = std::move(fits);
      low = middle;
    } else {
      high = middle;
    }
  }
  return best;
}

}  // namespace

std::vector<int64_t> shape_of(const Json& spec) {
  if (spec.contains("shape")) return spec.at("shape").get<Sizes>();
  Sizes shape;
  const Json* values = &spec.at("values");
  while (values->is_array()) {
    shape.push_back(static_cast<int64_t>(values->size()));
    if (values->empty()) break;
    values = &values->front();
  }
  return shape;
}

std::vector<int64_t> sizes_of(const OpRecord& op, const Json& sample) {
  std::set<int64_t> sizes;
  bool empty = false;
  bool any = false;
  for_each_tensor(op, sample, [&](const Json& spec, const OpArg& /*arg*/) {
    any = true;
    for (const int64_t size : shape_of(spec)) {
      empty = empty || size == 0;
      if (size > 1) sizes.insert(size);
    }
  });
  if (!any) {
    for_each_number(op, sample, {true, true}, [&](const Json& one) {
      if (one.is_number_integer() && one.get<int64_t>() > 1) sizes.insert(one.get<int64_t>());
    });
  }
  if (empty) return {};
  return {sizes.begin(), sizes.end()};
}

double extent(const OpRecord& op, const Json& sample) {
  double most = 1;
  bool any = false;
  for_each_tensor(op, sample, [&](const Json& spec, const OpArg& /*arg*/) {
    any = true;
    double elements = 1;
    for (const int64_t size : shape_of(spec)) elements *= static_cast<double>(size);
    most = std::max(most, elements);
  });
  if (any) return most;
  for_each_number(op, sample, {true, true}, [&](const Json& one) {
    if (one.is_number_integer()) most = std::max(most, one.get<double>());
  });
  return most;
}

std::vector<Larger> enlarged(const OpRecord& op, const Json& sample, const Room& room, int only) {
  const Sizes sizes = sizes_of(op, sample);
  // Larger sizes stay larger, and every size is odd.
  const auto by_value = [&](int64_t n) -> Map {
    return [&sizes, n](int64_t size) {
      const auto at = std::lower_bound(sizes.begin(), sizes.end(), size);
      if (at == sizes.end() || *at != size) return size;
      return std::max(size, (n + n * (at - sizes.begin()) / 4) | 1);
    };
  };
  // Keeps sums and divisibility.
  const auto by_factor = [](int64_t n) -> Map {
    return [n](int64_t size) { return size > 1 ? size * (2 * n + 1) : size; };
  };
  std::vector<std::function<Map(int64_t)>> families;
  const auto by_one = [&](int64_t chosen) {
    families.emplace_back([chosen](int64_t n) -> Map {
      return [chosen, n](int64_t size) { return size == chosen ? std::max(size, n | 1) : size; };
    });
  };
  if (only >= 0 && static_cast<size_t>(only) < sizes.size()) {
    // The others shrink first, to 2, 3, ..., so that one can grow further.
    const int64_t chosen = sizes[static_cast<size_t>(only)];
    families.emplace_back([&sizes, chosen](int64_t n) -> Map {
      return [&sizes, chosen, n](int64_t size) {
        const auto at = std::lower_bound(sizes.begin(), sizes.end(), size);
        if (at == sizes.end() || *at != size) return size;
        if (size == chosen) return std::max(size, n | 1);
        return std::min<int64_t>(size, 2 + (at - sizes.begin()) - (size > chosen ? 1 : 0));
      };
    });
    by_one(chosen);
  } else if (only >= 0) {
    return {};
  } else if (!sizes.empty()) {
    families.emplace_back(by_value);
    if (sizes.size() > 1) {
      families.emplace_back(by_factor);
      for (const int64_t size : sizes) by_one(size);
    }
  }
  // The numbers of a program's operator are operands, not sizes.
  const bool programs = op.meaning == "pointwise" || op.meaning == "reduce";
  const Room little = {std::min<int64_t>(room.elements, 100), std::min<int64_t>(room.work, 1000)};
  std::vector<Larger> found;
  for (const auto& family : families) {
    // Integers last: many are not sizes, though a record takes any.
    for (const Names& names : {Names{true, false, true}, Names{false, false, true},
                               Names{true, true, true}, Names{false, true, true}, Names{}}) {
      if (programs && (names.lists || names.integers)) continue;
      std::optional<Json> larger = largest(op, sample, family, names, room);
      if (!larger.has_value() || *larger == sample) continue;
      const bool known = std::any_of(found.begin(), found.end(),
                                     [&](const Larger& other) { return other.sample == *larger; });
      if (known) continue;
      std::optional<Json> probe = largest(op, sample, family, names, little);
      found.push_back({std::move(*larger), probe.value_or(sample)});
    }
  }
  return found;
}

}  // namespace mytorch::conformance
