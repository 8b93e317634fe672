#include "conformance/fuzz.h"

#include <sys/resource.h>

#include <chrono>
#include <exception>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <typeinfo>

#include "conformance/check.h"
#include "conformance/hostile.h"
#include "conformance/isolate.h"
#include "mytorch/autograd.h"
#include "mytorch/backends.h"
#include "mytorch/device_memory.h"
#include "mytorch/error.h"
#include "mytorch/grad_mode.h"

namespace mytorch::conformance {
namespace {

constexpr int kMostFindings = 3;                 // findings of an operator
constexpr int64_t kReadable = int64_t{1} << 22;  // elements of a result that is read

Random random_of(uint64_t seed, uint64_t number) {
  Random random(seed * 0x9e3779b97f4a7c15u + number);
  random.next();
  return random;
}

std::vector<const OpRecord*> selected(const std::vector<OpRecord>& catalog,
                                      const FuzzOptions& options) {
  Options names;
  names.only = options.only;
  std::vector<const OpRecord*> ops;
  for (const OpRecord& op : catalog) {
    if (names.selects(op)) ops.push_back(&op);
  }
  if (ops.empty()) throw Error(ErrorCode::kValue, "[fuzz] no operator is selected");
  return ops;
}

const OpRecord& op_of(const std::vector<const OpRecord*>& ops, Random& random) {
  return *ops[static_cast<size_t>(random.integer(0, static_cast<int64_t>(ops.size())))];
}

// Reads every element of a result.
void read_all(const Tensor& result) {
  if (!result.defined() || result.numel() > kReadable) return;
  Tensor copy = call("clone", {result})[0].tensor();
  if (!copy.device().is_cpu()) call("to.device", {copy, kCPU});
}

void zero_all(const Arguments& arguments) {
  const NoGradGuard guard;
  for (const auto& [name, value] : arguments.values) {
    const auto* t = std::get_if<Tensor>(&value.variant());
    if (t != nullptr && t->defined()) call("zero_", {*t});
  }
}

void differentiate(const HostileCall& made, const std::vector<Tensor>& results) {
  std::vector<Tensor> outputs;
  std::vector<Tensor> gradients;
  for (const Tensor& each : results) {
    if (!each.defined() || !each.requires_grad() || each.numel() > kReadable) continue;
    outputs.push_back(each);
    gradients.push_back(made.with_gradient ? made.gradient : call("ones_like", {each})[0].tensor());
  }
  if (outputs.empty() || made.leaves.empty()) return;
  if (made.backward == Backward::kAfterZero) zero_all(made.arguments);
  const bool twice = made.backward == Backward::kTwice;
  const std::vector<Tensor> first = autograd::grad(outputs, made.leaves, gradients,
                                                   {.create_graph = twice, .allow_unused = true});
  std::vector<Tensor> differentiable;
  for (const Tensor& each : first) {
    if (each.defined()) read_all(each.detach());
    if (each.defined() && each.requires_grad()) differentiable.push_back(each);
  }
  if (!twice || differentiable.empty()) return;
  gradients.clear();
  for (const Tensor& each : differentiable) {
    gradients.push_back(call("ones_like", {each})[0].tensor());
  }
  for (const Tensor& each :
       autograd::grad(differentiable, made.leaves, gradients, {.allow_unused = true})) {
    if (each.defined()) read_all(each);
  }
}

void run(const HostileCall& made) {
  std::vector<Tensor> results;
  for (const Value& value : call_named(made.name, made.arguments, made.outs)) {
    if (const auto* one = std::get_if<Tensor>(&value.variant())) results.push_back(*one);
    if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      results.insert(results.end(), list->begin(), list->end());
    }
  }
  int left = made.op->unspecified() ? 0 : 100;  // lists may be long
  for (const Tensor& each : results) {
    if (left-- > 0) read_all(each);
  }
  if (made.backward != Backward::kNone) differentiate(made, results);
}

// Returns "returned", "refused", or what was found.
template <class F>
std::string outcome_of(F work) {
  try {
    work();
    return "returned";
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) return std::string("failed: ") + error.what();
    return "refused";
  } catch (const std::exception& error) {
    return std::string("threw ") + typeid(error).name() + ": " + error.what();
  }
}

bool is_finding(const std::string& outcome) {
  return outcome.starts_with("threw ") || outcome.starts_with("failed: ");
}

std::string make_call(const OpRecord& op, Random& random, const Device& device) {
  const std::string outcome = outcome_of([&] { run(make_hostile_call(op, random, device)); });
  // An error that the device reports later belongs to this call, too.
  const std::string later = outcome_of([&] {
    if (!device.is_cpu()) synchronize(device);
  });
  return outcome == "returned" ? later : outcome;
}

// Limits the memory that this process can write to what it has and `bytes` more. Drivers of GPUs
// and sanitizers reserve far more addresses than they write, so a limit of addresses would stop
// them.
void limit_memory(int64_t bytes) {
  if (bytes <= 0) return;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("VmData:")) continue;
    const rlim_t most = std::stoull(line.substr(7)) * 1024 + static_cast<rlim_t>(bytes);
    const rlimit limit{most, most};
    setrlimit(RLIMIT_DATA, &limit);
  }
}

class Fuzzer {
 public:
  Fuzzer(const std::vector<OpRecord>& catalog, const FuzzOptions& options,
         const std::function<void()>& prepare, std::ostream& out)
      : options_(options),
        prepare_(prepare),
        out_(out),
        ops_(selected(catalog, options)),
        next_(options.first) {}

  FuzzReport run_all() {
    while (!over()) run_some();
    return report_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool over() const {
    if (options_.calls != 0 && next_ - options_.first >= options_.calls) return true;
    return options_.seconds > 0 && elapsed() >= options_.seconds;
  }
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  // Makes calls in one child until a limit or until the child ends.
  void run_some();
  void work(const Tell& tell) const;
  void found(uint64_t number, const std::string& what);
  std::string describe_call(uint64_t number) const;

  const FuzzOptions& options_;
  const std::function<void()>& prepare_;
  std::ostream& out_;
  std::vector<const OpRecord*> ops_;
  Clock::time_point begin_ = Clock::now();
  uint64_t next_;
  std::map<std::string, int> findings_;  // by operator
  FuzzReport report_;
};

void Fuzzer::work(const Tell& tell) const {
  prepare_();
  limit_memory(options_.memory);
  std::optional<Prefer> pin;
  if (!options_.backend.empty()) pin.emplace(options_.device, options_.backend);
  tell("loaded");
  // A new process from time to time keeps the effects of old calls, such as tuned choices, small.
  constexpr uint64_t kCallsPerChild = 20000;
  for (uint64_t number = next_; number - next_ < kCallsPerChild; ++number) {
    if (options_.calls != 0 && number - options_.first >= options_.calls) break;
    if (options_.seconds > 0 && elapsed() >= options_.seconds) break;
    Random random = random_of(options_.seed, number);
    const OpRecord& op = op_of(ops_, random);
    const auto known = findings_.find(op.name);
    const bool skipped = known != findings_.end() && known->second >= kMostFindings;
    // In every other call, operators without a kernel of the backend decompose.
    std::optional<RestrictKernels> alone;
    if (pin.has_value() && number % 2 == 1) alone.emplace(Kernels::kPreferred);
    tell("call " + std::to_string(number));
    const std::string outcome = skipped ? "skipped" : make_call(op, random, options_.device);
    tell(outcome);
    if (is_finding(outcome)) break;  // which may have left a device or the heap unusable
  }
  tell("finished");
}

void Fuzzer::run_some() {
  bool loaded = false;
  bool finished = false;
  bool running = false;
  uint64_t number = next_;
  const Ended ended = run_in_child([&](const Tell& tell) { work(tell); },
                                   [&](const std::string& line) {
                                     if (line == "loaded" || line == "finished") {
                                       loaded = true;
                                       finished = line == "finished";
                                     } else if (line.starts_with("call ")) {
                                       number = std::stoull(line.substr(5));
                                       running = true;
                                     } else if (running) {
                                       running = false;
                                       ++report_.calls;
                                       if (line == "refused") ++report_.refused;
                                       if (line.starts_with("threw") || line.starts_with("failed"))
                                         found(number, line);
                                     }
                                   },
                                   options_.call_seconds);
  if (!loaded) {
    throw Error(ErrorCode::kInternal, "[fuzz] the process " + ended.how + " before the first call");
  }
  if (!finished) {
    ++report_.calls;
    found(number, "the process " + ended.how);
  }
  next_ = number + 1;
}

// Makes the arguments again, in a child that does not call the operator.
std::string Fuzzer::describe_call(uint64_t number) const {
  std::string text = "(making the arguments fails)";
  run_in_child(
      [&](const Tell& tell) {
        prepare_();
        Random random = random_of(options_.seed, number);
        const HostileCall made = make_hostile_call(op_of(ops_, random), random, options_.device);
        std::ostringstream all;
        all << made.name << "(" << describe(made.arguments);
        for (const Tensor& out : made.outs) all << ", out " << describe({{{"", out}}});
        all << ")";
        if (made.backward != Backward::kNone) {
          static const char* const kNames[] = {"", "its gradient", "its second derivative",
                                               "its gradient after its arguments were set to 0"};
          all << ", and " << kNames[static_cast<int>(made.backward)];
        }
        if (made.with_gradient) all << ", weighted by " << describe({{{"", made.gradient}}});
        tell("made " + all.str());
      },
      [&](const std::string& line) {
        if (line.starts_with("made ")) text = line.substr(5);
      },
      options_.call_seconds);
  return text;
}

void Fuzzer::found(uint64_t number, const std::string& what) {
  Random random = random_of(options_.seed, number);
  const OpRecord& op = op_of(ops_, random);
  const Finding finding{number, op.name, describe_call(number), what};
  out_ << "FOUND " << finding.op << "\n  " << finding.arguments << "\n  " << what
       << "\n  again: mytorch fuzz ";
  if (!options_.plugin.empty()) {
    out_ << options_.plugin << " ";
  } else if (!options_.backend.empty()) {
    out_ << "--backend " << options_.backend << " ";
  }
  out_ << "--seed " << options_.seed << " --first " << number << " --calls 1";
  for (const std::string& name : options_.only) out_ << " --only " << name;
  out_ << "\n";
  if (++findings_[op.name] == kMostFindings)
    out_ << "  " << op.name << " is left out from now on\n";
  out_ << std::flush;
  report_.findings.push_back(finding);
}

}  // namespace

FuzzReport fuzz(const std::vector<OpRecord>& catalog, const FuzzOptions& options,
                const std::function<void()>& prepare, std::ostream& out) {
  return Fuzzer(catalog, options, prepare, out).run_all();
}

}  // namespace mytorch::conformance
