#include "dispatcher/choice/measured.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "dispatcher/choice/table_file.h"

namespace mytorch {

struct MeasuredTable::State {
  std::mutex mutex;
  bool read = false;
  std::string fingerprint;
  std::string path;
  std::string problem;
  std::map<std::pair<std::string, std::string>, std::map<uint64_t, Measurement>> by_op;
  std::vector<std::pair<std::pair<std::string, std::string>, uint64_t>> unsaved;

  void add(Measurement m) {
    auto& place = by_op[{m.op, m.device}][m.signature];
    place = std::move(m);
  }
  // The caller holds the mutex.
  void read_once() {
    if (std::exchange(read, true)) return;
    fingerprint = machine_fingerprint();
    path = table_path(fingerprint);
    TableFile file = read_table(path, fingerprint);
    problem = std::move(file.problem);
    for (Measurement& m : file.measurements) add(std::move(m));
  }
};

MeasuredTable& MeasuredTable::get() {
  static MeasuredTable* const instance = new MeasuredTable;
  return *instance;
}

MeasuredTable::State& MeasuredTable::state() {
  static State* const instance = new State;
  return *instance;
}

std::vector<Measurement> MeasuredTable::of(const std::string& op, const std::string& device) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.read_once();
  std::vector<Measurement> found;
  const auto it = s.by_op.find({op, device});
  if (it != s.by_op.end()) {
    for (const auto& [signature, m] : it->second) found.push_back(m);
  }
  return found;
}

void MeasuredTable::add(Measurement m) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.read_once();
  s.unsaved.push_back({{m.op, m.device}, m.signature});
  s.add(std::move(m));
}

void MeasuredTable::save() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (s.unsaved.empty()) return;
  std::vector<Measurement> fresh;
  for (const auto& [op, signature] : s.unsaved) {
    const auto it = s.by_op.find(op);
    if (it != s.by_op.end() && it->second.count(signature) != 0) {
      fresh.push_back(it->second.at(signature));
    }
  }
  merge_table(s.path, s.fingerprint, fresh);
  s.unsaved.clear();
  s.problem.clear();  // the file was rewritten
}

void MeasuredTable::clear() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.read_once();
  s.by_op.clear();
  s.unsaved.clear();
  s.problem.clear();
  remove_table(s.path);
}

ChoiceTable MeasuredTable::describe() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.read_once();
  std::vector<Measurement> all;
  for (const auto& [op, group] : s.by_op) {
    for (const auto& [signature, m] : group) all.push_back(m);
  }
  return {s.path, all.size(), table_hash(all), s.problem};
}

}  // namespace mytorch
