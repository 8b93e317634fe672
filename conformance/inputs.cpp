#include "conformance/inputs.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <sstream>

#include "conformance/arguments.h"
#include "conformance/elements.h"
#include "graph/run/closeness.h"
#include "mytorch/error.h"
#include "mytorch/tensor.h"
#include "mytorch/tensor_impl.h"

namespace mytorch::conformance {
namespace {

constexpr ScalarType kAllTypes[] = {kFloat32, kFloat64,  kInt64, kInt32, kBool,
                                    kFloat16, kBFloat16, kUInt8, kInt8,  kInt16};

bool leaves_type_open(const Json& spec) { return spec.is_object() && !spec.contains("dtype"); }

std::vector<const Json*> tensor_specs(const OpArg& arg, const Json& value) {
  if (!arg.is_tensor()) return {};
  if (value.is_object()) return {&value};
  std::vector<const Json*> specs;
  if (arg.is_tensor_list() && value.is_array()) {
    for (const Json& item : value) {
      if (item.is_object()) specs.push_back(&item);
    }
  }
  return specs;
}

void flatten(const Json& json, std::vector<Json>* values, std::vector<int64_t>* shape,
             size_t depth) {
  if (!json.is_array()) {
    values->push_back(json);
    return;
  }
  if (shape->size() == depth) shape->push_back(static_cast<int64_t>(json.size()));
  for (const Json& item : json) flatten(item, values, shape, depth + 1);
}

// Returns a value to mix with ordinary ones: from the ends of the type's range, or if `tame` a
// small one.
Element special_element(ScalarType dtype, bool tame, Random& random) {
  if (dtype == kBool) return Element::of_int(random.integer(0, 2));
  if (is_integral(dtype) && tame) {
    const int64_t values[] = {0, 1, dtype == kUInt8 ? 4 : -1, 2, 3, 11};
    return Element::of_int(values[random.integer(0, 6)]);
  }
  if (is_integral(dtype)) {
    const int bits = static_cast<int>(element_size(dtype)) * 8;
    const bool is_signed = dtype != kUInt8;
    const int64_t low = is_signed ? -(int64_t{1} << (bits - 2)) * 2 : 0;
    const int64_t high = is_signed ? ~low : 255;
    const int64_t values[] = {0, 1, is_signed ? -1 : 2, low, high, low + 1, high - 1, 2, 3};
    return Element::of_int(values[random.integer(0, 9)]);
  }
  const double inf = std::numeric_limits<double>::infinity();
  const double huge = tame ? 8.25 : dtype == kFloat16 ? 6e4 : dtype == kFloat64 ? 1e300 : 1e38;
  const double tiny = tame ? 1e-3 : dtype == kFloat16 ? 6e-8 : dtype == kFloat64 ? 1e-310 : 1e-40;
  const double some = tame ? 5 : 100;
  const double values[] = {std::nan(""), inf,   -inf, 0.0,   -0.0, 1.0,   -1.0, 0.5,  -0.5,
                           huge,         -huge, tiny, -tiny, some, -some, 2.0,  1e-3, 6.5};
  return Element::of_float(values[random.integer(0, 18)]);
}

// The source of elements: random numbers, or the rule of golden cases.
struct Source {
  Random random;
  bool golden = false;
  Twist twist = {};
  int64_t tensors = 0;  // made so far
};

// Follows the same rule as conformance/golden.py, in integer arithmetic.
std::vector<Element> golden_elements(const Json& spec, ScalarType dtype, int64_t count,
                                     int64_t tensor) {
  std::vector<Element> elements;
  auto bound = [&](const char* key, double otherwise) {
    return spec.contains(key) ? number(spec.at(key)) : otherwise;
  };
  for (int64_t i = 0; i < count; ++i) {
    const int64_t r = (i * 37 + tensor * 11 + 5) % 101;
    if (dtype == kBool) {
      elements.push_back(Element::of_int(r % 2));
    } else if (is_floating_point(dtype)) {
      const auto low = static_cast<int64_t>(std::floor(bound("low", -1) * 64));
      const auto high = static_cast<int64_t>(std::floor(bound("high", 1) * 64));
      const int64_t steps = low + (high - low) * r / 101;
      elements.push_back(Element::of_float(static_cast<double>(steps) / 64));
    } else {
      auto low = static_cast<int64_t>(std::ceil(bound("low", -1)));
      const auto high = static_cast<int64_t>(std::ceil(bound("high", 2)));
      if (dtype == kUInt8) low = std::max<int64_t>(low, 0);
      const bool unique = spec.value("unique", false);
      elements.push_back(
          Element::of_int(low + (unique ? r : r % std::max<int64_t>(high - low, 1))));
    }
  }
  return elements;
}

std::vector<Element> draw(const Json& spec, ScalarType dtype, int64_t count, Source& source) {
  if (is_complex(dtype)) {  // both parts by the same rules
    const std::vector<Element> parts = draw(spec, to_real(dtype), 2 * count, source);
    std::vector<Element> elements;
    for (size_t i = 0; i < parts.size(); i += 2) {
      elements.push_back(Element::of_complex(parts[i].d, parts[i + 1].d));
    }
    return elements;
  }
  if (source.golden) return golden_elements(spec, dtype, count, source.tensors);
  Random& random = source.random;
  std::vector<Element> elements;
  const std::string special = spec.value("special", "");
  const bool given = spec.contains("low") || spec.contains("high");
  const double low = spec.contains("low") ? number(spec.at("low")) : -1;
  const double high = spec.contains("high") ? number(spec.at("high")) : 1;
  const double away = spec.contains("away") ? number(spec.at("away")) : 0;  // from 0
  std::set<std::pair<int64_t, double>> seen;
  while (static_cast<int64_t>(elements.size()) < count) {
    Element e;
    if (!special.empty() && random.integer(0, 3) == 0) {
      e = special_element(dtype, special == "tame", random);
    } else if (dtype == kBool) {
      e = Element::of_int(random.integer(0, 2));
    } else if (is_integral(dtype)) {
      int64_t from = static_cast<int64_t>(std::ceil(given ? low : -1));
      int64_t to = static_cast<int64_t>(std::ceil(given ? high : 2));
      if (dtype == kUInt8) from = std::max<int64_t>(from, 0);
      to = std::max(to, from + 1);
      e = Element::of_int(random.integer(from, to));
    } else {
      const double grid = spec.value("unique", false) ? 0 : source.twist.grid;
      double value = 0;
      do {
        value = random.uniform(low, high);
        if (grid > 0) value = std::max(low, std::floor(value / grid) * grid);
      } while (std::abs(value) < away);
      e = Element::of_float(value);
    }
    if (spec.value("unique", false) && dtype != kBool) {
      const Element stored = round_trip(e, dtype);
      const bool is_new = seen.insert({stored.i, stored.d}).second;
      // A narrow range of a narrow type has too few values, so values repeat.
      if (!is_new && seen.size() + 1 < 40 && random.integer(0, 200) != 0) continue;
    }
    elements.push_back(e);
  }
  return elements;
}

// Makes row-major matrices of a kind of conformance/samples/README.md of the elements, as
// conformance/golden.py does.
void make_matrices(const std::string& kind, const std::vector<int64_t>& shape,
                   std::vector<Element>* elements) {
  const int64_t m = shape.at(shape.size() - 2), n = shape.back(), k = std::min(m, n);
  if (m != n && (kind == "positive" || kind == "symmetric")) {
    throw Error(ErrorCode::kValue, "[check] a matrix that is " + kind + " is square");
  }
  const auto count = static_cast<int64_t>(elements->size());
  for (int64_t at = 0; at < count; at += m * n) {
    std::vector<std::complex<double>> x;
    for (int64_t i = 0; i < m * n; ++i) {
      const Element& element = (*elements)[static_cast<size_t>(at + i)];
      x.emplace_back(element.as_double(), element.im);
    }
    const auto of = [&](int64_t i, int64_t j) { return x[static_cast<size_t>(i * n + j)]; };
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        std::complex<double> value = of(i, j);
        if (kind == "positive") {
          value = 0;
          for (int64_t l = 0; l < n; ++l) value += of(i, l) * std::conj(of(j, l));
          value += i == j ? 1 : 0;
        } else if (kind == "symmetric") {
          value =
              (of(i, j) + std::conj(of(j, i))) / 2.0 + (i == j ? 3 * static_cast<double>(i) : 0);
        } else if (kind == "well_conditioned") {
          value += i + j == k - 1 ? static_cast<double>(2 * k + 2 * i) : 0;
        } else if (kind == "dominant") {
          value += i == j ? 2 : 0;
        } else {
          throw Error(ErrorCode::kValue, "[check] unknown kind of matrix '" + kind + "'");
        }
        Element& element = (*elements)[static_cast<size_t>(at + i * n + j)];
        element = element.is_float ? Element::of_complex(value.real(), value.imag())
                                   : Element::of_int(static_cast<int64_t>(value.real()));
      }
    }
  }
}

// Changes the elements of the next tensor as the source's twist says.
void apply_twist(const Source& source, const Json& spec, ScalarType dtype,
                 std::vector<Element>* elements) {
  const Twist& twist = source.twist;
  if (!is_floating_point(dtype) || elements->empty()) return;
  Random random(twist.place + static_cast<uint64_t>(source.tensors));
  const size_t count = elements->size();
  const auto any = static_cast<size_t>(random.integer(0, static_cast<int64_t>(count)));
  const double low = spec.contains("low") ? number(spec.at("low")) : -1;
  // A range without negative numbers is often the domain of the operator.
  if (twist.spikes && low < 0 && !spec.contains("values") && !spec.contains("matrix") &&
      !spec.value("sorted", false)) {
    const double size = 64 * std::max(-low, spec.contains("high") ? number(spec.at("high")) : 1);
    elements->front() = Element::of_float(-size);
    (*elements)[any] = Element::of_float(1.5 * size);
    elements->back() = Element::of_float(size);
  }
  if (twist.tensor == source.tensors) {
    const bool takes = std::isfinite(twist.value) || !spec.value("finite", false);
    if (takes) (*elements)[any] = Element::of_float(twist.value);
    if (takes && twist.everywhere) {
      std::fill(elements->begin(), elements->end(), Element::of_float(twist.value));
    }
  } else if (twist.zeros) {
    std::fill(elements->begin(), elements->end(), Element::of_float(0));
  }
  if (twist.rounding == 0) return;
  Random errors(twist.rounding * 1000 + static_cast<uint64_t>(source.tensors));
  double most = 0;
  for (const Element& e : *elements) {
    if (std::isfinite(e.as_double())) most = std::max(most, std::abs(e.as_double()));
  }
  for (Element& e : *elements) {
    e = Element::of_float(e.as_double() +
                          errors.uniform(-2, 2) * graph::rounding_error(dtype) * most);
  }
}

int64_t product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

Tensor place(const std::vector<int64_t>& shape, const Geometry& g, ScalarType dtype,
             const std::vector<Element>& elements, Device device) {
  const std::vector<int64_t> linear = {product(g.memory)};
  Tensor memory = call("empty", {linear}, {{"dtype", Value(dtype)}})[0].tensor();
  auto* bytes = static_cast<char*>(memory.raw_mutable_data());
  for (int64_t i = 0; i < linear[0]; ++i) store(Element::of_int(1 + i % 3), dtype, bytes, i);
  int64_t next = 0;
  for_each_offset(g.distinct, g.strides,
                  [&](int64_t offset) { store(elements[next++], dtype, bytes, offset); });
  if (!device.is_cpu()) memory = call("to.device", {memory, device})[0].tensor();
  return Tensor::adopt(new_view(memory.impl(), shape, g.strides, 0));
}

Tensor make_tensor(const Json& spec, ScalarType dtype, Source& source, Device device) {
  std::vector<Json> values;
  std::vector<int64_t> shape;
  if (spec.contains("values")) flatten(spec.at("values"), &values, &shape, 0);
  if (spec.contains("shape")) shape = spec.at("shape").get<std::vector<int64_t>>();
  const Geometry g = geometry_of(shape, spec.value("layout", "contiguous"));
  const int64_t count = product(g.distinct);
  std::vector<Element> elements;
  if (values.empty()) {
    elements = draw(spec, dtype, count, source);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      const Json& value = values[i % values.size()];
      elements.push_back(is_differentiable(dtype) || !value.is_number_integer()
                             ? Element::of_float(number(value))
                             : Element::of_int(value.get<int64_t>()));
    }
  }
  if (spec.contains("matrix")) make_matrices(spec.at("matrix"), shape, &elements);
  if (spec.value("sorted", false) && !shape.empty() && shape.back() > 0) {
    for (int64_t row = 0; row < count; row += shape.back()) {
      std::sort(elements.begin() + row, elements.begin() + row + shape.back(),
                [](const Element& a, const Element& b) { return a.as_double() < b.as_double(); });
    }
  }
  apply_twist(source, spec, dtype, &elements);
  ++source.tensors;
  // The only device that a sample can name is the CPU.
  return place(shape, g, dtype, elements, spec.contains("device") ? kCPU : device);
}

Value make_value(const OpRecord& op, const OpArg& arg, const Json& json, Source& source,
                 Device device, ScalarType open) {
  if (json.is_null()) return {};
  if (arg.is_tensor_list()) {
    std::vector<Tensor> tensors;
    for (const Json& item : json) {
      tensors.push_back(item.is_null()
                            ? Tensor()
                            : make_tensor(item, type_of(op, arg.name, item, open), source, device));
    }
    return tensors;
  }
  if (arg.is_tensor() && json.is_object()) {
    return make_tensor(json, type_of(op, arg.name, json, open), source, device);
  }
  return plain_value(op, arg, json, device);
}

}  // namespace

uint64_t Random::next() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double Random::uniform(double low, double high) {
  return low + (high - low) * (static_cast<double>(next() >> 11) * 0x1p-53);
}

int64_t Random::integer(int64_t low, int64_t high) {
  const uint64_t width = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  return static_cast<int64_t>(static_cast<uint64_t>(low) + (width == 0 ? 0 : next() % width));
}

bool Case::special() const {
  for (const auto& [name, value] : sample->at("args").items()) {
    const std::string text = value.dump();
    for (const char* word : {"\"special\"", "\"nan\"", "inf\""}) {
      if (text.find(word) != std::string::npos) return true;
    }
  }
  return false;
}

std::vector<Case> cases_of(const OpRecord& op) {
  std::vector<Case> cases;
  for (const Json& sample : op.samples) {
    bool open = false;
    for (const auto& [name, value] : sample.at("args").items()) {
      const OpArg* arg = op.arg(name);
      if (arg == nullptr) continue;
      const auto type = op.types.find(name);
      const bool fixed =
          type != op.types.end() && (type->second == "bool" || type->second == "index");
      for (const Json* spec : tensor_specs(*arg, value)) open |= leaves_type_open(*spec) && !fixed;
    }
    Case c{&op, &sample, 0, open};
    if (!open || sample.contains("error") || sample.value("gradcheck", false)) {
      if (sample.value("gradcheck", false)) c.dtype = kFloat64;
      c.typed = false;
      c.number = static_cast<int>(cases.size());
      cases.push_back(c);
      continue;
    }
    for (ScalarType dtype : kAllTypes) {
      if (sample.value("floats", false) && !is_floating_point(dtype)) continue;
      c.dtype = dtype;
      c.number = static_cast<int>(cases.size());
      cases.push_back(c);
    }
  }
  return cases;
}

std::vector<NamedValue> Arguments::named() const {
  std::vector<NamedValue> result;
  for (const auto& [name, value] : values) result.emplace_back(name, value);
  return result;
}

const Value* Arguments::find(const std::string& name) const {
  for (const auto& [known, value] : values) {
    if (known == name) return &value;
  }
  return nullptr;
}

namespace {

Arguments make(const Case& c, Source source, uint64_t seed, Device device, ScalarType dtype) {
  Arguments arguments;
  for (const OpArg& arg : c.op->args) {
    const auto given = c.sample->at("args").find(arg.name);
    if (given != c.sample->at("args").end()) {
      arguments.values.emplace_back(arg.name,
                                    make_value(*c.op, arg, *given, source, device, dtype));
    } else if (arg.name == "generator") {
      arguments.values.emplace_back(arg.name, Generator(seed));
    } else if (arg.name == "device") {
      arguments.values.emplace_back(arg.name, device);
    }
  }
  return arguments;
}

}  // namespace

Arguments make_arguments(const Case& c, uint64_t seed, Device device, ScalarType dtype,
                         const Twist& twist) {
  uint64_t mixed = seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(c.number);
  for (char letter : c.op->name)
    mixed = (mixed ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  return make(c, {Random(mixed), false, twist}, mixed, device, dtype);
}

Arguments make_golden_arguments(const Case& c, Device device) {
  return make(c, {Random(0), true}, 0, device, c.dtype);
}

Tensor copy_of(const Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const Tensor& t = tensor;
  const int64_t elements = static_cast<int64_t>(t.impl()->storage->bytes) / t.element_size();
  const int64_t before = t.storage_offset();
  // The whole memory, as one flat tensor of the same type; its copy gets the same view.
  const Tensor flat = Tensor::adopt(new_view(t.impl(), {elements}, {1}, -before));
  const Tensor copy = call("clone", {flat})[0].tensor();
  return Tensor::adopt(new_view(copy.impl(), t.sizes(), t.strides(), before));
}

Arguments copy_of(const Arguments& arguments) {
  Arguments copy;
  for (const auto& [name, value] : arguments.values) {
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) {
      copy.values.emplace_back(name, copy_of(*tensor));
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      std::vector<Tensor> tensors;
      for (const Tensor& t : *list) tensors.push_back(copy_of(t));
      copy.values.emplace_back(name, tensors);
    } else if (const auto* generator = std::get_if<Generator>(&value.variant())) {
      Generator fresh(generator->seed());
      fresh.set_call(generator->call());
      copy.values.emplace_back(name, fresh);
    } else {
      copy.values.emplace_back(name, value);
    }
  }
  return copy;
}

std::string storage_bytes(const Tensor& tensor) {
  if (!tensor.defined()) return "";
  const int64_t elements =
      static_cast<int64_t>(tensor.impl()->storage->bytes) / tensor.element_size();
  Tensor flat = Tensor::adopt(new_view(tensor.impl(), {elements}, {1}, -tensor.storage_offset()));
  if (!flat.device().is_cpu()) flat = call("to.device", {flat, kCPU})[0].tensor();
  return {static_cast<const char*>(flat.raw_data()),
          static_cast<size_t>(elements * tensor.element_size())};
}

std::string describe(const Arguments& arguments) {
  std::ostringstream out;
  auto one = [&](const Tensor& t) {
    if (!t.defined()) {
      out << "None";
      return;
    }
    out << dtype_name(t.dtype()) << "[";
    for (size_t i = 0; i < t.sizes().size(); ++i) out << (i ? ", " : "") << t.sizes()[i];
    out << "]";
    if (!t.is_contiguous()) {
      out << " strides [";
      for (size_t i = 0; i < t.strides().size(); ++i) out << (i ? ", " : "") << t.strides()[i];
      out << "]";
    }
  };
  bool first = true;
  for (const auto& [name, value] : arguments.values) {
    out << (first ? "" : ", ") << name << "=";
    first = false;
    const auto& v = value.variant();
    if (const auto* tensor = std::get_if<Tensor>(&v)) {
      one(*tensor);
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&v)) {
      out << "(";
      for (size_t i = 0; i < list->size(); ++i) {
        out << (i ? ", " : "");
        one((*list)[i]);
      }
      out << ")";
    } else if (const auto* s = std::get_if<Scalar>(&v)) {
      if (s->is_float())
        out << s->to_double();
      else
        out << s->to_int();
    } else if (const auto* ints = std::get_if<std::vector<int64_t>>(&v)) {
      out << "[";
      for (size_t i = 0; i < ints->size(); ++i) out << (i ? ", " : "") << (*ints)[i];
      out << "]";
    } else if (const auto* text = std::get_if<std::string>(&v)) {
      out << *text;
    } else if (const auto* type = std::get_if<ScalarType>(&v); type != nullptr && is_known(*type)) {
      out << dtype_name(*type);
    } else {
      out << value.type_name();
    }
  }
  return out.str();
}

}  // namespace mytorch::conformance
