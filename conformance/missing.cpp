#include "conformance/missing.h"

#include <algorithm>
#include <iomanip>
#include <map>
#include <optional>
#include <set>

#include "conformance/isolate.h"
#include "conformance/models.h"
#include "core/runtime/device_registry.h"
#include "dispatcher/choice/choice.h"
#include "dispatcher/choice/observe.h"
#include "dispatcher/profiler/recorder.h"
#include "mytorch/backends.h"
#include "mytorch/error.h"
#include "mytorch/generator.h"
#include "mytorch/tensor.h"

namespace mytorch::conformance {
namespace {

using profiler::ProfileEvent;

// A call, and the calls that it made.
struct Node {
  const ProfileEvent* event = nullptr;
  std::vector<Node> made;
  double seconds() const { return 1e-9 * static_cast<double>(event->end - event->begin); }
};

// Returns the outermost calls of a thread. The events are ordered by their ends.
std::vector<Node> forest(const std::vector<ProfileEvent>& events) {
  std::vector<Node> roots;
  for (const ProfileEvent& event : events) {
    if (event.op == nullptr || event.status == MT_DECLINED) continue;
    Node node{&event, {}};
    while (!roots.empty() && roots.back().event->begin >= event.begin) {
      node.made.insert(node.made.begin(), std::move(roots.back()));
      roots.pop_back();
    }
    roots.push_back(std::move(node));
  }
  return roots;
}

class Ranker {
 public:
  Ranker(int slot, const Backend& backend) : slot_(slot), backend_(backend) {}

  void add(const Node& node) {
    const ProfileEvent& event = *node.event;
    const bool substituted = event.status == kDecomposed || event.status == kFellBack;
    if (event.slot == slot_ && substituted) {
      const double longest = event.status == kDecomposed ? longest_kernel(node) : 0;
      const char* way = event.status == kDecomposed ? "composite" : "fallback";
      add(event.op->name, way, node.seconds(), longest);
      // A backend that compiles programs needs no kernel for these operators.
      if (backend_.abi.compile == nullptr && event.op->num_programs > 0 && programs_ == 0) {
        add("compile", "of " + std::string(way), node.seconds(), longest);
      }
    } else if (event.slot == slot_ && event.kernel != nullptr &&
               event.kernel->backend != &backend_) {
      add(event.op->name, "by " + event.kernel->backend->name, node.seconds(), 0);
    }
    const bool program = substituted && event.op->num_programs > 0;
    const bool first = inside_.insert(event.op->name).second;
    programs_ += program;
    // Calls that run on the CPU are not calls of the device.
    if (event.status != kFellBack) {
      for (const Node& each : node.made) add(each);
    }
    programs_ -= program;
    if (first) inside_.erase(event.op->name);
  }

  std::vector<Missing> found(double steps) const {
    std::vector<Missing> result;
    for (auto [entry, m] : by_entry_) {
      m.calls /= steps;
      m.seconds /= steps;
      m.gain /= steps;
      result.push_back(m);
    }
    std::stable_sort(result.begin(), result.end(),
                     [](const Missing& a, const Missing& b) { return a.gain > b.gain; });
    return result;
  }

 private:
  void add(const std::string& entry, const std::string& way, double seconds, double still) {
    if (inside_.contains(entry)) return;
    Missing& m = by_entry_[entry];
    m.entry = entry;
    // If calls of one entry run in several ways, the slowest counts.
    if (m.way.empty() || way.ends_with("fallback")) m.way = way;
    m.calls += 1;
    m.seconds += seconds;
    m.gain += seconds - still;
  }

  // Returns the seconds of the longest kernel of the device below a call.
  double longest_kernel(const Node& node) const {
    double longest = 0;
    for (const Node& each : node.made) {
      const ProfileEvent& event = *each.event;
      if (event.slot != slot_ || event.status == kFellBack) continue;
      longest = std::max(longest, event.kernel != nullptr ? each.seconds() : longest_kernel(each));
    }
    return longest;
  }

  int slot_;
  const Backend& backend_;
  std::map<std::string, Missing> by_entry_;
  std::set<std::string> inside_;  // operators of the enclosing calls
  int programs_ = 0;              // number of enclosing calls that replace a program
};

const Backend& backend_named(const std::string& name, int slot) {
  for (const Backend* backend : backends()) {
    if (backend->name == name && backend->device_slot == slot) return *backend;
  }
  throw Error(ErrorCode::kValue, "[check] no backend '" + name + "' is loaded");
}

Missing missing_of(const Json& json) {
  return {json.at("entry"), json.at("way"), json.at("calls"), json.at("seconds"), json.at("gain")};
}

Ranking ranking_of(const Json& json) {
  Ranking r{json.at("network"), json.at("batch"), json.at("steps"), json.at("step"), {}};
  for (const Json& each : json.at("missing")) r.missing.push_back(missing_of(each));
  return r;
}

constexpr int64_t kBatch = 64;
constexpr int kLeast = 3, kMost = 50;
constexpr double kEnough = 1;  // seconds

}  // namespace

Ranking rank_missing(const std::string& model, const std::string& device,
                     const std::string& backend, const std::function<void()>& alive) {
  load_default_backends();
  allow_fallback(true);
  manual_seed(0);
  const Device on(device);
  const int slot = checked_device_slot(on);
  const Backend& of = backend_named(backend, slot);
  std::optional<Prefer> preferred;
  if (on.is_cpu()) preferred.emplace(device, backend);
  const Training training = make_training(model, on, kBatch);
  // The first steps make plans and compile programs.
  for (int i = 0; i < 2; ++i) {
    training.step();
    alive();
  }
  Ranking ranking{model, kBatch, 0, 0, {}};
  profiler::begin(true, 10'000'000);
  const uint64_t since = profiler::now();
  const auto spent = [&] { return 1e-9 * static_cast<double>(profiler::now() - since); };
  while (ranking.steps < kLeast || (ranking.steps < kMost && spent() < kEnough)) {
    training.step();
    ++ranking.steps;
    alive();
  }
  ranking.step = spent() / ranking.steps;
  Ranker ranker(slot, of);
  for (const profiler::Events& thread : profiler::recorded(since)) {
    for (const Node& root : forest(thread.events)) ranker.add(root);
  }
  profiler::end(true);
  ranking.missing = ranker.found(ranking.steps);
  return ranking;
}

Ranking rank_in_child(const std::string& model, const std::string& device,
                      const std::string& backend, const std::function<void()>& prepare,
                      double seconds) {
  std::optional<Ranking> found;
  std::string why;
  const auto work = [&](const Tell& tell) {
    try {
      prepare();
      const auto ranking = rank_missing(model, device, backend, [&] { tell("step"); });
      tell("ranking " + to_json(ranking).dump());
    } catch (const std::exception& error) {
      std::string text = error.what();
      std::replace(text.begin(), text.end(), '\n', ' ');
      tell("failed " + text);
    }
  };
  const auto line = [&](const std::string& text) {
    if (text.starts_with("ranking ")) found = ranking_of(Json::parse(text.substr(8)));
    if (text.starts_with("failed ")) why = text.substr(7);
  };
  const Ended ended = run_in_child(work, line, seconds);
  if (!found.has_value()) {
    throw Error(ErrorCode::kUnsupported, "[check] " + model + " does not run on " + device + ": " +
                                             (why.empty() ? "the process " + ended.how : why));
  }
  return *found;
}

void print_ranking(const Ranking& r, std::ostream& out) {
  constexpr size_t kRows = 20;
  out << "\nmissing kernels, ranked by the most time each could save on " << r.model << " ("
      << std::fixed << std::setprecision(1) << 1e3 * r.step << " ms per step, batch " << r.batch
      << ", " << r.steps << " steps)\n";
  if (r.missing.empty()) out << "none: the backend has a kernel for every call\n";
  if (!r.missing.empty()) {
    out << std::left << std::setw(34) << "entry" << std::right << std::setw(10) << "gain ms"
        << std::setw(7) << "%" << std::setw(10) << "now ms" << std::setw(8) << "calls"
        << "  runs now\n";
  }
  for (size_t i = 0; i < std::min(kRows, r.missing.size()); ++i) {
    const Missing& m = r.missing[i];
    out << std::left << std::setw(34) << m.entry << std::right << std::setprecision(3)
        << std::setw(10) << 1e3 * m.gain << std::setprecision(1) << std::setw(7)
        << 100 * m.gain / r.step << std::setprecision(3) << std::setw(10) << 1e3 * m.seconds
        << std::setprecision(1) << std::setw(8) << m.calls << "  " << m.way << "\n";
  }
  out << std::defaultfloat;
  if (r.missing.size() > kRows) out << "(and " << r.missing.size() - kRows << " more)\n";
  out << std::flush;
}

Json to_json(const Ranking& r) {
  Json json = {{"network", r.model},
               {"batch", r.batch},
               {"steps", r.steps},
               {"step", r.step},
               {"missing", Json::array()}};
  for (const Missing& m : r.missing) {
    json["missing"].push_back({{"entry", m.entry},
                               {"way", m.way},
                               {"calls", m.calls},
                               {"seconds", m.seconds},
                               {"gain", m.gain}});
  }
  return json;
}

}  // namespace mytorch::conformance
