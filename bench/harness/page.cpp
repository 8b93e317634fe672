#include "bench/harness/page.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "conformance/page.h"
#include "mytorch/version.h"

namespace mytorch::bench {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

Json row_json(const Row& row) {
  return {{"suite", row.what.suite},
          {"case", row.what.name},
          {"dtype", row.what.dtype},
          {"device", row.what.device.str()},
          {"backend", row.backend},
          {"cache", row.cache},
          {"threads", row.threads},
          {"seconds", row.time.median},
          {"deviation", row.time.mad},
          {"bytes", row.bytes},
          {"flops", row.flops},
          {"limit", row.limit},
          {"limit_seconds", row.limit_seconds},
          {"share", row.share()},
          {"kernels", row.kernels},
          {"command", row_command(row)}};
}

// The name of a file in the legend: the program that wrote it, such as "torch 2.15", or the file's
// own. `taken` are the names of the backends measured and of other files.
std::string label_of(const ResultFile& file, const std::vector<std::string>& taken) {
  const auto is_taken = [&](const std::string& label) {
    return std::find(taken.begin(), taken.end(), label) != taken.end();
  };
  const std::string program = file.results.empty() ? "" : file.results.front().label;
  const bool one_program = std::all_of(file.results.begin(), file.results.end(),
                                       [&](const Other& other) { return other.label == program; });
  if (one_program && !program.empty() && !is_taken(program)) return program;
  const std::string stem = std::filesystem::path(file.path).stem().string();
  std::string unique = stem;
  for (int i = 2; is_taken(unique); ++i) unique = stem + " (" + std::to_string(i) + ")";
  return unique;
}

Json file_json(const ResultFile& file, const std::string& label) {
  Json rows = Json::array();
  for (const Other& other : file.results) {
    rows.push_back({{"case", other.name},
                    {"backend", other.label},
                    {"cache", other.cache},
                    {"dtype", other.dtype},
                    {"device", other.device},
                    {"threads", other.threads},
                    {"seconds", other.seconds},
                    {"deviation", other.deviation}});
  }
  return {{"path", file.path}, {"label", label}, {"rows", rows}};
}

}  // namespace

double machine_load() {
  double load[1] = {0};
  return getloadavg(load, 1) == 1 ? load[0] : 0;
}

void write_report(const PageContents& contents, const std::string& path) {
  Json data;
  const auto context = to_json({}, Machine(), 1).at("context");
  data["machine"] = {{"processor", processor_name()},
                     {"processors", std::thread::hardware_concurrency()},
                     {"host", context.at("host_name").get<std::string>()},
                     {"date", context.at("date").get<std::string>()},
                     {"version", MYTORCH_VERSION_STRING},
                     {"build", context.at("library_build_type").get<std::string>()},
                     {"load", contents.load}};
  data["devices"] = Json::array();
  for (const auto& [name, machine] : contents.devices) {
    data["devices"].push_back({{"name", name},
                               {"copy", machine.copy},
                               {"read", machine.read},
                               {"multiply_add", machine.multiply_add}});
  }
  data["rows"] = Json::array();
  std::vector<std::string> labels;
  for (const Row& row : contents.rows) {
    data["rows"].push_back(row_json(row));
    if (std::find(labels.begin(), labels.end(), row.backend) == labels.end()) {
      labels.push_back(row.backend);
    }
  }
  data["files"] = Json::array();
  for (const ResultFile& file : contents.files) {
    labels.push_back(label_of(file, labels));
    data["files"].push_back(file_json(file, labels.back()));
  }
  if (!contents.baseline.empty()) {
    data["baseline"] = contents.baseline;
    data["changes"] = Json::array();
    for (const Change& change : contents.changes) {
      const Row& row = contents.rows[change.row];
      data["changes"].push_back({{"case", row.what.name},
                                 {"dtype", row.what.dtype},
                                 {"backend", row.backend},
                                 {"cache", row.cache},
                                 {"before", change.before.seconds},
                                 {"before_deviation", change.before.deviation},
                                 {"now", row.time.median},
                                 {"now_deviation", row.time.mad},
                                 {"verdict", verdict_name(change.verdict)},
                                 {"command", row_command(row)}});
    }
  }
  conformance::write_page("bench", "mytorch bench", data, path);
}

}  // namespace mytorch::bench
