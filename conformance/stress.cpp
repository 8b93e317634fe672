#include "conformance/stress.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <set>
#include <thread>

#include "conformance/answer.h"
#include "conformance/arguments.h"
#include "conformance/elements.h"
#include "conformance/enlarge.h"
#include "mytorch/device_memory.h"
#include "mytorch/error.h"

namespace mytorch::conformance {
namespace {

constexpr int64_t kSmallElements = 10'000;   // past blocks of 4096 elements; odd sizes leave a tail
constexpr int64_t kLargeElements = 160'000;  // past 2^17 elements
constexpr int64_t kLongestElements = 400'000;  // past 2^16 rows

// Whether a sample is ordinary, and its sizes are of tensors that are not empty.
bool is_ordinary(const OpRecord& op, const Json& sample) {
  if (sample.contains("error") || sample.value("gradcheck", false)) return false;
  if (sample.value("may_fail", false)) return false;
  if (!sample.value("large", true)) return false;
  return !Case{&op, &sample}.special() && !sizes_of(op, sample).empty();
}

// Whether a sample's operands are complex. A device without complex kernels runs it on the CPU.
bool is_of_complex(const OpRecord& op, const Json& sample) {
  for (const auto& [name, value] : sample.at("args").items()) {
    const OpArg* arg = op.arg(name);
    if (arg == nullptr || !arg->is_tensor()) continue;
    const Json list = value.is_array() ? value : Json::array({value});
    for (const Json& item : list) {
      if (item.is_object() && item.value("dtype", "").starts_with("complex")) return true;
    }
  }
  return false;
}

Room room_of(const OpRecord& op, int64_t elements) {
  const bool by_element = op.meaning == "pointwise" || op.meaning == "view";
  return {elements, by_element ? elements : elements * 12};
}

double largest_of(const std::vector<Value>& results) {
  double size = 0;
  for (const Value& value : results) {
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) {
      if (tensor->defined()) size = std::max(size, static_cast<double>(tensor->numel()));
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      double sum = 0;
      for (const Tensor& t : *list) sum += t.defined() ? static_cast<double>(t.numel()) : 0;
      size = std::max(size, sum);
    }
  }
  return size;
}

std::string bits_of(const Value& value) {
  std::string bits;
  const auto add = [&](const Tensor& given) {
    if (!given.defined()) return;
    Tensor tensor = given;
    if (!tensor.device().is_cpu()) tensor = call("to.device", {tensor, kCPU})[0].tensor();
    const auto* memory = static_cast<const char*>(tensor.raw_data());
    const int64_t size = tensor.element_size();
    if (tensor.is_contiguous()) {
      bits.append(memory, static_cast<size_t>(tensor.numel() * size));
      return;
    }
    for_each_offset(tensor.sizes().vec(), tensor.strides().vec(), [&](int64_t offset) {
      bits.append(memory + offset * size, static_cast<size_t>(size));
    });
  };
  if (const auto* tensor = std::get_if<Tensor>(&value.variant())) add(*tensor);
  if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
    for (const Tensor& t : *list) add(t);
  }
  return bits;
}

}  // namespace

std::string kind_of(const OpRecord& op, const Json& sample) {
  std::string text;
  for (const OpArg& arg : op.args) {
    const auto given = sample.at("args").find(arg.name);
    if (given == sample.at("args").end()) continue;
    text += arg.name + "=";
    const Json list = given->is_array() ? *given : Json::array({*given});
    for (const Json& item : list) {
      if (arg.is_tensor() && item.is_object()) {
        const size_t ndim = item.contains("shape") ? item.at("shape").size() : 1;
        text += std::to_string(ndim) + item.value("layout", "") + item.value("dtype", "") + ",";
      } else {
        text += item.dump() + ",";
      }
    }
  }
  return text;
}

std::vector<Case> stress_cases(const OpRecord& op, int first) {
  std::vector<Case> cases;
  std::vector<Case> bases;
  std::set<std::string> kinds;
  const bool custom = op.meaning == "custom";
  for (const Case& c : cases_of(op)) {
    if (!is_ordinary(op, *c.sample)) continue;
    if (c.typed && c.dtype != kFloat32) continue;
    if (!kinds.insert(kind_of(op, *c.sample)).second) continue;
    bases.push_back(c);
  }
  // The few cases of the largest sizes are of samples that every device's kernels take.
  const auto ordinary =
      std::stable_partition(bases.begin(), bases.end(),
                            [&](const Case& c) { return !is_of_complex(op, *c.sample); }) -
      bases.begin();
  const auto add = [&](const Case& base, Kind kind, int64_t elements, int longest = -1,
                       ScalarType dtype = kFloat32) {
    Case c = base;
    c.kind = kind;
    c.elements = elements;
    c.longest = longest;
    if (c.typed) c.dtype = dtype;
    c.number = first + static_cast<int>(cases.size());
    cases.push_back(c);
  };
  if (custom) {
    for (const Case& base : bases) add(base, Kind::kThreads, kSmallElements);
    return cases;
  }
  if (op.unspecified()) return cases;
  for (const Case& base : bases) add(base, Kind::kLarge, kSmallElements);
  for (const Case& base : bases) add(base, Kind::kSpecial, 0);
  // Operators without kernels run those of others.
  for (size_t i = 0; i < bases.size() && i < 2 && op.has_kernel; ++i) {
    add(bases[i], Kind::kThreads, kSmallElements);
  }
  if (bases.empty()) return cases;
  // The sample with the fewest elements can grow most along one dimension.
  const auto room = [&](const Case& base) {
    double product = 1;
    for (const int64_t size : sizes_of(op, *base.sample)) product *= static_cast<double>(size);
    return product;
  };
  const size_t eligible = ordinary > 0 ? static_cast<size_t>(ordinary) : bases.size();
  size_t smallest = 0;
  for (size_t i = 1; i < eligible; ++i) {
    if (sizes_of(op, *bases[i].sample).size() > sizes_of(op, *bases[smallest].sample).size() ||
        (sizes_of(op, *bases[i].sample).size() == sizes_of(op, *bases[smallest].sample).size() &&
         room(bases[i]) < room(bases[smallest]))) {
      smallest = i;
    }
  }
  add(bases[0], Kind::kLarge, kLargeElements);
  add(bases[0], Kind::kSpecial, kSmallElements);
  const size_t sizes = sizes_of(op, *bases[smallest].sample).size();
  for (size_t k = 0; k < sizes && k < 7; ++k) {
    add(bases[smallest], Kind::kLarge, kLongestElements, static_cast<int>(k));
  }
  if (bases[0].typed) {
    for (const ScalarType dtype : {kBFloat16, kFloat64, kInt64}) {
      if (dtype == kInt64 && bases[0].sample->value("floats", false)) continue;
      add(bases[0], Kind::kLarge, kSmallElements, -1, dtype);
    }
    for (const ScalarType dtype : {kBFloat16, kFloat64}) {
      add(bases[0], Kind::kSpecial, 0, -1, dtype);
    }
  }
  return cases;
}

std::optional<Case> resolve(const Case& c, uint64_t seed, Device device) {
  // There is no reference for a plug-in's operator.
  const bool custom = c.op->meaning == "custom";
  double size = 0;  // of the last accepted case's largest result
  const auto accepted = [&](const Json& sample, ScalarType dtype) -> std::optional<Case> {
    Case found = c;
    found.own = std::make_shared<Json>(sample);
    found.sample = found.own.get();
    found.dtype = dtype;
    try {
      const Arguments arguments = make_arguments(found, seed, custom ? device : kCPU, dtype);
      const Answer answer = custom ? run(found, arguments) : run_reference(found, arguments);
      if (answer.error.has_value()) return {};
      size = largest_of(answer.results);
      return found;
    } catch (const std::exception&) {
      return {};  // the sample's other keys do not fit these sizes
    }
  };
  for (const ScalarType dtype : {c.dtype, kInt64, kBool}) {
    // A result that grows with the square of the operands, or faster, leaves less room for them.
    bool too_large = c.elements > 0;
    for (int64_t elements = c.elements; too_large && elements > 1000; elements /= 8) {
      too_large = false;
      for (const Larger& larger : enlarged(*c.op, *c.sample, room_of(*c.op, elements), c.longest)) {
        if (!accepted(larger.probe, dtype)) continue;
        const double growth = extent(*c.op, larger.sample) / extent(*c.op, larger.probe);
        const bool fast = size > 4 * extent(*c.op, larger.probe);
        if (size * growth * (fast ? growth : 1) > 16 * static_cast<double>(c.elements)) {
          too_large = true;
          continue;
        }
        if (auto found = accepted(larger.sample, dtype)) return found;
      }
    }
    if (c.elements == 0 || c.kind == Kind::kThreads) {
      if (auto found = accepted(*c.sample, dtype)) return found;
    }
    if (!c.typed || c.dtype != kFloat32 || c.sample->value("floats", false)) break;
  }
  return {};
}

std::vector<Variation> variations_of(const Case& c, uint64_t seed) {
  std::vector<Variation> variations;
  const bool by_element = c.op->meaning == "pointwise" || c.op->meaning == "view";
  if (c.kind == Kind::kLarge) {
    constexpr double kOfSums = 0x1p-6, kOfElements = 0x1p-12;  // 1 + x is exact, too
    variations.push_back({"", {.grid = by_element ? kOfElements : kOfSums}});
    if (!by_element && is_floating_point(c.dtype)) {
      variations.push_back({"with large elements ", {.grid = kOfSums, .spikes = true}});
    }
    return variations;
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Arguments arguments = make_arguments(c, seed, kCPU, c.dtype);
  int index = 0;  // counts tensors as make_arguments() makes them
  uint64_t place = seed;
  const auto visit = [&](const std::string& name, const Tensor& tensor) {
    if (!tensor.defined()) return;
    const int own = index++;
    if (!is_floating_point(tensor.dtype()) || tensor.numel() == 0) return;
    for (const double value : {std::nan(""), kInfinity, -kInfinity, -0.0}) {
      const std::string text = std::isnan(value) ? "NaN"
                               : value == 0      ? "-0"
                               : value > 0       ? "inf"
                                                 : "-inf";
      for (const bool zeros : {false, true}) {
        if (zeros && (value == 0 || value < 0)) continue;
        variations.push_back(
            {"with " + text + " in '" + name + "'" + (zeros ? " and zeros elsewhere " : " "),
             {.tensor = own, .value = value, .zeros = zeros, .place = ++place}});
      }
    }
    // Nothing is larger than what a maximum begins with.
    variations.push_back({"with -inf everywhere in '" + name + "' ",
                          {.tensor = own, .value = -kInfinity, .everywhere = true}});
  };
  for (const auto& [name, value] : arguments.values) {
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) visit(name, *tensor);
    if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      for (const Tensor& t : *list) visit(name, t);
    }
  }
  // Without another operand, `zeros` changes nothing.
  if (index == 1) {
    std::erase_if(variations, [](const Variation& v) { return v.twist.zeros; });
  }
  return variations;
}

bool check_threads(const Case& c, uint64_t seed, Device device, const Fail& fail) {
  constexpr int kThreads = 3;
  constexpr int kBatch = 4;  // calls without a pause for comparisons
  // Longer than a time slice, so that threads also take turns on a busy machine.
  constexpr auto kLongEnough = std::chrono::milliseconds(20);
  const bool fresh = c.op->writes() || c.op->random();  // each call needs arguments of its own
  std::mutex one;                                       // held by the thread that runs alone
  std::atomic<int> ready{0};
  std::atomic<int> refused{0};
  std::atomic<bool> wrong{false};
  std::string problem;
  const auto report = [&](const std::string& what) {
    std::lock_guard<std::mutex> lock(one);
    wrong = true;
    problem = what;
  };
  const auto work = [&](int thread) {
    bool counted = false;
    try {
      Arguments arguments;
      std::vector<std::string> bits;
      {
        std::lock_guard<std::mutex> lock(one);
        arguments = make_arguments(c, seed + static_cast<uint64_t>(thread), device, c.dtype);
        const Answer alone = run(c, fresh ? copy_of(arguments) : arguments);
        if (alone.error.has_value()) ++refused;
        for (const Value& result : alone.results) bits.push_back(bits_of(result));
        if (!device.is_cpu()) synchronize(device);
      }
      counted = true;
      ++ready;
      while (ready < kThreads && !wrong) std::this_thread::yield();
      const auto begin = std::chrono::steady_clock::now();
      while (refused == 0 && !wrong && std::chrono::steady_clock::now() - begin < kLongEnough) {
        std::vector<std::vector<Value>> results;
        for (int i = 0; i < kBatch; ++i) {
          results.push_back(call_named(c.op->name, fresh ? copy_of(arguments) : arguments));
        }
        for (const std::vector<Value>& found : results) {
          for (size_t i = 0; i < found.size(); ++i) {
            if (bits_of(found[i]) == bits[i]) continue;
            report("result " + std::to_string(i) + " differs from that of the same call alone");
          }
        }
      }
    } catch (const std::exception& error) {
      if (!counted) ++ready;
      report(std::string("failed: ") + error.what());
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
  if (!problem.empty()) fail("threads", problem);
  return refused == 0;
}

}  // namespace mytorch::conformance
