#include "conformance/edges.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "conformance/arguments.h"
#include "conformance/enlarge.h"
#include "conformance/stress.h"

namespace mytorch::conformance {
namespace {

using Shape = std::vector<int64_t>;
using SizeMap = std::function<int64_t(int64_t size)>;

// ---- samples in double precision
// ------------------------------------------------------------------

bool is_float_name(const std::string& dtype) {
  return dtype.starts_with("float") || dtype.starts_with("bfloat") || dtype.starts_with("complex");
}

// Calls f(spec) for each tensor that a sample gives as `arg`.
template <class F>
void for_each_spec(const OpArg& arg, Json& value, F f) {
  if (!arg.is_tensor()) return;
  if (value.is_object()) f(value);
  if (!value.is_array()) return;
  for (Json& item : value) {
    if (item.is_object()) f(item);
  }
}

void collect_numbers(const Json& json, std::vector<double>* numbers) {
  if (!json.is_array()) return numbers->push_back(number(json));
  for (const Json& item : json) collect_numbers(item, numbers);
}

// Whether the elements of a tensor are integers or bools, whatever type the case has.
bool is_discrete(const OpRecord& op, const OpArg& arg, const Json& spec) {
  const auto type = op.types.find(arg.name);
  if (type != op.types.end() && (type->second == "index" || type->second == "bool")) return true;
  return spec.contains("dtype") && !is_float_name(spec.at("dtype"));
}

// Written values may be where a function has no derivative: draws others between them. Whole
// numbers stay, because they may be signs or class numbers, and have no gradient.
void draw_values(Json& spec) {
  if (!spec.contains("values")) return;
  spec["shape"] = shape_of(spec);
  std::vector<double> numbers;
  collect_numbers(spec.at("values"), &numbers);
  if (numbers.empty()) return;
  const auto [low, high] = std::minmax_element(numbers.begin(), numbers.end());
  const bool whole = std::all_of(numbers.begin(), numbers.end(),
                                 [](double x) { return x == static_cast<double>(int64_t(x)); });
  if (whole || *low == *high) {
    spec["grad"] = false;
    return;
  }
  spec["low"] = *low;
  spec["high"] = *high;
  spec.erase("values");
}

// Returns the sample in double precision: floats have the type of the case, and with `keep_complex`
// complex numbers written as such remain complex.
Json in_double(const OpRecord& op, const Json& sample, bool keep_complex) {
  Json found = sample;
  found.erase("gradcheck");
  for (const OpArg& arg : op.args) {
    const auto given = found.at("args").find(arg.name);
    if (given == found.at("args").end()) continue;
    for_each_spec(arg, *given, [&](Json& spec) {
      const std::string dtype = spec.value("dtype", "");
      if (keep_complex && dtype.starts_with("complex")) {
        spec["dtype"] = "complex128";
      } else if (is_float_name(dtype)) {
        spec.erase("dtype");
      }
      if (!is_discrete(op, arg, spec)) draw_values(spec);
      if (spec.value("layout", "") == "broadcast") spec.erase("layout");
    });
    if (arg.type.starts_with("ScalarType") && given->is_string() && is_float_name(*given)) {
      *given = given->get<std::string>().starts_with("complex") ? "complex128" : "float64";
    }
  }
  return found;
}

// Whether derivatives exist near the values of a sample.
bool is_smooth(const OpRecord& op, const Json& sample) {
  if (sample.contains("error") || sample.value("may_fail", false)) return false;
  if (!sample.value("edges", true)) return false;
  if (Case{&op, &sample}.special()) return false;
  // Only some derived samples keep to the domain of the operator.
  const bool derived = op.meaning == "pointwise" || op.meaning == "reduce";
  return !derived || sample.value("gradcheck", false);
}

// ---- changes of shapes
// ------------------------------------------------------------------------------

// A tensor of a sample.
struct EdgeOperand {
  const OpArg* arg;
  int item;  // index in a list; -1 for a tensor
  Shape shape;
};

std::vector<EdgeOperand> operands_of(const OpRecord& op, const Json& sample) {
  std::vector<EdgeOperand> found;
  for (const OpArg& arg : op.args) {
    const auto given = sample.at("args").find(arg.name);
    if (given == sample.at("args").end() || !arg.is_tensor()) continue;
    if (given->is_object()) found.push_back({&arg, -1, shape_of(*given)});
    if (!given->is_array()) continue;
    for (size_t i = 0; i < given->size(); ++i) {
      if (given->at(i).is_object()) {
        found.push_back({&arg, static_cast<int>(i), shape_of(given->at(i))});
      }
    }
  }
  return found;
}

// New shapes, one for each operand, and the change in words.
struct Change {
  std::string kind;
  std::string operands;  // that change; "" for all
  std::vector<Shape> shapes;
  // How the sizes that lists and integers name change; also tried as they are.
  std::vector<SizeMap> rest = {};
};

int64_t to_zero(int64_t /*size*/) { return 0; }
int64_t to_one(int64_t size) { return std::min<int64_t>(size, 1); }
SizeMap from_to(int64_t from, int64_t to) {
  return [from, to](int64_t size) { return size == from ? to : size; };
}

Shape with_sizes(Shape shape, const SizeMap& map) {
  for (int64_t& size : shape) size = map(size);
  return shape;
}

// Makes the changes of one sample.
class Changes {
 public:
  explicit Changes(std::vector<EdgeOperand> operands) : operands_(std::move(operands)) {
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (groups_.empty() || operands_[groups_.back().front()].arg != operands_[i].arg) {
        groups_.emplace_back();
      }
      groups_.back().push_back(i);
    }
  }

  std::vector<Change> all() {
    found_.push_back({"as given", "", shapes()});
    add_everywhere();
    add_combinations();
    for (const auto& group : groups_) add_alone(group);
    for (const auto& group : groups_) {
      if (group.size() > 1) add_alone({group.front()});
    }
    add_sizes();
    return found_;
  }

 private:
  using Group = std::vector<size_t>;  // the operands of one argument

  std::vector<Shape> shapes() const {
    std::vector<Shape> found;
    for (const EdgeOperand& operand : operands_) found.push_back(operand.shape);
    return found;
  }

  std::string name_of(const Group& group) const {
    const EdgeOperand& first = operands_[group.front()];
    return first.arg->name + (first.item >= 0 && group.size() == 1 ? "[0]" : "");
  }

  // All operands at once.
  void add_everywhere() {
    found_.push_back({"0-dim", "", std::vector<Shape>(operands_.size()), {to_zero}});
    Change ones{"sizes 1", "", shapes(), {to_one}};
    for (Shape& shape : ones.shapes) shape = with_sizes(shape, to_one);
    found_.push_back(ones);
  }

  // Each argument as it is, without dimensions, or with sizes of 1, in every combination. Only one
  // of them changes if they are many.
  void add_combinations() {
    constexpr size_t kMost = 3;
    size_t count = 1;
    for (size_t g = 0; g < groups_.size(); ++g) count *= 3;
    for (size_t code = 1; code < count; ++code) {
      Change change{"sizes 1", "", shapes()};
      size_t rest = code;
      size_t changed = 0;
      for (const Group& group : groups_) {
        const size_t form = rest % 3;
        rest /= 3;
        if (form == 0) continue;
        ++changed;
        for (const size_t i : group) {
          change.shapes[i] = form == 1 ? Shape() : with_sizes(change.shapes[i], to_one);
        }
        if (form == 1) change.kind = "0-dim";
        change.operands += name_of(group) + (form == 1 ? " 0-dim " : " ");
      }
      if (groups_.size() > kMost && changed > 1) continue;
      change.rest = {to_zero};
      found_.push_back(std::move(change));
    }
  }

  void add(const std::string& kind, const Group& group, const std::function<Shape(Shape)>& f) {
    Change change{kind, name_of(group), shapes()};
    for (const size_t i : group) change.shapes[i] = f(change.shapes[i]);
    found_.push_back(std::move(change));
  }

  // One argument, or one item of a list, in which one dimension is empty, broadcast or missing.
  void add_alone(const Group& group) {
    size_t most = 0;
    for (const size_t i : group) most = std::max(most, operands_[i].shape.size());
    for (size_t dim = 0; dim < most; ++dim) {
      for (const int64_t size : {0, 1}) {
        add(size == 0 ? "empty" : "broadcast", group, [dim, size](Shape shape) {
          if (dim < shape.size()) shape[dim] = size;
          return shape;
        });
      }
      add("dimensions", group, [dim](Shape shape) {
        shape.erase(shape.begin(),
                    shape.begin() + static_cast<int64_t>(std::min(dim + 1, shape.size())));
        return shape;
      });
    }
    add("dimensions", group, [](Shape shape) {
      shape.insert(shape.begin(), 1);
      return shape;
    });
    add("empty", group, [](const Shape& /*shape*/) { return Shape{0}; });
  }

  // One size wherever it occurs; in every combination of arguments 0 or 1, if they are few.
  void add_sizes() {
    std::set<int64_t> sizes;
    for (const EdgeOperand& operand : operands_)
      sizes.insert(operand.shape.begin(), operand.shape.end());
    for (const int64_t size : sizes) {
      if (size == 0) continue;
      for (const int64_t to : {0, 1}) {
        Change change{to == 0 ? "empty" : "broadcast", "", shapes(), {from_to(size, to)}};
        for (Shape& shape : change.shapes) shape = with_sizes(shape, from_to(size, to));
        found_.push_back(std::move(change));
      }
      if (groups_.size() < 2 || groups_.size() > 3) continue;
      for (size_t code = 1; code + 1 < (size_t{1} << groups_.size()); ++code) {
        Change change{"empty", "some", shapes()};
        for (size_t g = 0; g < groups_.size(); ++g) {
          const int64_t to = (code >> g) & 1 ? 0 : 1;
          for (const size_t i : groups_[g]) {
            change.shapes[i] = with_sizes(change.shapes[i], from_to(size, to));
          }
        }
        found_.push_back(std::move(change));
      }
    }
  }

  std::vector<EdgeOperand> operands_;
  std::vector<Group> groups_;
  std::vector<Change> found_;
};

// ---- samples with changed shapes
// ------------------------------------------------------------------

bool is_size_list(const OpArg& arg) {
  return arg.type.starts_with("int[") && !arg.name.ends_with("_mask");
}
bool is_size(const OpArg& arg) { return arg.type == "int" || arg.type == "int?"; }

// Maps the sizes that arguments name, other than shapes.
Json with_mapped(const OpRecord& op, Json sample, const SizeMap& map, bool integers) {
  for (const OpArg& arg : op.args) {
    const auto given = sample.at("args").find(arg.name);
    if (given == sample.at("args").end()) continue;
    const bool list = is_size_list(arg);
    if (!list && !(integers && is_size(arg))) continue;
    if (given->is_number_integer()) *given = map(given->get<int64_t>());
    if (!list || !given->is_array()) continue;
    for (Json& item : *given) item = map(item.get<int64_t>());
  }
  return sample;
}

Json without_lists(const OpRecord& op, Json sample) {
  for (const OpArg& arg : op.args) {
    const auto given = sample.at("args").find(arg.name);
    if (given != sample.at("args").end() && is_size_list(arg)) *given = Json::array();
  }
  return sample;
}

// Whether a tensor has written values, of which no two are equal.
bool values_differ(const Json& spec) {
  if (!spec.contains("values")) return false;
  std::vector<double> numbers;
  collect_numbers(spec.at("values"), &numbers);
  return std::set<double>(numbers.begin(), numbers.end()).size() == numbers.size();
}

// Returns the least number of a tensor of integers that are not negative: pivots count from 1.
int64_t least_of(const Json& spec) {
  double low = spec.contains("low") ? number(spec.at("low")) : 0;
  std::vector<double> numbers;
  if (spec.contains("values")) collect_numbers(spec.at("values"), &numbers);
  if (!numbers.empty()) low = *std::min_element(numbers.begin(), numbers.end());
  return std::max<int64_t>(0, static_cast<int64_t>(std::ceil(low)));
}

// Whether it is open which of the elements with equal indices is written, so that the gradient of
// the others is open, too.
bool keeps_one_of_equal_indices(const OpRecord& op) {
  return op.name == "scatter.src" || op.name.starts_with("index_copy") ||
         op.name.starts_with("index_put") || op.name.starts_with("put");
}

// Integers may be indices: the least one is in most dimensions.
Json with_least_indices(const OpRecord& op, Json sample) {
  for (const OpArg& arg : op.args) {
    const auto given = sample.at("args").find(arg.name);
    if (given == sample.at("args").end()) continue;
    for_each_spec(arg, *given, [&](Json& spec) {
      if (!is_discrete(op, arg, spec)) return;
      // Where indices must differ, so must these.
      const bool unique =
          spec.value("unique", false) || values_differ(spec) || keeps_one_of_equal_indices(op);
      int64_t count = 1;
      for (const int64_t size : shape_of(spec)) count *= size;
      const int64_t low = least_of(spec);
      spec.erase("values");
      spec["unique"] = unique;
      spec["low"] = low;
      spec["high"] = low + (unique ? std::max<int64_t>(count, 1) : 1);
    });
  }
  return sample;
}

// Returns whether there are matrices of a kind of samples/README.md in this shape.
bool is_matrix(const std::vector<int64_t>& shape, const std::string& kind) {
  const bool square = kind == "positive" || kind == "symmetric";
  return shape.size() >= 2 && (!square || shape.back() == shape[shape.size() - 2]);
}

Json with_shapes(const Json& sample, const std::vector<EdgeOperand>& operands,
                 const Change& change) {
  Json found = sample;
  for (size_t i = 0; i < operands.size(); ++i) {
    Json& given = found.at("args").at(operands[i].arg->name);
    Json& spec = operands[i].item < 0 ? given : given.at(static_cast<size_t>(operands[i].item));
    spec["shape"] = change.shapes[i];
    if (!is_matrix(change.shapes[i], spec.value("matrix", ""))) spec.erase("matrix");
  }
  return found;
}

// Returns the sample after a change, with each guess of what the other arguments must be.
std::vector<Json> changed(const OpRecord& op, const Json& sample,
                          const std::vector<EdgeOperand>& operands, const Change& change) {
  const Json shaped = with_shapes(sample, operands, change);
  std::vector<Json> found = {shaped};
  for (const SizeMap& map : change.rest) {
    found.push_back(with_mapped(op, shaped, map, false));
    found.push_back(with_mapped(op, shaped, map, true));
  }
  const bool scalars = std::any_of(change.shapes.begin(), change.shapes.end(),
                                   [](const Shape& shape) { return shape.empty(); });
  if (scalars) found.push_back(without_lists(op, shaped));
  for (size_t i = 0, count = found.size(); i < count; ++i) {
    found.push_back(with_least_indices(op, found[i]));
  }
  return found;
}

// Cases with the same text are alike, so that a quick check runs one of them: of each change of
// each operand that a formula reads, else of each kind of change. "": a quick check runs none.
std::string edge_of(const OpRecord& op, const Change& change, ScalarType dtype) {
  if (change.kind == "as given") return is_complex(dtype) ? "complex" : change.kind;
  if (is_complex(dtype)) return "";
  return op.gradient == "formulas" ? change.kind + " " + change.operands : change.kind;
}

}  // namespace

std::vector<Case> edge_cases(const OpRecord& op) {
  std::vector<Case> cases;
  if (!op.differentiable() || op.meaning == "custom") return cases;
  std::set<std::string> kinds;
  std::set<std::string> known;
  const auto add = [&](const Json& origin, Json changed_sample, const Change& change) {
    if (!known.insert(changed_sample.dump()).second) return;
    const auto own = std::make_shared<const Json>(std::move(changed_sample));
    for (const ScalarType dtype : {kFloat64, kComplex128}) {
      Case c{&op, own.get(), static_cast<int>(cases.size()), false, dtype, Kind::kEdge};
      c.own = own;
      c.origin = &origin;
      c.edge = edge_of(op, change, dtype);
      cases.push_back(std::move(c));
    }
  };
  for (const Json& given : op.samples) {
    if (!is_smooth(op, given) || !kinds.insert(kind_of(op, given)).second) continue;
    const Json plain = in_double(op, given, false), complex = in_double(op, given, true);
    for (const Json* sample : {&complex, &plain}) {
      if (sample == &plain && plain == complex) continue;
      const std::vector<EdgeOperand> operands = operands_of(op, *sample);
      for (const Change& change : Changes(operands).all()) {
        for (Json& one : changed(op, *sample, operands, change)) add(given, std::move(one), change);
      }
    }
  }
  return cases;
}

}  // namespace mytorch::conformance
